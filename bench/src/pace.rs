//! How many rounds there are: a number of them, or as many as fit into a time.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// When a scenario has had its rounds.
#[derive(Debug)]
pub(crate) enum Pace {
    /// So many, in every scenario.
    Rounds(usize),
    /// As many as fit.
    Time(TimeTable),
}

/// The time that is left is shared among the scenarios that are left, so that what one does not need goes to others.
#[derive(Debug)]
pub(crate) struct TimeTable {
    until: Instant,
    /// Scenarios that have not begun.
    ahead: Cell<u32>,
    begun: Cell<Instant>,
    first_round: Cell<Instant>,
    /// When the present scenario should be over.
    present_until: Cell<Instant>,
}

impl Pace {
    /// From now on, `scenarios` of them in `time`; each has [`LEAST_ROUNDS`] even when that takes longer.
    pub(crate) fn within(time: Duration, scenarios: u32) -> Self {
        let now = Instant::now();
        Self::Time(TimeTable {
            until: now + time,
            ahead: Cell::new(scenarios),
            begun: Cell::new(now),
            first_round: Cell::new(now),
            present_until: Cell::new(now),
        })
    }

    /// A scenario begins.
    pub(crate) fn begin(&self) {
        if let Self::Time(table) = self {
            table.begin(Instant::now());
        }
    }

    /// Whether there is another round after `done` of them.
    pub(crate) fn goes_on(&self, done: usize) -> bool {
        match self {
            Self::Rounds(rounds) => done < *rounds,
            Self::Time(table) => table.goes_on(done, Instant::now()),
        }
    }

    /// What a reader is shown after `done` rounds, and how much of the scenario that is.
    pub(crate) fn shown(&self, done: usize) -> (String, f64) {
        match self {
            // The check counts as a round.
            Self::Rounds(rounds) => (
                format!("round {done} of {rounds}"),
                done as f64 / (rounds + 1) as f64,
            ),
            Self::Time(table) => (format!("round {done}"), table.share(Instant::now())),
        }
    }
}

impl TimeTable {
    fn begin(&self, now: Instant) {
        let share = self.until.saturating_duration_since(now) / self.ahead.get().max(1);
        self.ahead.set(self.ahead.get().saturating_sub(1));
        self.begun.set(now);
        self.first_round.set(now);
        self.present_until.set(now + share);
    }

    fn goes_on(&self, done: usize, now: Instant) -> bool {
        let Ok(rounds @ 1..) = u32::try_from(done) else {
            self.first_round.set(now);
            return done == 0;
        };
        let round = now.duration_since(self.first_round.get()) / rounds;
        let fits = done < MOST_ROUNDS && now + round <= self.present_until.get();
        done < LEAST_ROUNDS || fits
    }

    fn share(&self, now: Instant) -> f64 {
        let whole = self.present_until.get().duration_since(self.begun.get());
        let done = now.duration_since(self.begun.get());
        (done.as_secs_f64() / whole.as_secs_f64().max(1e-9)).min(1.0)
    }
}

/// From so many on a comparison can be sure of something.
pub(crate) const LEAST_ROUNDS: usize = 5;
/// More of them say nothing new.
const MOST_ROUNDS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Rounds of each scenario in `time`, when a check and each round take what is given, in seconds.
    fn rounds(time: u32, scenarios: &[(u32, u32)]) -> Vec<usize> {
        let count = u32::try_from(scenarios.len()).expect("a few");
        let Pace::Time(table) = Pace::within(SECOND * time, count) else {
            panic!("it is one");
        };
        let mut now = table.until - SECOND * time;
        let run = |(check, round): &(u32, u32)| {
            table.begin(now);
            now += SECOND * *check;
            let mut done = 0;
            while table.goes_on(done, now) {
                now += SECOND * *round;
                done += 1;
            }
            done
        };
        scenarios.iter().map(run).collect()
    }

    #[test]
    fn rounds_go_on_until_the_time_is_used() {
        assert_eq!(rounds(60, &[(0, 2), (0, 3)]), [15, 10]);
    }

    #[test]
    fn a_check_is_part_of_the_time() {
        assert_eq!(rounds(60, &[(10, 2), (0, 3)]), [10, 10]);
    }

    #[test]
    fn what_one_does_not_need_the_others_have() {
        // The first one stops short of a round that would not fit.
        assert_eq!(rounds(60, &[(0, 4), (0, 2)]), [7, 16]);
    }

    #[test]
    fn there_are_always_enough_and_never_too_many() {
        assert_eq!(rounds(10, &[(0, 9), (0, 9)]), [LEAST_ROUNDS; 2]);
        assert_eq!(rounds(100_000, &[(0, 1)]), [MOST_ROUNDS]);
    }

    #[test]
    fn a_number_of_rounds_is_that_number() {
        let pace = Pace::Rounds(2);
        assert!(pace.goes_on(0) && pace.goes_on(1) && !pace.goes_on(2));
        assert_eq!(pace.shown(1), ("round 1 of 2".to_owned(), 1.0 / 3.0));
    }
}
