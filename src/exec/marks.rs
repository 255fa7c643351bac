//! Marks by which orphans are told apart: one timer slack value per exec.
//!
//! A process that forks twice and calls `setsid` leaves its group, and its parent is then us, the subreaper: nothing
//! in its parentage says which exec it came from. The timer slack does: it is inherited over fork and exec
//! (prctl(2), `PR_SET_TIMERSLACK`), can be read back from `/proc/PID/timerslack_ns` (with CAP_SYS_NICE; proc(5)),
//! and a value some microseconds above the default of 50 µs changes nothing that can be noticed. A program that sets
//! its own timer slack loses the mark, and so does one under a real-time policy; such an orphan is not found.

use std::collections::HashSet;

/// The marks in use.
#[derive(Default)]
pub(super) struct Marks {
    taken: HashSet<u64>,
    last: u64,
}

impl Marks {
    /// A mark that no other exec has, in nanoseconds; `None` when all are taken.
    ///
    /// Marks are handed out in turn, so that one that was given back rests as long as possible.
    pub(super) fn take(&mut self) -> Option<u64> {
        if self.taken.len() as u64 >= SLOTS {
            return None;
        }
        loop {
            self.last = self.last % SLOTS + 1;
            let mark = DEFAULT_SLACK + self.last;
            if self.taken.insert(mark) {
                return Some(mark);
            }
        }
    }

    /// Gives a mark back.
    pub(super) fn give_back(&mut self, mark: u64) {
        self.taken.remove(&mark);
    }
}

/// The timer slack that the kernel gives to ordinary processes, in nanoseconds.
const DEFAULT_SLACK: u64 = 50_000;
/// Distinct marks.
const SLOTS: u64 = 49_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_given_once_and_the_last_one_is_an_end() {
        let mut marks = Marks::default();
        let all: HashSet<u64> = std::iter::from_fn(|| marks.take()).collect();
        assert_eq!(all.len() as u64, SLOTS);
        assert!(all.iter().all(|mark| (50_001..=99_999).contains(mark)));
        marks.give_back(70_000);
        assert_eq!(marks.take(), Some(70_000));
        assert_eq!(marks.take(), None);
    }
}
