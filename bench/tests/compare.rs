//! `ringbench compare` as a shell or a CI sees it: files, messages and the exit status.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Three rounds in ten a little off, so that nothing is exact.
const STEADY: [f64; 10] = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0];

fn times(factor: f64) -> Vec<f64> {
    STEADY.iter().map(|value| value * factor).collect()
}

fn series(target: &str, metric: &str, is_main: bool, values: &[f64]) -> Value {
    json!({
        "target": target, "metric": metric, "unit": "s/GiB", "better": "low", "is_main": is_main, "values": values
    })
}

fn scenario(name: &str, series: &[Value]) -> Value {
    json!({ "name": name, "title": "Something happens.", "series": series })
}

fn results(targets: &[&str], scenarios: &[Value]) -> Value {
    let targets: Vec<Value> = targets.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "format": "ringbench/1",
        "complete": true,
        "setting": {
            "date": "2026-01-01", "ringbench": "0.1.0", "kernel": "6.1", "processor": "P", "cpus": 2,
            "filesystem": "ext4", "arguments": [], "rounds": 10, "busy_before_percent": 1.0, "stolen_ms": 0.0
        },
        "targets": targets,
        "scenarios": scenarios
    })
}

/// One scenario with a main figure and another, each so many times what it is in BASE.
fn ringd(main: f64, other: f64) -> Value {
    let figures = [
        series("ringd", "cpu", true, &times(main)),
        series("ringd", "wall", false, &times(other)),
    ];
    results(&["ringd"], &[scenario("get-1g", &figures)])
}

