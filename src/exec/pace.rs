//! How often a pipe is read: at once while little comes, seldom while much does.
//!
//! A writer that fills a pipe at gigabytes per second pays for each wake-up of its reader more than for the bytes it
//! writes. So after a read that came at such a rate the reader waits until the pipe should be half full.

use std::time::{Duration, Instant};

/// The pace of one reader.
pub(super) struct Pace {
    /// Bytes that the pipe holds; there is no pause where that is not known.
    room: Option<usize>,
    last: Instant,
}

impl Pace {
    /// The pace of a reader that begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            room: None,
            last: now,
        }
    }

    /// Says how much the pipe holds.
    pub(super) fn set_room(&mut self, room: Option<usize>) {
        self.room = room;
    }

    /// How long to wait after `bytes` were read and nothing is left.
    pub(super) fn pause(&mut self, bytes: usize, now: Instant) -> Option<Duration> {
        let took = now.saturating_duration_since(self.last);
        self.last = now;
        let (room, bytes) = (self.room? as u128, bytes as u128);
        let is_hot = bytes >= LEAST_BYTES && bytes * 1_000_000_000 >= HOT * took.as_nanos();
        if !is_hot {
            return None;
        }
        let half_full = took.as_nanos().max(1) * (room / 2) / bytes;
        let nanos = u64::try_from(half_full).unwrap_or(u64::MAX);
        Some(Duration::from_nanos(nanos).min(LONGEST))
    }
}

/// Bytes per second from which on a stream is read seldom.
const HOT: u128 = 256 * 1024 * 1024;
/// Bytes that say something about a rate.
const LEAST_BYTES: u128 = 4096;
/// The longest pause: what a follower of much output may be behind.
const LONGEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn check(room: Option<usize>, bytes: usize, took_us: u64, expected: Option<u64>) {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.set_room(room);
        let pause = pace.pause(bytes, start + Duration::from_micros(took_us));
        assert_eq!(pause, expected.map(Duration::from_micros));
    }

    #[test]
    fn little_output_is_read_at_once() {
        check(Some(MIB), 100, 0, None);
        check(Some(MIB), 4096, 100, None);
        check(Some(MIB), 1024 * 1024, 10_000, None);
    }

    #[test]
    fn much_output_is_read_when_the_pipe_is_half_full() {
        check(Some(MIB), 64 * 1024, 50, Some(400));
        check(Some(MIB), MIB / 2, 200, Some(200));
        check(Some(64 * 1024), 64 * 1024, 50, Some(25));
    }

    #[test]
    fn no_pause_is_long() {
        check(Some(1 << 30), 8192, 20, Some(1000));
    }

    #[test]
    fn without_a_pipe_there_is_no_pause() {
        check(None, MIB, 1, None);
    }
}
