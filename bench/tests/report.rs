//! `ringbench report` from outside: the page in a browser, the charts, the Markdown, and refusals.

mod browser;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use browser::{Chart, charts};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/results.json")
}

fn results() -> Value {
    let text = std::fs::read_to_string(fixture()).expect("the fixture");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn report(results: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringbench"))
        .arg("report")
        .arg(results)
        .args(options)
        .output()
        .expect("ringbench starts")
}

/// What a report of these results gives: page, Markdown and the names and texts of charts.
struct Report {
    dir: tempfile::TempDir,
    page: String,
    markdown: String,
    files: Vec<(String, String)>,
}

impl Report {
    fn of(results: &Value) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("results.json"), results.to_string()).expect("the results");
        let names = ["page.html", "svg", "summary.md"].map(|name| path(name).display().to_string());
        let [html, svg, md] = &names;
        let output = report(
            &path("results.json"),
            &["--html", html, "--svg", svg, "--md", md],
        );
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let read = |path: &Path| std::fs::read_to_string(path).expect("a file of the report");
        let entries = std::fs::read_dir(svg).into_iter().flatten().flatten();
        let mut files: Vec<(String, String)> = entries
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, read(&entry.path()))
            })
            .collect();
        files.sort();
        Self {
            page: read(Path::new(html)),
            markdown: read(Path::new(md)),
            files,
            dir,
        }
    }

    fn page_path(&self) -> PathBuf {
        self.dir.path().join("page.html")
    }
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("a text")
}

fn numbers(value: &Value) -> Vec<f64> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_f64().expect("a number")).collect()
}

/// The charts that the results ask for.
fn expected_names(results: &Value) -> Vec<String> {
    let mut names: Vec<String> = [
        "fanout-curve",
        "fanout-curve-2",
        "get-64k-curve",
        "get-64k-curve-2",
        "get-64k-curve-3",
    ]
    .map(str::to_owned)
    .into();
    for scenario in array(results, "scenarios") {
        let series = array(scenario, "series");
        let is_main = |one: &&Value| one["is_main"].as_bool().unwrap_or(false);
        let kinds = [
            ("main", series.iter().any(|one| is_main(&one))),
            ("beside", !series.iter().all(|one| is_main(&one))),
            ("latency", !array(scenario, "latencies").is_empty()),
            ("time", !array(scenario, "timelines").is_empty()),
        ];
        let wanted = kinds.iter().filter(|(_, is_there)| *is_there);
        names.extend(wanted.map(|(kind, _)| format!("{}-{kind}", text(scenario, "name"))));
    }
    names.sort();
    names
}

/// What a chart of this name must show of each target, as the results have it.
fn expected_values(results: &Value, chart: &Chart) -> Vec<(String, Vec<f64>)> {
    let scenarios = array(results, "scenarios");
    let (name, kind) = chart.scenario_and_kind();
    let scenario = || {
        let mut all = scenarios.iter();
        all.find(|one| text(one, "name") == name)
            .expect("its scenario")
    };
    let target = |one: &Value| text(one, "target").to_owned();
    match kind {
        "latency" => {
            let all = array(scenario(), "latencies").iter();
            let value = |pair: &Value| pair[1].as_f64().expect("a number");
            all.map(|one| {
                (
                    target(one),
                    array(one, "percentiles").iter().map(value).collect(),
                )
            })
            .collect()
        }
        "main" | "beside" => {
            let all = array(scenario(), "series").iter();
            all.filter(|one| text(one, "metric") == chart.heading)
                .map(|one| (target(one), numbers(&one["values"])))
                .filter(|(_, values)| !values.is_empty())
                .collect()
        }
        "curve" => {
            let members = scenarios.iter();
            let members = members.filter(|one| text(one, "name").starts_with(name));
            let mut found: Vec<(String, Vec<f64>)> = Vec::new();
            let mut series = members.clone().flat_map(|one| array(one, "series"));
            let is_series = series.any(|one| text(one, "metric") == chart.heading);
            if !is_series {
                let metric = chart.heading.strip_suffix(", p99").expect("a percentile");
                let all = members.flat_map(|one| array(one, "latencies"));
                for one in all.filter(|one| text(one, "metric") == metric) {
                    let mut pairs = array(one, "percentiles").iter();
                    let pair = pairs.find(|pair| pair[0].as_f64() == Some(99.0));
                    let value = pair.and_then(|pair| pair[1].as_f64());
                    add(&mut found, target(one), value.expect("a p99"));
                }
                return found;
            }
            let series = members.flat_map(|one| array(one, "series"));
            for one in series.filter(|one| text(one, "metric") == chart.heading) {
                let mut values = numbers(&one["values"]);
                values.sort_by(f64::total_cmp);
                let median = values[values.len() / 2];
                add(&mut found, target(one), median);
            }
            found
        }
        kind => panic!("a chart of the kind {kind}"),
    }
}

