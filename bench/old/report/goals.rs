//! The promises about speed and memory, each judged by what was measured.

use serde::Serialize;

use super::{Better, Metric, OURS, ScenarioReport, Series, median};
use crate::scenario::{metrics, names};

/// One line of the table: promise, figure, verdict.
#[derive(Serialize)]
pub(crate) struct Goal {
    pub(crate) promise: String,
    pub(crate) measured: String,
    /// Nothing when it was not measured in this run.
    pub(crate) met: Option<bool>,
}

/// A promise about the median of pairwise ratios ringd/peer.
struct RatioGoal {
    promise: &'static str,
    scenario: &'static str,
    peer: &'static str,
    metric: Metric,
    limit: f64,
}

const RATIOS: &[RatioGoal] = &[
    RatioGoal {
        promise: "GET 1 GiB cached: CPU at most 1.5 x a bare send loop",
        scenario: names::GET,
        peer: "bare",
        metric: metrics::CPU_SPIN,
        limit: 1.5,
    },
    RatioGoal {
        promise: "GET 1 GiB cached: CPU at most 1/8 of axum (4 KiB)",
        scenario: names::GET,
        peer: "axum",
        metric: metrics::CPU_SPIN,
        limit: 0.125,
    },
    RatioGoal {
        promise: "GET 1 GiB cached: rate at least nginx sendfile's",
        scenario: names::GET,
        peer: "nginx",
        metric: metrics::RATE_SPIN,
        limit: 1.0,
    },
    RatioGoal {
        promise: "PUT 1 GiB: CPU at most 1.15 x bare recv and pwrite",
        scenario: names::PUT,
        peer: "bare",
        metric: metrics::CPU_SPIN,
        limit: 1.15,
    },
    RatioGoal {
        promise: "PUT 1 GiB: CPU at most 1/3 of axum",
        scenario: names::PUT,
        peer: "axum",
        metric: metrics::CPU_SPIN,
        limit: 1.0 / 3.0,
    },
    RatioGoal {
        promise: "GET tar, small files: CPU at most 0.4 x axum",
        scenario: names::TAR_GET,
        peer: "axum",
        metric: metrics::CPU_PER_FILE_SPIN,
        limit: 0.4,
    },
    RatioGoal {
        promise: "PUT tar, small files: CPU at most 0.6 x axum",
        scenario: names::TAR_PUT,
        peer: "axum",
        metric: metrics::CPU_PER_FILE,
        limit: 0.6,
    },
    RatioGoal {
        promise: "PUT tar, small files: wall at most 0.9 x bsdtar",
        scenario: names::TAR_PUT,
        peer: "bsdtar",
        metric: metrics::TAR_PUT_WALL,
        limit: 0.9,
    },
    RatioGoal {
        promise: "GET tar, small files: CPU at most 0.9 x GNU tar",
        scenario: names::TAR_GET,
        peer: "gnu-tar",
        metric: metrics::CPU_PER_FILE_SPIN,
        limit: 0.9,
    },
    RatioGoal {
        promise: "GET tar, small files, cold: wall at most a third of GNU tar's",
        scenario: names::TAR_GET,
        peer: "gnu-tar",
        metric: metrics::WALL_COLD,
        limit: 1.0 / 3.0,
    },
    RatioGoal {
        promise: "GET files of 64 KiB over one connection: rate at least 3 x axum",
        scenario: names::SMALL_FILES,
        peer: "axum",
        metric: metrics::SMALL_RATE,
        limit: 3.0,
    },
    RatioGoal {
        promise: "capture 1 GiB, writes of 8 KiB, no follower: rate at least 2.5 x axum",
        scenario: names::CAPTURE,
        peer: "axum",
        metric: metrics::RATE_SMALL,
        limit: 2.5,
    },
    RatioGoal {
        promise: "capture 1 GiB, writes of 64 KiB, no follower: rate at least 2.5 x axum",
        scenario: names::CAPTURE,
        peer: "axum",
        metric: metrics::RATE_LARGE,
        limit: 2.5,
    },
    RatioGoal {
        promise: "capture 1 GiB, one SSE follower: rate at least 3 x axum",
        scenario: names::CAPTURE,
        peer: "axum",
        metric: metrics::RATE_SMALL_EVENTS,
        limit: 3.0,
    },
    RatioGoal {
        promise: "500 followers: CPU per line and follower at most 0.25 x axum",
        scenario: names::FANOUT,
        peer: "axum",
        metric: metrics::FANOUT_CPU,
        limit: 0.25,
    },
    RatioGoal {
        promise: "exec storm: rate at least 0.8 x bare spawn and wait",
        scenario: names::STORM,
        peer: "bare",
        metric: metrics::STORM_RATE,
        limit: 0.8,
    },
];

