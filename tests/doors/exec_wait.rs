//! Polls that wait, and polls that follow the output of a running exec from an offset.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::execs::without_usage;
use crate::reply::keys;
use crate::request::Request;

both![
    a_poll_that_waits_is_answered_at_the_end,
    a_wait_ends_when_its_time_is_over,
    a_wait_for_what_has_ended_is_answered_at_once,
    a_wait_that_is_no_number_is_refused,
    two_hundred_waiters_are_all_answered,
    a_client_that_leaves_is_not_waited_for,
    a_client_that_has_closed_its_half_is_still_answered,
    a_waiting_poll_does_not_hold_the_drain,
    a_running_exec_tells_its_output_from_offsets,
    an_exited_exec_tells_its_output_from_offsets,
    an_offset_past_the_end_comes_back,
    offsets_that_are_no_numbers_are_refused,
    an_acked_exec_tells_no_output,
    a_poller_that_follows_sees_every_byte_once,
    a_follower_is_not_woken_without_output,
    no_character_is_torn_while_the_exec_runs,
    a_running_exec_says_when_output_was_dropped,
    a_large_output_comes_in_parts_while_the_exec_runs,
];

/// A script that goes on when the file `go` is there.
fn gated(before: &str, after: &str) -> String {
    format!("{before}; until [ -e go ]; do sleep 0.01; done; {after}")
}

fn open_the_gate(daemon: &Daemon) {
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
}

/// A connection on which a poll with this query waits.
fn waiting(daemon: &Daemon, query: &str) -> Connection {
    let mut connection = daemon.connect();
    connection.send(poll(query).bytes());
    connection
}

fn poll(query: &str) -> Request {
    Request::get(format!("/v1/exec/e?{query}")).bearer()
}

fn a_poll_that_waits_is_answered_at_the_end(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", &gated("true", "echo done"));
    let mut connection = waiting(&daemon, "wait=3600");
    daemon.health();
    open_the_gate(&daemon);
    let reply = connection.reply().is(200);
    assert_eq!(reply.json()["stdout"], "done\n");
    assert_eq!(reply.text(), daemon.poll("e").text());
    connection.is_usable();
}

fn a_wait_ends_when_its_time_is_over(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    for wait in ["0", "0.0", "0.05", ".05"] {
        let reply = daemon.call(&poll(&format!("wait={wait}"))).is(200);
        assert_eq!(reply.text(), r#"{"exec_id":"e","phase":"running"}"#);
    }
}

fn a_wait_for_what_has_ended_is_answered_at_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    let result = daemon.exited("e");
    assert_eq!(daemon.call(&poll("wait=3600")).is(200).json(), result);
    daemon.post("/v1/exec/e/ack").is(200);
    let acked = daemon.call(&poll("wait=3600")).is(200).text();
    assert_eq!(acked, r#"{"exec_id":"e","phase":"acked"}"#);
    let unknown = Request::get("/v1/exec/none?wait=3600").bearer();
    daemon.call(&unknown).refuses(404, "unknown_exec");
}

fn a_wait_that_is_no_number_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for wait in [
        "", "-1", "x", "1e3", "inf", "NaN", "3600.5", "99999", "1&wait=1",
    ] {
        let request = Request::get(format!("/v1/exec/none?wait={wait}")).bearer();
        let reply = daemon.call(&request).refuses(400, "malformed_request");
        assert!(reply.text().contains("wait"), "{reply:?}");
    }
}

fn two_hundred_waiters_are_all_answered(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", &gated("true", "echo done; exit 3"));
    let mut waiters: Vec<_> = (0..200).map(|_| waiting(&daemon, "wait=3600")).collect();
    daemon.health();
    open_the_gate(&daemon);
    let mut answers: Vec<String> = Vec::new();
    for waiter in &mut waiters {
        answers.push(waiter.reply().is(200).text());
        daemon.health();
    }
    answers.dedup();
    assert_eq!(answers, [daemon.poll("e").text()]);
}

fn a_client_that_leaves_is_not_waited_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    let with_exec = daemon.descriptors().max(before);
    let mut leavers: Vec<_> = (0..20).map(|_| waiting(&daemon, "wait=3600")).collect();
    daemon.health();
    for leaver in leavers.drain(..10) {
        leaver.reset();
    }
    drop(leavers);
    daemon.holds_at_most(with_exec);
    assert_eq!(daemon.poll("e").json()["phase"], "running");
}

fn a_client_that_has_closed_its_half_is_still_answered(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Longer than it takes until the daemon asks whether anybody is there.
    daemon.begin_script("e", "sleep 2.5; echo done");
    let mut connection = waiting(&daemon, "wait=3600");
    connection.finish();
    let reply = connection.reply().is(200);
    assert_eq!(reply.json()["stdout"], "done\n");
}

