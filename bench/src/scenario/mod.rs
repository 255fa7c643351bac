//! What is measured. One row a scenario; each lets its targets take turns inside every round.

mod execs;
mod files;
mod measure;
mod sample;
mod service;
mod trees;
mod tunnel;
mod turns;

use std::pin::Pin;

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::results::ScenarioResults;

use measure::{GROWTH, LOAD, measure, opened};
use sample::Sample;
use turns::take_turns;

/// A row of a table.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What happens, one sentence.
    pub(crate) title: &'static str,
    /// Adds what it measures to the results.
    run: for<'a> fn(&'a Bench, &'a mut ScenarioResults) -> Work<'a>,
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// All of them, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    [
        files::TABLE,
        trees::TABLE,
        execs::TABLE,
        tunnel::TABLE,
        service::TABLE,
    ]
    .into_iter()
    .flatten()
}

/// Those that are named, each once; `all` are all, `fanout-*` those that begin so.
pub(crate) fn chosen(names: &[impl AsRef<str>]) -> Result<Vec<&'static Scenario>> {
    let mut chosen: Vec<&Scenario> = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        let fits = |scenario: &Scenario| match name.strip_suffix('*') {
            Some(start) => scenario.name.starts_with(start),
            None => name == "all" || name == scenario.name,
        };
        let fitting: Vec<_> = all().filter(|scenario| fits(scenario)).collect();
        ensure!(
            !fitting.is_empty(),
            "no scenario is called {name:?}; `ringbench list` shows them"
        );
        for scenario in fitting {
            if chosen.iter().all(|known| known.name != scenario.name) {
                chosen.push(scenario);
            }
        }
    }
    Ok(chosen)
}

impl Scenario {
    /// Runs it. A failure stands in the results beside what was measured before it.
    pub(crate) async fn measure(&self, bench: &Bench) -> ScenarioResults {
        bench.progress.borrow_mut().begin(self.name);
        bench.pace.begin();
        let mut out = ScenarioResults {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            notes: Vec::new(),
            skipped: Vec::new(),
            failure: None,
            series: Vec::new(),
            latencies: Vec::new(),
            timelines: Vec::new(),
        };
        if let Err(error) = (self.run)(bench, &mut out).await {
            let failure = format!("{error:#}");
            let progress = bench.progress.borrow();
            progress.say(&format!("{} failed: {failure}", self.name));
            out.failure = Some(failure);
        }
        bench.progress.borrow_mut().end();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_is_named_twice_runs_once() {
        let chosen = chosen(&["get-1g", "get-*", "get-1g"]).expect("there is one");
        let named = chosen.iter().filter(|scenario| scenario.name == "get-1g");
        assert_eq!(named.count(), 1);
    }

    #[test]
    fn no_two_scenarios_share_a_name() {
        let mut names: Vec<&str> = all().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]));
    }
}