/// Promises about a median: promise, scenario, metric, limit.
const MEDIANS: &[(&str, &str, Metric, f64)] = &[
    (
        "PUT tar, one large member: CPU at most 1.6 x PUT file",
        names::TAR_PUT_LARGE,
        metrics::SPOOLED,
        1.6,
    ),
    (
        "PUT tar, one large member, spool=off: CPU at most 1.1 x PUT file",
        names::TAR_PUT_LARGE,
        metrics::STREAMED,
        1.1,
    ),
    (
        "16 ranges: rate at least that of one stream",
        names::RANGES,
        metrics::RANGES_RATIO,
        1.0,
    ),
    (
        "last ten lines of a large file: p99 at most 2 ms",
        names::LAST_LINES,
        metrics::LAST_LINES_P99,
        2.0,
    ),
    (
        "GET tar: first byte at most 5 ms after the time of a plain walk",
        names::TAR_GET,
        metrics::FIRST_BYTE_LATE,
        5.0,
    ),
];

const STREAMED_LIMIT: f64 = 0.5;
const LARGE_GROWTH_LIMIT_MIB: f64 = 24.0;
const STALL_LIMIT_MS: f64 = 2.0;
const GROWTH_LIMIT_MIB: f64 = 16.0;
const IDLE_LIMIT_MIB: f64 = 6.0;
const BINARY_LIMIT_MIB: f64 = 4.0;
const FRAMES_LIMIT_GIB_S: f64 = 1.5;
const DELAY_LIMIT: f64 = 1.1;
const STREAM_LIMIT_BARE: f64 = 1.25;
const STREAM_LIMIT_US: f64 = 150.0;

pub(crate) fn judge(scenarios: &[ScenarioReport]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = RATIOS
        .iter()
        .map(|goal| judge_ratio(goal, scenarios))
        .collect();
    goals.push(judge_stall(scenarios));
    goals.push(judge_streamed(scenarios));
    for (promise, scenario, metric, limit) in MEDIANS {
        goals.push(judge_median(scenarios, promise, scenario, *metric, *limit));
    }
    goals.push(judge_most(
        scenarios,
        "RSS growth under 24 MiB for 8 GiB and for 100,000 entries",
        names::MEMORY_LARGE,
        &metrics::LARGE_GROWTHS,
        LARGE_GROWTH_LIMIT_MIB,
    ));
    goals.push(judge_most(
        scenarios,
        "RSS growth under 16 MiB during any transfer",
        names::MEMORY,
        &metrics::GROWTHS,
        GROWTH_LIMIT_MIB,
    ));
    goals.push(judge_most(
        scenarios,
        "idle RSS under 6 MiB",
        names::MEMORY,
        &[metrics::IDLE],
        IDLE_LIMIT_MIB,
    ));
    goals.push(judge_most(
        scenarios,
        "release binary under 4 MiB",
        names::MEMORY,
        &[metrics::BINARY],
        BINARY_LIMIT_MIB,
    ));
    let ordinary = "exec start and poll: p50 at most 2 x bare spawn and wait + one round trip";
    goals.push(judge_exec(
        scenarios,
        ordinary,
        metrics::EXEC_P50,
        metrics::TRIP_P50,
    ));
    goals.push(judge_exec(
        scenarios,
        &format!("{ordinary}, spin client"),
        metrics::EXEC_P50_SPIN,
        metrics::TRIP_P50_SPIN,
    ));
    goals.push(judge_stream(scenarios));
    goals.push(judge_most(
        scenarios,
        "exec start and follow, client with late ACKs: none over 35 ms",
        names::EXEC_STREAM,
        &[metrics::STALLS],
        0.0,
    ));
    goals.push(judge_median(
        scenarios,
        "capture 1 GiB, one binary follower: at least 1.5 GiB/s",
        names::CAPTURE,
        metrics::RATE_SMALL_FRAMES,
        FRAMES_LIMIT_GIB_S,
    ));
    goals.push(judge_median(
        scenarios,
        "followers beside stalled ones: at most 10 % later",
        names::FANOUT,
        metrics::FANOUT_DELAY,
        DELAY_LIMIT,
    ));
    goals.push(judge_most(
        scenarios,
        "exec storm: no zombie and no descriptor left",
        names::STORM,
        &[metrics::ZOMBIES, metrics::DESCRIPTORS],
        0.0,
    ));
    goals
}

