//! Dictionaries as header fields have them (RFC 9651, sections 3.2 and 4.2.2), as far as a digest field needs.

use crate::wire::base64;

/// The value of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A byte sequence.
    Bytes(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// Anything else.
    Other,
}

/// The members of a dictionary in order; of those with one key the last counts. `None` when it is not one.
///
/// Parameters are read over.
pub fn parse(text: &[u8]) -> Option<Vec<(&str, Value)>> {
    let mut rest = Reader(text.trim_ascii());
    let mut members = Vec::new();
    while !rest.0.is_empty() {
        let key = rest.key()?;
        let value = if rest.skip(b"=") {
            rest.item_or_list()?
        } else {
            Value::Other
        };
        rest.parameters()?;
        members.push((key, value));
        rest.blanks();
        if rest.0.is_empty() {
            break;
        }
        if !rest.skip(b",") {
            return None;
        }
        rest.blanks();
        if rest.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Takes `what` when it comes next.
    fn skip(&mut self, what: &[u8]) -> bool {
        let rest = self.0.strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn blanks(&mut self) {
        self.take(|byte| matches!(byte, b' ' | b'\t'));
    }

    fn take(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|byte| !fits(*byte));
        let (taken, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a str> {
        let first = *self.0.first()?;
        if !first.is_ascii_lowercase() && first != b'*' {
            return None;
        }
        let key = self.take(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        });
        std::str::from_utf8(key).ok()
    }

    fn parameters(&mut self) -> Option<()> {
        while self.skip(b";") {
            self.take(|byte| byte == b' ');
            self.key()?;
            if self.skip(b"=") {
                self.item()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.skip(b"(") {
            return self.item();
        }
        loop {
            self.take(|byte| byte == b' ');
            if self.skip(b")") {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'@' => {
                self.skip(b"@");
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'?' => {
                self.skip(b"?");
                (self.skip(b"0") || self.skip(b"1")).then_some(Value::Other)
            }
            b':' => self.bytes(),
            b'"' => self.string(),
            b'%' => {
                self.skip(b"%");
                self.string()
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.skip(b"-");
        let digits = self.take(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.skip(b".") {
            let fraction = self.take(|byte| byte.is_ascii_digit());
            let fits = (1..=3).contains(&fraction.len()) && digits.len() <= 12;
            return fits.then_some(Value::Other);
        }
        let value: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(Value::Integer(if is_negative { -value } else { value }))
    }

    fn bytes(&mut self) -> Option<Value> {
        self.skip(b":");
        let text = self.take(|byte| byte != b':');
        let text = std::str::from_utf8(text).ok()?;
        if !self.skip(b":") {
            return None;
        }
        // Some writers leave the padding out, and a reader is asked to bear with them.
        let padding = if text.ends_with('=') {
            0
        } else {
            (4 - text.len() % 4) % 4
        };
        let padded = format!("{text}{}", &"==="[..padding]);
        base64::decode(&padded).ok().map(Value::Bytes)
    }

    fn string(&mut self) -> Option<Value> {
        if !self.skip(b"\"") {
            return None;
        }
        loop {
            self.take(|byte| (0x20..=0x7e).contains(&byte) && byte != b'"' && byte != b'\\');
            if self.skip(b"\"") {
                return Some(Value::Other);
            }
            if !self.skip(b"\\\\") && !self.skip(b"\\\"") {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, Value)]) {
        assert_eq!(parse(text.as_bytes()).as_deref(), Some(expected), "{text}");
    }

    fn bytes(bytes: &[u8]) -> Value {
        Value::Bytes(bytes.to_vec())
    }

    #[test]
    fn members_are_read_in_order() {
        check("", &[]);
        check("sha-256=:AAEC:", &[("sha-256", bytes(&[0, 1, 2]))]);
        check(
            "  a=:AA==: ,\tb=:AA:,c=::",
            &[("a", bytes(&[0])), ("b", bytes(&[0])), ("c", bytes(&[]))],
        );
        check(
            "sha-256=10, x=-3",
            &[("sha-256", Value::Integer(10)), ("x", Value::Integer(-3))],
        );
    }

    #[test]
    fn other_values_and_parameters_are_read_over() {
        for text in [
            "a",
            "a=1.5",
            "a=\"x, \\\" \\\\\"",
            "a=token/x:y",
            "a=?1",
            "a=@1659578233",
            "a=%\"f%c3%bc\"",
            "a=()",
            "a=( 1 \"b\";q=2 c )",
            "a=(1);x=:AA==:;y",
            "*=x",
        ] {
            let members = parse(text.as_bytes());
            assert_eq!(members.map(|all| all.len()), Some(1), "{text}");
        }
        check(
            "a=1;q=0.5;b, c=2",
            &[("a", Value::Integer(1)), ("c", Value::Integer(2))],
        );
    }

    #[test]
    fn what_is_no_dictionary_is_refused() {
        for text in [
            "A=1",
            "=1",
            "a=",
            "a=1,",
            "a=1 b=2",
            ",",
            "a=:AA",
            "a=:A:",
            "a=:A A:",
            "a=\"x",
            "a=(1",
            "a=(1\"b\")",
            "a=?2",
            "a=-",
            "a=1.",
            "a=1.2345",
            "a=1234567890123456",
            "a;=1",
            "a=1;B",
            "a=\u{fc}",
            "a==1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
