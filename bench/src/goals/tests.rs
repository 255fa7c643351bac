//! Promises against results that are made up, and against the tables of scenarios.

use serde_json::json;

use super::*;

/// A series: scenario, target, metric, whether low is better, values.
type Sketch<'a> = (&'a str, &'a str, &'a str, bool, &'a [f64]);

/// Results with some series.
fn results(series: &[Sketch]) -> Results {
    let mut scenarios: Vec<serde_json::Value> = Vec::new();
    for (name, target, metric, is_low, values) in series {
        let known = scenarios.iter().position(|one| one["name"] == *name);
        let at = known.unwrap_or_else(|| {
            scenarios.push(json!({ "name": name, "title": "", "series": [] }));
            scenarios.len() - 1
        });
        let better = if *is_low { "low" } else { "high" };
        let series = json!({
            "target": target, "metric": metric, "unit": "u", "better": better, "values": values
        });
        let list = scenarios[at]["series"].as_array_mut();
        list.expect("it is one").push(series);
    }
    let all = json!({
        "format": "ringbench/1", "complete": true,
        "setting": {
            "date": "2026-01-01", "ringbench": "0", "kernel": "6", "processor": "P", "cpus": 2,
            "filesystem": "ext4", "arguments": ["run", "--size", "4"], "rounds": 1, "busy_before_percent": 0.0, "stolen_ms": 0.0
        },
        "targets": [{ "name": "ringd", "binary_bytes": 4 << 20 }],
        "scenarios": scenarios
    });
    serde_json::from_value(all).expect("it has the format")
}

/// What becomes of the promise whose text begins so.
fn check(results: &Results, promise: &str, measured: &str, is_kept: Option<bool>) {
    let goals = judge(results, "ringd").expect("there is a ringd");
    let goal = goals.iter().find(|goal| goal.promise.starts_with(promise));
    let goal = goal.expect("it was promised");
    assert!(goal.measured.contains(measured), "{}", goal.measured);
    assert_eq!(goal.is_kept, is_kept, "{promise}: {}", goal.measured);
}

#[test]
fn a_promise_is_kept_at_its_limit_and_not_above() {
    for (ours, is_kept) in [(0.15, true), (0.1501, false)] {
        let results = results(&[
            ("get-1g", "ringd", "CPU", true, &[ours]),
            ("get-1g", "bare", "CPU", true, &[0.1]),
        ]);
        check(
            &results,
            "GET 1 GiB cached: CPU at most 1.5 x",
            " x bare",
            Some(is_kept),
        );
    }
}

#[test]
fn a_rate_must_be_high() {
    for (ours, is_kept) in [(3.0, true), (2.9, false)] {
        let results = results(&[
            ("get-64k", "ringd", "rate", false, &[ours, 9.0, 1.0]),
            ("get-64k", "axum", "rate", false, &[1.0, 1.0, 1.0]),
        ]);
        check(&results, "GET files of 64 KiB", " x axum", Some(is_kept));
    }
}

#[test]
fn the_worst_round_counts_where_none_may_be_worse() {
    let results = results(&[
        ("exec-storm", "ringd", "zombies left", true, &[0.0, 0.0]),
        (
            "exec-storm",
            "ringd",
            "descriptors left open",
            true,
            &[0.0, 1.0],
        ),
        ("memory", "ringd", "growth, GET tar", true, &[3.0, 15.0]),
    ]);
    check(
        &results,
        "exec storm: no zombie",
        "1.00 u at most (descriptors",
        Some(false),
    );
    check(
        &results,
        "RSS growth under 16 MiB",
        "15.00 u at most",
        Some(true),
    );
}

#[test]
fn what_a_variant_promises_is_not_judged_by_the_usual_form() {
    let results = results(&[("tar-put-1g", "ringd", "CPU over PUT file", true, &[1.2])]);
    check(
        &results,
        "PUT tar, one large member: CPU",
        "1.20 u",
        Some(true),
    );
    check(
        &results,
        "PUT tar, one large member, spool=off",
        "not measured",
        None,
    );
}

#[test]
fn a_round_that_the_host_disturbed_is_no_stall_of_ours() {
    let stalls: &[f64] = &[1.0, 30.0, 1.5];
    let results = results(&[
        ("get-1g-cold", "ringd", promises::STALL, true, stalls),
        (
            "get-1g-cold",
            "ringd",
            promises::STOLEN,
            true,
            &[0.0, 20.0, 0.0],
        ),
    ]);
    check(
        &results,
        "GET cold",
        "1.50 ms at most in the 2 rounds",
        Some(true),
    );
}

