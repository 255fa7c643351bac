//! The platform's lifecycle hooks as they were invoked: the first ones are remembered, later ones counted.

use std::cell::{Cell, RefCell};

use serde::Serialize;

/// One invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// The hook: `ready`, `validate`, `run`, `suspend`, `resume` or `terminate`.
    pub hook: &'static str,
    /// Seconds since 1970, on the guest's clock.
    pub fired_at: u64,
}

/// The record of invocations.
#[derive(Default)]
pub struct Hooks {
    seen: RefCell<Vec<Observation>>,
    dropped: Cell<u64>,
}

/// Invocations that are remembered; the earliest are kept (contract, D20).
pub const REMEMBERED: usize = 64;

impl Hooks {
    /// Records an invocation, before it is judged.
    pub fn record(&self, hook: &'static str, fired_at: u64) {
        let mut seen = self.seen.borrow_mut();
        if seen.len() < REMEMBERED {
            seen.push(Observation { hook, fired_at });
        } else {
            self.dropped.set(self.dropped.get() + 1);
        }
    }

    /// What is remembered, earliest first.
    pub fn seen(&self) -> Vec<Observation> {
        self.seen.borrow().clone()
    }

    /// How many were not remembered.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_are_kept_and_the_rest_is_counted() {
        let hooks = Hooks::default();
        for second in 0..70 {
            hooks.record("resume", second);
        }
        let seen = hooks.seen();
        assert_eq!((seen.len(), hooks.dropped()), (REMEMBERED, 6));
        assert_eq!((seen[0].fired_at, seen[63].fired_at), (0, 63));
    }
}
