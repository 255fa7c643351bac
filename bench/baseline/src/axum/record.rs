//! What one exec has written: the head of each stream, a replay ring of chunks, and a broadcast channel for followers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::broadcast;

/// Bytes of each stream kept for the polled result.
const HEAD_BYTES: usize = 8 << 20;
/// Bytes of both streams kept for followers that come later.
const RING_BYTES: usize = 1 << 20;
/// Chunks that a follower may be behind.
const CHANNEL_SLOTS: usize = 256;

/// One read of one stream.
#[derive(Clone)]
pub(super) struct Chunk {
    pub(super) offset: u64,
    pub(super) stream: &'static str,
    pub(super) bytes: Bytes,
}

impl Chunk {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Drops the first `count` bytes.
    pub(super) fn cut(&mut self, count: u64) {
        let count = usize::try_from(count).map_or(self.bytes.len(), |n| n.min(self.bytes.len()));
        self.bytes = self.bytes.slice(count..);
        self.offset += count as u64;
    }
}

/// What followers are sent.
#[derive(Clone)]
pub(super) enum News {
    Output(Chunk),
    Exit,
}

/// How an exec ended.
#[derive(Clone, Serialize)]
pub(super) struct Ending {
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) truncated: bool,
    pub(super) writers_may_be_alive: bool,
}

pub(super) struct Record {
    news: broadcast::Sender<News>,
    kept: Mutex<Kept>,
}

struct Kept {
    ring: VecDeque<Chunk>,
    ring_bytes: usize,
    total: u64,
    heads: [Vec<u8>; 2],
    truncated: bool,
    ending: Option<Ending>,
    /// Both heads as text, made once at the end.
    result: [String; 2],
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            news: broadcast::channel(CHANNEL_SLOTS).0,
            kept: Mutex::new(Kept {
                ring: VecDeque::new(),
                ring_bytes: 0,
                total: 0,
                heads: [Vec::new(), Vec::new()],
                truncated: false,
                ending: None,
                result: [String::new(), String::new()],
            }),
        }
    }

    /// Adds one read of `stream`, 0 for standard output.
    pub(super) fn push(&self, stream: usize, bytes: &[u8]) {
        let mut kept = self.kept();
        let head = &mut kept.heads[stream];
        let room = bytes.len().min(HEAD_BYTES - head.len());
        head.extend_from_slice(&bytes[..room]);
        kept.truncated |= room < bytes.len();
        let chunk = Chunk {
            offset: kept.total,
            stream: ["stdout", "stderr"][stream],
            bytes: Bytes::copy_from_slice(bytes),
        };
        kept.total += bytes.len() as u64;
        kept.ring_bytes += bytes.len();
        kept.ring.push_back(chunk.clone());
        kept.trim();
        // Sent under the lock, so that a new follower misses nothing. No receiver is no error here.
        let _ = self.news.send(News::Output(chunk));
    }

    pub(super) fn end(&self, exit_code: Option<i32>, signal: Option<i32>, is_cut: bool) {
        let mut kept = self.kept();
        kept.result = [0, 1].map(|stream| {
            let head = std::mem::take(&mut kept.heads[stream]);
            String::from_utf8_lossy(&head).into_owned()
        });
        kept.ending = Some(Ending {
            exit_code,
            signal,
            truncated: kept.truncated,
            writers_may_be_alive: is_cut,
        });
        let _ = self.news.send(News::Exit);
    }

    /// What is still held, and a receiver of everything after it.
    pub(super) fn subscribe(&self) -> (VecDeque<Chunk>, broadcast::Receiver<News>) {
        let kept = self.kept();
        (kept.ring.clone(), self.news.subscribe())
    }

    /// The end, when it has come, and the number of bytes written.
    pub(super) fn ending(&self) -> (Option<Ending>, u64) {
        let kept = self.kept();
        (kept.ending.clone(), kept.total)
    }

    pub(super) fn result(&self) -> Option<(Ending, [String; 2])> {
        let kept = self.kept();
        Some((kept.ending.clone()?, kept.result.clone()))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Drops the oldest bytes past the size of the ring.
    fn trim(&mut self) {
        while self.ring_bytes > RING_BYTES {
            let excess = self.ring_bytes - RING_BYTES;
            let Some(oldest) = self.ring.front_mut() else {
                return;
            };
            if oldest.bytes.len() > excess {
                oldest.cut(excess as u64);
                self.ring_bytes = RING_BYTES;
                return;
            }
            self.ring_bytes -= oldest.bytes.len();
            self.ring.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_holds_exactly_its_size() {
        let record = Record::new();
        for _ in 0..70 {
            record.push(0, &[7; 16_000]);
        }
        let (ring, _) = record.subscribe();
        assert_eq!(
            ring.iter().map(|chunk| chunk.bytes.len()).sum::<usize>(),
            RING_BYTES
        );
        assert_eq!(ring[0].offset, 70 * 16_000 - RING_BYTES as u64);
        assert_eq!(ring[ring.len() - 1].end(), 70 * 16_000);
    }
}