fn a_waiting_poll_does_not_hold_the_drain(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "1000").ready();
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    let mut waiters = [
        waiting(&daemon, "wait=3600"),
        waiting(&daemon, "wait=3600&stdout_offset=0"),
    ];
    // The answer to a request on the same connection comes behind the poll: so one that follows says nothing here.
    daemon.health();
    daemon.signal(Signal::TERM);
    for waiter in &mut waiters {
        assert_eq!(waiter.reply().is(200).json()["phase"], "running");
    }
    assert_eq!(daemon.wait().code(), Some(0));
}

/// Polls with this query until the answer has `text` as its standard output.
#[track_caller]
fn until_stdout(daemon: &Daemon, query: &str, text: &str) -> String {
    let mut last = String::new();
    crate::process::wait_until(&format!("stdout is {text:?}"), || {
        last = daemon.call(&poll(query)).is(200).text();
        let value: Value = serde_json::from_str(&last).expect("JSON");
        value["stdout"] == text
    });
    last
}

fn a_running_exec_tells_its_output_from_offsets(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "printf err >&2; printf 0123456789; sleep 1000");
    assert_eq!(
        until_stdout(&daemon, "stdout_offset=0", "0123456789"),
        r#"{"exec_id":"e","phase":"running","stdout":"0123456789","stderr":"err","truncated":false,"stdout_offset":10,"stderr_offset":3}"#
    );
    assert_eq!(
        daemon.call(&poll("stdout_offset=7&stderr_offset=1")).text(),
        r#"{"exec_id":"e","phase":"running","stdout":"789","stderr":"rr","truncated":false,"stdout_offset":10,"stderr_offset":3}"#
    );
    assert_eq!(
        daemon.call(&poll("stderr_offset=3&wait=0")).text(),
        r#"{"exec_id":"e","phase":"running","stdout":"0123456789","stderr":"","truncated":false,"stdout_offset":10,"stderr_offset":3}"#
    );
    // Without an offset nothing is told, as ever.
    let plain = daemon.poll("e").text();
    assert_eq!(plain, r#"{"exec_id":"e","phase":"running"}"#);
}

fn an_exited_exec_tells_its_output_from_offsets(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "printf err >&2; printf 0123456789; exit 4");
    daemon.exited("e");
    let text = daemon.call(&poll("stdout_offset=8")).is(200).text();
    let names = keys(&text);
    assert_eq!(
        names[names.len() - 3..],
        ["usage", "stdout_offset", "stderr_offset"]
    );
    assert_eq!(
        without_usage(&text),
        r#"{"exec_id":"e","phase":"exited","exit_code":4,"signal":null,"timed_out":false,"stdout":"89","stderr":"err","truncated":false,"writers_may_be_alive":false,"stdout_offset":10,"stderr_offset":3}"#
    );
}

fn an_offset_past_the_end_comes_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", &gated("printf abc", "true"));
    let query = "stdout_offset=5&stderr_offset=18446744073709551615";
    let check = |phase: &str| {
        let answer = daemon.call(&poll(query)).is(200).json();
        assert_eq!(answer["phase"], phase);
        assert_eq!(
            (&answer["stdout"], &answer["stdout_offset"]),
            (&json!(""), &json!(5))
        );
        assert_eq!(
            (&answer["stderr"], &answer["stderr_offset"]),
            (&json!(""), &json!(u64::MAX))
        );
    };
    until_stdout(&daemon, "stdout_offset=0", "abc");
    check("running");
    open_the_gate(&daemon);
    daemon.exited("e");
    check("exited");
}

fn offsets_that_are_no_numbers_are_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for name in ["stdout_offset", "stderr_offset"] {
        for value in [
            "",
            "-1",
            "x",
            "1.5",
            "18446744073709551616",
            &format!("1&{name}=1"),
        ] {
            let request = Request::get(format!("/v1/exec/none?{name}={value}")).bearer();
            let reply = daemon.call(&request).refuses(400, "malformed_request");
            assert!(reply.text().contains(name), "{reply:?}");
        }
    }
}

