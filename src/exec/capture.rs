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

    /// What was kept from `from` on, at most `most` bytes; what ends in a torn character ends before it.
    ///
    /// The rest of such a character may be on its way, so this is for a stream that still grows.
    pub(super) fn piece(&self, from: u64, most: usize) -> &[u8] {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let rest = self.head.get(from..).unwrap_or_default();
        let piece = &rest[..rest.len().min(most)];
        &piece[..piece.len() - torn(piece)]
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

/// Bytes at the end of `bytes` that begin a character of UTF-8 which is not complete.
fn torn(bytes: &[u8]) -> usize {
    let begins = |length: &usize| {
        let tail = &bytes[bytes.len() - length..];
        let error = std::str::from_utf8(tail).err();
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=bytes.len().min(MOST_TORN)).find(begins).unwrap_or(0)
}

/// Bytes of the longest character that is not complete.
const MOST_TORN: usize = 3;

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
    fn pieces_of_a_stream_that_grows_tear_no_character() {
        let texts: [&[u8]; 5] = [
            "aé€😀 end".as_bytes(),
            b"\xf0\x9f\x98\xf0\x9f\x98\x80\xff",
            b"\x80\x80\x80\x80\x80",
            b"\xed\xa0\x80\xe2\x82\xff\xc0\x80\xf4\x90\x80\x80",
            b"plain",
        ];
        for (text, most) in texts
            .into_iter()
            .flat_map(|text| (4..9).map(move |most| (text, most)))
        {
            let (mut capture, mut seen, mut cursor) = (Capture::new(100), String::new(), 0);
            for byte in text {
                capture.push(&[*byte]);
                let piece = capture.piece(cursor as u64, most);
                assert!(piece.len() <= most);
                seen += &String::from_utf8_lossy(piece);
                cursor += piece.len();
            }
            while !capture.piece(cursor as u64, most).is_empty() {
                let piece = capture.piece(cursor as u64, most);
                seen += &String::from_utf8_lossy(piece);
                cursor += piece.len();
            }
            assert!(text.len() - cursor <= MOST_TORN);
            seen += &String::from_utf8_lossy(&text[cursor..]);
            assert_eq!(seen, String::from_utf8_lossy(text), "{text:?}");
        }
    }

    #[test]
    fn an_offset_past_the_end_has_no_bytes() {
        let mut capture = Capture::new(8);
        capture.push(b"abc");
        assert_eq!(capture.piece(1, 100), b"bc");
        assert_eq!(capture.piece(3, 100), b"");
        assert_eq!(capture.piece(4, 100), b"");
        assert_eq!(capture.piece(u64::MAX, 100), b"");
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
