//! How long single requests took, with coordinated omission handled where requests are due at a rate.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::results::Latency;

/// A histogram of nanoseconds up to a minute, with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(LEAST_NS, MOST_NS, DIGITS);
        Self(histogram.expect("the bounds are right"))
    }

    pub(crate) fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(MOST_NS);
        self.0.saturating_record(nanoseconds);
    }

    /// Since when the request was *due*: a server that falls behind is charged for those that had to wait.
    pub(crate) fn record_since(&mut self, due: Instant) {
        self.record(due.elapsed());
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.0
            .add(&other.0)
            .context("histograms of different bounds")
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds.
    pub(crate) fn percentile_us(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1e3
    }

    /// As it stands in the results.
    pub(crate) fn summary(
        &self,
        target: &str,
        metric: &str,
        constant_rate: Option<f64>,
    ) -> Latency {
        Latency {
            target: target.to_owned(),
            metric: metric.to_owned(),
            unit: "us".to_owned(),
            count: self.count(),
            constant_rate,
            percentiles: PERCENTILES
                .iter()
                .map(|percentile| (*percentile, self.percentile_us(*percentile)))
                .collect(),
        }
    }
}

const LEAST_NS: u64 = 1;
const MOST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;
const PERCENTILES: [f64; 12] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 100.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let near = |percentile, expected: f64| {
            let found = latencies.percentile_us(percentile);
            assert!(
                (found / expected - 1.0).abs() < 0.002,
                "{found} at {percentile}"
            );
        };
        near(50.0, 500.0);
        near(99.0, 990.0);
        near(100.0, 1000.0);
    }
}