fn add(found: &mut Vec<(String, Vec<f64>)>, target: String, value: f64) {
    match found.iter_mut().find(|(name, _)| *name == target) {
        Some((_, values)) => values.push(value),
        None => found.push((target, vec![value])),
    }
}

fn check_data(results: &Value, chart: &Chart) {
    if chart.scenario_and_kind().1 == "time" {
        let name = chart.scenario_and_kind().0;
        let mut scenarios = array(results, "scenarios").iter();
        let scenario = scenarios.find(|one| text(one, "name") == name);
        let timelines = array(scenario.expect("its scenario"), "timelines").iter();
        let mut expected: Vec<(String, usize)> = timelines
            .map(|one| (text(one, "target").to_owned(), array(one, "points").len()))
            .collect();
        expected.sort();
        let mut shown = chart.lines.clone();
        shown.sort();
        assert_eq!(shown, expected, "{}", chart.name);
        return;
    }
    let mut expected = expected_values(results, chart);
    expected.sort_by(|left, right| left.0.cmp(&right.0));
    let mut shown = chart.marks.clone();
    shown.sort_by(|left, right| left.0.cmp(&right.0));
    assert!(!expected.is_empty(), "{} shows nothing", chart.name);
    assert_eq!(shown, expected, "{}", chart.name);
}

#[test]
fn every_chart_has_its_data_in_a_browser() {
    let results = results();
    let report = Report::of(&results);
    let dom = browser::dump(&report.page_path(), browser::LIGHT);
    let charts = charts(&dom);
    let mut names: Vec<String> = charts.iter().map(|chart| chart.name.clone()).collect();
    names.sort();
    assert_eq!(names, expected_names(&results));
    for chart in &charts {
        check_data(&results, chart);
    }
}

#[test]
fn every_mark_is_seen_and_no_label_is_cut_off_in_either_theme() {
    let report = Report::of(&results());
    let mut grounds = Vec::new();
    for scheme in [browser::LIGHT, browser::DARK] {
        let probe = browser::probe(&report.page, scheme);
        assert_eq!(probe.requests, 0, "the page asks for something");
        assert!(probe.marks > 300, "only {} marks", probe.marks);
        assert_eq!(probe.complaints, Vec::<String>::new(), "{scheme}");
        grounds.push(probe.ground);
    }
    assert_ne!(grounds[0], grounds[1], "both themes have one background");
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let report = Report::of(&results());
    for (name, text) in report
        .files
        .iter()
        .chain([&("page".to_owned(), report.page.clone())])
    {
        let text = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for mark in [
            "<script", "<link", "<img", "<iframe", "@import", "src=", "url(h", "url('", "url(\"",
        ] {
            assert!(!text.contains(mark), "{name} has {mark}");
        }
        for reference in text.split("href=\"").skip(1) {
            assert!(
                reference.starts_with('#'),
                "{name} refers to {reference:.40}"
            );
        }
    }
}

#[test]
fn each_chart_is_a_file_of_its_own() {
    let results = results();
    let report = Report::of(&results);
    let names = expected_names(&results).into_iter();
    let mut names: Vec<String> = names.map(|name| name + ".svg").collect();
    names.sort();
    let found: Vec<&String> = report.files.iter().map(|(name, _)| name).collect();
    assert_eq!(found, names.iter().collect::<Vec<_>>());
    for (name, text) in &report.files {
        assert!(text.starts_with("<svg xmlns="), "{name}");
        assert!(text.contains("prefers-color-scheme:dark"), "{name}");
        assert!(!text.contains("var(--"), "{name}");
        assert!(text.contains("<title") && text.contains("<desc"), "{name}");
    }
}

#[test]
fn the_summary_is_the_same_each_time() {
    let results = results();
    let (one, two) = (Report::of(&results), Report::of(&results));
    assert_eq!(one.markdown, two.markdown);
    assert_eq!(one.page, two.page);
    let row = "| get-1g | CPU of the server | 0.142 CPU-s/GiB | 0.0400, ringd better |";
    assert!(one.markdown.contains(row), "{}", one.markdown);
    assert!(
        one.markdown
            .contains("| rate (GiB/s) | nginx (load-bound) | 8.16 |")
    );
    assert!(
        one.markdown
            .contains("- nginx was skipped: it makes no archives")
    );
    assert!(one.markdown.contains("**The run was broken off"));
    assert!(
        one.markdown
            .contains("**Failed: the load process was killed by signal 9**")
    );
}

#[test]
fn without_a_file_the_summary_is_printed() {
    let output = report(&fixture(), &[]);
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("text");
    assert_eq!(printed, Report::of(&results()).markdown);
}