fn judge_ratio(goal: &RatioGoal, scenarios: &[ScenarioReport]) -> Goal {
    let ratio = find(scenarios, goal.scenario)
        .and_then(|scenario| scenario.ratio(goal.peer, goal.metric.name));
    let met = ratio.map(|ratio| match goal.metric.better {
        Better::Low => ratio <= goal.limit,
        Better::High => ratio >= goal.limit,
    });
    Goal {
        promise: goal.promise.to_owned(),
        measured: ratio.map_or_else(unmeasured, |ratio| format!("{ratio:.3} x {}", goal.peer)),
        met,
    }
}

/// The highest value of any round must stay at or under the limit.
fn judge_most(
    scenarios: &[ScenarioReport],
    promise: &str,
    scenario: &str,
    among: &[Metric],
    limit: f64,
) -> Goal {
    let found = find(scenarios, scenario).into_iter();
    let series = found.flat_map(|scenario| {
        among
            .iter()
            .filter_map(|metric| scenario.find(OURS, metric.name))
    });
    let most = series.max_by(|left, right| left.max().total_cmp(&right.max()));
    let measured = most.map_or_else(unmeasured, |series| {
        format!(
            "{:.2} {} at most ({})",
            series.max(),
            series.unit,
            series.metric
        )
    });
    Goal {
        promise: promise.to_owned(),
        measured,
        met: most.map(|series| series.max() <= limit),
    }
}

/// The median over the rounds must be on the right side of the limit.
fn judge_median(
    scenarios: &[ScenarioReport],
    promise: &str,
    scenario: &str,
    metric: Metric,
    limit: f64,
) -> Goal {
    let median = find(scenarios, scenario)
        .and_then(|scenario| scenario.find(OURS, metric.name))
        .map(Series::median);
    Goal {
        promise: promise.to_owned(),
        measured: median.map_or_else(unmeasured, |median| format!("{median:.2} {}", metric.unit)),
        met: median.map(|median| match metric.better {
            Better::Low => median <= limit,
            Better::High => median >= limit,
        }),
    }
}

/// The archive of small files, extracted while it is received.
fn judge_streamed(scenarios: &[ScenarioReport]) -> Goal {
    let ratio = find(scenarios, names::TAR_PUT).and_then(|scenario| {
        let metric = metrics::CPU_PER_FILE.name;
        let ours = scenario.find(names::TAR_PUT_STREAMED, metric)?.median();
        Some(ours / scenario.find("axum", metric)?.median())
    });
    Goal {
        promise: "PUT tar, small files, spool=off: CPU at most 0.5 x axum".to_owned(),
        measured: ratio.map_or_else(unmeasured, |ratio| format!("{ratio:.3} x axum")),
        met: ratio.map(|ratio| ratio <= STREAMED_LIMIT),
    }
}

