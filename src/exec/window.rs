//! Where the bytes of a window of offsets lie in a file that is written round and round.

/// The offsets `start..end`, of which the byte at offset `o` lies at `(o - base) % capacity` of the file.
pub(super) struct Window {
    base: u64,
    start: u64,
    end: u64,
    capacity: u64,
}

/// Bytes that lie in one piece in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first one.
    pub(super) offset: u64,
    /// Its place in the file.
    pub(super) position: u64,
    pub(super) length: u64,
}

impl Window {
    /// An empty window of at most `capacity` bytes.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            base: 0,
            start: 0,
            end: 0,
            capacity,
        }
    }

    /// Offset of the oldest byte held, if there is one.
    pub(super) fn oldest(&self) -> Option<u64> {
        (self.start < self.end).then_some(self.start)
    }

    /// Bytes of the file in use.
    pub(super) fn size(&self) -> u64 {
        (self.end - self.base).min(self.capacity)
    }

    /// Bytes that the file has to grow by for `length` more.
    pub(super) fn growth(&self, length: u64) -> u64 {
        let size = (self.end - self.base)
            .saturating_add(length)
            .min(self.capacity);
        size - self.size()
    }

    /// Never grows the file again: from now on it is written round within what it has. False when it has nothing.
    pub(super) fn freeze(&mut self) -> bool {
        let size = self.size();
        if size > 0 {
            self.capacity = size;
        }
        size > 0
    }

    /// Makes room for the `length` bytes from `offset` on, which must follow what is held, and says where they go.
    ///
    /// What lies there is given up at once. Of more than fits only the last bytes are kept.
    pub(super) fn admit(&mut self, offset: u64, length: u64) -> [Option<Span>; 2] {
        if self.base == self.end {
            (self.base, self.start, self.end) = (offset, offset, offset);
        }
        assert_eq!(offset, self.end, "what is stored has no holes");
        let end = offset + length;
        let first = end.saturating_sub(self.capacity).max(offset);
        self.start = self.start.max(end.saturating_sub(self.capacity));
        let one = self.span(first, end - first);
        let rest = one.offset + one.length;
        let other = (rest < end).then(|| self.span(rest, end - rest));
        [Some(one).filter(|one| one.length > 0), other]
    }

    /// Says that the `length` bytes that were admitted are there.
    pub(super) fn settle(&mut self, length: u64) {
        self.end += length;
        self.start = self.start.min(self.end);
    }

    /// Where the bytes from `offset` on lie: as many of `most` as lie in one piece.
    pub(super) fn span(&self, offset: u64, most: u64) -> Span {
        let position = (offset - self.base).checked_rem(self.capacity).unwrap_or(0);
        Span {
            offset,
            position,
            length: most.min(self.capacity - position),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A window with the file it describes, each byte of which is its own offset.
    struct Disk {
        window: Window,
        file: Vec<u64>,
    }

    impl Disk {
        fn store(&mut self, length: u64) {
            let offset = self.window.end;
            for span in self.window.admit(offset, length).into_iter().flatten() {
                for index in 0..span.length {
                    let place = usize::try_from(span.position + index).expect("small");
                    if self.file.len() <= place {
                        self.file.resize(place + 1, u64::MAX);
                    }
                    self.file[place] = span.offset + index;
                }
            }
            self.window.settle(length);
        }

        fn check(&self) {
            let mut offset = self.window.oldest().unwrap_or(self.window.end);
            while offset < self.window.end {
                let span = self.window.span(offset, self.window.end - offset);
                assert!(span.length > 0);
                for index in 0..span.length {
                    let place = usize::try_from(span.position + index).expect("small");
                    assert_eq!(self.file[place], offset + index);
                }
                offset += span.length;
            }
        }
    }

    proptest! {
        #[test]
        fn every_byte_held_lies_where_it_is_said_to(
            capacity in 1u64..50,
            first in 0u64..100,
            lengths in prop::collection::vec(1u64..70, 1..30),
            frozen_after in 0usize..40,
        ) {
            let mut disk = Disk { window: Window::new(capacity), file: Vec::new() };
            disk.window.end = first;
            disk.window.base = first;
            disk.window.start = first;
            let mut room = capacity;
            for (index, length) in lengths.iter().enumerate() {
                if index == frozen_after && disk.window.freeze() {
                    room = disk.window.capacity;
                }
                let before = disk.window.size();
                let growth = disk.window.growth(*length);
                disk.store(*length);
                prop_assert_eq!(disk.window.size(), before + growth);
                disk.check();
                let stored: u64 = lengths[..=index].iter().sum();
                let held = disk.window.end - disk.window.oldest().expect("bytes were stored");
                // A frozen window may have held less when it was frozen, never more than its room.
                prop_assert!(held <= room);
                if index < frozen_after {
                    prop_assert_eq!(held, stored.min(capacity));
                }
                prop_assert!(disk.file.len() as u64 <= room.max(before));
            }
        }
    }

    #[test]
    fn what_is_overwritten_is_given_up_before_it_is_written() {
        let mut window = Window::new(8);
        window.admit(0, 8);
        window.settle(8);
        window.admit(8, 3);
        assert_eq!(window.oldest(), Some(3));
        assert_eq!(window.end, 8);
    }

    #[test]
    fn a_window_of_nothing_cannot_be_frozen() {
        assert!(!Window::new(8).freeze());
    }
}
