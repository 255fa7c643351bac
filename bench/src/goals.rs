//! The promises about speed and memory, each judged by what was measured.

mod promises;
mod special;

use std::fmt::Write;

use anyhow::{Result, ensure};

use crate::results::{Better, Results, ScenarioResults, Series};
use promises::{PROMISES, Promise, Rule};

/// A promise and what became of it.
pub(crate) struct Goal {
    pub(crate) promise: &'static str,
    /// The figure, or why there is none.
    pub(crate) measured: String,
    /// Nothing when it was not measured in this run.
    pub(crate) is_kept: Option<bool>,
}

/// Every promise, judged by the figures of the target that is called `ours`.
pub(crate) fn judge(results: &Results, ours: &str) -> Result<Vec<Goal>> {
    let names: Vec<&str> = results
        .targets
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    ensure!(
        names.contains(&ours),
        "no target is called {ours:?} in these results; there are: {}",
        names.join(", ")
    );
    let court = Court { results, ours };
    Ok(PROMISES
        .iter()
        .map(|promise| court.judge(promise))
        .collect())
}

/// A table for a reader.
pub(crate) fn markdown(results: &Results, goals: &[Goal]) -> String {
    let count = |kept| goals.iter().filter(|goal| goal.is_kept == kept).count();
    let setting = &results.setting;
    let mut out = format!(
        "{} of {} promises are kept, {} are not, {} were not measured.\n\n",
        count(Some(true)),
        goals.len(),
        count(Some(false)),
        count(None)
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "Measured on {} by `ringbench {}`. What was promised holds for the sizes that are the default.\n",
        setting.date,
        setting.arguments.join(" ").replace('`', "'")
    );
    out += "| promise | measured | kept |\n| --- | --- | --- |\n";
    for goal in goals {
        let kept = match goal.is_kept {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let _ = writeln!(out, "| {} | {} | {kept} |", goal.promise, goal.measured);
    }
    out
}

/// Who judges: by which results, and whom.
struct Court<'a> {
    results: &'a Results,
    ours: &'a str,
}

/// What is said of a promise: the figure and whether it is kept. Nothing without figures.
type Verdict = Option<(String, bool)>;

impl Court<'_> {
    fn judge(&self, promise: &Promise) -> Goal {
        let failed = promise.scenarios.iter().find(|name| {
            let scenario = self.results.scenario(name);
            scenario.is_some_and(|one| one.failure.is_some())
        });
        let verdict = match failed {
            // A figure beside a wrong byte says nothing.
            Some(_) => None,
            None => self.verdict(promise),
        };
        let (measured, is_kept) = match (verdict, failed) {
            (Some((measured, is_kept)), _) => (measured, Some(is_kept)),
            (None, Some(name)) => (format!("not measured: {name} failed"), None),
            (None, None) => ("not measured".to_owned(), None),
        };
        Goal {
            promise: promise.text,
            measured,
            is_kept,
        }
    }

    fn verdict(&self, promise: &Promise) -> Verdict {
        let target = format!("{}{}", self.ours, promise.variant);
        let scenarios = || {
            let names = promise.scenarios.iter();
            names.filter_map(|name| self.results.scenario(name))
        };
        match promise.rule {
            Rule::Ratio { peer, limit } => {
                ratio(scenarios().next()?, &target, peer, promise, limit)
            }
            Rule::Median(limit) => median(self.first(promise, &target)?, limit),
            Rule::Most(limit) => {
                let series = scenarios().flat_map(|scenario| {
                    let metrics = promise.metrics.iter();
                    metrics.filter_map(|metric| scenario.find(&target, metric))
                });
                most(series, limit)
            }
            Rule::Percentile { percentile, limit } => {
                percentile_at_most(scenarios().next()?, &target, promise, percentile, limit)
            }
            Rule::Stall(limit) => special::stall(self.first_scenario(promise)?, &target, limit),
            Rule::SpawnAndTrip { factor } => {
                special::spawn_and_trip(self.results, &target, promise, factor)
            }
            Rule::SpawnAndMore { factor, more_us } => {
                let scenario = self.first_scenario(promise)?;
                special::spawn_and_more(scenario, &target, promise, factor, more_us)
            }
            Rule::BinaryMib(limit) => special::binary(self.results, self.ours, limit),
        }
    }

    fn first_scenario(&self, promise: &Promise) -> Option<&ScenarioResults> {
        self.results.scenario(promise.scenarios.first()?)
    }

    fn first(&self, promise: &Promise, target: &str) -> Option<&Series> {
        let scenario = self.first_scenario(promise)?;
        scenario.find(target, promise.metrics.first()?)
    }
}

/// The median of the ratios to a peer, round by round.
fn ratio(
    scenario: &ScenarioResults,
    target: &str,
    peer: &str,
    promise: &Promise,
    limit: f64,
) -> Verdict {
    let metric = promise.metrics.first()?;
    let ratio = scenario.ratio(target, peer, metric)?;
    let ours = scenario.find(target, metric)?;
    let is_kept = is_within(ours.better, ratio, limit);
    Some((format!("{ratio:.3} x {peer}{}", doubt(ours)), is_kept))
}

/// The median over the rounds is on the right side of the limit.
fn median(series: &Series, limit: f64) -> Verdict {
    let median = series.median();
    let measured = format!("{median:.2} {}{}", series.unit, doubt(series));
    Some((measured, is_within(series.better, median, limit)))
}

/// The highest value of any round of any of them is at the limit or below.
fn most<'a>(series: impl Iterator<Item = &'a Series>, limit: f64) -> Verdict {
    let most = series.max_by(|left, right| left.max().total_cmp(&right.max()))?;
    let value = most.max();
    let measured = format!("{value:.2} {} at most ({})", most.unit, most.metric);
    Some((measured, value <= limit))
}

fn percentile_at_most(
    scenario: &ScenarioResults,
    target: &str,
    promise: &Promise,
    percentile: f64,
    limit: f64,
) -> Verdict {
    let metric = *promise.metrics.first()?;
    let mut latencies = scenario.latencies.iter();
    let latency = latencies.find(|one| one.target == target && one.metric == metric)?;
    let mut known = latency.percentiles.iter();
    let (_, value) = known.find(|(known, _)| (known - percentile).abs() < 1e-9)?;
    let measured = format!("{value:.0} {} of {} requests", latency.unit, latency.count);
    Some((measured, *value <= limit))
}

fn is_within(better: Better, value: f64, limit: f64) -> bool {
    match better {
        Better::Low => value <= limit,
        Better::High => value >= limit,
    }
}

/// What a reader must know of a figure.
fn doubt(series: &Series) -> &'static str {
    match series.load_bound_rounds * 2 > series.values.len() {
        true => ", the load was the limit",
        false => "",
    }
}

#[cfg(test)]
mod tests;
