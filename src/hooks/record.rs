//! The record of invocations: the first ones are remembered, later ones counted.

use std::cell::{Cell, RefCell};

use schemars::JsonSchema;
use serde::Serialize;

use super::handler::Outcome;

/// One invocation as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "HookObservation")]
pub struct Observation {
    /// The hook: `ready`, `validate`, `run`, `suspend`, `resume` or `terminate`.
    pub hook: &'static str,
    /// Seconds since 1970, on the guest's clock.
    pub fired_at: u64,
    /// How its handler ended; absent while there is none or it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<Outcome>,
}

/// The invocations of one daemon.
#[derive(Default)]
pub(super) struct Record {
    seen: RefCell<Vec<Observation>>,
    dropped: Cell<u64>,
}

/// Invocations that are remembered; the earliest are kept (contract, D20).
pub const REMEMBERED: usize = 64;

impl Record {
    /// Adds an invocation; answers its place, `None` when there is none left.
    pub(super) fn add(&self, hook: &'static str, fired_at: u64) -> Option<usize> {
        let mut seen = self.seen.borrow_mut();
        if seen.len() >= REMEMBERED {
            self.dropped.set(self.dropped.get() + 1);
            return None;
        }
        seen.push(Observation {
            hook,
            fired_at,
            handler: None,
        });
        Some(seen.len() - 1)
    }

    /// Notes how the handler of an invocation ended.
    pub(super) fn settle(&self, slot: Option<usize>, outcome: Outcome) {
        let mut seen = self.seen.borrow_mut();
        if let Some(observation) = slot.and_then(|slot| seen.get_mut(slot)) {
            observation.handler = Some(outcome);
        }
    }

    pub(super) fn seen(&self) -> Vec<Observation> {
        self.seen.borrow().clone()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_are_kept_and_the_rest_is_counted() {
        let record = Record::default();
        for second in 0..70 {
            let slot = record.add("resume", second);
            assert_eq!(slot.is_some(), second < 64, "{second}");
        }
        let seen = record.seen();
        assert_eq!((seen.len(), record.dropped()), (REMEMBERED, 6));
        assert_eq!((seen[0].fired_at, seen[63].fired_at), (0, 63));
    }

    #[test]
    fn an_outcome_stands_beside_its_own_invocation() {
        let record = Record::default();
        let slots = ["suspend", "resume", "suspend"].map(|hook| record.add(hook, 7));
        record.settle(slots[1], Outcome::not_run("why".into(), 3));
        record.settle(None, Outcome::not_run("nowhere".into(), 3));
        let told = serde_json::to_string(&record.seen()).expect("plain data");
        let expected = r#"[{"hook":"suspend","fired_at":7},"#.to_owned()
            + r#"{"hook":"resume","fired_at":7,"handler":{"exit_code":null,"signal":null,"#
            + r#""timed_out":false,"duration_ms":3,"error":"why"}},"#
            + r#"{"hook":"suspend","fired_at":7}]"#;
        assert_eq!(told, expected);
    }
}