struct Desk {
    dir: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self {
            dir: TempDir::new().expect("there is a temporary directory"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, content: &Value) {
        std::fs::write(self.path(name), content.to_string()).expect("it can be written");
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("it was written")
    }

    fn compare(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ringbench"))
            .arg("compare")
            .args(words)
            .current_dir(&self.dir)
            .output()
            .expect("the program starts")
    }

    /// Compares, and returns what is printed.
    fn check(&self, words: &[&str], status: i32, told: &[&str]) -> String {
        let output = self.compare(words);
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{text}");
        for part in told {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        text.into_owned()
    }

    /// Compares two files of this content.
    fn check_two(
        &self,
        base: &Value,
        new: &Value,
        more: &[&str],
        status: i32,
        told: &[&str],
    ) -> String {
        self.put("base.json", base);
        self.put("new.json", new);
        self.check(&[&["base.json", "new.json"], more].concat(), status, told)
    }
}

const WORSE: i32 = 1;
const BAD_INPUT: i32 = 2;

#[test]
fn the_same_twice_is_the_same() {
    let told = [
        "Not worse: of 1 main figure 1 same",
        "base  base.json of 2026-01-01, 10 rounds",
        "Two runs: their rounds are not paired",
        "Intervals have 95 %. 10000 resamples, seed ",
    ];
    Desk::new().check_two(&ringd(1.0, 1.0), &ringd(1.0, 1.0), &[], 0, &told);
}

#[test]
fn a_slower_main_figure_fails_and_another_only_with_all() {
    let desk = Desk::new();
    let base = ringd(1.0, 1.0);
    desk.check_two(
        &base,
        &ringd(1.1, 1.0),
        &[],
        WORSE,
        &["Worse: of 1 main figure 1 worse"],
    );
    let told = desk.check_two(&base, &ringd(1.0, 1.3), &[], 0, &["Not worse", "wall"]);
    let line = told.lines().find(|line| line.contains("wall"));
    assert!(line.is_some_and(|line| line.ends_with("worse")), "{told}");
    let all = [
        "Worse: of 2 figures 1 worse, 1 same",
        "have 97.5 % each, so that all together have 95 % (Bonferroni)",
    ];
    desk.check_two(&base, &ringd(1.0, 1.3), &["--all"], WORSE, &all);
}

#[test]
fn the_margin_and_the_confidence_are_chosen() {
    let desk = Desk::new();
    let (base, new) = (ringd(1.0, 1.0), ringd(1.1, 1.0));
    desk.check_two(
        &base,
        &new,
        &["--fail-above", "20%"],
        0,
        &["1 same", "within 20 %"],
    );
    desk.check_two(
        &base,
        &new,
        &["--confidence", "99%"],
        WORSE,
        &["Intervals have 99 %"],
    );
    for (words, told) in [
        (["--fail-above", "5"], "a percent sign is missing"),
        (["--fail-above", "x%"], "\"x\" is not a number"),
        (
            ["--confidence", "100%"],
            "--confidence must be at least 50% and below 100%",
        ),
        (["--targets", "a"], "two names with a comma between"),
    ] {
        desk.check_two(&base, &new, &words, BAD_INPUT, &[told]);
    }
}

/// The machine is up to nine times slower in a round, for both.
#[test]
fn two_targets_of_one_run_are_held_against_each_other_round_by_round() {
    let desk = Desk::new();
    let machine = [1.0, 5.0, 2.0, 9.0, 1.5, 3.0, 1.0, 7.0, 2.5, 4.0];
    let weather = |factor: f64, shift: usize| -> Vec<f64> {
        let own = times(factor);
        (0..10)
            .map(|round| machine[round] * own[(round + shift) % 10])
            .collect()
    };
    let figures = [
        series("old", "cpu", true, &weather(1.0, 0)),
        series("new", "cpu", true, &weather(1.1, 3)),
    ];
    desk.put(
        "run.json",
        &results(&["old", "new"], &[scenario("get-1g", &figures)]),
    );
    let told = [
        "One run of both targets",
        "old → new",
        "base  old in run.json",
        "Worse: of 1 main figure 1 worse",
    ];
    desk.check(&["run.json", "--targets", "old,new"], WORSE, &told);
    desk.check(&["run.json", "--targets", "new,old"], 0, &["1 better"]);
    // The same figures of two files say nothing.
    let told = ["Two runs", "Undecided: of 1 main figure 1 too noisy"];
    desk.check(&["run.json", "run.json", "--targets", "old,new"], 0, &told);

    for (words, told) in [
        (&["run.json"][..], "one file alone needs --targets BASE,NEW"),
        (
            &["run.json", "--targets", "old,axum"],
            "run.json has no target \"axum\"; it has old, new",
        ),
        (&["run.json", "--targets", "old,old"], "names \"old\" twice"),
    ] {
        desk.check(words, BAD_INPUT, &[told]);
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let desk = Desk::new();
    desk.put("good.json", &ringd(1.0, 1.0));
    desk.put("other.json", &json!({ "rounds": 3 }));
    let mut later = ringd(1.0, 1.0);
    later["format"] = json!("ringbench/2");
    desk.put("later.json", &later);
    for (file, told) in [
        ("absent.json", "cannot read absent.json: No such file"),
        ("other.json", "other.json holds no results of ringbench"),
        (
            "later.json",
            "later.json has the format \"ringbench/2\", not \"ringbench/1\"",
        ),
    ] {
        desk.check(&["good.json", file], BAD_INPUT, &[told]);
        desk.check(&[file, "good.json"], BAD_INPUT, &[told]);
    }
    let words = ["good.json", "good.json", "--markdown", "absent/out.md"];
    desk.check(&words, BAD_INPUT, &["cannot write absent/out.md"]);
    desk.check(&[], BAD_INPUT, &["BASE.json"]);
}

#[test]
fn files_that_have_nothing_in_common_are_refused() {
    let desk = Desk::new();
    let base = ringd(1.0, 1.0);
    let figure = |target: &str, metric: &str| [series(target, metric, true, &STEADY)];
    let axum = results(&["axum"], &[scenario("get-1g", &figure("axum", "cpu"))]);
    let told = ["no target in common: ringd; axum. --targets BASE,NEW"];
    desk.check_two(&base, &axum, &[], BAD_INPUT, &told);
    let named = ["--targets", "ringd,axum"];
    desk.check_two(&base, &axum, &named, 0, &["ringd → axum", "1 same"]);
    let put = results(&["ringd"], &[scenario("put-1g", &figure("ringd", "cpu"))]);
    desk.check_two(
        &base,
        &put,
        &[],
        BAD_INPUT,
        &["no scenario in common: get-1g; put-1g"],
    );
    let side = |metric: &str| {
        let figures = [series("ringd", metric, false, &STEADY)];
        results(&["ringd"], &[scenario("get-1g", &figures)])
    };
    desk.check_two(
        &side("a"),
        &side("b"),
        &[],
        BAD_INPUT,
        &["no figure in common"],
    );
    desk.check_two(
        &side("a"),
        &side("a"),
        &[],
        BAD_INPUT,
        &["no main figure in common", "--all"],
    );
    desk.check_two(
        &side("a"),
        &side("a"),
        &["--all"],
        0,
        &["of 1 figure 1 same"],
    );
}

#[test]
fn what_failed_or_is_gone_fails_and_what_is_new_is_listed() {
    let desk = Desk::new();
    let base = ringd(1.0, 1.0);

    let mut failed = ringd(1.0, 1.0);
    failed["scenarios"][0]["failure"] = json!("a byte was wrong");
    let told = [
        "Failed: 1 failed or missing; of 1 main figure 1 same",
        "failed: get-1g: a byte was wrong",
    ];
    desk.check_two(&base, &failed, &[], WORSE, &told);
    desk.check_two(&failed, &base, &[], 0, &["Not worse"]);

    let mut more = ringd(1.0, 1.0);
    let health = scenario("health", &[series("ringd", "cpu", true, &STEADY)]);
    more["scenarios"]
        .as_array_mut()
        .expect("it is one")
        .push(health);
    desk.check_two(
        &base,
        &more,
        &[],
        0,
        &["new in NEW: health: the scenario is not in BASE"],
    );
    desk.check_two(
        &more,
        &base,
        &[],
        WORSE,
        &["missing in NEW: health: the scenario is not there"],
    );

    let mut skipped = more.clone();
    skipped["scenarios"][1]["series"] = json!([]);
    skipped["scenarios"][1]["skipped"] = json!([{ "target": "ringd", "why": "it cannot" }]);
    desk.check_two(
        &more,
        &skipped,
        &[],
        WORSE,
        &["missing in NEW: health / ringd: it cannot"],
    );

    let mut renamed = ringd(1.0, 1.0);
    renamed["scenarios"][0]["series"][1]["metric"] = json!("time");
    let told = [
        "missing in NEW: get-1g / ringd / wall",
        "new in NEW: get-1g / ringd / time",
    ];
    desk.check_two(&base, &renamed, &[], 0, &told);
    desk.check_two(&base, &renamed, &["--all"], WORSE, &told);

    let mut unit = ringd(1.0, 1.0);
    unit["scenarios"][0]["series"][0]["unit"] = json!("ms/GiB");
    desk.check_two(
        &base,
        &unit,
        &[],
        WORSE,
        &["its unit was s/GiB and is ms/GiB"],
    );
}

#[test]
fn a_figure_that_the_load_bounds_does_not_fail() {
    let mut new = ringd(1.5, 1.0);
    new["scenarios"][0]["series"][0]["load_bound_rounds"] = json!(6);
    let told = ["Undecided: of 1 main figure 1 load was the limit"];
    Desk::new().check_two(&ringd(1.0, 1.0), &new, &[], 0, &told);
}

#[test]
fn what_a_reader_should_doubt_is_said() {
    let mut new = ringd(1.0, 1.0);
    new["complete"] = json!(false);
    new["setting"]["kernel"] = json!("6.2");
    new["targets"] = json!([{ "name": "ringd" }, { "name": "axum" }]);
    let told = [
        "Warning: new.json is of a run that was broken off; what is there is compared.",
        "Warning: the kernel differs: 6.1 in BASE, 6.2 in NEW.",
        "Warning: the target axum is in new.json only and is not compared.",
    ];
    Desk::new().check_two(&ringd(1.0, 1.0), &new, &[], 0, &told);
}

#[test]
fn markdown_has_the_outcome_on_top_and_the_rest_folded() {
    let desk = Desk::new();
    desk.check_two(
        &ringd(1.0, 1.0),
        &ringd(1.25, 1.0),
        &["--markdown", "out.md"],
        WORSE,
        &[],
    );
    let text = desk.text("out.md");
    assert!(
        text.starts_with("**Worse: of 1 main figure 1 worse**\n\n"),
        "{text}"
    );
    let (main, rest) = text.split_once("<details>").expect("something is folded");
    let row = "| get-1g | ringd | cpu (s/GiB) | 1.000 | 1.250 | 1.250 (";
    assert!(
        main.contains(row) && main.contains("| **worse** |"),
        "{text}"
    );
    assert!(
        rest.contains("\n\n| scenario ") && rest.contains("| wall "),
        "{text}"
    );
    assert!(rest.contains("| same |\n\n</details>"), "{text}");
}

#[test]
fn junit_has_one_case_for_each_figure() {
    let desk = Desk::new();
    let mut new = ringd(1.25, 1.0);
    new["scenarios"][0]["failure"] = json!("<wrong> & \"bad\"\u{1}");
    let figures = new["scenarios"][0]["series"]
        .as_array_mut()
        .expect("it is one");
    figures.push(series("ringd", "few", true, &[1.0, 2.0]));
    let mut base = ringd(1.0, 1.0);
    let figures = base["scenarios"][0]["series"]
        .as_array_mut()
        .expect("it is one");
    figures.push(series("ringd", "few", true, &[1.0, 2.0]));
    desk.check_two(&base, &new, &["--junit", "out.xml"], WORSE, &[]);
    let text = desk.text("out.xml");
    let document = roxmltree::Document::parse(&text).expect("it is well-formed");
    let root = document.root_element();
    let counts = ["tests", "failures", "skipped"].map(|name| root.attribute(name));
    assert_eq!(counts, [Some("4"), Some("2"), Some("1")], "{text}");
    let found: Vec<(&str, &str, &str)> = root
        .descendants()
        .filter(|node| node.has_tag_name("testcase"))
        .map(|case| {
            let inner = case.first_element_child().expect("each says something");
            let attribute = |name| case.attribute(name).expect("each has a name and a class");
            (
                attribute("classname"),
                attribute("name"),
                inner.tag_name().name(),
            )
        })
        .collect();
    let expected = [
        ("get-1g.ringd", "cpu", "failure"),
        ("get-1g.ringd", "wall", "system-out"),
        ("get-1g.ringd", "few", "skipped"),
        ("get-1g.all targets", "all figures", "failure"),
    ];
    assert_eq!(found, expected, "{text}");
    let failure = root
        .descendants()
        .rfind(|node| node.has_tag_name("failure"));
    let message = failure.and_then(|node| node.attribute("message"));
    assert_eq!(message, Some("failed: get-1g: <wrong> & \"bad\"\u{fffd}"));
}
