//! What an exec must have written: the yardstick that every follower's output is held against.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const SLAB_BYTES: usize = 64 << 10;

/// The whole output of an exec.
///
/// Base64 of a part depends on where the part begins, modulo 3. Three encodings cover all parts,
/// so that a follower's text is compared as it came instead of being decoded.
pub(crate) struct Script {
    total: u64,
    /// Nothing when all bytes are zero.
    content: Option<Content>,
}

struct Content {
    bytes: Vec<u8>,
    encoded: [Vec<u8>; 3],
}

impl Script {
    /// `total` zero bytes.
    pub(crate) fn zeros(total: u64) -> Self {
        Self {
            total,
            content: None,
        }
    }

    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let encoded = [0, 1, 2].map(|phase| {
            let rest = &bytes[phase.min(bytes.len())..];
            let whole = rest.len() / 3 * 3;
            STANDARD.encode(&rest[..whole]).into_bytes()
        });
        Self {
            total: bytes.len() as u64,
            content: Some(Content { bytes, encoded }),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether `bytes` stand at `offset`.
    pub(crate) fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        if offset + bytes.len() as u64 > self.total {
            return false;
        }
        match &self.content {
            None => is_all(bytes, &[0; SLAB_BYTES]),
            Some(content) => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                content.bytes[at..].starts_with(bytes)
            }
        }
    }

    /// Whether `quads`, whole groups of four characters, encode what stands at `offset`.
    pub(crate) fn has_encoded(&self, offset: u64, quads: &[u8]) -> bool {
        debug_assert!(quads.len().is_multiple_of(4), "groups are whole");
        if offset + quads.len() as u64 / 4 * 3 > self.total {
            return false;
        }
        match &self.content {
            None => is_all(quads, &[b'A'; SLAB_BYTES]),
            Some(content) => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                content.encoded[at % 3][at / 3 * 4..].starts_with(quads)
            }
        }
    }
}

fn is_all(bytes: &[u8], slab: &[u8; SLAB_BYTES]) -> bool {
    bytes
        .chunks(SLAB_BYTES)
        .all(|part| part == &slab[..part.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found_where_it_stands_and_nowhere_else() {
        let script = Script::of((0..100).collect());
        for from in 0..90u8 {
            let part: Vec<u8> = (from..from + 9).collect();
            let text = STANDARD.encode(&part);
            let offset = u64::from(from);
            assert!(script.has(offset, &part) && script.has_encoded(offset, text.as_bytes()));
            assert!(!script.has(offset + 1, &part));
            assert!(!script.has_encoded(offset + 1, text.as_bytes()));
        }
    }

    #[test]
    fn zeros_end_at_their_total() {
        let script = Script::zeros(6);
        assert!(script.has(3, &[0; 3]) && script.has_encoded(3, b"AAAA"));
        assert!(!script.has(4, &[0; 3]) && !script.has_encoded(4, b"AAAA"));
        assert!(!script.has(0, &[1]));
    }
}
