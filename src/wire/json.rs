//! Bytes as the inside of a JSON string (RFC 8259, section 7), piece by piece, invalid UTF-8 replaced.
//!
//! The text is what `serde_json` writes for [`String::from_utf8_lossy`] of the bytes, without the quotes.

/// Escaped bytes that one byte can become.
pub const MOST_PER_BYTE: usize = 6;

/// Appends `bytes` as escaped text; each invalid sequence becomes U+FFFD.
pub fn escape(into: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        escape_text(into, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            into.extend_from_slice(REPLACEMENT);
        }
    }
}

/// How many bytes [`escape`] appends.
pub fn escaped_length(bytes: &[u8]) -> u64 {
    let mut length = 0;
    for chunk in bytes.utf8_chunks() {
        let plain = chunk.valid().len() as u64;
        let escapes = chunk.valid().bytes().map(|byte| EXTRA[usize::from(byte)]);
        length += plain + escapes.map(u64::from).sum::<u64>();
        if !chunk.invalid().is_empty() {
            length += REPLACEMENT.len() as u64;
        }
    }
    length
}

/// Cuts `bytes` near `most`, four at least, where no sequence is torn: both parts escape as the whole would.
pub fn cut(bytes: &[u8], most: usize) -> (&[u8], &[u8]) {
    let most = most.max(LONGEST);
    if bytes.len() <= most {
        return (bytes, &[]);
    }
    // A sequence that spans the edge begins at most three bytes before it, and only a continuation byte is inside one.
    let mut edges = (most + 1 - LONGEST..=most).rev();
    let edge = edges.find(|edge| !is_continuation(bytes[*edge]));
    bytes.split_at(edge.unwrap_or(most))
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn escape_text(into: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(next) = rest.iter().position(|byte| EXTRA[usize::from(*byte)] > 0) {
        into.extend_from_slice(&rest[..next]);
        escape_byte(into, rest[next]);
        rest = &rest[next + 1..];
    }
    into.extend_from_slice(rest);
}

fn escape_byte(into: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' => into.extend_from_slice(b"\\\""),
        b'\\' => into.extend_from_slice(b"\\\\"),
        0x08 => into.extend_from_slice(b"\\b"),
        b'\t' => into.extend_from_slice(b"\\t"),
        b'\n' => into.extend_from_slice(b"\\n"),
        0x0c => into.extend_from_slice(b"\\f"),
        b'\r' => into.extend_from_slice(b"\\r"),
        _ => {
            let [high, low] = [byte >> 4, byte & 0xf].map(|half| HEX[usize::from(half)]);
            into.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    }
}

/// Bytes that the escape of each byte has more than the byte; 0 for those that stand for themselves.
static EXTRA: [u8; 256] = {
    let mut extra = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        extra[byte] = 5;
        byte += 1;
    }
    let short = b"\"\\\x08\t\n\x0c\r";
    let mut index = 0;
    while index < short.len() {
        extra[short[index] as usize] = 1;
        index += 1;
    }
    extra
};

const HEX: &[u8; 16] = b"0123456789abcdef";
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
/// Bytes of the longest sequence of UTF-8.
const LONGEST: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is whole must agree with `serde_json`, and what is cut every `most` bytes with what is whole.
    fn check(bytes: &[u8], most: usize) {
        let text = String::from_utf8_lossy(bytes);
        let quoted = serde_json::to_string(&text).expect("text is JSON");
        let expected = &quoted[1..quoted.len() - 1];
        let (mut escaped, mut length, mut rest) = (Vec::new(), 0, bytes);
        while !rest.is_empty() {
            let (piece, later) = cut(rest, most);
            assert!(!piece.is_empty() && piece.len() <= most.max(4));
            let before = escaped.len();
            escape(&mut escaped, piece);
            assert!(escaped.len() - before <= piece.len() * MOST_PER_BYTE);
            length += escaped_length(piece);
            rest = later;
        }
        assert_eq!(String::from_utf8_lossy(&escaped), expected);
        assert_eq!(length, expected.len() as u64);
    }

    #[test]
    fn every_byte_is_escaped_as_the_library_does() {
        for byte in 0..=u8::MAX {
            check(&[byte], 4);
            check(&[b'a', byte, b'b'], 4);
        }
        check(b"", 4);
    }

    #[test]
    fn sequences_are_whole_wherever_they_are_cut() {
        let texts: [&[u8]; 6] = [
            "aé€😀".as_bytes(),
            b"\xf0\x9f\x98",
            b"\xf0\x9f\x98\xf0\x9f\x98\x80",
            b"\x80\x80\x80\x80\x80\x80\x80\x80\x80",
            b"\xed\xa0\x80\xe2\x82\xff\xc0\x80",
            b"\xf4\x90\x80\x80\xf8\x88\x80\x80\x80",
        ];
        for text in texts {
            for shift in 0..8 {
                let shifted = [&b"xxxxxxxx"[..shift], text, text].concat();
                for most in 0..12 {
                    check(&shifted, most);
                }
            }
        }
    }

    /// Bytes that make sequences of every length, whole and torn.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![
            any::<u8>(),
            0x80..=0xbfu8,
            prop::sample::select(vec![
                0xc2, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xf5, b'"', b'\\', b'\n', 0, b'a'
            ]),
        ]
    }

    proptest! {
        #[test]
        fn pieces_of_any_bytes_agree_with_the_library(
            bytes in prop::collection::vec(byte(), 0..400),
            most in 0usize..50,
        ) {
            check(&bytes, most);
        }

        #[test]
        fn pieces_of_any_text_agree_with_the_library(text in any::<String>(), most in 0usize..20) {
            check(text.as_bytes(), most);
        }
    }
}
