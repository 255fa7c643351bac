//! Which figures are in both, and what is in one only.

use crate::results::{Results, ScenarioResults, Series};

/// One target of BASE and the one of NEW that it is held against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Targets {
    pub(super) base: String,
    pub(super) new: String,
}

impl Targets {
    fn label(&self) -> String {
        if self.base == self.new {
            self.new.clone()
        } else {
            format!("{} → {}", self.base, self.new)
        }
    }
}

/// One metric of one target in one scenario, on both sides, with values on both.
pub(super) struct Pair<'a> {
    pub(super) scenario: &'a str,
    pub(super) target: String,
    pub(super) base: &'a Series,
    pub(super) new: &'a Series,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// The scenario failed in NEW.
    Failed,
    /// Measured in BASE, but not in NEW.
    Missing,
    /// Measured in NEW, but not in BASE.
    Added,
}

/// What has no counterpart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unpaired {
    pub(crate) lack: Lack,
    pub(crate) scenario: String,
    /// Nothing when it is the whole scenario.
    pub(crate) target: Option<String>,
    /// Nothing when it is all that the target has in the scenario.
    pub(crate) metric: Option<String>,
    pub(crate) why: String,
    pub(crate) fails: bool,
}

/// Everything that either side measured for the chosen targets.
pub(super) struct Pairing<'a> {
    pub(super) pairs: Vec<Pair<'a>>,
    pub(super) unpaired: Vec<Unpaired>,
    gate_all: bool,
}

impl<'a> Pairing<'a> {
    pub(super) fn of(
        base: &'a Results,
        new: &'a Results,
        targets: &[Targets],
        gate_all: bool,
    ) -> Self {
        let mut pairing = Self {
            pairs: Vec::new(),
            unpaired: Vec::new(),
            gate_all,
        };
        for before in &base.scenarios {
            match new.scenario(&before.name) {
                Some(after) => pairing.take(before, after, targets),
                None => pairing.miss(before, targets),
            }
        }
        for after in &new.scenarios {
            if base.scenario(&after.name).is_none() {
                pairing.add(after, targets);
            }
        }
        pairing
    }

    fn take(
        &mut self,
        before: &'a ScenarioResults,
        after: &'a ScenarioResults,
        targets: &[Targets],
    ) {
        if let Some(failure) = &after.failure {
            self.note(Lack::Failed, after, None, None, failure);
        }
        for targets in targets {
            self.take_target(before, after, targets);
        }
    }

    fn take_target(
        &mut self,
        before: &'a ScenarioResults,
        after: &'a ScenarioResults,
        targets: &Targets,
    ) {
        let label = targets.label();
        match (
            has_figures(before, &targets.base),
            has_figures(after, &targets.new),
        ) {
            (true, true) => {}
            (true, false) => {
                let skipped = after.skipped.iter().find(|one| one.target == targets.new);
                let why = skipped.map_or("it has no figures", |skipped| &skipped.why);
                return self.note(Lack::Missing, after, Some(label), None, why);
            }
            (false, true) => {
                return self.note(Lack::Added, after, Some(label), None, "BASE has no figures");
            }
            (false, false) => return,
        }
        for base in figures(before, &targets.base) {
            let lack = match figures(after, &targets.new).find(|new| new.metric == base.metric) {
                None => "it has no values".to_owned(),
                Some(new) if new.unit != base.unit => {
                    format!("its unit was {} and is {}", base.unit, new.unit)
                }
                Some(new) if new.better != base.better => {
                    "what is better has changed from low to high, or back".to_owned()
                }
                Some(new) => {
                    self.pairs.push(Pair {
                        scenario: &after.name,
                        target: label.clone(),
                        base,
                        new,
                    });
                    continue;
                }
            };
            let target = Some(label.clone());
            self.note(Lack::Missing, after, target, Some(base), &lack);
        }
        for new in figures(after, &targets.new) {
            if !figures(before, &targets.base).any(|base| base.metric == new.metric) {
                let target = Some(label.clone());
                self.note(Lack::Added, after, target, Some(new), "BASE has no values");
            }
        }
    }

    fn miss(&mut self, before: &ScenarioResults, targets: &[Targets]) {
        if targets.iter().any(|one| has_figures(before, &one.base)) {
            let why = "the scenario is not there";
            self.note(Lack::Missing, before, None, None, why);
        }
    }

    fn add(&mut self, after: &ScenarioResults, targets: &[Targets]) {
        if let Some(failure) = &after.failure {
            self.note(Lack::Failed, after, None, None, failure);
        } else if targets.iter().any(|one| has_figures(after, &one.new)) {
            let why = "the scenario is not in BASE";
            self.note(Lack::Added, after, None, None, why);
        }
    }

    /// A figure that no gate looks at may go; a scenario, a target or a main figure may not.
    fn note(
        &mut self,
        lack: Lack,
        scenario: &ScenarioResults,
        target: Option<String>,
        series: Option<&Series>,
        why: &str,
    ) {
        let is_gated = series.is_none_or(|series| self.gate_all || series.is_main);
        self.unpaired.push(Unpaired {
            lack,
            scenario: scenario.name.clone(),
            target,
            metric: series.map(|series| series.metric.clone()),
            why: why.to_owned(),
            fails: is_gated && lack != Lack::Added,
        });
    }
}

/// The series of a target that have values.
fn figures<'a>(scenario: &'a ScenarioResults, target: &str) -> impl Iterator<Item = &'a Series> {
    scenario
        .series
        .iter()
        .filter(move |series| series.target == target && !series.values.is_empty())
}

fn has_figures(scenario: &ScenarioResults, target: &str) -> bool {
    figures(scenario, target).next().is_some()
}
