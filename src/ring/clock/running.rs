//! Running time: what the monotonic clock says, less the spans in which the machine stood still.
//!
//! A machine that is frozen and restored may find its monotonic clock hours ahead. While anybody waits, the clock room
//! looks at least every [`TICK`], so a step that is much longer than was planned is no time in which anything ran.

use std::marker::PhantomData;
use std::ops::Add;
use std::time::Duration;

/// A point in the running time of this thread; it means nothing to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration, PhantomData<*const ()>);

impl Moment {
    pub(super) const fn at(running: Duration) -> Self {
        Self(running, PhantomData)
    }

    /// Running time since `earlier`; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The end of a span that begins here; a span too long to represent ends as late as there is.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self::at(self.0.saturating_add(span))
    }
}

/// Turns looks at the monotonic clock into running time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningTime {
    /// The latest that the monotonic clock has said.
    seen: Duration,
    now: Moment,
    /// The look that was planned; `None` while nobody waits, and then a step may have any length.
    planned: Option<Moment>,
    /// True when the last planned look was one that came too late.
    was_late: bool,
}

impl RunningTime {
    pub(super) const fn new() -> Self {
        Self {
            seen: Duration::ZERO,
            now: Moment::at(Duration::ZERO),
            planned: None,
            was_late: false,
        }
    }

    /// The time of the last look.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// The look that was planned.
    pub(super) fn planned(&self) -> Option<Moment> {
        self.planned
    }

    /// Says when the next look is planned.
    pub(super) fn plan(&mut self, look: Option<Moment>) {
        self.planned = look;
    }

    /// Looks: moves on to what the monotonic clock says now. Answers the time that was skipped, if any.
    ///
    /// Of a step that is too long nothing counts: how much of it the machine ran is not known, and a deadline had better
    /// be late than early. When the next planned look is too late as well, the machine is slow and not frozen; then
    /// the step counts as what was planned, so that time goes on.
    pub(super) fn look(&mut self, monotonic: Duration) -> Option<Duration> {
        let step = monotonic.saturating_sub(self.seen);
        self.seen = self.seen.max(monotonic);
        let mut skipped = Duration::ZERO;
        if let Some(planned) = self.planned {
            let asked = planned.since(self.now);
            if step > asked + TOLERANCE {
                let counted = if self.was_late { asked } else { Duration::ZERO };
                skipped = step - counted;
                self.was_late = true;
            } else if step >= asked {
                self.was_late = false;
            }
        }
        self.now = self.now + (step - skipped);
        (!skipped.is_zero()).then_some(skipped)
    }
}

/// How far ahead a look is planned at most.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How much later than planned a look may come and still count in full: more than a busy thread or a slow disk makes of
/// it as a rule, less than most freezes.
pub(super) const TOLERANCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOURS: Duration = Duration::from_secs(5 * 3600);
    const START: Duration = Duration::from_secs(1000);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A time that has looked at [`START`] and has planned to look again a tick later.
    fn ticking() -> (RunningTime, Moment) {
        let mut time = RunningTime::new();
        time.look(START);
        time.plan(Some(time.now() + TICK));
        (time, time.now())
    }

    #[test]
    fn a_jump_of_five_hours_counts_nothing() {
        let (mut time, start) = ticking();
        assert_eq!(time.look(START + ms(400)), None);
        assert_eq!(time.look(START + ms(400) + HOURS), Some(HOURS));
        assert_eq!(time.now().since(start), ms(400));
        // From there on it goes on as before.
        assert_eq!(time.look(START + ms(700) + HOURS), None);
        assert_eq!(time.now().since(start), ms(700));
    }

    #[test]
    fn a_delay_within_the_tolerance_counts_in_full() {
        for late in [ms(0), ms(1), ms(500), TOLERANCE] {
            let (mut time, start) = ticking();
            assert_eq!(time.look(START + TICK + late), None);
            assert_eq!(time.now().since(start), TICK + late);
        }
        let (mut time, start) = ticking();
        let late = TICK + TOLERANCE + Duration::from_nanos(1);
        assert_eq!(time.look(START + late), Some(late));
        assert_eq!(time.now(), start);
    }

    #[test]
    fn many_small_steps_past_the_plan_count_in_full() {
        let (mut time, start) = ticking();
        for step in 1..=100 {
            assert_eq!(time.look(START + ms(100 * step)), None);
        }
        assert_eq!(time.now().since(start), ms(10_000));
    }

    #[test]
    fn a_machine_that_is_always_late_still_gets_on() {
        let (mut time, start) = ticking();
        let mut monotonic = START;
        for _ in 0..11 {
            monotonic += Duration::from_secs(7);
            time.look(monotonic);
            time.plan(Some(time.now() + TICK));
        }
        assert_eq!(time.now().since(start), 10 * TICK);
    }

    #[test]
    fn a_look_in_time_makes_the_next_late_one_a_freeze_again() {
        let (mut time, start) = ticking();
        time.look(START + HOURS);
        time.look(START + HOURS + TICK);
        time.plan(Some(time.now() + TICK));
        assert_eq!(time.look(START + 2 * HOURS + TICK), Some(HOURS));
        assert_eq!(time.now().since(start), TICK);
    }

    #[test]
    fn a_clock_that_stands_still_or_steps_back_stands_still() {
        let (mut time, start) = ticking();
        time.look(START + ms(10));
        for monotonic in [START + ms(10), START, Duration::ZERO] {
            assert_eq!(time.look(monotonic), None);
            assert_eq!(time.now().since(start), ms(10));
        }
        // Once it is past where it was, it counts from there.
        time.look(START + ms(15));
        assert_eq!(time.now().since(start), ms(15));
    }

    #[test]
    fn a_step_has_any_length_while_nobody_waits() {
        let (mut time, start) = ticking();
        time.plan(None);
        assert_eq!(time.look(START + HOURS), None);
        assert_eq!(time.now().since(start), HOURS);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Look(u64),
        Plan(Option<u64>),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0u64..10_000).prop_map(Act::Look),
            (0u64..30_000_000).prop_map(Act::Look),
            prop::option::of(0u64..1001).prop_map(Act::Plan),
        ]
    }

    proptest! {
        #[test]
        fn running_time_never_goes_back_and_never_outruns_the_clock(
            acts in prop::collection::vec(act(), 0..60),
        ) {
            let mut time = RunningTime::new();
            let mut skipped = Duration::ZERO;
            for act in acts {
                match act {
                    Act::Plan(ahead) => time.plan(ahead.map(|ahead| time.now() + ms(ahead))),
                    Act::Look(at) => {
                        let (before, seen) = (time.now(), time.seen);
                        skipped += time.look(ms(at)).unwrap_or_default();
                        prop_assert!(time.now() >= before);
                        prop_assert!(time.now().since(before) <= ms(at).saturating_sub(seen));
                        // What does not count is told, to the last nanosecond.
                        prop_assert_eq!(time.now().0 + skipped, time.seen);
                    }
                }
            }
        }
    }
}
