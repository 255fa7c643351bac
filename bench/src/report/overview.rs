//! The whole run in one table: every main figure of ours, and how it compares with each peer's.

use super::cast::{Cast, Standing};
use super::figure;
use super::headline;
use crate::results::{Results, ScenarioResults, Series};

/// One main figure of one scenario.
pub(crate) struct Row<'a> {
    pub(crate) scenario: &'a ScenarioResults,
    /// Any series of the metric; nothing when the scenario has no figures.
    pub(crate) metric: Option<&'a Series>,
    /// Our median, with its unit.
    pub(crate) ours: String,
    pub(crate) ours_is_bound: bool,
    /// One for each peer, in the order of the cast.
    pub(crate) cells: Vec<Cell>,
}

/// How ours compares with one peer.
pub(crate) enum Cell {
    Compared {
        ratio: f64,
        standing: Standing,
        /// The load was the limit for one of the two.
        is_bound: bool,
    },
    Skipped,
    /// Both were measured, but one of them is zero.
    Incomparable,
    Unmeasured,
}

/// How often each side did better.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) ours: usize,
    pub(crate) equal: usize,
    pub(crate) peer: usize,
}

pub(crate) fn rows<'a>(results: &'a Results, cast: &Cast<'_>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for scenario in &results.scenarios {
        let mains = headline::mains(scenario);
        if mains.is_empty() {
            rows.push(Row::of(scenario, None, cast));
        }
        for metric in mains {
            rows.push(Row::of(scenario, Some(metric), cast));
        }
    }
    rows
}

/// One for each peer; comparisons in which the load was the limit do not count.
pub(crate) fn tallies(rows: &[Row<'_>], cast: &Cast<'_>) -> Vec<Tally> {
    let mut tallies: Vec<Tally> = cast.peers().iter().map(|_| Tally::default()).collect();
    for row in rows {
        for (cell, tally) in row.cells.iter().zip(&mut tallies) {
            let Cell::Compared {
                standing,
                is_bound: false,
                ..
            } = cell
            else {
                continue;
            };
            match standing {
                Standing::Ours(_) => tally.ours += 1,
                Standing::Peer(_) => tally.peer += 1,
                Standing::Equal => tally.equal += 1,
            }
        }
    }
    tallies
}

impl<'a> Row<'a> {
    fn of(scenario: &'a ScenarioResults, metric: Option<&'a Series>, cast: &Cast<'_>) -> Self {
        let find = |target: &str| {
            let series = scenario.find(target, &metric?.metric)?;
            (!series.values.is_empty()).then_some(series)
        };
        let ours = find(cast.ours());
        let is_skipped = |target: &str| scenario.skipped.iter().any(|one| one.target == target);
        let cell = |peer: &&str| {
            let (Some(ours), Some(theirs)) = (ours, find(peer)) else {
                let is_skipped = is_skipped(peer) && find(peer).is_none();
                return if is_skipped {
                    Cell::Skipped
                } else {
                    Cell::Unmeasured
                };
            };
            match cast.ratio(scenario, peer, &ours.metric) {
                Some(ratio) => Cell::Compared {
                    ratio,
                    standing: Standing::of(ratio, ours.better),
                    is_bound: ours.load_bound_rounds + theirs.load_bound_rounds > 0,
                },
                None => Cell::Incomparable,
            }
        };
        Self {
            scenario,
            metric,
            ours: match ours {
                Some(series) => figure::measure(series.median(), &series.unit),
                None if is_skipped(cast.ours()) => "skipped".to_owned(),
                None => figure::NOT_MEASURED.to_owned(),
            },
            ours_is_bound: ours.is_some_and(|series| series.load_bound_rounds > 0),
            cells: cast.peers().iter().map(cell).collect(),
        }
    }
}
