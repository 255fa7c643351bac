//! The replay log: the last bytes of both output streams, in the order they were read, found by offset.

use std::collections::VecDeque;

use super::Stream;

/// A ring of the last bytes of an exec's output; offsets count every byte that was ever pushed.
pub(super) struct Replay {
    // The byte at offset `o` lives at `o % capacity`; the vector grows to the capacity as bytes come.
    ring: Vec<u8>,
    capacity: usize,
    total: u64,
    runs: VecDeque<Run>,
}

/// What a reader finds at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Nothing was pushed there yet.
    Nothing,
    /// The bytes in `from..to` are no longer held.
    Gap { from: u64, to: u64 },
    /// Bytes of one stream, beginning at the offset.
    Bytes { stream: Stream, bytes: &'a [u8] },
}

impl Replay {
    /// An empty log that holds the last `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            ring: Vec::new(),
            capacity,
            total: 0,
            runs: VecDeque::new(),
        }
    }

    /// Bytes ever pushed.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Offset of the oldest byte held.
    pub(super) fn start(&self) -> u64 {
        self.total.saturating_sub(self.capacity as u64)
    }

    /// Appends bytes that were read from `stream`.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if !self.continues_last_run(stream) {
            self.runs.push_back(Run::new(self.total, stream));
        }
        self.total += bytes.len() as u64;
        self.store(&bytes[bytes.len().saturating_sub(self.capacity)..]);
        let start = self.start();
        while self.runs.get(1).is_some_and(|run| run.start() <= start) {
            self.runs.pop_front();
        }
    }

    /// What is at offset `from`: at most `most` bytes of one run, or why there are none.
    ///
    /// Pieces of a run end at multiples of `most` from its beginning, so that readers meet at the same edges.
    pub(super) fn read(&self, from: u64, most: usize) -> Piece<'_> {
        if from >= self.total {
            return Piece::Nothing;
        }
        if from < self.start() {
            let to = self.start();
            return Piece::Gap { from, to };
        }
        let next = self.runs.partition_point(|run| run.start() <= from);
        let run = self.runs[next - 1];
        let run_end = self.runs.get(next).map_or(self.total, |run| run.start());
        let most = most.max(1) as u64;
        let edge = run.start() + ((from - run.start()) / most + 1) * most;
        let index = self.index(from);
        let wanted = length(run_end.min(edge) - from);
        let end = self.ring.len().min(index + wanted);
        Piece::Bytes {
            stream: run.stream(),
            bytes: &self.ring[index..end],
        }
    }

    /// Short runs of one stream are joined: a child that writes byte by byte must not cost a record per byte.
    fn continues_last_run(&self, stream: Stream) -> bool {
        self.runs
            .back()
            .is_some_and(|run| run.stream() == stream && self.total - run.start() < SHORT_RUN)
    }

    /// Writes `tail`, the last bytes of the log, to their places.
    fn store(&mut self, tail: &[u8]) {
        if tail.is_empty() {
            return;
        }
        let needed = length(self.total.min(self.capacity as u64));
        if self.ring.len() < needed {
            if needed > self.capacity / 2 {
                self.ring.reserve_exact(self.capacity - self.ring.len());
            }
            self.ring.resize(needed, 0);
        }
        let index = self.index(self.total - tail.len() as u64);
        let (first, second) = tail.split_at(tail.len().min(self.capacity - index));
        self.ring[index..index + first.len()].copy_from_slice(first);
        self.ring[..second.len()].copy_from_slice(second);
    }

    fn index(&self, offset: u64) -> usize {
        length(offset % self.capacity as u64)
    }
}

/// Where a run of one stream begins: the offset above, the stream in the lowest bit.
#[derive(Clone, Copy)]
struct Run(u64);

impl Run {
    fn new(start: u64, stream: Stream) -> Self {
        Self(start << 1 | u64::from(stream == Stream::Stderr))
    }

    fn start(self) -> u64 {
        self.0 >> 1
    }

