//! Waits on a clock that jumps, on both drivers.

use std::future::pending;

use super::jump::{jump, pass, seen};
use super::running::TOLERANCE;
use super::*;
use crate::ring::{self, Choice, notify::Once};

const HOURS: Duration = Duration::from_secs(5 * 3600);
const LONG: Duration = Duration::from_secs(600);

fn on_both<F: Future<Output = ()> + 'static>(main: fn() -> F) {
    for choice in [Choice::Auto, Choice::Epoll] {
        let run = move || {
            let outcome = ring::start(choice, async move {
                main().await;
                0
            });
            assert_eq!(outcome.expect("the driver starts"), 0);
        };
        let joined = std::thread::spawn(run).join();
        assert!(joined.is_ok(), "failed on {choice}");
    }
}

/// Starts a wait of this length; tells what has become of it.
fn wait_for(span: Duration) -> Rc<Once<bool>> {
    let over = Rc::new(Once::default());
    let told = Rc::clone(&over);
    spawn("wait", async move {
        let in_time = within(span, pending::<()>()).await;
        told.set(in_time.is_none());
    });
    over
}

#[test]
fn a_jump_of_five_hours_ends_no_wait() {
    on_both(|| async {
        let waits = [ms(3000), LONG, HOURS].map(wait_for);
        seen().await;
        let (start, deadline) = (now(), Deadline::after(LONG));
        jump(HOURS);
        seen().await;
        assert!(waits.iter().all(|wait| wait.peek().is_none()));
        assert!(!deadline.has_passed());
        // What is left is what was left, less the time in which this test really ran.
        let left = deadline.left().expect("it comes");
        let ran = now().since(start);
        assert!(left <= LONG && left + ran >= LONG, "{left:?} after {ran:?}");
        assert!(ran < HOURS);
    });
}

#[test]
fn a_wait_ends_after_its_running_time_however_often_the_clock_jumps() {
    on_both(|| async {
        let wait = wait_for(LONG);
        seen().await;
        for _ in 0..5 {
            jump(HOURS);
            pass(LONG / 10).await;
        }
        assert_eq!(wait.peek(), None, "half of it has passed");
        pass(LONG / 2 + 2 * TOLERANCE).await;
        assert_eq!(wait.peek(), Some(true));
    });
}

#[test]
fn a_small_delay_is_not_swallowed() {
    on_both(|| async {
        for late in [Duration::ZERO, TOLERANCE / 2] {
            let wait = wait_for(ms(700));
            seen().await;
            let start = now();
            jump(ms(700) + late);
            seen().await;
            assert_eq!(wait.peek(), Some(true));
            assert!(now().since(start) >= ms(700) + late);
        }
    });
}

#[test]
fn a_look_that_is_not_the_clocks_absorbs_the_jump_too() {
    on_both(|| async {
        let wait = wait_for(LONG);
        seen().await;
        jump(HOURS);
        // Before the clock is told of its timer, somebody asks for a deadline.
        let deadline = Deadline::after(LONG);
        assert!(deadline.left() <= Some(LONG));
        seen().await;
        assert_eq!(wait.peek(), None);
        assert!(!deadline.has_passed());
    });
}

#[test]
fn the_clock_ticks_while_anybody_waits_and_then_rests() {
    on_both(|| async {
        let planned = || TIME.get().planned();
        let wait = wait_for(LONG);
        for _ in 0..3 {
            seen().await;
            let next = planned().expect("somebody waits");
            assert!(next.since(now()) <= TICK);
            jump(TICK);
        }
        pass(LONG).await;
        assert_eq!(wait.peek(), Some(true));
        // The alarm that `seen` waits for is the last.
        assert_eq!(planned(), None);
    });
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
