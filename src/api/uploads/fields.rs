//! The header fields of resumable uploads: structured fields that are one item; what is not what it must be is ignored.

use crate::app::App;
use crate::fs::resumable::Status;
use crate::wire::http::head::Fields;

/// The value of a field that is a boolean.
pub(super) fn boolean(fields: &Fields, name: &str) -> Option<bool> {
    match item(fields, name)? {
        b"?0" => Some(false),
        b"?1" => Some(true),
        _ => None,
    }
}

/// The value of a field that is a number, not below 0.
pub(super) fn integer(fields: &Fields, name: &str) -> Option<u64> {
    let digits = item(fields, name)?;
    let is_number =
        !digits.is_empty() && digits.len() <= MOST_DIGITS && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// The version of the draft that a client which sends it may expect to be spoken here.
pub(super) fn version(fields: &Fields) -> u64 {
    let asked = integer(fields, VERSION).filter(|version| KNOWN.contains(version));
    asked.unwrap_or(*KNOWN.end())
}

/// What is told of an upload wherever it is told.
pub(super) fn about(app: &App, version: u64) -> Vec<(&'static str, String)> {
    let limits = &app.config.limits;
    let most = limits.max_body_bytes.min(MOST_INTEGER);
    let age = app.uploads.ttl().as_secs().min(MOST_INTEGER);
    vec![
        (VERSION, version.to_string()),
        (
            "upload-limit",
            format!("max-append-size={most}, max-age={age}"),
        ),
    ]
}

/// Where an upload is found.
pub(super) fn location(id: &str) -> (&'static str, String) {
    ("location", format!("/v1/uploads/{id}"))
}

/// How far an upload is.
pub(super) fn state(status: &Status) -> Vec<(&'static str, String)> {
    let mut fields = vec![complete(false), (OFFSET, status.offset.to_string())];
    fields.extend(status.length.map(|length| (LENGTH, length.to_string())));
    fields
}

/// Whether an upload is complete.
pub(super) fn complete(is: bool) -> (&'static str, String) {
    (COMPLETE, if is { "?1" } else { "?0" }.into())
}

/// The one value of a field, without parameters (RFC 9651, section 3.3).
fn item<'a>(fields: &'a Fields, name: &'a str) -> Option<&'a [u8]> {
    let mut all = fields.all(name);
    let value = all.next()?;
    if all.next().is_some() {
        return None;
    }
    let item = value.split(|byte| *byte == b';').next()?;
    Some(item.trim_ascii())
}

pub(super) const COMPLETE: &str = "upload-complete";
pub(super) const OFFSET: &str = "upload-offset";
pub(super) const LENGTH: &str = "upload-length";
pub(super) const VERSION: &str = "upload-draft-interop-version";
/// Versions of the draft that differ in nothing that is used here; the last one is ours.
const KNOWN: std::ops::RangeInclusive<u64> = 6..=8;
/// As large as an integer may be there (RFC 9651, section 3.3.1).
const MOST_DIGITS: usize = 15;
const MOST_INTEGER: u64 = 999_999_999_999_999;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{Limits, Step, parse};

    fn fields(lines: &str) -> Fields {
        let head = format!("PUT / HTTP/1.1\r\n{lines}\r\n");
        let limits = Limits {
            bytes: 4096,
            fields: 10,
            target: 100,
        };
        match parse(head.as_bytes(), &limits) {
            Ok(Step::Done(head, _)) => head.fields,
            other => panic!("{lines:?} is {other:?}"),
        }
    }

    #[test]
    fn what_is_not_an_item_of_its_type_is_ignored() {
        for (value, expected) in [
            ("?1", Some(true)),
            ("?0", Some(false)),
            (" ?1 ; a=b", Some(true)),
            ("1", None),
            ("true", None),
            ("?2", None),
            ("?1, ?1", None),
            ("", None),
        ] {
            let fields = fields(&format!("Upload-Complete: {value}\r\n"));
            assert_eq!(boolean(&fields, COMPLETE), expected, "{value}");
        }
        for (value, expected) in [
            ("0", Some(0)),
            ("999999999999999", Some(999_999_999_999_999)),
            ("7;x", Some(7)),
            ("1000000000000000", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("?1", None),
            ("", None),
        ] {
            let fields = fields(&format!("upload-offset: {value}\r\n"));
            assert_eq!(integer(&fields, OFFSET), expected, "{value}");
        }
        let twice = fields("upload-offset: 1\r\nupload-offset: 1\r\n");
        assert_eq!(integer(&twice, OFFSET), None);
    }

    #[test]
    fn a_client_hears_the_version_that_it_speaks() {
        for (said, expected) in [("6", 6), ("7", 7), ("8", 8), ("3", 8), ("9", 8), ("x", 8)] {
            let fields = fields(&format!("upload-draft-interop-version: {said}\r\n"));
            assert_eq!(version(&fields), expected, "{said}");
        }
    }
}
