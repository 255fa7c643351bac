//! Time: sleeping, bounding a wait, and deadlines that count running time only.

use std::future::Future;
use std::time::{Duration, Instant};

/// A point in running time (CLOCK_MONOTONIC: it stands still while the guest is suspended), or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline that never comes.
    pub const NEVER: Self = Self(None);

    /// The deadline `span` from now; a span too long to represent never comes.
    pub fn after(span: Duration) -> Self {
        if span > LONGEST {
            return Self::NEVER;
        }
        Self(Instant::now().checked_add(span))
    }

    /// True once the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|at| Instant::now() >= at)
    }

    /// Running time left, zero when it has passed, `None` when it never comes.
    pub fn left(self) -> Option<Duration> {
        self.0
            .map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Waits for `span`, at a resolution of one millisecond.
pub async fn sleep(span: Duration) {
    if span > LONGEST {
        std::future::pending::<()>().await;
    }
    monoio::time::sleep(span).await;
}

/// The outcome of `future`, or `None` when `span` passes first; `future` is then dropped.
pub async fn within<F: Future>(span: Duration, future: F) -> Option<F::Output> {
    if span > LONGEST {
        return Some(future.await);
    }
    monoio::time::timeout(span, future).await.ok()
}

/// The outcome of `future`, or `None` when `deadline` passes first.
pub async fn until<F: Future>(deadline: Deadline, future: F) -> Option<F::Output> {
    match deadline.left() {
        Some(left) => within(left, future).await,
        None => Some(future.await),
    }
}

/// A year: what is further away never comes. The runtime's timer wheel holds about two.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
