//! Small bodies that are read whole: JSON requests.

use serde::de::DeserializeOwned;

use crate::error::{Kind, Result};
use crate::ring::Inflow;

/// Reads a body to its end.
///
/// # Errors
/// `TooLarge` past `limit` bytes, and those of the inflow.
pub async fn read(body: &mut dyn Inflow, limit: u64) -> Result<Vec<u8>> {
    let too_large = || Kind::TooLarge.told(format!("the body is larger than {limit} bytes"));
    let declared = body.remaining().unwrap_or(0);
    if declared > limit {
        return Err(too_large());
    }
    // What is declared is not yet there, so memory follows what arrives.
    let room = usize::try_from(declared.min(MOST_AHEAD)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(room.max(LEAST));
    loop {
        if bytes.len() == bytes.capacity() {
            if body.remaining() == Some(0) {
                return Ok(bytes);
            }
            bytes.reserve(bytes.len().max(LEAST));
        }
        if body.read(&mut bytes).await? == 0 {
            return Ok(bytes);
        }
        if bytes.len() as u64 > limit {
            return Err(too_large());
        }
    }
}

const LEAST: usize = 512;
const MOST_AHEAD: u64 = 64 * 1024;

/// True when the field announces JSON: `application/json` or `application/*+json`, with any parameters.
pub fn is_json(content_type: Option<&[u8]>) -> bool {
    let Some(value) = content_type.and_then(|value| std::str::from_utf8(value).ok()) else {
        return false;
    };
    let media = value.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    match media.strip_prefix("application/") {
        Some(subtype) => subtype == "json" || subtype.ends_with("+json"),
        None => false,
    }
}

/// Reads a JSON object, which is called `what` where it is none.
///
/// # Errors
/// `Malformed`, saying where it is wrong, and nothing of what stands there: that must not reach a log.
pub fn object<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    let wrong = format!("body is not a valid {what}");
    // The parser by itself would also take an array of the values.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Kind::Malformed.told(wrong));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Kind::Malformed.told(format!("{wrong}: line {line} column {column}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_no_array_and_is_not_quoted() {
        #[derive(Debug, serde::Deserialize, PartialEq)]
        struct Name {
            name: String,
        }
        let read = |text: &str| {
            let read = object::<Name>(text.as_bytes(), "name");
            read.map_err(|error| error.sentence().to_owned())
        };
        let name = Name { name: "x".into() };
        assert_eq!(read("\n {\"name\": \"x\"}\n"), Ok(name));
        for text in ["", "[\"x\"]", "\"x\"", "null"] {
            assert_eq!(read(text), Err("body is not a valid name".into()), "{text}");
        }
        let place = "body is not a valid name: line 1 column 11";
        assert_eq!(read("{\"name\": 17}"), Err(place.into()));
    }

    #[test]
    fn json_is_announced_in_several_ways() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/vnd.x+json", true),
            ("text/plain", false),
            ("text/json", false),
            ("application/jsonx", false),
            ("", false),
        ] {
            assert_eq!(is_json(Some(value.as_bytes())), expected, "{value}");
        }
        assert!(!is_json(None));
    }
}