#[test]
fn an_exec_may_take_two_spawns_and_a_trip() {
    for (ours, is_kept) in [(1050.0, true), (1051.0, false)] {
        let results = results(&[
            (
                "exec-poll",
                "ringd",
                "start to exit known, p50",
                true,
                &[ours],
            ),
            (
                "exec-poll",
                "bare",
                "start to exit known, p50",
                true,
                &[500.0],
            ),
            ("health", "ringd", "p50", true, &[50.0]),
        ]);
        check(
            &results,
            "exec start and poll: p50",
            "the limit is 1050 us",
            Some(is_kept),
        );
    }
}

#[test]
fn a_followed_exec_may_take_a_spawn_and_a_bit() {
    let results = results(&[
        (
            "exec-stream",
            "ringd",
            "start to exit event, p50",
            true,
            &[1276.0, 900.0, 2000.0],
        ),
        (
            "exec-stream",
            "bare",
            "start to exit event, p50",
            true,
            &[900.0, 600.0, 1480.0],
        ),
    ]);
    check(
        &results,
        "exec start and follow: p50",
        "1.25 x bare + 150 us",
        Some(true),
    );
}

#[test]
fn a_percentile_is_that_of_single_requests() {
    let mut results = results(&[("lines-last", "ringd", "CPU", true, &[1.0])]);
    results.scenarios[0]
        .latencies
        .push(crate::results::Latency {
            target: "ringd".to_owned(),
            metric: "latency".to_owned(),
            unit: "us".to_owned(),
            count: 500,
            constant_rate: None,
            percentiles: vec![(50.0, 10.0), (99.0, 2001.0)],
        });
    check(
        &results,
        "last ten lines",
        "2001 us of 500 requests",
        Some(false),
    );
}

#[test]
fn a_failed_scenario_proves_nothing() {
    let mut results = results(&[("memory", "ringd", "idle RSS", true, &[3.0])]);
    check(&results, "idle RSS", "3.00 u", Some(true));
    results.scenarios[0].failure = Some("a byte is wrong".to_owned());
    check(&results, "idle RSS", "not measured: memory failed", None);
}

#[test]
fn a_figure_that_the_load_limited_is_marked() {
    let mut results = results(&[(
        "capture-frames",
        "ringd",
        "rate of what was told",
        false,
        &[2.0],
    )]);
    results.scenarios[0].series[0].load_bound_rounds = 1;
    check(
        &results,
        "capture, one binary follower",
        "2.00 u, the load was the limit",
        Some(true),
    );
}

#[test]
fn what_was_not_run_is_not_judged() {
    let results = results(&[]);
    let goals = judge(&results, "ringd").expect("there is a ringd");
    let measured = goals.iter().filter(|goal| goal.is_kept.is_some());
    assert_eq!(
        measured.map(|goal| goal.promise).collect::<Vec<_>>(),
        ["release binary under 4 MiB"]
    );
    let table = markdown(&results, &goals);
    assert!(
        table.starts_with("1 of 34 promises are kept, 0 are not, 33 were not measured."),
        "{table}"
    );
    assert!(table.contains("`ringbench run --size 4`"), "{table}");
    assert!(
        table.contains("| idle RSS under 6 MiB | not measured |  |"),
        "{table}"
    );
}

#[test]
fn a_target_that_is_not_there_is_named() {
    let outcome = judge(&results(&[]), "new");
    let error = outcome.err().expect("there is none");
    assert_eq!(
        error.to_string(),
        "no target is called \"new\" in these results; there are: ringd"
    );
}

#[test]
fn every_promise_names_a_scenario_that_there_is() {
    for promise in PROMISES {
        for name in promise.scenarios {
            let known = crate::scenario::all().any(|scenario| scenario.name == *name);
            assert!(known, "{}: {name}", promise.text);
        }
    }
}

/// Metrics are constants of the families' files; those that a promise names must be among them.
#[test]
fn every_promise_names_metrics_that_are_measured() {
    let mut code = String::new();
    let mut dirs = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scenario")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("it is a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => dirs.push(path),
                false => code += &std::fs::read_to_string(path).expect("it is text"),
            }
        }
    }
    // Wherever a line was broken.
    let code: String = code.split_whitespace().collect();
    for promise in PROMISES {
        for metric in promise.metrics {
            let name: String = metric.split_whitespace().collect();
            let made =
                ["Metric::low(", "Metric::high(", "mib("].map(|make| format!("{make}\"{name}\""));
            let known = made.iter().any(|made| code.contains(made));
            assert!(known, "{}: {metric}", promise.text);
        }
    }
}