#[test]
fn tokens_do_not_leave_the_results() {
    let report = Report::of(&results());
    assert!(results().to_string().contains("0a1b2c3d"));
    assert!(!report.page.contains("0a1b2c3d"));
    assert!(!report.markdown.contains("0a1b2c3d"));
}

#[test]
fn names_from_the_file_stay_text() {
    let hostile = "<script>alert(1)</script>\"'&|`x";
    let mut results = results();
    let said = results
        .to_string()
        .replace("\"nginx\"", &Value::from(hostile).to_string());
    results = serde_json::from_str(&said).expect("still JSON");
    results["scenarios"][0]["name"] = Value::from("../<b>get|1g</b>");
    results["scenarios"][0]["title"] = Value::from("</p><script>alert(2)</script>`<i>`");
    results["scenarios"][0]["series"][0]["metric"] = Value::from("<u>metric</u>|");
    results["scenarios"][0]["series"][0]["unit"] = Value::from("<s>/&");
    let report = Report::of(&results);
    let files = report
        .files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in files.chain([("page", report.page.as_str())]) {
        for tag in ["<script", "<b>get", "<i>", "<u>", "<s>"] {
            assert!(!text.contains(tag), "{name} has {tag}");
        }
        assert!(!name.contains(['/', '<', '|']), "{name}");
    }
    assert!(
        report
            .files
            .iter()
            .any(|(name, _)| name == "b-get-1g-b-main.svg")
    );
    assert!(!report.markdown.contains("<script"));
    let rows = report
        .markdown
        .lines()
        .filter(|line| line.starts_with("| ..") || line.starts_with("| \\<"));
    for row in rows {
        let cells = row.replace("\\|", "").matches('|').count();
        assert_eq!(cells, 7, "{row}");
    }
}

#[test]
fn what_was_not_measured_is_said_and_never_a_broken_number() {
    let mut results = results();
    let values = ["[]", "[0, 0]", "[1e308, 1e-308, 1e308]", "[-3.5, 0]"];
    let pairs = ["[]", "[[100, 0]]", "[[50, 1e308], [100, 1e-308]]"];
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let scenarios = results["scenarios"].as_array_mut().into_iter().flatten();
    for (at, scenario) in scenarios.enumerate() {
        let fields = [
            ("series", "values", &values[..]),
            ("latencies", "percentiles", &pairs[..]),
            ("timelines", "points", &pairs[..]),
        ];
        for (list, field, choices) in fields {
            let items = scenario.get_mut(list).and_then(Value::as_array_mut);
            for (place, item) in items.into_iter().flatten().enumerate() {
                item[field] = parse(choices[(at + place) % choices.len()]);
            }
        }
    }
    let report = Report::of(&results);
    let files = report
        .files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let texts = files.chain([
        ("page", report.page.as_str()),
        ("summary", report.markdown.as_str()),
    ]);
    for (name, text) in texts {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        let broken = words
            .filter(|word| ["NaN", "inf", "null"].contains(word))
            .count();
        assert_eq!(broken, 0, "{name} has a broken number");
    }
    assert!(report.page.contains(">not measured<"));
    assert!(report.markdown.contains("not measured"));
}

#[test]
fn a_run_without_scenarios_has_a_page() {
    let mut results = results();
    results["scenarios"] = serde_json::json!([]);
    let report = Report::of(&results);
    assert!(report.page.contains("ringd against axum, nginx and bare"));
    assert_eq!(report.files, []);
}

#[test]
fn another_target_can_be_ours() {
    let output = report(&fixture(), &["--ours", "axum"]);
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(
        printed.contains("| scenario | figure | axum | axum / ringd |"),
        "{printed}"
    );
    assert!(printed.contains("ringd better"));
}

#[test]
fn what_cannot_be_reported_is_named() {
    let told = |results: &Path, options: &[&str]| {
        let output = report(results, options);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = told(&fixture(), &["--ours", "apache"]);
    assert!(
        unknown
            .contains("no target is called \"apache\"; the results have ringd, axum, nginx, bare")
    );
    assert!(told(Path::new("/no/such.json"), &[]).contains("cannot read /no/such.json"));
    assert!(told(&fixture(), &["--pdf", "x"]).contains("--pdf"));
    let dir = tempfile::tempdir().expect("a directory");
    let other = dir.path().join("other.json");
    let mut results = results();
    results["format"] = Value::from("ringbench/9");
    std::fs::write(&other, results.to_string()).expect("a file");
    assert!(told(&other, &[]).contains("ringbench/9"));
    results["format"] = Value::from("ringbench/1");
    results["targets"] = serde_json::json!([]);
    results["scenarios"] = serde_json::json!([]);
    std::fs::write(&other, results.to_string()).expect("a file");
    assert!(told(&other, &[]).contains("the results name no target"));
}
