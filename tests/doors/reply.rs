//! A response, read by the letter of RFC 9112 and checked for what every response of ours must have.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;

/// One response.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// How long the body of a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(usize),
    Chunked,
    ToTheEnd,
}

impl Reply {
    /// Parses a head, its empty line included; the body is still to come.
    pub(crate) fn parse(head: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(head).map_err(|_| "a head that is not UTF-8".to_owned())?;
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let mut words = first.splitn(3, ' ');
        let version = words.next().unwrap_or_default();
        let status = words.next().and_then(|word| word.parse().ok());
        let (Some(status), true) = (status, version.starts_with("HTTP/1.")) else {
            return Err(format!("not a status line: {first:?}"));
        };
        let mut fields = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line
                .split_once(':')
                .ok_or(format!("not a field: {line:?}"))?;
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(Self {
            version: version.to_owned(),
            status,
            fields,
            body: Vec::new(),
        })
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(known, _)| known == name);
        let (_, value) = values.next()?;
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        Some(value)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(
            self.field("content-type"),
            Some("application/json"),
            "{self:?}"
        );
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Checks status, emptiness and that no content type is claimed.
    #[track_caller]
    pub(crate) fn bare(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.body.is_empty(), "{self:?}");
        assert_eq!(self.field("content-type"), None, "{self:?}");
        self
    }

    /// Checks that this is an error of the JSON form, key order included.
    #[track_caller]
    pub(crate) fn refuses(self, status: u16, slug: &str) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json();
        assert_eq!(error["error"], slug, "{self:?}");
        assert!(
            error["detail"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{self:?}"
        );
        assert_eq!(keys(&self.text()), ["error", "detail"], "{self:?}");
        self
    }

    /// Checks that this is an error of the text form.
    #[track_caller]
    pub(crate) fn explains(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        let media = self.field("content-type");
        assert_eq!(media, Some("text/plain; charset=utf-8"), "{self:?}");
        assert!(!self.body.is_empty(), "{self:?}");
        self
    }

    /// Checks what every final response of the daemon has, and tells how its body ends.
    pub(crate) fn check(&self, method: &str) -> Result<Length, String> {
        let version = self.field("microvms-agentd-version");
        if version != Some(env!("CARGO_PKG_VERSION")) {
            return Err(format!("the version header is {version:?}"));
        }
        if let Some((name, _)) = self
            .fields
            .iter()
            .find(|(name, _)| *name != name.to_ascii_lowercase())
        {
            return Err(format!("{name} is not in lower case"));
        }
        if self.field("date").is_none() {
            return Err("no date".into());
        }
        let length = match self.field("content-length") {
            Some(text) => Some(
                text.parse()
                    .map_err(|_| format!("content-length {text:?}"))?,
            ),
            None => None,
        };
        let chunked = self.field("transfer-encoding");
        match (length, chunked) {
            (Some(_), Some(_)) => Err("content-length and transfer-encoding".into()),
            (Some(_), None) if self.status == 204 => Err("a content-length on 204".into()),
            (_, Some(coding)) if coding != "chunked" => {
                Err(format!("transfer-encoding {coding:?}"))
            }
            _ if method == "HEAD" || self.status == 204 || self.status == 304 => {
                Ok(Length::Known(0))
            }
            (Some(length), None) => Ok(Length::Known(length)),
            (None, Some(_)) => Ok(Length::Chunked),
            (None, None) => Ok(Length::ToTheEnd),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.version, self.status, self.fields)?;
        match self.body.len() {
            0..=2000 => write!(f, " {:?}", self.text()),
            more => write!(f, " and {more} bytes"),
        }
    }
}

/// The keys of a JSON object in the order in which they stand.
#[track_caller]
pub(crate) fn keys(json: &str) -> Vec<String> {
    let Keys(keys) = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    keys
}

struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Order;
        impl<'de> Visitor<'de> for Order {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Keys, M::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, Value>()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Order)
    }
}