fn an_acked_exec_tells_no_output(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo out");
    daemon.exited("e");
    daemon.post("/v1/exec/e/ack").is(200);
    let acked = daemon.call(&poll("stdout_offset=0&wait=5")).is(200).text();
    assert_eq!(acked, r#"{"exec_id":"e","phase":"acked"}"#);
}

/// Follows `e` by polls to its end, and tells both streams and how many polls it took.
#[track_caller]
fn follow(daemon: &Daemon) -> ([String; 2], usize) {
    let mut connection = daemon.connect();
    let (mut texts, mut next) = ([String::new(), String::new()], [0, 0]);
    for polls in 1.. {
        let [stdout, stderr] = next;
        let query = format!("wait=3600&stdout_offset={stdout}&stderr_offset={stderr}");
        let answer = connection.call(&poll(&query)).is(200).json();
        for (index, name) in ["stdout", "stderr"].into_iter().enumerate() {
            texts[index] += answer[name].as_str().expect("a string");
            next[index] = answer[format!("{name}_offset")].as_u64().expect("a number");
        }
        if answer["phase"] == "exited" {
            return (texts, polls);
        }
    }
    unreachable!("the polls have no end");
}

fn a_poller_that_follows_sees_every_byte_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done";
    daemon.begin_script("e", script);
    let ([stdout, stderr], _) = follow(&daemon);
    let expected = |word: &str| -> String { (0..3000).map(|i| format!("{word} {i}\n")).collect() };
    assert!(stdout == expected("line") && stderr == expected("err"));
    let result = daemon.poll("e").json();
    assert!(result["stdout"] == stdout.as_str() && result["stderr"] == stderr.as_str());
}

fn a_follower_is_not_woken_without_output(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // An incomplete character is no output yet, and must not be asked for again and again.
    daemon.begin_script(
        "e",
        r"printf 'a\360\237\230'; sleep 0.3; printf '\200'; sleep 0.3; printf z",
    );
    let ([stdout, _], polls) = follow(&daemon);
    assert_eq!(stdout, "a\u{1f600}z");
    assert!(polls <= 5, "{polls} polls");
}

fn no_character_is_torn_while_the_exec_runs(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let text = "aé€😀\u{7ff}\u{ffff}x";
    // Each byte is written by itself, and the next one when we have seen what there is.
    let bytes: Vec<String> = text.bytes().map(|byte| format!("\\0{byte:o}")).collect();
    let script = format!(
        "for byte in {}; do printf '%b' \"$byte\"; printf . >&2; read gate; done",
        bytes
            .iter()
            .map(|byte| format!("'{byte}'"))
            .collect::<Vec<_>>()
            .join(" ")
    );
    daemon.begin(
        "e",
        &json!({"shell": true, "command": [script], "stdin": true}),
    );
    let (mut seen, mut next) = (String::new(), 0);
    for count in 1..=text.len() {
        let query = format!("stdout_offset={next}&stderr_offset={}&wait=20", count - 1);
        let mut answer = Value::Null;
        crate::process::wait_until("the byte was written", || {
            answer = daemon.call(&poll(&query)).is(200).json();
            answer["stderr"] == "."
        });
        seen += answer["stdout"].as_str().expect("a string");
        next = answer["stdout_offset"].as_u64().expect("a number");
        assert!(text.starts_with(&seen), "{seen:?}");
        assert_eq!(next, seen.len() as u64);
        // What is complete is not held back.
        let whole = (0..=count).rev().find(|end| text.is_char_boundary(*end));
        assert_eq!(Some(seen.len()), whole);
        let line = json!({"data_b64": "Cg=="});
        let write = Request::post("/v1/exec/e/stdin").bearer().json(&line);
        daemon.call(&write).is(200);
    }
    assert_eq!(seen, text);
    assert_eq!(daemon.exited("e")["stdout"], text);
}

fn a_running_exec_says_when_output_was_dropped(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-output-bytes", "11").ready();
    // The cap tears a character: while the exec runs it is held back, at the end it is replaced.
    daemon.begin_script("e", &gated(r"printf '0123456789\303\274more'", "true"));
    let text = until_stdout(&daemon, "stdout_offset=0", "0123456789");
    assert!(
        text.ends_with(r#""truncated":true,"stdout_offset":10,"stderr_offset":0}"#),
        "{text}"
    );
    let mut connection = waiting(&daemon, "stdout_offset=10&wait=3600");
    open_the_gate(&daemon);
    let last = connection.reply().is(200).json();
    assert_eq!(
        (&last["stdout"], &last["stdout_offset"]),
        (&json!("\u{fffd}"), &json!(11))
    );
}

fn a_large_output_comes_in_parts_while_the_exec_runs(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script(
        "e",
        &gated(
            "head -c 3000000 /dev/zero | tr '\\0' x; echo up >&2",
            "true",
        ),
    );
    crate::process::wait_until("all of it is written", || {
        daemon.call(&poll("stdout_offset=3000000")).json()["stderr"] == "up\n"
    });
    let answer = daemon.call(&poll("stdout_offset=0")).is(200).json();
    let part = answer["stdout"].as_str().expect("a string").len();
    assert_eq!(answer["stdout_offset"], part);
    assert!((4096..3_000_000).contains(&part));
    open_the_gate(&daemon);
    let ([stdout, _], _) = follow(&daemon);
    assert!(stdout == "x".repeat(3_000_000));
}
