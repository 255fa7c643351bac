//! Promises that no general rule covers.

use crate::results::{Results, ScenarioResults, median};

use super::Verdict;
use super::promises::{Promise, STALL, STOLEN};

/// Only rounds in which the host left us alone are judged; the figure names the worst of all rounds, too.
pub(super) fn stall(scenario: &ScenarioResults, target: &str, limit_ms: f64) -> Verdict {
    let stalls = scenario.find(target, STALL)?;
    let stolen = &scenario.find(target, STOLEN)?.values;
    let rounds = stalls.values.iter().zip(stolen);
    let quiet = rounds.filter(|(_, stolen)| **stolen == 0.0);
    let quiet: Vec<f64> = quiet.map(|(stall, _)| *stall).collect();
    let worst = quiet.iter().copied().reduce(f64::max)?;
    let measured = format!(
        "{worst:.2} ms at most in the {} rounds that the host left alone, {:.2} ms in all",
        quiet.len(),
        stalls.max()
    );
    Some((measured, worst <= limit_ms))
}

/// At most `factor` times the bare spawn and wait, and one round trip of the second scenario.
pub(super) fn spawn_and_trip(
    results: &Results,
    target: &str,
    promise: &Promise,
    factor: f64,
) -> Verdict {
    let ([exec, trip], [ours_metric, bare_metric, trip_metric]) =
        (promise.scenarios, promise.metrics)
    else {
        return None;
    };
    let exec = results.scenario(exec)?;
    let ours = exec.find(target, ours_metric)?.median();
    let bare = exec.find(BARE, bare_metric)?.median();
    let trip = results.scenario(trip)?.find(target, trip_metric)?.median();
    let limit = factor * bare + trip;
    let measured = format!("{ours:.0} us, the limit is {limit:.0} us");
    Some((measured, ours <= limit))
}

/// At most `factor` times the bare spawn and wait of the same round, and some microseconds.
pub(super) fn spawn_and_more(
    scenario: &ScenarioResults,
    target: &str,
    promise: &Promise,
    factor: f64,
    more_us: f64,
) -> Verdict {
    let metric = promise.metrics.first()?;
    let ours = scenario.find(target, metric)?;
    let bare = scenario.find(BARE, metric)?;
    let rounds = ours.values.iter().zip(&bare.values);
    let above = median(rounds.map(|(ours, bare)| ours - factor * bare).collect());
    let measured = format!(
        "{:.0} us, bare {:.0} us: {factor} x bare + {above:.0} us",
        ours.median(),
        bare.median()
    );
    Some((measured, above <= more_us))
}

/// The size of the program, as it was started.
pub(super) fn binary(results: &Results, target: &str, limit_mib: f64) -> Verdict {
    let target = results.targets.iter().find(|one| one.name == target)?;
    let mib = target.binary_bytes? as f64 / f64::from(1 << 20);
    Some((format!("{mib:.2} MiB"), mib <= limit_mib))
}

/// The loops that do the work without a service.
const BARE: &str = "bare";
