//! The query of a request target, form-urlencoded: `+` is a space, `%xx` a byte, invalid UTF-8 becomes U+FFFD.

use std::collections::BTreeSet;

use crate::error::{Kind, Result};

/// The pairs of a query, in order, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The keys that may be asked for; any where nothing is said.
    known: Option<&'static BTreeSet<String>>,
}

impl Query {
    /// Decodes what stands behind the `?`.
    pub fn parse(text: &[u8]) -> Self {
        let pairs = text
            .split(|byte| *byte == b'&')
            .filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let key = halves.next().unwrap_or_default();
            let value = halves.next().unwrap_or_default();
            (unescape(key, true), unescape(value, true))
        });
        Self {
            pairs: pairs.collect(),
            known: None,
        }
    }

    /// The same for a reader that asks for no other key than these; one that does is a defect of ours, and panics.
    #[must_use]
    pub fn only(self, keys: &'static BTreeSet<String>) -> Self {
        Self {
            known: Some(keys),
            ..self
        }
    }

    /// The text of `key`; `None` when it is absent.
    ///
    /// # Errors
    /// `Malformed` when the key occurs more than once.
    pub fn one(&self, key: &str) -> Result<Option<String>> {
        let mut values = self.all(key);
        let first = values.next();
        if values.next().is_some() {
            return Err(Kind::Malformed.told(format!("{key} is given more than once")));
        }
        Ok(first)
    }

    /// The switch `key`: `1` or `true`, `0` or `false`; `default` when it is absent.
    ///
    /// # Errors
    /// `Malformed` for anything else, and when the key occurs more than once.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.one(key)?.as_deref() {
            None => Ok(default),
            Some("1" | "true") => Ok(true),
            Some("0" | "false") => Ok(false),
            Some(_) => Err(Kind::Malformed.told(format!("{key} must be 1, true, 0 or false"))),
        }
    }

    /// Every value of `key`, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = String> + 'a {
        let is_known = self.known.is_none_or(|keys| keys.contains(key));
        assert!(is_known, "the key {key} is read, but it is not published");
        self.pairs
            .iter()
            .filter(move |(name, _)| name == key.as_bytes())
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }
}

/// Writes a value so that [`Query::parse`] reads it again: all but unreserved characters and `/` become `%xx`.
pub fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

/// Decodes `%xx`, and `+` as a space when `plus` says so; a broken escape stands for itself.
pub fn unescape(text: &[u8], plus: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let escaped = match (byte, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match (byte, escaped) {
            (_, Some((high, low))) => {
                out.push(high << 4 | low);
                rest = &tail[2..];
            }
            (b'+', None) if plus => out.push(b' '),
            _ => out.push(byte),
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, key: &str, expected: Option<&str>) {
        let found = Query::parse(query.as_bytes()).one(key);
        assert_eq!(found.ok().flatten().as_deref(), expected, "{query}");
    }

    #[test]
    fn plus_and_percent_are_decoded() {
        check("path=a+b%2Fc", "path", Some("a b/c"));
    }

    #[test]
    fn what_is_escaped_is_read_again() {
        let value = "/run/a b&c=d+e%f\u{e4}?#.sock";
        let query = Query::parse(format!("unix={}", escaped(value)).as_bytes());
        assert_eq!(query.one("unix").ok(), Some(Some(value.to_owned())));
    }

    #[test]
    fn a_broken_escape_stands_for_itself() {
        check("path=%zz%4", "path", Some("%zz%4"));
    }

    #[test]
    fn an_unknown_key_is_ignored() {
        check("x=1&path=p&y", "path", Some("p"));
    }

    #[test]
    fn an_empty_value_is_present() {
        check("path=", "path", Some(""));
        check("path", "path", Some(""));
        check("", "path", None);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        check("path=%ff", "path", Some("\u{fffd}"));
    }

    #[test]
    #[should_panic(expected = "the key mode is read, but it is not published")]
    fn a_key_that_is_not_published_cannot_be_read() {
        static KEYS: std::sync::LazyLock<BTreeSet<String>> =
            std::sync::LazyLock::new(|| BTreeSet::from(["path".to_owned()]));
        let query = Query::parse(b"path=p&mode=1").only(&KEYS);
        assert!(query.one("path").is_ok());
        let _ = query.one("mode");
    }

    #[test]
    fn a_duplicate_is_an_error() {
        assert!(Query::parse(b"path=a&path=a").one("path").is_err());
    }
}
