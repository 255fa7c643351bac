//! What a reader must know before the figures: where they come from, and what speaks against them.

use super::escape;
use super::figure;
use crate::results::{Results, Setting};

/// Something that speaks against figures of a run; `is_grave` when some are missing.
pub(crate) struct Warning {
    pub(crate) text: String,
    pub(crate) is_grave: bool,
}

pub(crate) fn warnings(results: &Results) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |is_grave: bool, text: String| warnings.push(Warning { text, is_grave });
    if !results.complete {
        warn(
            true,
            "The run was broken off: rounds or scenarios are missing. What is here is valid."
                .to_owned(),
        );
    }
    let failed = results.scenarios.iter();
    let failed = failed.filter(|scenario| scenario.failure.is_some());
    let failed: Vec<&str> = failed.map(|scenario| scenario.name.as_str()).collect();
    if !failed.is_empty() {
        warn(true, format!("Failed: {}.", failed.join(", ")));
    }
    let setting = &results.setting;
    if setting.busy_before_percent > QUIET_PERCENT {
        warn(
            true,
            format!(
                "The machine was {} % busy before the run began: do not trust these figures.",
                figure::digits(setting.busy_before_percent)
            ),
        );
    }
    if setting.stolen_ms >= STOLEN_MS {
        warn(
            false,
            format!(
                "The host took {} from this machine during the run: rounds may differ because of that.",
                figure::measure(setting.stolen_ms, "ms")
            ),
        );
    }
    let bound = results.scenarios.iter().filter(|scenario| {
        let mut series = scenario.series.iter();
        series.any(|series| series.load_bound_rounds > 0)
    });
    let bound: Vec<&str> = bound.map(|scenario| scenario.name.as_str()).collect();
    if !bound.is_empty() {
        warn(
            false,
            format!(
                "The load was the limit in some rounds of {}: figures marked load-bound say little about the target.",
                bound.join(", ")
            ),
        );
    }
    warnings
}

/// Names and values of the setting.
pub(crate) fn facts(setting: &Setting) -> Vec<(&'static str, String)> {
    let rounds = format!("{}, targets alternating inside each", setting.rounds);
    vec![
        ("Date", setting.date.clone()),
        (
            "Machine",
            format!("{} CPUs, {}", setting.cpus, setting.processor),
        ),
        ("Kernel", format!("Linux {}", setting.kernel)),
        ("Filesystem", setting.filesystem.clone()),
        ("Rounds", rounds),
        (
            "Busy before",
            format!(
                "{} % of all CPUs",
                figure::digits(setting.busy_before_percent)
            ),
        ),
        (
            "Taken by the host",
            figure::measure(setting.stolen_ms, "ms"),
        ),
        ("ringbench", setting.ringbench.clone()),
        (
            "Command",
            format!("ringbench {}", escape::command_line(&setting.arguments)),
        ),
    ]
}

/// A machine busier than this before the run disturbs it.
const QUIET_PERCENT: f64 = 5.0;
/// Less than this is not worth a word.
const STOLEN_MS: f64 = 100.0;
