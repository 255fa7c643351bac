//! What the clocks said before a freeze, and what has passed on each of them after it.

use std::cell::Cell;

use crate::ring::clock::{Passed, Reading};

/// The last reading of the clocks, and what it was taken at.
pub(super) struct Clocks {
    last: Cell<(Reading, &'static str)>,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            last: Cell::new((Reading::now(), "start")),
        }
    }
}

impl Clocks {
    /// Reads the clocks, to be compared with later.
    pub(super) fn mark(&self, at: &'static str) {
        self.last.set((Reading::now(), at));
    }

    /// Tells what passed since the last reading; a jump is a warning.
    pub(super) fn tell(&self) {
        let (last, since) = self.last.get();
        let passed = last.until(&Reading::now());
        let Passed {
            running,
            monotonic,
            boottime,
            realtime,
        } = passed;
        let [ran, monotonic, boottime, realtime, jump] =
            [running, monotonic, boottime, realtime, passed.jump()].map(in_ms);
        if jump >= NOTICEABLE {
            tracing::warn!(
                since,
                ran,
                monotonic,
                boottime,
                realtime,
                jump,
                "resumed: a clock has jumped"
            );
        } else {
            tracing::info!(
                since,
                ran,
                monotonic,
                boottime,
                realtime,
                jump,
                "resumed: no clock has jumped"
            );
        }
    }
}

/// Seconds, to a thousandth.
fn in_ms(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// Seconds by which clocks may differ without anybody noticing.
const NOTICEABLE: f64 = 1.0;
