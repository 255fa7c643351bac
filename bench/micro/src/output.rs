//! The way of an exec's output to a follower: kept for replay, read from there, encoded as events.

use std::hint::black_box;

use ringd::exec::Stream;
use ringd::exec::replay::{Piece, Replay};
use ringd::wire::{base64, json, sse};

use crate::{Bench, Round, noise};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "output/sse-1k",
        bytes: 1024,
        prepare: || events(1024),
    },
    Bench {
        name: "output/sse-64k",
        bytes: 65_536,
        prepare: || events(65_536),
    },
    Bench {
        name: "output/base64-encode-64k",
        bytes: 65_536,
        prepare: encode,
    },
    Bench {
        name: "output/base64-decode-64k",
        bytes: 65_536,
        prepare: decode,
    },
    Bench {
        name: "output/json-16k",
        bytes: 16_384,
        prepare: escape,
    },
    Bench {
        name: "output/replay-push-lines",
        bytes: HELD / 2,
        prepare: push_lines,
    },
    Bench {
        name: "output/replay-push-both-streams",
        bytes: HELD / 8,
        prepare: push_both_streams,
    },
    Bench {
        name: "output/replay-read",
        bytes: HELD,
        prepare: read,
    },
];

/// As a follower has it: an event for each 16 KiB, each in a text of its own that is known to be long enough.
fn events(length: usize) -> Round {
    let output = noise(length);
    Box::new(move || {
        let mut offset = 0;
        let mut written = 0;
        for bytes in black_box(&output).chunks(EVENT) {
            let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4 + 96);
            sse::output(&mut text, offset, Stream::Stdout.name(), bytes);
            offset += bytes.len() as u64;
            written += black_box(text).len();
        }
        written
    })
}

fn encode() -> Round {
    let bytes = noise(65_536);
    let mut text = Vec::with_capacity(65_536 * 2);
    Box::new(move || {
        text.clear();
        base64::append(&mut text, black_box(&bytes));
        text.len()
    })
}

fn decode() -> Round {
    let mut text = Vec::new();
    base64::append(&mut text, &noise(65_536));
    let text = String::from_utf8(text).expect("base64 is ASCII");
    Box::new(move || base64::decode(black_box(&text)).map_or(0, |bytes| bytes.len()))
}

/// A log of a compiler: mostly plain, now and then a quote, a tab, a letter beyond ASCII, a byte that is no text.
fn escape() -> Round {
    let line =
        b"warning: unused variable: `\xc3\xa9t\xc3\xa9`\n\t--> src/main.rs:4:9 \"here\" \xff\n";
    let log: Vec<u8> = line.iter().copied().cycle().take(16_384).collect();
    let mut text = Vec::with_capacity(log.len() * json::MOST_PER_BYTE);
    Box::new(move || {
        text.clear();
        json::escape(&mut text, black_box(&log));
        text.len()
    })
}

/// Half of what is held comes anew, in lines of 2 KiB, and as much goes.
fn push_lines() -> Round {
    let mut replay = full();
    let mut line = noise(2048);
    Box::new(move || {
        let before = replay.total();
        for _ in 0..HELD / 2 / line.len() {
            replay.push(Stream::Stdout, black_box(&mut line));
        }
        since(&replay, before)
    })
}

/// Both streams in turns, 64 bytes each: every push begins a run.
fn push_both_streams() -> Round {
    let mut replay = full();
    let mut word = noise(64);
    Box::new(move || {
        let before = replay.total();
        for _ in 0..HELD / 8 / word.len() / 2 {
            replay.push(Stream::Stdout, black_box(&mut word));
            replay.push(Stream::Stderr, black_box(&mut word));
        }
        since(&replay, before)
    })
}

/// A follower that comes late reads all that is held, an event's worth at a time.
fn read() -> Round {
    let replay = full();
    Box::new(move || {
        let mut at = 0;
        let mut found = 0;
        loop {
            match black_box(&replay).read(at, EVENT) {
                Piece::Gap { to, .. } => at = to,
                Piece::Bytes { bytes, .. } => {
                    at += bytes.len() as u64;
                    found += bytes.len();
                }
                Piece::Nothing | Piece::Stored { .. } => return found,
            }
        }
    })
}

/// A log through which so much has gone that it gives up as much as it takes; its streams take turns.
fn full() -> Replay {
    let mut replay = Replay::new(HELD, 0);
    let mut bytes = noise(3000);
    for _ in 0..4 * HELD / bytes.len() / 2 {
        replay.push(Stream::Stdout, &mut bytes);
        replay.push(Stream::Stderr, &mut bytes);
    }
    replay
}

fn since(replay: &Replay, before: u64) -> usize {
    usize::try_from(replay.total() - before).unwrap_or(0)
}

/// Bytes that a log holds.
const HELD: usize = 1024 * 1024;
/// Bytes of output in an event.
const EVENT: usize = 16 * 1024;
