//! The log against a naive one, and its bounds.

use proptest::prelude::*;

use super::*;

/// Bytes, each with whether it was written to standard error.
type Bytes = Vec<(u8, bool)>;

/// A log and the file that it stores to.
struct Log {
    replay: Replay,
    file: Vec<u8>,
}

impl Log {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        self.replay.push(stream, &mut bytes.to_vec());
    }

    /// Stores every block that is due, as the spill does.
    fn store(&mut self) {
        while let Some((start, bytes)) = self.replay.excess() {
            let spans = self.replay.window().admit(start, bytes.len() as u64);
            for span in spans.into_iter().flatten() {
                let [from, place, count] =
                    [span.offset - start, span.position, span.length].map(length);
                if self.file.len() < place + count {
                    self.file.resize(place + count, 0);
                }
                self.file[place..place + count].copy_from_slice(&bytes[from..from + count]);
            }
            drop(bytes);
            self.replay.stored(start);
        }
    }

    /// Reads everything from `from` on; a gap is shown as its bounds.
    fn drain(&self, from: u64, most: usize) -> (Option<(u64, u64)>, Bytes) {
        let mut gap = None;
        let mut seen = Vec::new();
        let mut cursor = from;
        loop {
            let (stream, bytes) = match self.replay.read(cursor, most) {
                Piece::Nothing => return (gap, seen),
                Piece::Gap { from, to } => {
                    assert_eq!(gap, None, "a gap is said once");
                    assert!(from < to && seen.is_empty());
                    gap = Some((from, to));
                    cursor = to;
                    continue;
                }
                Piece::Bytes { stream, bytes } => (stream, bytes),
                Piece::Stored { stream, span } => {
                    let place = length(span.position);
                    (stream, &self.file[place..place + length(span.length)])
                }
            };
            assert!(!bytes.is_empty() && bytes.len() <= most);
            seen.extend(bytes.iter().map(|byte| (*byte, stream == Stream::Stderr)));
            cursor += bytes.len() as u64;
        }
    }
}

fn log(capacity: usize, stored: u64, block: usize) -> Log {
    Log {
        replay: Replay::of_blocks(capacity, stored, block),
        file: Vec::new(),
    }
}

fn log_of(capacity: usize, text: &[u8]) -> Log {
    let mut log = log(capacity, 0, LEAST_BLOCK);
    text.iter()
        .for_each(|byte| log.push(Stream::Stdout, &[*byte]));
    log
}

#[test]
fn a_gap_is_named_after_the_log_has_let_go() {
    let log = log_of(4, b"abcdef");
    assert_eq!(log.replay.read(1, 9), Piece::Gap { from: 1, to: 2 });
    let (_, bytes) = log.drain(2, 9);
    assert_eq!(bytes, [b'c', b'd', b'e', b'f'].map(|byte| (byte, false)));
}

#[test]
fn an_offset_past_the_end_finds_nothing_and_no_gap() {
    let log = log_of(4, b"abcdef");
    assert_eq!(log.replay.read(6, 9), Piece::Nothing);
    assert_eq!(log.replay.read(u64::MAX, 9), Piece::Nothing);
}

#[test]
fn one_push_larger_than_the_log_keeps_its_tail() {
    let mut log = log(3, 0, 2);
    log.push(Stream::Stderr, b"abcdefg");
    assert_eq!(log.replay.oldest(), 4);
    let bytes = b"efg".map(|byte| (byte, true)).to_vec();
    assert_eq!(log.drain(0, 9), (Some((0, 4)), bytes));
}

#[test]
fn streams_are_not_joined() {
    let mut log = log(9, 0, 9);
    log.push(Stream::Stdout, b"ab");
    log.push(Stream::Stderr, b"c");
    log.push(Stream::Stdout, b"d");
    let bytes: &[u8] = b"b";
    let stream = Stream::Stdout;
    assert_eq!(log.replay.read(1, 9), Piece::Bytes { stream, bytes });
}

#[test]
fn a_large_buffer_is_taken_over_and_comes_back_for_the_next() {
    let mut replay = Replay::new(2 * buffers::LEASE, 0);
    let mut buffer = buffers::take();
    buffer.resize(buffers::LEASE, 7);
    let place = buffer.as_ptr();
    replay.push(Stream::Stdout, &mut buffer);
    assert_eq!(buffer.capacity(), 0);
    for _ in 0..4 {
        replay.push(Stream::Stdout, &mut vec![8; buffers::LEASE / 2]);
    }
    assert!(replay.memory() <= 2 * buffers::LEASE + 64);
    let spares: Vec<_> = std::iter::repeat_with(buffers::take).take(4).collect();
    assert!(spares.iter().any(|spare| spare.as_ptr() == place));
}

#[test]
fn a_little_output_takes_a_little_memory() {
    let mut replay = Replay::new(1 << 20, 1 << 26);
    replay.push(Stream::Stdout, &mut b"hello".to_vec());
    assert!(replay.memory() < 512, "{}", replay.memory());
}

