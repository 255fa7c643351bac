//! `ringbench run` from outside: what it asks of servers, and what it writes.

use std::process::Command;
use std::sync::{Arc, Mutex};

use super::desk::{Desk, GET, said, values};
use super::stand_in::{Journal, Nature, StandIn};

#[test]
fn a_running_server_is_measured_by_url_and_token() {
    let (a, b) = (
        StandIn::start("a", Nature::default()),
        StandIn::start("b", Nature::default()),
    );
    let desk = Desk::new();
    let with_pid = format!("{},pid={}", b.running(), std::process::id());
    let words = [
        "--rounds",
        "2",
        "--target",
        &a.running(),
        "--target",
        &with_pid,
    ];
    let output = desk.run(&[&GET[..], &words].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = desk.results();
    assert_eq!(results["format"], "ringbench/1");
    assert_eq!(results["complete"], true);
    assert_eq!(results["targets"][0]["name"], "a");
    assert_eq!(results["targets"][0]["version"], "1.2");
    for name in ["a", "b"] {
        assert_eq!(values(&results, name, "rate").map(Vec::len), Some(2));
    }
    // CPU time is read where the process is known.
    assert_eq!(values(&results, "a", "CPU"), None);
    assert_eq!(values(&results, "b", "CPU").map(Vec::len), Some(2));
    assert_eq!(desk.left_over(), ["out.json"]);
}

#[test]
fn targets_take_turns_in_every_round() {
    let journal = Journal::default();
    let server = |name| StandIn::noted(name, &journal);
    let (a, b) = (server("a"), server("b"));
    let desk = Desk::new();
    let words = [
        "--rounds",
        "3",
        "--target",
        &a.running(),
        "--target",
        &b.running(),
    ];
    let output = desk.run(&[&GET[..], &words].concat());
    assert!(output.status.success(), "{}", said(&output));
    let asked = journal.lock().expect("no test panicked");
    let downloads = asked
        .iter()
        .filter(|(_, asked)| asked.ends_with("large.bin"));
    let mut turns: Vec<&str> = downloads.map(|(name, _)| name.as_str()).collect();
    turns.dedup();
    // The check, then three rounds.
    assert_eq!(turns.concat(), "abababab");
}

#[test]
fn a_new_server_is_given_its_token() {
    let nature = Nature {
        is_new: true,
        ..Nature::default()
    };
    let server = StandIn::start("new", nature);
    let output =
        Desk::new().run(&[&GET[..], &["--rounds", "1", "--target", &server.running()]].concat());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_server_elsewhere_is_given_the_files_and_relieved_of_them() {
    let journal = Journal::default();
    let nature = Nature {
        is_remote: true,
        journal: Arc::clone(&journal),
        ..Nature::default()
    };
    let server = StandIn::start("far", nature);
    let desk = Desk::new();
    let words = [
        "--rounds",
        "1",
        "--remote-dir",
        "/elsewhere",
        "--target",
        &server.running(),
    ];
    let output = desk.run(&[&GET[..], &words].concat());
    assert!(output.status.success(), "{}", said(&output));
    let asked = journal.lock().expect("no test panicked");
    let put = asked.iter().position(|(_, asked)| {
        asked.starts_with("PUT /v1/fs/file?path=/elsewhere/ringbench-")
            && asked.ends_with("/large.bin")
    });
    let removed = asked
        .iter()
        .rposition(|(_, asked)| asked == "POST /v1/exec/start");
    assert!(put < removed && put.is_some(), "{asked:?}");
}

#[test]
fn a_wrong_byte_fails_the_run_and_the_others_figures_stay() {
    let liar = StandIn::start(
        "liar",
        Nature {
            lies: true,
            ..Nature::default()
        },
    );
    let honest = StandIn::start("honest", Nature::default());
    let desk = Desk::new();
    let words = [
        "--rounds",
        "2",
        "--target",
        &liar.running(),
        "--target",
        &honest.running(),
    ];
    let output = desk.run(&[&GET[..], &words].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for named in ["get-1g", "liar", "a byte is wrong"] {
        assert!(said(&output).contains(named), "{}", said(&output));
    }
    let results = desk.results();
    let failure = results["scenarios"][0]["failure"].as_str();
    assert!(
        failure.is_some_and(|why| why.contains("liar")),
        "{failure:?}"
    );
    assert_eq!(values(&results, "liar", "rate"), None);
    assert_eq!(values(&results, "honest", "rate").map(Vec::len), Some(2));
}

#[test]
fn little_locked_memory_is_enough() {
    let server = StandIn::start("a", Nature::default());
    let (desk, target) = (Desk::new(), server.running());
    let words = [&GET[..], &["--rounds", "1", "--target", &target]].concat();
    let run = desk.command(&words);
    // Root may lock what it likes, but for this.
    let unprivileged = ["setpriv", "--bounding-set=-ipc_lock"];
    let limited = ["prlimit", "--memlock=2097152"];
    let root = rustix::process::geteuid().is_root();
    let mut words = [&unprivileged[..], &limited].concat();
    words.drain(..if root { 0 } else { unprivileged.len() });
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(run.get_program());
    let output = command.args(run.get_args()).output();
    let output = output.expect("setpriv and prlimit of util-linux are there");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn bad_input_is_refused_by_name_before_anything_runs() {
    let server = StandIn::start("a", Nature::default());
    let a = server.running();
    let desk = Desk::new();
    std::fs::create_dir(desk.path("taken")).expect("there is room");
    let taken = desk.path("taken").display().to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["--target", &a, "--scenario", "get-9g"], "get-9g"),
        (&["--target", &a, "--scenario", "zz*"], "zz*"),
        (
            &["--target", &a, "--target", &a],
            "two targets are called \"a\"",
        ),
        (&["--target", "b=ftp://127.0.0.1:1"], "ftp://127.0.0.1:1"),
        (&["--target", "b=http://127.0.0.1:1/v1"], "has a path"),
        (&["--target", "http://127.0.0.1:1"], "NAME=URL"),
        (
            &["--target", "b=http://127.0.0.1:1,t,pid=x"],
            "no process number",
        ),
        (&["--spawn", "b='x"], "command of b"),
        (
            &["--target", &a, "--plain", "web"],
            "no target is called \"web\"",
        ),
        (
            &["--target", &a, "--bare", "loops"],
            "no target is called \"loops\"",
        ),
        (&["--target", &a, "--rounds", "0"], "rounds"),
        (&["--target", &a, "--size", "0"], "size"),
        (&["--target", &a, "--out", &taken], &taken),
    ];
    for (words, named) in cases {
        // Of an option that is given twice the last one counts.
        let mut command = desk.command(&[]);
        if words.contains(&"--out") || words.contains(&"--size") {
            command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
            command.arg("run");
        }
        let output = command.args(*words).output().expect("it was built");
        let told = said(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.contains(named), "{words:?}: {told}");
        assert!(!told.contains("round 1"), "{words:?}: {told}");
    }
    assert_eq!(desk.left_over(), ["taken"]);
}

#[test]
fn a_server_that_cannot_be_started_is_quoted() {
    for (spawn, quoted) in [
        (
            "sick=sh -c 'echo no luck today >&2; exit 3'",
            "no luck today",
        ),
        ("sick=sh -c 'echo good morning'", "good morning"),
        ("sick=/no/such/program", "/no/such/program"),
        ("sick=sleep 600", "it said nothing in 10s"),
    ] {
        let desk = Desk::new();
        let output = desk.run(&[&GET[..], &["--spawn", spawn]].concat());
        let told = said(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("sick") && told.contains(quoted), "{told}");
        assert!(desk.left_over().is_empty(), "{:?}", desk.left_over());
    }
}

#[test]
fn a_wrong_token_or_a_silent_port_is_told_of_its_target() {
    let server = StandIn::start("a", Nature::default());
    let wrong = format!("a=http://{},wrong", server.address);
    let output = Desk::new().run(&[&GET[..], &["--rounds", "1", "--target", &wrong]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("401"), "{}", said(&output));
    let output = Desk::new().run(&[&GET[..], &["--target", "b=http://127.0.0.1:1,t"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("b: cannot connect to 127.0.0.1:1"),
        "{}",
        said(&output)
    );
}

#[test]
fn results_are_there_when_they_are_whole() {
    let desk = Desk::new();
    let out = desk.path("out.json");
    std::fs::write(&out, "old").expect("there is room");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let watched = out.clone();
    let watch = move |_: &str| {
        let text = std::fs::read_to_string(&watched).expect("it is there");
        noted.lock().expect("no test panicked").push(text);
    };
    let server = StandIn::start(
        "a",
        Nature {
            watch: Box::new(watch),
            ..Nature::default()
        },
    );
    let output = desk.run(&[&GET[..], &["--rounds", "1", "--target", &server.running()]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let seen = seen.lock().expect("no test panicked");
    assert!(
        seen.iter().all(|text| text == "old") && seen.len() > 3,
        "{seen:?}"
    );
    assert_eq!(desk.results()["complete"], true);
    assert_eq!(desk.left_over(), ["out.json"]);
}
