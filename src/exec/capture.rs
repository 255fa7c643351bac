//! The head of one output stream, kept for the polled result.

use std::rc::Rc;

/// The first bytes of a stream, up to a limit, and whether there were more.
pub(super) struct Capture {
    head: Rc<Vec<u8>>,
    limit: usize,
    truncated: bool,
}

impl Capture {
    /// An empty capture that keeps `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            head: Rc::default(),
            limit,
            truncated: false,
        }
    }

    /// Keeps what fits of `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = self.limit - self.head.len();
        let kept = &bytes[..bytes.len().min(room)];
        // Nobody shares a head before its exec has ended, so this never copies.
        Rc::make_mut(&mut self.head).extend_from_slice(kept);
        self.truncated |= kept.len() < bytes.len();
    }

    /// True when a byte was left out.
    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.head.capacity()
    }

    /// What was kept, without a copy.
    pub(super) fn share(&self) -> Rc<Vec<u8>> {
        Rc::clone(&self.head)
    }

    /// Gives the bytes away and keeps none.
    pub(super) fn take(&mut self) -> Rc<Vec<u8>> {
        std::mem::take(&mut self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit: usize, pushes: &[&[u8]], kept: &[u8], truncated: bool) {
        let mut capture = Capture::new(limit);
        for bytes in pushes {
            capture.push(bytes);
        }
        assert_eq!(*capture.share(), kept);
        assert_eq!(capture.is_truncated(), truncated);
    }

    #[test]
    fn exactly_the_limit_is_not_truncated() {
        check(4, &[b"ab", b"cd", b""], b"abcd", false);
    }

    #[test]
    fn one_byte_more_is_truncated() {
        check(4, &[b"abc", b"de"], b"abcd", true);
        check(4, &[b"abcd", b"e"], b"abcd", true);
        check(0, &[b"a"], b"", true);
    }

    #[test]
    fn a_head_is_shared_and_then_given_away() {
        let mut capture = Capture::new(8);
        capture.push(b"\xff\0a");
        let shared = capture.share();
        assert!(Rc::ptr_eq(&shared, &capture.take()));
        assert_eq!(*shared, b"\xff\0a");
        assert!(capture.take().is_empty());
    }
}
