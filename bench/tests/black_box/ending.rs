//! How a run shows itself and how it ends when it is interrupted.

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::desk::{Desk, GET, said, values};
use super::stand_in::{Nature, StandIn};

/// Which series there are, and that all have as many values.
fn assert_whole_rounds(results: &Value) {
    assert_eq!(results["complete"], false);
    let series = results["scenarios"][0]["series"]
        .as_array()
        .expect("it is a list");
    let lengths = series
        .iter()
        .map(|series| series["values"].as_array().map(Vec::len));
    let lengths: Vec<_> = lengths.collect();
    assert!(
        lengths
            .iter()
            .all(|length| *length == lengths[0] && *length >= Some(1)),
        "{lengths:?}"
    );
    for target in ["a", "b"] {
        assert!(values(results, target, "rate").is_some(), "{target}");
    }
}

/// A process that was started, if it runs still. One that has ended and that nobody has waited for does not run.
fn is_left(pid_file: &Path) -> bool {
    let pid = std::fs::read_to_string(pid_file).expect("it was started");
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Two servers; `interrupt` is called when the second one is asked in a later round.
fn two_servers(interrupt: impl Fn() + Send + Sync + 'static) -> (StandIn, StandIn) {
    let downloads = Mutex::new(0);
    let watch = move |asked: &str| {
        if asked.ends_with("large.bin") {
            let mut downloads = downloads.lock().expect("no test panicked");
            *downloads += 1;
            // One to check, two in every round.
            if *downloads == 4 {
                interrupt();
            }
        }
    };
    let nature = Nature {
        watch: Box::new(watch),
        ..Nature::default()
    };
    (
        StandIn::start("a", Nature::default()),
        StandIn::start("b", nature),
    )
}

/// A run of two servers that gets `signals` in the middle of a round.
fn interrupted(desk: &Desk, signals: &'static [Signal]) -> Output {
    let harness: Arc<Mutex<Option<Pid>>> = Arc::default();
    let signalled = Arc::clone(&harness);
    let (a, b) = two_servers(move || {
        let pid = signalled.lock().expect("no test panicked");
        let pid = pid.expect("it runs");
        for signal in signals {
            kill_process(pid, *signal).expect("it is ours");
        }
    });
    // The server finds the lock taken until the process is known.
    let mut pid = harness.lock().expect("no test panicked");
    let child = endless(desk, &a, &b).stderr(Stdio::piped()).spawn();
    let child = child.expect("it was built");
    *pid = Some(Pid::from_child(&child));
    drop(pid);
    child.wait_with_output().expect("it ends")
}

fn endless(desk: &Desk, a: &StandIn, b: &StandIn) -> Command {
    let (a, b) = (
        a.spawned(&desk.path("a.pid")),
        b.spawned(&desk.path("b.pid")),
    );
    let words = ["--rounds", "10000", "--spawn", &a, "--spawn", &b];
    desk.command(&[&GET[..], &words].concat())
}

#[test]
fn an_interrupted_run_keeps_whole_rounds_and_ends_its_servers() {
    let desk = Desk::new();
    let output = interrupted(&desk, &[Signal::INT]);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert_whole_rounds(&desk.results());
    assert!(!is_left(&desk.path("a.pid")) && !is_left(&desk.path("b.pid")));
}

#[test]
fn a_second_signal_ends_all_at_once() {
    let desk = Desk::new();
    let output = interrupted(&desk, &[Signal::INT, Signal::TERM]);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(!desk.path("out.json").exists());
    // They were told to end, and nobody waited for it.
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_left(&desk.path("a.pid")) || is_left(&desk.path("b.pid")) {
        assert!(Instant::now() < deadline, "a server is left");
        std::thread::yield_now();
    }
}

/// `ringbench` on a terminal of its own; what it prints there comes out of the child's standard output.
fn on_a_terminal(command: &Command) -> Child {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let mut script = Command::new("script");
    script.args(["-qfec", &shell_words::join(words), "/dev/null"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    script.spawn().expect("script of util-linux is there")
}

#[test]
fn ctrl_c_on_a_terminal_reaches_the_run_and_not_its_servers() {
    let keyboard = Arc::new(Mutex::new(None));
    let pressed: Arc<Mutex<Option<ChildStdin>>> = Arc::clone(&keyboard);
    let (a, b) = two_servers(move || {
        let mut keyboard = pressed.lock().expect("no test panicked");
        let keyboard = keyboard.as_mut().expect("it runs");
        keyboard.write_all(b"\x03").expect("it reads");
        keyboard.flush().expect("it reads");
    });
    let desk = Desk::new();
    let mut held = keyboard.lock().expect("no test panicked");
    let mut child = on_a_terminal(&endless(&desk, &a, &b));
    *held = child.stdin.take();
    drop(held);
    let output = child.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{shown}");
    assert!(!shown.contains("failed"), "{shown}");
    assert_whole_rounds(&desk.results());
    assert!(!is_left(&desk.path("a.pid")) && !is_left(&desk.path("b.pid")));
}

#[test]
fn a_terminal_shows_a_bar_with_an_estimate_and_a_pipe_gets_lines() {
    let server = StandIn::start("a", Nature::default());
    let desk = Desk::new();
    let target = server.running();
    let words = [&GET[..], &["--rounds", "3", "--target", &target]].concat();
    let output = desk.run(&words);
    let told = said(&output);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "get-1g (1 of 1)", "{told}");
    for (line, round) in
        lines[1..]
            .iter()
            .zip(["1 of 3, about ", "2 of 3, about ", "3 of 3, about "])
    {
        assert!(line.contains(round) && line.ends_with(" to go"), "{told}");
    }
    assert!(!told.contains('\x1b') && !told.contains('\r'), "{told:?}");
    let output = on_a_terminal(&desk.command(&words))
        .wait_with_output()
        .expect("it ends");
    let shown = String::from_utf8_lossy(&output.stdout);
    for part in ["█", " %", "get-1g: ", " to go", "\x1b["] {
        assert!(shown.contains(part), "{part:?} is missing: {shown:?}");
    }
    assert!(output.status.success());
}
