//! Every clock of the machine read at once, and what passed on each between two readings.
//!
//! A guest that was frozen sees it in different ways: the monotonic clock may have jumped (a restored machine), only the
//! one of the boot may have gone on (a machine that slept), or only the wall clock may have been set.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{Moment, monotonic, now};

/// What the clocks say.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    running: Moment,
    /// CLOCK_MONOTONIC.
    monotonic: Duration,
    /// CLOCK_BOOTTIME: as before, and the time that the kernel slept.
    boottime: Duration,
    /// CLOCK_REALTIME, since 1970.
    realtime: Duration,
}

/// What passed between two readings, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    /// Time in which this process ran.
    pub running: f64,
    /// On the monotonic clock.
    pub monotonic: f64,
    /// On the clock of the boot.
    pub boottime: f64,
    /// On the wall clock; negative when it was set back.
    pub realtime: f64,
}

impl Reading {
    /// Reads every clock.
    pub fn now() -> Self {
        Self {
            running: now(),
            monotonic: monotonic(),
            boottime: clock(ClockId::Boottime),
            realtime: clock(ClockId::Realtime),
        }
    }

    /// What passed from this reading to a later one.
    pub fn until(&self, later: &Self) -> Passed {
        let between = |from: Duration, to: Duration| to.as_secs_f64() - from.as_secs_f64();
        Passed {
            running: later.running.since(self.running).as_secs_f64(),
            monotonic: between(self.monotonic, later.monotonic),
            boottime: between(self.boottime, later.boottime),
            realtime: between(self.realtime, later.realtime),
        }
    }
}

impl Passed {
    /// By how much the clocks differ at most: how far one of them has jumped.
    pub fn jump(&self) -> f64 {
        let clocks = [self.running, self.monotonic, self.boottime, self.realtime];
        let most = clocks.iter().copied().fold(f64::MIN, f64::max);
        let least = clocks.iter().copied().fold(f64::MAX, f64::min);
        most - least
    }
}

fn clock(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(running: u64, monotonic: u64, boottime: u64, realtime: u64) -> Reading {
        let seconds = Duration::from_secs;
        Reading {
            running: Moment::at(seconds(running)),
            monotonic: seconds(monotonic),
            boottime: seconds(boottime),
            realtime: seconds(realtime),
        }
    }

    #[track_caller]
    fn check(later: Reading, expected: [f64; 4], jump: f64) {
        let passed = at(10, 100, 200, 5000).until(&later);
        let clocks = [
            passed.running,
            passed.monotonic,
            passed.boottime,
            passed.realtime,
        ];
        assert_eq!((clocks, passed.jump()), (expected, jump));
    }

    #[test]
    fn time_that_ran_is_the_same_on_every_clock() {
        check(at(13, 103, 203, 5003), [3.0; 4], 0.0);
    }

    #[test]
    fn a_restored_machine_has_every_clock_ahead_of_what_ran() {
        check(at(11, 701, 801, 5601), [1.0, 601.0, 601.0, 601.0], 600.0);
    }

    #[test]
    fn a_machine_that_slept_has_its_monotonic_clock_behind() {
        check(at(11, 101, 801, 5601), [1.0, 1.0, 601.0, 601.0], 600.0);
    }

    #[test]
    fn a_wall_clock_that_was_set_back_is_a_jump_too() {
        check(at(12, 102, 202, 4000), [2.0, 2.0, 2.0, -1000.0], 1002.0);
    }

    #[test]
    fn two_readings_in_a_row_differ_by_little() {
        let first = Reading::now();
        let passed = first.until(&Reading::now());
        assert!(
            passed.monotonic >= 0.0 && passed.boottime >= 0.0,
            "{passed:?}"
        );
    }
}
