//! For tests: a monotonic clock that can be moved ahead, as a restored machine finds it.

use std::cell::Cell;
use std::time::Duration;

use super::{CLOCK, sleep};

thread_local! {
    static JUMPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How far ahead of the kernel's the clock of this thread is.
pub(super) fn jumped() -> Duration {
    JUMPED.get()
}

/// Moves the clock ahead at once. A timer that is set finds its time passed and fires, as the kernel's does.
pub(crate) fn jump(span: Duration) {
    JUMPED.set(JUMPED.get() + span);
    if let Some(clock) = CLOCK.with_borrow(Clone::clone) {
        clock.set(Duration::ZERO);
    }
}

/// Moves the clock ahead in steps as a machine that runs makes them, and lets everybody see each.
pub(crate) async fn pass(span: Duration) {
    let mut left = span;
    while !left.is_zero() {
        let step = left.min(STEP);
        jump(step);
        seen().await;
        left -= step;
    }
}

/// Waits until the clock has looked and has woken everybody who is due.
pub(crate) async fn seen() {
    // An alarm of its own behind those: too far away to be due before the clock looks.
    sleep(Duration::from_millis(1)).await;
}

const STEP: Duration = Duration::from_millis(500);
