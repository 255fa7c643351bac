//! What a run leaves behind: the file that `compare` and `report` read.
//!
//! The format is JSON and is called `ringbench/1`. Fields may be added; a reader ignores those it does not know.

mod secrets;
mod setting;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

pub(crate) use secrets::without_tokens;
pub(crate) use setting::Setting;

/// Name and version of the format.
pub(crate) const FORMAT: &str = "ringbench/1";

/// Which way a figure should go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Low,
    High,
}

/// A quantity with its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// The figure that a gate judges: what the server paid for the work. The others explain it.
    pub(crate) is_main: bool,
}

impl Metric {
    /// A figure that should be small.
    pub(crate) const fn low(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            better: Better::Low,
            is_main: false,
        }
    }

    /// A figure that should be large.
    pub(crate) const fn high(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            better: Better::High,
            is_main: false,
        }
    }

    /// The same as the main figure of its scenario.
    pub(crate) const fn main(mut self) -> Self {
        self.is_main = true;
        self
    }
}

/// All that one run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`FORMAT`].
    pub(crate) format: String,
    /// False when the run was broken off; what is there is valid.
    pub(crate) complete: bool,
    pub(crate) setting: Setting,
    pub(crate) targets: Vec<TargetInfo>,
    pub(crate) scenarios: Vec<ScenarioResults>,
}

/// Who was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetInfo {
    pub(crate) name: String,
    /// The command that started it; nothing when it ran already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// What it says of itself in `/v1/health`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Size of its program in bytes, when we started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binary_bytes: Option<u64>,
}

/// One scenario, all targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScenarioResults {
    pub(crate) name: String,
    /// What happens in it, one sentence.
    pub(crate) title: String,
    /// What a reader must know about the figures.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Targets that did not take part, and why.
    #[serde(default)]
    pub(crate) skipped: Vec<Skipped>,
    /// Why there are no figures, or not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    pub(crate) series: Vec<Series>,
    #[serde(default)]
    pub(crate) latencies: Vec<Latency>,
    #[serde(default)]
    pub(crate) timelines: Vec<Timeline>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) target: String,
    pub(crate) why: String,
}

/// One metric of one target, one value per round; values at one index were measured in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) target: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    #[serde(default)]
    pub(crate) is_main: bool,
    /// Rounds in which the load side was the limit, so that the figure says little about the target.
    #[serde(default)]
    pub(crate) load_bound_rounds: usize,
    pub(crate) values: Vec<f64>,
}

/// How long single requests took, all rounds together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) target: String,
    pub(crate) metric: String,
    /// Unit of the values, `us`.
    pub(crate) unit: String,
    pub(crate) count: u64,
    /// Requests per second that were due; nothing when each followed the answer to the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) constant_rate: Option<f64>,
    /// Pairs of percentile and value, rising: 50, 90, 99, 99.9, 99.99, 100 at least.
    pub(crate) percentiles: Vec<(f64, f64)>,
}

/// A quantity over the time of one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) target: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    /// Pairs of seconds since the start and value.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Results {
    /// Reads a file of results.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let results: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} holds no results of ringbench", path.display()))?;
        ensure!(
            results.format == FORMAT,
            "{} has the format {:?}, not {FORMAT:?}",
            path.display(),
            results.format
        );
        Ok(results)
    }

    /// Makes sure, before there are results, that they can be written to `path`.
    pub(crate) fn make_room(path: &Path) -> Result<()> {
        ensure!(!path.is_dir(), "{} is a directory", path.display());
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let beside = beside(path);
        std::fs::write(&beside, "")
            .and_then(|()| std::fs::remove_file(&beside))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes them, whole or not at all: a name beside the file is written first.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        Self::make_room(path)?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        let beside = beside(path);
        let outcome = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
        if outcome.is_err() {
            // It is of no use; that it cannot be removed either is no news.
            let _ = std::fs::remove_file(&beside);
        }
        outcome.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Names of the scenarios that failed.
    pub(crate) fn failed(&self) -> Vec<&str> {
        let failed = self.scenarios.iter().filter(|one| one.failure.is_some());
        failed.map(|scenario| scenario.name.as_str()).collect()
    }

    /// Every series of a scenario that went well has at least so many values.
    pub(crate) fn least_rounds(&self) -> usize {
        let well = self.scenarios.iter().filter(|one| one.failure.is_none());
        let series = well.flat_map(|scenario| &scenario.series);
        series.map(|series| series.values.len()).min().unwrap_or(0)
    }

    pub(crate) fn scenario(&self, name: &str) -> Option<&ScenarioResults> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }
}

/// Where results are written before they are whole.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    beside.into()
}

impl ScenarioResults {
    pub(crate) fn find(&self, target: &str, metric: &str) -> Option<&Series> {
        self.series
            .iter()
            .find(|series| series.target == target && series.metric == metric)
    }

    /// Median over the rounds of `target` / `peer`, both from the same round.
    pub(crate) fn ratio(&self, target: &str, peer: &str, metric: &str) -> Option<f64> {
        let ours = self.find(target, metric)?;
        let theirs = self.find(peer, metric)?;
        let ratios = ours.values.iter().zip(&theirs.values);
        Some(median(ratios.map(|(ours, theirs)| ours / theirs).collect()))
    }
}

impl Series {
    pub(crate) fn new(target: &str, metric: Metric) -> Self {
        Self {
            target: target.to_owned(),
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            better: metric.better,
            is_main: metric.is_main,
            load_bound_rounds: 0,
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

/// The middle value; not a number when there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
    }
}