/// Only rounds in which the host left us alone are judged; the figure names the worst of all rounds too.
fn judge_stall(scenarios: &[ScenarioReport]) -> Goal {
    let figures = find(scenarios, names::GET_COLD).and_then(|scenario| {
        let stalls = scenario.find(OURS, metrics::STALL_MAX.name)?;
        let stolen = &scenario.find(OURS, metrics::STOLEN.name)?.values;
        let quiet: Vec<f64> = stalls
            .values
            .iter()
            .zip(stolen)
            .filter(|(_, stolen)| **stolen == 0.0)
            .map(|(stall, _)| *stall)
            .collect();
        Some((
            quiet.iter().copied().reduce(f64::max)?,
            quiet.len(),
            stalls.max(),
        ))
    });
    let measured = figures.map_or_else(unmeasured, |(quiet, rounds, all)| {
        format!("{quiet:.2} ms at most in the {rounds} rounds that the host left alone, {all:.2} ms in all")
    });
    Goal {
        promise: "GET cold: no stall over 2 ms".to_owned(),
        measured,
        met: figures.map(|(quiet, ..)| quiet <= STALL_LIMIT_MS),
    }
}

fn judge_exec(scenarios: &[ScenarioReport], promise: &str, exec: Metric, trip: Metric) -> Goal {
    let figures = find(scenarios, names::EXEC).and_then(|scenario| {
        let ours = &scenario.find(OURS, exec.name)?.values;
        let bare = &scenario.find("bare", exec.name)?.values;
        let trip = &scenario.find(OURS, trip.name)?.values;
        let limits: Vec<f64> = bare
            .iter()
            .zip(trip)
            .map(|(bare, trip)| 2.0 * bare + trip)
            .collect();
        let ratio = median(
            ours.iter()
                .zip(&limits)
                .map(|(ours, limit)| ours / limit)
                .collect(),
        );
        Some((median(ours.clone()), median(limits), ratio))
    });
    let measured = figures.map_or_else(unmeasured, |(ours, limit, _)| {
        format!("{ours:.0} us, the limit is {limit:.0} us")
    });
    Goal {
        promise: promise.to_owned(),
        measured,
        met: figures.map(|(_, _, ratio)| ratio <= 1.0),
    }
}

fn judge_stream(scenarios: &[ScenarioReport]) -> Goal {
    let figures = find(scenarios, names::EXEC_STREAM).and_then(|scenario| {
        let ours = &scenario.find(OURS, metrics::STREAM_P50.name)?.values;
        let bare = &scenario.find("bare", metrics::STREAM_P50.name)?.values;
        let above = ours
            .iter()
            .zip(bare)
            .map(|(ours, bare)| ours - STREAM_LIMIT_BARE * bare)
            .collect();
        Some((median(ours.clone()), median(bare.clone()), median(above)))
    });
    Goal {
        promise: "exec start and follow: p50 at most 1.25 x bare spawn and wait + 150 us"
            .to_owned(),
        measured: figures.map_or_else(unmeasured, |(ours, bare, above)| {
            format!("{ours:.0} us, bare {bare:.0} us: 1.25 x bare + {above:.0} us")
        }),
        met: figures.map(|(.., above)| above <= STREAM_LIMIT_US),
    }
}

fn find<'a>(scenarios: &'a [ScenarioReport], name: &str) -> Option<&'a ScenarioReport> {
    scenarios.iter().find(|scenario| scenario.name == name)
}

fn unmeasured() -> String {
    "not measured".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(ours: f64, bare: f64) -> Vec<ScenarioReport> {
        let mut series = vec![
            Series::new(OURS, metrics::CPU_SPIN),
            Series::new("bare", metrics::CPU_SPIN),
        ];
        series[0].values = vec![ours];
        series[1].values = vec![bare];
        vec![ScenarioReport {
            name: names::GET,
            notes: Vec::new(),
            series,
        }]
    }

    #[test]
    fn a_promise_is_met_at_its_limit_and_not_above() {
        assert_eq!(judge(&get(0.15, 0.1))[0].met, Some(true));
        assert_eq!(judge(&get(0.16, 0.1))[0].met, Some(false));
    }

    #[test]
    fn what_was_not_run_is_not_judged() {
        assert!(judge(&[]).iter().all(|goal| goal.met.is_none()));
    }
}
