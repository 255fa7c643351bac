//! The replay log: the last bytes of both output streams, in the order they were read, found by offset.
//!
//! ```text
//! offset 0 ··· gone ··· | stored in a file ··· | blocks in memory ··········| total
//!                       oldest()                                    open tail
//! ```
//!
//! This is the bookkeeping; `spill` moves the bytes of old blocks to the file, `follow` reads both.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Stream;
use super::window::{Span, Window};
use crate::ring::buffers;

/// A log of the last bytes of an exec's output; offsets count every byte that was ever pushed.
pub struct Replay {
    blocks: VecDeque<Block>,
    /// Bytes that memory holds before old blocks leave it.
    capacity: u64,
    /// Bytes of one block.
    block: usize,
    /// Bytes of memory that the blocks take.
    allocated: usize,
    /// What is in the file; its end is the beginning of the first block.
    window: Window,
    /// True while blocks that leave memory are to be stored.
    stores: bool,
    total: u64,
    runs: VecDeque<Run>,
    /// Nothing before it is held, whatever the file has: its runs were given up.
    floor: u64,
}

/// What a reader finds at an offset.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Nothing was pushed there yet.
    Nothing,
    /// The bytes in `from..to` are no longer held.
    Gap { from: u64, to: u64 },
    /// Bytes of one stream, beginning at the offset.
    Bytes { stream: Stream, bytes: &'a [u8] },
    /// Bytes of one stream that are in the file, beginning at the offset.
    Stored { stream: Stream, span: Span },
}

/// Bytes in memory that follow each other.
struct Block {
    start: u64,
    /// Shared while the block is being stored; only the last block is added to, and that one is never shared.
    bytes: Arc<Vec<u8>>,
}

impl Replay {
    /// An empty log that holds the last `capacity` bytes in memory and the last `stored` before those in a file.
    pub fn new(capacity: usize, stored: u64) -> Self {
        let block = (capacity / 2).clamp(LEAST_BLOCK, buffers::LEASE);
        Self::of_blocks(capacity, stored, block)
    }

    fn of_blocks(capacity: usize, stored: u64, block: usize) -> Self {
        Self {
            blocks: VecDeque::new(),
            capacity: capacity as u64,
            block,
            allocated: 0,
            window: Window::new(stored),
            stores: stored > 0,
            total: 0,
            runs: VecDeque::new(),
            floor: 0,
        }
    }

    /// Bytes ever pushed.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Offset of the oldest byte held.
    pub(super) fn oldest(&self) -> u64 {
        let held = match self.window.oldest() {
            Some(oldest) => oldest,
            None if self.stores => self.in_memory(),
            None => self
                .in_memory()
                .max(self.total.saturating_sub(self.capacity)),
        };
        held.max(self.floor)
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.allocated + self.runs.capacity() * size_of::<Run>()
    }

    /// Appends bytes that were read from `stream`; a large buffer is taken over, and an empty one left in its place.
    pub fn push(&mut self, stream: Stream, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        if !self.continues_last_run(stream) {
            self.runs.push_back(Run::new(self.total, stream));
        }
        let length = bytes.len() as u64;
        let is_a_block = bytes.len() >= self.block / 4 * 3 && bytes.capacity() <= self.block;
        if is_a_block {
            self.append(std::mem::take(bytes));
        } else {
            self.copy(bytes);
        }
        self.total += length;
        if !self.stores {
            self.forget_old_blocks();
        }
        self.forget_old_runs();
    }

