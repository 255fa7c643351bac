//! What is measured. One row a scenario; each lets its targets take turns inside every round.

mod execs;
mod files;
mod measure;
mod sample;
mod tunnel;
mod turns;

use std::pin::Pin;

use anyhow::Result;

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
    [files::TABLE, execs::TABLE, tunnel::TABLE]
        .into_iter()
        .flatten()
}

impl Scenario {
    /// Runs it. A failure stands in the results beside what was measured before it.
    pub(crate) async fn measure(&self, bench: &Bench) -> ScenarioResults {
        bench.progress.borrow_mut().begin(self.name);
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
    fn no_two_scenarios_share_a_name() {
        let mut names: Vec<&str> = all().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]));
    }
}
