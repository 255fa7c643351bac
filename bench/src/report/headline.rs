//! Which figures of a scenario are shown first.

use crate::results::{Better, ScenarioResults, Series};

/// One series of each metric, in the order of the file.
pub(crate) fn metrics(scenario: &ScenarioResults) -> Vec<&Series> {
    let mut found: Vec<&Series> = Vec::new();
    for series in &scenario.series {
        if found.iter().all(|known| known.metric != series.metric) {
            found.push(series);
        }
    }
    found
}

/// The figures that a gate judges; where none is marked, the first figure.
pub(crate) fn mains(scenario: &ScenarioResults) -> Vec<&Series> {
    let metrics = metrics(scenario);
    let marked: Vec<&Series> = metrics.iter().copied().filter(|s| s.is_main).collect();
    if marked.is_empty() {
        metrics.into_iter().take(1).collect()
    } else {
        marked
    }
}

/// What a user sees of the same work: throughput, else wall time, else whatever there is.
pub(crate) fn beside(scenario: &ScenarioResults) -> Option<&Series> {
    let mains = mains(scenario);
    let others: Vec<&Series> = metrics(scenario)
        .into_iter()
        .filter(|series| mains.iter().all(|main| main.metric != series.metric))
        .collect();
    let is_throughput = |series: &&&Series| series.better == Better::High;
    let is_wall = |series: &&&Series| series.metric.contains("wall");
    let found = others.iter().find(is_throughput);
    let found = found.or_else(|| others.iter().find(is_wall));
    found.or_else(|| others.first()).copied()
}

/// All targets of the first metric, then all of the second, and so on.
pub(crate) fn in_metric_order(scenario: &ScenarioResults) -> Vec<&Series> {
    let metrics = metrics(scenario).into_iter();
    let of_one = |first: &Series| {
        let metric = first.metric.clone();
        let all = scenario.series.iter();
        all.filter(move |series| series.metric == metric)
    };
    metrics.flat_map(of_one).collect()
}
