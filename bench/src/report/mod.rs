//! What was measured, and the figures drawn from it.

mod cast;
mod charts;
mod escape;
mod figure;
mod goals;
mod headline;
mod html;
mod overview;
mod render;
mod setting;
mod summary;
mod svg;

use serde::Serialize;

use crate::cpu;

pub(crate) use cast::Cast;
pub(crate) use charts::Charts;
pub(crate) use goals::{Goal, judge};
pub(crate) use html::page;
pub(crate) use render::markdown;
pub(crate) use summary::summary;

/// The target that all others are compared with.
pub(crate) const OURS: &str = "ringd";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Low,
    High,
}

/// A quantity with its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

/// One metric of one target, one value per round.
#[derive(Serialize)]
pub(crate) struct Series {
    pub(crate) target: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) values: Vec<f64>,
}

impl Series {
    pub(crate) fn new(target: &'static str, metric: Metric) -> Self {
        Self {
            target,
            metric: metric.name,
            unit: metric.unit,
            better: metric.better,
            values: Vec::new(),
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn median(&self) -> f64 {
        median(self.values.clone())
    }
}

#[derive(Serialize)]
pub(crate) struct ScenarioReport {
    pub(crate) name: &'static str,
    pub(crate) notes: Vec<String>,
    pub(crate) series: Vec<Series>,
}

impl ScenarioReport {
    pub(crate) fn find(&self, target: &str, metric: &str) -> Option<&Series> {
        self.series
            .iter()
            .find(|series| series.target == target && series.metric == metric)
    }

    /// Median over the rounds of ours / theirs, both from the same round.
    pub(crate) fn ratio(&self, peer: &str, metric: &str) -> Option<f64> {
        let ours = self.find(OURS, metric)?;
        let theirs = self.find(peer, metric)?;
        Some(median(
            ours.values
                .iter()
                .zip(&theirs.values)
                .map(|(ours, theirs)| ours / theirs)
                .collect(),
        ))
    }
}

/// Where the figures come from.
#[derive(Serialize)]
pub(crate) struct Setting {
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cpus: usize,
    pub(crate) rounds: usize,
    pub(crate) size_mib: u64,
    pub(crate) files: usize,
    /// How busy the machine was before the first scenario, in percent of all its CPUs.
    pub(crate) busy_before_percent: f64,
    /// Time that the host took from this machine during the run, in milliseconds.
    pub(crate) stolen_ms: f64,
}

#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) setting: Setting,
    pub(crate) goals: Vec<Goal>,
    pub(crate) scenarios: Vec<ScenarioReport>,
}

impl Setting {
    pub(crate) fn of_this_machine(rounds: usize, size_mib: u64, files: usize) -> Self {
        let kernel = rustix::system::uname();
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self {
            date: civil_date(seconds / 86_400),
            kernel: kernel.release().to_string_lossy().into_owned(),
            processor: model
                .map_or(std::env::consts::ARCH, |(_, name)| name.trim())
                .to_owned(),
            cpus: info
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            rounds,
            size_mib,
            files,
            busy_before_percent: cpu::busy_percent(),
            stolen_ms: 0.0,
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
    }
}

/// The Gregorian date, `YYYY-MM-DD`, of a count of days since 1970-01-01.
fn civil_date(mut days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        assert_eq!(civil_date(0), "1970-01-01");
        assert_eq!(civil_date(11_016), "2000-02-29");
        assert_eq!(civil_date(20_453), "2025-12-31");
        assert_eq!(civil_date(20_454), "2026-01-01");
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let metric = Metric {
            name: "m",
            unit: "u",
            better: Better::Low,
        };
        let mut ours = Series::new(OURS, metric);
        let mut theirs = Series::new("peer", metric);
        ours.values = vec![1.0, 10.0, 100.0];
        theirs.values = vec![2.0, 10.0, 1000.0];
        let report = ScenarioReport {
            name: "s",
            notes: Vec::new(),
            series: vec![ours, theirs],
        };
        assert_eq!(report.ratio("peer", "m"), Some(0.5));
        assert_eq!(report.ratio("nobody", "m"), None);
    }
}
