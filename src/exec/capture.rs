//! The head of one output stream, kept for the polled result.

use std::borrow::Cow;

/// The first bytes of a stream, up to a limit, and whether there were more.
pub(super) struct Capture {
    head: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Capture {
    /// An empty capture that keeps `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            head: Vec::new(),
            limit,
            truncated: false,
        }
    }

    /// Keeps what fits of `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = self.limit - self.head.len();
        let kept = &bytes[..bytes.len().min(room)];
        self.head.extend_from_slice(kept);
        self.truncated |= kept.len() < bytes.len();
    }

    /// True when a byte was left out.
    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// What was kept, as text: each invalid sequence becomes U+FFFD.
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.head)
    }

    /// Gives the bytes away and keeps none.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit: usize, pushes: &[&[u8]], text: &str, truncated: bool) {
        let mut capture = Capture::new(limit);
        for bytes in pushes {
            capture.push(bytes);
        }
        assert_eq!(capture.text(), text);
        assert_eq!(capture.is_truncated(), truncated);
    }

    #[test]
    fn exactly_the_limit_is_not_truncated() {
        check(4, &[b"ab", b"cd", b""], "abcd", false);
    }

    #[test]
    fn one_byte_more_is_truncated() {
        check(4, &[b"abc", b"de"], "abcd", true);
        check(4, &[b"abcd", b"e"], "abcd", true);
        check(0, &[b"a"], "", true);
    }

    #[test]
    fn a_character_cut_between_reads_is_whole() {
        check(8, &[b"\xc3", b"\xa9"], "\u{e9}", false);
    }

    #[test]
    fn invalid_bytes_are_replaced_in_the_text_only() {
        let mut capture = Capture::new(8);
        capture.push(b"\xff\0a");
        assert_eq!(capture.text(), "\u{fffd}\0a");
        assert_eq!(capture.take(), b"\xff\0a");
    }
}
