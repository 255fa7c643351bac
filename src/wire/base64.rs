//! Base64 with the standard alphabet and canonical padding (RFC 4648, section 4), at the speed of the machine.

use std::sync::LazyLock;

use base64::engine::general_purpose::PAD;
use base64::{DecodeError, Engine};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static ENGINE: LazyLock<base64::engine::Simd> =
    LazyLock::new(|| base64::engine::Simd::standard(PAD));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static ENGINE: LazyLock<base64::engine::GeneralPurpose> =
    LazyLock::new(|| base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, PAD));

/// Appends `bytes` as text.
pub fn append(into: &mut Vec<u8>, bytes: &[u8]) {
    let before = into.len();
    into.resize(before + bytes.len().div_ceil(3) * 4, 0);
    let written = ENGINE.encode_slice(bytes, &mut into[before..]);
    assert_eq!(
        written,
        Ok(into.len() - before),
        "the length of base64 is known"
    );
}

/// The bytes that `text` stands for; no white space, no other alphabet, no missing padding.
///
/// # Errors
/// What is wrong, and where.
pub fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    ENGINE.decode(text)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_canonical_text_is_decoded() {
        assert_eq!(decode("aGVsbG8g/wo="), Ok(b"hello \xff\n".to_vec()));
        assert_eq!(decode(""), Ok(Vec::new()));
        for text in [
            "!!!",
            "aGVsbG8",
            "_-8=",
            "aGVs\nbG8=",
            "aGVsbG9=",
            " ",
            "=",
            "aGVsbG8==",
        ] {
            assert!(decode(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_engine_agrees_with_the_plain_one(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let mut text = Vec::new();
            append(&mut text, &bytes);
            let plain = STANDARD.encode(&bytes);
            prop_assert_eq!(text, plain.as_bytes());
            prop_assert_eq!(decode(&plain), Ok(bytes));
        }
    }
}
