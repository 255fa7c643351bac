//! Digest fields (RFC 9530): what a body is expected to have, what a client wants to hear, how it is told.

use crate::error::{Kind, Result};
use crate::wire::base64;
pub use crate::wire::digest::{Comparison, Expected, Hasher};
use crate::wire::http::dictionary::{self, Value};
use crate::wire::http::head::Fields;

/// True when the client asks for the sha-256 of the representation (`want-repr-digest`).
pub fn wants(fields: &Fields) -> bool {
    let text = joined(fields, "want-repr-digest");
    let wanted = text.as_deref().and_then(dictionary::parse);
    let last = wanted.and_then(|all| all.into_iter().rfind(|(key, _)| *key == SHA_256));
    matches!(last, Some((_, Value::Integer(1..))))
}

/// The value of a digest field.
pub fn field(digest: &[u8; 32]) -> String {
    let mut text = b"sha-256=:".to_vec();
    base64::append(&mut text, digest);
    text.push(b':');
    String::from_utf8_lossy(&text).into_owned()
}

/// What the digest field called `name` expects; `None` without the field, or when it names no algorithm known here.
///
/// # Errors
/// `Malformed`, naming the field.
pub fn expected(fields: &Fields, name: &'static str) -> Result<Option<Expected>> {
    let Some(text) = joined(fields, name) else {
        return Ok(None);
    };
    let malformed = |what: &str| Kind::Malformed.told(format!("{name} {what}"));
    let members = dictionary::parse(&text);
    let members = members.ok_or_else(|| malformed("is not a dictionary of digests"))?;
    let mut expected = Expected::default();
    for (key, value) in members {
        match (key, value) {
            (SHA_256, Value::Bytes(bytes)) => {
                let digest = bytes.try_into();
                let digest = digest.map_err(|_| malformed("has a sha-256 that is not 32 bytes"))?;
                expected.sha256 = Some(digest);
            }
            (SHA_512, Value::Bytes(bytes)) => {
                let digest = bytes.try_into();
                let digest = digest.map_err(|_| malformed("has a sha-512 that is not 64 bytes"))?;
                expected.sha512 = Some(digest);
            }
            (SHA_256 | SHA_512, _) => return Err(malformed("has a digest that is not bytes")),
            _ => {}
        }
    }
    Ok((expected != Expected::default()).then_some(expected))
}

/// The value of a list field that may stand in several lines.
fn joined(fields: &Fields, name: &str) -> Option<Vec<u8>> {
    let mut all = fields.all(name);
    let mut text = all.next()?.to_vec();
    for more in all {
        text.extend_from_slice(b", ");
        text.extend_from_slice(more);
    }
    Some(text)
}

const SHA_256: &str = "sha-256";
const SHA_512: &str = "sha-512";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{Limits, Step, parse};

    fn fields(lines: &str) -> Fields {
        let head = format!("GET / HTTP/1.1\r\n{lines}\r\n");
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
    fn a_digest_is_wanted_by_name() {
        for (value, expected) in [
            ("sha-256=1", true),
            ("sha-512=3, sha-256=10", true),
            ("sha-256=0", false),
            ("sha-256=1, sha-256=0", false),
            ("sha-512=3", false),
            ("sha-256", false),
            ("Sha-256=1", false),
            ("", false),
        ] {
            let fields = fields(&format!("Want-Repr-Digest: {value}\r\n"));
            assert_eq!(wants(&fields), expected, "{value}");
        }
        assert!(!wants(&fields("")));
        let both = fields("want-repr-digest: md5=2\r\nwant-repr-digest: sha-256=1\r\n");
        assert!(wants(&both));
    }

    #[test]
    fn a_field_that_is_told_is_one_that_is_understood() {
        let mut hasher = Hasher::default();
        hasher.update(b"hello ");
        hasher.update(b"world");
        let digest = hasher.finish();
        let text = field(&digest);
        assert_eq!(
            text,
            "sha-256=:uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=:"
        );
        let fields = fields(&format!("content-digest: md5=:AA==:, {text}\r\n"));
        let expected = expected(&fields, "content-digest").expect("it is well formed");
        assert_eq!(expected.and_then(|all| all.sha256), Some(digest));
    }

    #[test]
    fn a_field_that_names_nothing_known_expects_nothing() {
        for lines in [
            "",
            "repr-digest: md5=:AA==:\r\n",
            "repr-digest: unixsum=5\r\n",
        ] {
            assert_eq!(expected(&fields(lines), "repr-digest").ok(), Some(None));
        }
    }

    #[test]
    fn a_field_that_is_none_is_refused_by_name() {
        for value in [
            "sha-256",
            "sha-256=1",
            "sha-256=:AA==:",
            "sha-512=:AA==:",
            "sha-256=:uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=",
            "sha-256=\"x\"",
            "sha-256:x",
        ] {
            let error = expected(&fields(&format!("repr-digest: {value}\r\n")), "repr-digest");
            let error = error.expect_err(value);
            assert_eq!(error.kind(), Kind::Malformed);
            assert!(error.sentence().starts_with("repr-digest "), "{error}");
        }
    }
}