    fn stream(self) -> Stream {
        if self.0 & 1 == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        }
    }
}

/// Lengths here are bounded by the capacity or by one run.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A run shorter than this is continued by the next bytes of its stream.
const SHORT_RUN: u64 = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes, each with whether it was written to standard error.
    type Bytes = Vec<(u8, bool)>;

    /// Reads everything from `from` on; a gap is shown as its bounds.
    fn drain(replay: &Replay, from: u64, most: usize) -> (Option<(u64, u64)>, Bytes) {
        let mut gap = None;
        let mut seen = Vec::new();
        let mut cursor = from;
        loop {
            match replay.read(cursor, most) {
                Piece::Nothing => return (gap, seen),
                Piece::Gap { from, to } => {
                    assert_eq!(gap, None, "a gap is said once");
                    assert!(from < to && seen.is_empty());
                    gap = Some((from, to));
                    cursor = to;
                }
                Piece::Bytes { stream, bytes } => {
                    assert!(!bytes.is_empty() && bytes.len() <= most);
                    seen.extend(bytes.iter().map(|byte| (*byte, stream == Stream::Stderr)));
                    cursor += bytes.len() as u64;
                }
            }
        }
    }

    fn log(capacity: usize, text: &[u8]) -> Replay {
        let mut replay = Replay::new(capacity);
        for byte in text {
            replay.push(Stream::Stdout, &[*byte]);
        }
        replay
    }

    #[test]
    fn a_gap_is_named_after_the_ring_wrapped() {
        let replay = log(4, b"abcdef");
        assert_eq!(replay.read(1, 9), Piece::Gap { from: 1, to: 2 });
        let (_, bytes) = drain(&replay, 2, 9);
        assert_eq!(bytes, [b'c', b'd', b'e', b'f'].map(|byte| (byte, false)));
    }

    #[test]
    fn an_offset_past_the_end_finds_nothing_and_no_gap() {
        let replay = log(4, b"abcdef");
        assert_eq!(replay.read(6, 9), Piece::Nothing);
        assert_eq!(replay.read(u64::MAX, 9), Piece::Nothing);
    }

    #[test]
    fn one_push_larger_than_the_ring_keeps_its_tail() {
        let mut replay = Replay::new(3);
        replay.push(Stream::Stderr, b"abcdefg");
        assert_eq!(replay.start(), 4);
        let bytes = b"efg".map(|byte| (byte, true)).to_vec();
        assert_eq!(drain(&replay, 0, 9), (Some((0, 4)), bytes));
    }

    #[test]
    fn streams_are_not_joined() {
        let mut replay = Replay::new(9);
        replay.push(Stream::Stdout, b"ab");
        replay.push(Stream::Stderr, b"c");
        replay.push(Stream::Stdout, b"d");
        let bytes: &[u8] = b"b";
        let stream = Stream::Stdout;
        assert_eq!(replay.read(1, 9), Piece::Bytes { stream, bytes });
    }

    proptest! {
        #[test]
        fn the_log_agrees_with_a_naive_one(
            capacity in 0usize..40,
            pushes in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..30),
            most in 1usize..50,
            from in 0u64..2000,
        ) {
            let mut replay = Replay::new(capacity);
            let mut naive = Vec::new();
            for (is_stderr, bytes) in &pushes {
                let stream = if *is_stderr { Stream::Stderr } else { Stream::Stdout };
                replay.push(stream, bytes);
                naive.extend(bytes.iter().map(|byte| (*byte, *is_stderr)));
            }
            let total = naive.len() as u64;
            let start = total.saturating_sub(capacity as u64);
            prop_assert_eq!(replay.total(), total);
            let (gap, bytes) = drain(&replay, from, most);
            let expected_gap = (from < start).then_some((from, start));
            prop_assert_eq!(gap, expected_gap);
            let first = usize::try_from(from.max(start).min(total)).expect("small");
            prop_assert_eq!(bytes, naive[first..].to_vec());
        }
    }
}