    /// What is at offset `from`: at most `most` bytes of one run, or why there are none.
    ///
    /// Pieces of a run end at multiples of `most` from its beginning, so that readers meet at the same edges.
    pub fn read(&self, from: u64, most: usize) -> Piece<'_> {
        if from >= self.total {
            return Piece::Nothing;
        }
        let oldest = self.oldest();
        if from < oldest {
            return Piece::Gap { from, to: oldest };
        }
        let next = self.runs.partition_point(|run| run.start() <= from);
        let run = self.runs[next - 1];
        let run_end = self.runs.get(next).map_or(self.total, |run| run.start());
        let most = most.max(1) as u64;
        let edge = run.start() + ((from - run.start()) / most + 1) * most;
        let (stream, wanted) = (run.stream(), run_end.min(edge) - from);
        if from < self.in_memory() {
            let wanted = wanted.min(self.in_memory() - from);
            let span = self.window.span(from, wanted);
            return Piece::Stored { stream, span };
        }
        let at = self.blocks.partition_point(|block| block.start <= from) - 1;
        let block = &self.blocks[at];
        let index = length(from - block.start);
        let end = block.bytes.len().min(index + length(wanted));
        let bytes = &block.bytes[index..end];
        Piece::Bytes { stream, bytes }
    }

    /// The oldest block, if it is time to store it: where it begins, and its bytes.
    pub(super) fn excess(&self) -> Option<(u64, Arc<Vec<u8>>)> {
        let second = self.blocks.get(1)?;
        let is_old = self.total - second.start >= self.capacity;
        let first = &self.blocks[0];
        (self.stores && is_old).then(|| (first.start, Arc::clone(&first.bytes)))
    }

    /// True when so much waits to be stored that nothing should be added.
    pub(super) fn is_behind(&self) -> bool {
        self.stores && self.total - self.in_memory() > self.capacity + MOST_WAITING
    }

    /// Where the bytes from `from` on lie in the file, as many of `most` as lie in one piece; nothing when `from` is not
    /// there.
    pub(super) fn on_disk(&self, from: u64, most: u64) -> Option<Span> {
        let left = self.in_memory().checked_sub(from)?;
        let is_held = left > 0 && from >= self.oldest();
        is_held.then(|| self.window.span(from, most.min(left)))
    }

    /// The file's bookkeeping, to place the oldest block.
    pub(super) fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Says that the oldest block, which begins at `start`, is in the file now.
    pub(super) fn stored(&mut self, start: u64) {
        if let Some(block) = self.take_first(start) {
            self.window.settle(block.bytes.len() as u64);
            self.forget(block);
            self.forget_old_runs();
        }
    }

    /// Drops the oldest block, which begins at `start`, for want of a place in the file, which is empty.
    pub(super) fn skip(&mut self, start: u64) {
        if self.window.size() == 0
            && let Some(block) = self.take_first(start)
        {
            self.forget(block);
            self.forget_old_runs();
        }
    }

    /// The oldest block, if it begins at `start` still and old blocks are stored still.
    fn take_first(&mut self, start: u64) -> Option<Block> {
        let is_first = self
            .blocks
            .front()
            .is_some_and(|first| first.start == start);
        let taken = (self.stores && is_first).then(|| self.blocks.pop_front());
        taken.flatten()
    }

    /// Gives up the file and what is in it: from now on old blocks are dropped.
    pub(super) fn stop_storing(&mut self) {
        self.stores = false;
        self.window = Window::new(0);
        self.forget_old_blocks();
        self.forget_old_runs();
    }

    /// Offset of the first byte in memory.
    fn in_memory(&self) -> u64 {
        self.blocks.front().map_or(self.total, |block| block.start)
    }

    /// Short runs of one stream are joined: a child that writes byte by byte must not cost a record per byte.
    fn continues_last_run(&self, stream: Stream) -> bool {
        self.runs
            .back()
            .is_some_and(|run| run.stream() == stream && self.total - run.start() < SHORT_RUN)
    }

    fn append(&mut self, bytes: Vec<u8>) {
        self.allocated += bytes.capacity();
        let start = self.end_of_blocks();
        self.blocks.push_back(Block {
            start,
            bytes: Arc::new(bytes),
        });
    }

    fn copy(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.room() == 0 {
                let is_first = self.blocks.is_empty();
                let is_whole = self.block == buffers::LEASE;
                // Whoever has filled one block is likely to fill another.
                self.append(match is_whole && !is_first {
                    true => buffers::take(),
                    false => Vec::new(),
                });
            }
            let (now, later) = rest.split_at(rest.len().min(self.room()));
            let tail = self.blocks.back_mut().expect("a block with room is there");
            let tail = Arc::get_mut(&mut tail.bytes).expect("a shared block has no room");
            let before = tail.capacity();
            let needed = tail.len() + now.len();
            if needed > before {
                let size = needed.next_power_of_two().max(LEAST_ROOM).min(self.block);
                tail.reserve_exact(size - tail.len());
            }
            tail.extend_from_slice(now);
            self.allocated += tail.capacity() - before;
            rest = later;
        }
    }

    /// Bytes that can be added to the last block.
    fn room(&mut self) -> usize {
        let Some(tail) = self.blocks.back_mut() else {
            return 0;
        };
        Arc::get_mut(&mut tail.bytes).map_or(0, |tail| self.block.saturating_sub(tail.len()))
    }

    fn end_of_blocks(&self) -> u64 {
        let last = self.blocks.back();
        last.map_or(self.total, |last| last.start + last.bytes.len() as u64)
    }

    fn forget_old_blocks(&mut self) {
        let start = self.total.saturating_sub(self.capacity);
        while self.blocks.get(1).is_some_and(|next| next.start <= start)
            && let Some(block) = self.blocks.pop_front()
        {
            self.forget(block);
        }
    }

    fn forget(&mut self, block: Block) {
        self.allocated -= block.bytes.capacity();
        if let Some(bytes) = Arc::into_inner(block.bytes) {
            buffers::give_back(bytes);
        }
    }

    fn forget_old_runs(&mut self) {
        if self.runs.len() > MOST_RUNS {
            self.floor = self.runs[self.runs.len() - MOST_RUNS].start();
        }
        let oldest = self.oldest();
        while self.runs.get(1).is_some_and(|run| run.start() <= oldest) {
            self.runs.pop_front();
        }
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

/// Lengths here are bounded by a block or by one run.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A run shorter than this is continued by the next bytes of its stream.
const SHORT_RUN: u64 = 1024;
/// Runs that are told apart; of a log with more, the oldest are given up.
const MOST_RUNS: usize = 1 << 19;
/// Bytes of a block in a log with little memory.
const LEAST_BLOCK: usize = 4096;
/// Bytes that a block begins with.
const LEAST_ROOM: usize = 256;
/// Bytes that may wait to be stored before reading pauses.
const MOST_WAITING: u64 = 4 * buffers::LEASE as u64;

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
