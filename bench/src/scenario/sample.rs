//! What one measurement of one target gave, and how samples become series.

use crate::load::Latencies;
use crate::results::{Metric, ScenarioResults, Series, Timeline};

/// Figures of one target in one round.
#[derive(Default)]
pub(crate) struct Sample {
    pub(super) values: Vec<(Metric, f64)>,
    pub(super) latencies: Vec<(Metric, Latencies, Option<f64>)>,
    pub(super) timelines: Vec<(Metric, Vec<(f64, f64)>)>,
    /// The load side was the limit.
    pub(super) is_load_bound: bool,
}

impl Sample {
    /// Takes a figure; nothing when it could not be had.
    pub(crate) fn put(&mut self, metric: Metric, value: impl Into<Option<f64>>) -> &mut Self {
        if let Some(value) = value.into() {
            self.values.push((metric, value));
        }
        self
    }

    /// Takes how long single requests took; `rate` is that at which they were due, if they were.
    pub(crate) fn latencies(&mut self, metric: Metric, taken: Latencies, rate: Option<f64>) {
        self.latencies.push((metric, taken, rate));
    }

    /// Takes pairs of seconds since the start and value.
    pub(crate) fn timeline(&mut self, metric: Metric, points: Vec<(f64, f64)>) {
        self.timelines.push((metric, points));
    }

    /// Says that the load side was the limit in this round, of all figures but the main one.
    pub(crate) fn bound_by_load(&mut self, is_bound: bool) -> &mut Self {
        self.is_load_bound |= is_bound;
        self
    }
}

/// The samples of all entrants, sorted into series.
#[derive(Default)]
pub(super) struct Sorted {
    latencies: Vec<(String, Metric, Latencies, Option<f64>)>,
}

impl Sorted {
    /// Adds what an entrant gave in one round.
    pub(super) fn add(
        &mut self,
        out: &mut ScenarioResults,
        entrant: &str,
        sample: Sample,
    ) -> anyhow::Result<()> {
        for (metric, value) in sample.values {
            let known = out
                .series
                .iter()
                .position(|series| series.target == entrant && series.metric == metric.name);
            let at = known.unwrap_or_else(|| {
                out.series.push(Series::new(entrant, metric));
                out.series.len() - 1
            });
            out.series[at].values.push(value);
            // What the server paid for the work is the same whoever is the limit.
            let is_bound = sample.is_load_bound && !metric.is_main;
            out.series[at].load_bound_rounds += usize::from(is_bound);
        }
        for (metric, taken, rate) in sample.latencies {
            let known = self
                .latencies
                .iter_mut()
                .find(|(target, known, ..)| target == entrant && known.name == metric.name);
            match known {
                Some((_, _, all, _)) => all.add(&taken)?,
                None => self
                    .latencies
                    .push((entrant.to_owned(), metric, taken, rate)),
            }
        }
        // One round shows what all do: the last one stays.
        for (metric, points) in sample.timelines {
            out.timelines
                .retain(|line| line.target != entrant || line.metric != metric.name);
            out.timelines.push(Timeline {
                target: entrant.to_owned(),
                metric: metric.name.to_owned(),
                unit: metric.unit.to_owned(),
                points,
            });
        }
        Ok(())
    }

    /// Ends the series: only whole rounds count, so that values at one index belong together.
    pub(super) fn close(self, out: &mut ScenarioResults, rounds: usize) {
        for series in &mut out.series {
            series.values.truncate(rounds);
        }
        out.series.retain(|series| !series.values.is_empty());
        out.latencies.extend(
            self.latencies
                .iter()
                .map(|(target, metric, all, rate)| all.summary(target, metric.name, *rate)),
        );
    }
}
