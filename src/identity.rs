//! What makes this guest another one than its siblings from the same snapshot: repaired once, at the winning run hook.

mod steps;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::ring::clock::within;
use crate::ring::{detached, pool};

/// One step of the repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "IdentityStep")]
pub struct Step {
    /// `machine-id`, `hostname`, `boot-id`, `random-seed` or `cached-credential`.
    pub name: &'static str,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it failed; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "IdentityOutcome")]
pub enum Outcome {
    /// What the snapshot has brought is gone or replaced.
    Repaired,
    /// The snapshot has brought nothing.
    NotApplicable,
    /// It is still there.
    Failed,
}

/// The repair of one daemon: not begun, under way, or over.
#[derive(Default)]
pub struct Repair {
    steps: RefCell<Option<Vec<Step>>>,
    is_late: Cell<bool>,
}

impl Repair {
    /// Repairs, and waits for the end of it for a while: a failure stops nobody from serving.
    pub async fn run(self: &Rc<Self>) {
        let repair = Rc::clone(self);
        let repairing = detached("identity", async move {
            let steps = pool::run(steps::all).await;
            let failed = |error: crate::error::Error| steps::all_failed(&error.to_string());
            repair.settle(steps.unwrap_or_else(failed));
        });
        if within(PATIENCE, repairing).await.is_none() {
            self.is_late.set(true);
            tracing::warn!("the repair of the identity takes long; serving without it");
        }
    }

    /// True once it is over, however it went.
    pub fn is_over(&self) -> bool {
        self.steps.borrow().is_some()
    }

    /// True when a step has failed, or takes too long.
    pub fn is_degraded(&self) -> bool {
        match &*self.steps.borrow() {
            Some(steps) => steps.iter().any(|step| step.outcome == Outcome::Failed),
            None => self.is_late.get(),
        }
    }

    /// The steps; empty before the end.
    pub fn steps(&self) -> Vec<Step> {
        self.steps.borrow().clone().unwrap_or_default()
    }

    fn settle(&self, steps: Vec<Step>) {
        for step in &steps {
            let (name, error) = (step.name, step.error.as_deref());
            match step.outcome {
                Outcome::Repaired => tracing::info!(step = name, "identity repaired"),
                Outcome::NotApplicable => tracing::info!(step = name, "no identity to repair"),
                Outcome::Failed => tracing::warn!(
                    step = name,
                    error,
                    "identity not repaired; serving with that of the snapshot"
                ),
            }
        }
        *self.steps.borrow_mut() = Some(steps);
    }
}

/// How long the answer of the run hook waits for the repair.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn step(outcome: Outcome, error: Option<&str>) -> Step {
        Step {
            name: "boot-id",
            outcome,
            error: error.map(Into::into),
        }
    }

    #[test]
    fn one_failed_step_is_a_degraded_identity() {
        let repair = Repair::default();
        assert!(!repair.is_over() && !repair.is_degraded());
        repair.is_late.set(true);
        assert!(!repair.is_over() && repair.is_degraded());
        let fine = [Outcome::Repaired, Outcome::NotApplicable].map(|outcome| step(outcome, None));
        repair.settle(fine.to_vec());
        assert!(repair.is_over() && !repair.is_degraded());
        let failed = step(Outcome::Failed, Some("no right"));
        repair.settle([&fine[..], &[failed]].concat());
        assert!(repair.is_over() && repair.is_degraded());
    }

    #[test]
    fn a_step_is_told_as_the_contract_names_it() {
        let steps = [
            step(Outcome::NotApplicable, None),
            step(Outcome::Failed, Some("no right")),
        ];
        let told = serde_json::to_string(&steps).expect("plain data");
        let expected = r#"[{"name":"boot-id","outcome":"not_applicable"},"#.to_owned()
            + r#"{"name":"boot-id","outcome":"failed","error":"no right"}]"#;
        assert_eq!(told, expected);
    }
}