#[test]
fn switching_streams_for_ever_takes_bounded_memory() {
    let mut replay = Replay::new(1 << 24, 0);
    for round in 0..MOST_RUNS + 100 {
        let stream = [Stream::Stdout, Stream::Stderr][round % 2];
        replay.push(stream, &mut vec![1]);
    }
    assert_eq!(replay.runs.len(), MOST_RUNS);
    assert_eq!(replay.oldest(), 100);
    assert_eq!(replay.read(0, 9), Piece::Gap { from: 0, to: 100 });
}

#[test]
fn what_is_given_up_while_it_is_stored_is_not_stored() {
    let mut log = log(4, 100, 4);
    (0..4).for_each(|_| log.push(Stream::Stdout, b"abcd"));
    let (start, bytes) = log.replay.excess().expect("much is due");
    log.replay.window().admit(start, 4);
    log.replay.stop_storing();
    drop(bytes);
    log.replay.stored(start);
    assert_eq!(log.replay.oldest(), 12);
    let (gap, bytes) = log.drain(0, 9);
    assert_eq!((gap, bytes.len()), (Some((0, 12)), 4));
}

#[test]
fn what_is_stored_while_a_read_is_under_way_is_not_in_it() {
    let mut log = log(4, 8, 4);
    (0..6).for_each(|_| log.push(Stream::Stdout, b"abcd"));
    log.store();
    let before = log
        .replay
        .on_disk(log.replay.oldest(), 100)
        .expect("it is there");
    log.push(Stream::Stdout, b"efgh");
    log.store();
    assert!(before.offset + before.length <= log.replay.in_memory() - 4);
}

#[test]
fn a_block_without_a_place_is_dropped_and_the_next_one_stored() {
    let mut log = log(4, 100, 4);
    (0..4).for_each(|_| log.push(Stream::Stdout, b"abcd"));
    let (start, bytes) = log.replay.excess().expect("much is due");
    drop(bytes);
    log.replay.skip(start);
    assert_eq!(log.replay.oldest(), 4);
    log.store();
    let (gap, bytes) = log.drain(0, 9);
    assert_eq!((gap, bytes.len()), (Some((0, 4)), 12));
    // Where something is stored, what follows it is not dropped.
    log.push(Stream::Stdout, b"efgh");
    log.replay.skip(12);
    assert_eq!(log.drain(4, 9).1.len(), 16);
}

proptest! {
    #[test]
    fn the_log_agrees_with_a_naive_one(
        capacity in 0usize..40,
        stored in 0u64..90,
        block in 1usize..30,
        pushes in prop::collection::vec((any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..30),
        most in 1usize..50,
        from in 0u64..2000,
        gives_up_after in 0usize..60,
    ) {
        let mut log = log(capacity, stored, block);
        let mut naive = Vec::new();
        for (index, (is_stderr, stores, bytes)) in pushes.iter().enumerate() {
            let stream = if *is_stderr { Stream::Stderr } else { Stream::Stdout };
            log.push(stream, bytes);
            naive.extend(bytes.iter().map(|byte| (*byte, *is_stderr)));
            if *stores {
                log.store();
            }
            if index == gives_up_after {
                log.replay.stop_storing();
            }
        }
        log.store();
        let total = naive.len() as u64;
        let gave_up = stored == 0 || gives_up_after < pushes.len();
        prop_assert_eq!(log.replay.total(), total);
        let start = log.replay.oldest();
        // At least what was promised is held; without a file exactly that.
        let promised = capacity as u64 + if gave_up { 0 } else { stored };
        prop_assert!(start <= total.saturating_sub(promised));
        if stored == 0 {
            prop_assert_eq!(start, total.saturating_sub(promised));
        }
        // Memory holds what it may and a block or two, and the file what it may.
        let held: usize = log.replay.blocks.iter().map(|one| one.bytes.len()).sum();
        prop_assert!(held <= capacity + 2 * block.max(60));
        prop_assert!(log.file.len() as u64 <= stored);
        let allocated: usize = log.replay.blocks.iter().map(|one| one.bytes.capacity()).sum();
        prop_assert_eq!(log.replay.allocated, allocated);

        // What is read from the file ends where memory begins: beyond lie the bytes of an earlier round.
        if let Some(span) = log.replay.on_disk(from, most as u64) {
            let [index, place, count] = [from, span.position, span.length].map(length);
            prop_assert!(span.length > 0 && from >= start && from + span.length <= log.replay.in_memory());
            let expected: Vec<u8> = naive[index..index + count].iter().map(|(byte, _)| *byte).collect();
            prop_assert_eq!(&log.file[place..place + count], &expected[..]);
        } else {
            prop_assert!(from < start || from >= log.replay.in_memory());
        }

        let (gap, bytes) = log.drain(from, most);
        prop_assert_eq!(gap, (from < start && from < total).then_some((from, start)));
        let first = usize::try_from(from.max(start).min(total)).expect("small");
        prop_assert_eq!(bytes, naive[first..].to_vec());
    }
}
