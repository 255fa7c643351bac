//! Output as server-sent events, encoded once for all who follow it.
//!
//! Whoever comes first to an offset encodes what is there; who comes later takes the same text. What was not used for
//! longest goes first, and nothing is kept when nobody follows.

use super::Stream;
use crate::wire::sse;

/// Events that were encoded of late.
#[derive(Default)]
pub(super) struct Texts {
    texts: Vec<Text>,
    bytes: usize,
    /// Those who may ask.
    followers: usize,
    uses: u64,
}

/// One `output` event.
pub(super) struct Text {
    from: u64,
    /// Offset of the first byte behind it.
    pub(super) to: u64,
    used: u64,
    pub(super) text: Vec<u8>,
}

impl Texts {
    /// One more may ask.
    pub(super) fn enter(&mut self) {
        self.followers += 1;
    }

    /// One less may ask; when nobody is left, everything is forgotten.
    pub(super) fn leave(&mut self) {
        self.followers -= 1;
        if self.followers == 0 {
            *self = Self::default();
        }
    }

    /// True when somebody may ask.
    pub(super) fn is_wanted(&self) -> bool {
        self.followers > 0
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.bytes
    }

    /// Forgets until there is room for [`MOST_AT_ONCE`] texts more.
    pub(super) fn make_room(&mut self) {
        // One alone comes back to nothing that it has seen.
        let (most_bytes, most_texts) = match self.followers {
            0 | 1 => (0, 0),
            _ => (MOST_BYTES, MOST_TEXTS),
        };
        while self.texts.len() > most_texts || self.bytes > most_bytes {
            let used = self.texts.iter().enumerate();
            let Some((oldest, _)) = used.min_by_key(|(_, text)| text.used) else {
                return;
            };
            self.bytes -= self.texts.swap_remove(oldest).text.capacity();
        }
    }

    /// The number of the text that begins at `from`, good until the next [`Texts::make_room`].
    pub(super) fn find(&mut self, from: u64) -> Option<usize> {
        let found = self.texts.iter().position(|text| text.from == from)?;
        self.uses += 1;
        self.texts[found].used = self.uses;
        Some(found)
    }

    /// Encodes `bytes` of `stream` that begin at `from`; answers the number as [`Texts::find`].
    pub(super) fn encode(&mut self, from: u64, stream: Stream, bytes: &[u8]) -> usize {
        let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4 + AROUND);
        sse::output(&mut text, from, stream.name(), bytes);
        self.bytes += text.capacity();
        self.uses += 1;
        self.texts.push(Text {
            from,
            to: from + bytes.len() as u64,
            used: self.uses,
            text,
        });
        self.texts.len() - 1
    }

    /// The text of this number.
    pub(super) fn at(&self, number: usize) -> &Text {
        &self.texts[number]
    }
}

/// Texts that are asked for at once.
pub(super) const MOST_AT_ONCE: usize = 8;
/// Texts kept while several follow.
const MOST_TEXTS: usize = 128;
/// Bytes kept while several follow.
const MOST_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of an event beside its base64.
const AROUND: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn followed_by(followers: usize) -> Texts {
        let mut texts = Texts::default();
        (0..followers).for_each(|_| texts.enter());
        texts
    }

    #[test]
    fn a_text_is_found_by_its_beginning() {
        let mut texts = followed_by(2);
        let number = texts.encode(5, Stream::Stderr, b"abc");
        assert_eq!(texts.find(5), Some(number));
        assert_eq!(texts.find(6), None);
        let text = texts.at(number);
        assert_eq!(text.to, 8);
        let expected =
            "event: output\ndata: {\"offset\":5,\"stream\":\"stderr\",\"output\":\"YWJj\"}\n\n";
        assert_eq!(text.text, expected.as_bytes());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut texts = followed_by(2);
        for from in 0..=MOST_TEXTS as u64 {
            texts.encode(from, Stream::Stdout, b"x");
        }
        assert!(texts.find(0).is_some());
        texts.make_room();
        assert!(texts.find(0).is_some() && texts.find(1).is_none() && texts.find(2).is_some());
    }

    #[test]
    fn bytes_are_bounded() {
        let mut texts = followed_by(2);
        let bytes = vec![0; MOST_BYTES / 4];
        for from in 0..8 {
            texts.encode(from, Stream::Stdout, &bytes);
        }
        texts.make_room();
        assert!(texts.memory() <= MOST_BYTES && texts.memory() > MOST_BYTES / 2);
    }

    #[test]
    fn nothing_is_kept_for_one_or_for_nobody() {
        let mut texts = followed_by(2);
        texts.encode(0, Stream::Stdout, b"x");
        texts.leave();
        texts.make_room();
        assert_eq!((texts.find(0), texts.memory()), (None, 0));
        texts.encode(0, Stream::Stdout, b"x");
        texts.leave();
        assert_eq!(texts.memory(), 0);
    }
}
