//! Wishes 23 to 28, and 30: processes are found, ended, reaped and paid for, also when the machine has stood still.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::events::{Events, Stream};
use crate::exec_child::may_protect_itself;
use crate::execs::exec_at;
use crate::process::{self, is_alive, wait_until};
use crate::request::Request;

both![
    wish_23_ten_thousand_orphans_leave_no_zombie,
    wish_23_a_kill_and_a_timeout_reach_a_descendant_that_called_setsid,
    wish_24_a_grandchild_that_holds_the_pipe_does_not_hold_the_caller,
    wish_25_ten_thousand_execs_leak_no_descriptor,
    wish_25_running_out_of_descriptors_does_not_end_the_listener,
    wish_26_the_daemon_is_protected_from_oom_and_its_children_are_not,
    wish_27_a_retried_start_runs_once,
    wish_27_fifty_starts_at_once_run_once,
    wish_28_a_half_close_of_stdin_arrives,
    wish_28_a_write_that_nobody_reads_neither_hangs_nor_ends_the_session,
    wish_30_a_daemon_that_stood_still_does_not_time_an_exec_out,
];

fn wish_23_ten_thousand_orphans_leave_no_zombie(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Each round leaves a hundred behind that end when their parent is gone, or just before.
    let script = "i=0; while [ $i -lt 100 ]; do \
                  (j=0; while [ $j -lt 100 ]; do : & j=$((j+1)); done); i=$((i+1)); done";
    let result = daemon.script(script);
    assert_eq!(result["exit_code"], 0, "{result}");
    wait_until("every orphan is reaped", || {
        process::children(daemon.pid()).is_empty()
    });
    assert_eq!(daemon.script("echo on")["stdout"], "on\n");
}

fn wish_23_a_kill_and_a_timeout_reach_a_descendant_that_called_setsid(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--kill-grace", "1000")
        .flag("--output-linger", "1000")
        .ready();
    let script = |name: &str| {
        format!(
            "setsid sh -c 'echo $$ > {name}; exec sleep 1000' & while [ ! -s {name} ]; do sleep 0.01; done; wait"
        )
    };
    daemon.begin_script("k", &script("killed"));
    let killed = daemon.pid_in("killed");
    daemon.post("/v1/exec/k/kill").is(200);
    assert!(!is_alive(killed));
    let limited = json!({"shell": true, "command": [script("limited")], "timeout_sec": 2});
    daemon.begin("t", &limited);
    let limited = daemon.pid_in("limited");
    assert_eq!(daemon.exited("t")["timed_out"], true);
    assert!(!is_alive(limited));
}

fn wish_24_a_grandchild_that_holds_the_pipe_does_not_hold_the_caller(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "0.2").ready();
    daemon.begin_script("e", "setsid sleep 1000 & echo $! > holder; echo said");
    // The stream ends, the result is there, and the ack is taken, though the pipe is still held.
    let heard = Events::follow(&daemon, "e", 0).rest();
    heard.is_whole();
    assert_eq!(heard.of(Stream::Stdout), b"said\n");
    assert_eq!(
        heard.exit.expect("it has ended")["writers_may_be_alive"],
        true
    );
    assert!(is_alive(daemon.pid_in("holder")));
    let acked = daemon.post("/v1/exec/e/ack").is(200).json();
    assert_eq!(acked["writers_may_be_alive"], true);
    // Who asks for it has the holder ended instead.
    let reaped =
        json!({"shell": true, "command": ["sleep 1000 & echo said"], "reap_group_on_exit": true});
    assert_eq!(daemon.exec(&reaped)["writers_may_be_alive"], false);
}

/// Five thousand on each driver.
fn wish_25_ten_thousand_execs_leak_no_descriptor(driver: Driver) {
    const ROUNDS: usize = 50;
    const EACH: usize = 100;
    let daemon = Setup::new(driver).flag("--exec-ttl", "0.1").ready();
    let before = daemon.at_rest();
    let mut connections: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
    for round in 0..ROUNDS {
        let connection = &mut connections[round % 4];
        let ids: Vec<String> = (0..EACH)
            .map(|number| format!("{round}-{number}"))
            .collect();
        let start = |id: &String| {
            let start = json!({"exec_id": id, "command": ["echo", id], "stdin": true});
            Request::post("/v1/exec/start").bearer().json(&start)
        };
        pipelined(connection, ids.iter().map(start));
        // Each stream ends with its exec.
        let follow = |id: &String| Events::request(id, 0);
        pipelined(connection, ids.iter().map(follow));
        let ack = |id: &String| Request::post(format!("{}/ack", exec_at(id))).bearer();
        let acked = pipelined(connection, ids.iter().map(ack));
        for (id, acked) in ids.iter().zip(acked) {
            assert_eq!(acked["stdout"], format!("{id}\n"), "{acked}");
        }
    }
    drop(connections);
    daemon.holds_at_most(before);
    assert!(process::children(daemon.pid()).is_empty());
    // The one that is left was started by `at_rest`, and was not acked.
    wait_until("all are collected", || daemon.health()["execs"] == 1);
}

fn wish_25_running_out_of_descriptors_does_not_end_the_listener(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    daemon.limit_descriptors(before + 8);
    let mut crowd: Vec<Connection> = (0..50).map(|_| daemon.connect()).collect();
    for (number, connection) in crowd.iter_mut().enumerate() {
        let id = format!("e{number}");
        let start = json!({"exec_id": id, "command": ["echo", id]});
        connection.send(
            Request::post("/v1/exec/start")
                .bearer()
                .json(&start)
                .bytes(),
        );
    }
    // Everybody has a turn as others leave; a start that lacks descriptors fails as a spawn and registers nothing.
    for (number, mut connection) in crowd.into_iter().enumerate() {
        let reply = connection.reply();
        let id = format!("e{number}");
        match reply.status {
            200 => assert_eq!(daemon_after(connection, &id)["exec_id"], id.as_str()),
            _ => drop(reply.refuses(500, "spawn_failed")),
        }
    }
    daemon.limit_descriptors(1024);
    daemon.holds_at_most(before);
    assert_eq!(daemon.script("echo again")["stdout"], "again\n");
}

fn wish_26_the_daemon_is_protected_from_oom_and_its_children_are_not(driver: Driver) {
    let before = fs::read_to_string("/proc/self/oom_score_adj").expect("proc is mounted");
    let daemon = Daemon::ready(driver);
    let script = "cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj)";
    let printed = daemon.output(&json!({"shell": true, "command": [script]}));
    assert_eq!(printed, before.repeat(2));
    if may_protect_itself() {
        let own = fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.pid()));
        assert_eq!(own.expect("it runs"), "-1000\n");
    }
}

fn wish_27_a_retried_start_runs_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let request = json!({"exec_id": "e", "shell": true, "command": ["echo ran >> log"]});
    let start = Request::post("/v1/exec/start").bearer().json(&request);
    // The client is gone before it has read the answer, and tries again until one comes.
    for _ in 0..10 {
        let mut connection = daemon.connect();
        connection.send(start.bytes());
        connection.reset();
    }
    for _ in 0..3 {
        assert_eq!(daemon.call(&start).is(200).json()["phase"], "running");
        daemon.exited("e");
    }
    daemon.post("/v1/exec/e/ack").is(200);
    daemon.call(&start).is(200);
    assert_eq!(
        fs::read_to_string(daemon.path("log")).expect("it ran"),
        "ran\n"
    );
}

fn wish_27_fifty_starts_at_once_run_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // A user by name is looked up aside, so that the starts overlap.
    for (id, user) in [
        ("plain", None),
        (
            "named",
            process::is_root("a start as a user").then_some("root"),
        ),
    ] {
        let request = json!({"exec_id": id, "shell": true, "command": [format!("echo ran >> {id}")], "user": user});
        let bytes = Request::post("/v1/exec/start")
            .bearer()
            .json(&request)
            .bytes();
        let mut connections: Vec<_> = (0..50).map(|_| daemon.connect()).collect();
        for connection in &mut connections {
            connection.send(&bytes);
        }
        for connection in &mut connections {
            let answer = connection.reply().is(200).text();
            assert_eq!(
                answer,
                format!("{{\"exec_id\":\"{id}\",\"phase\":\"running\"}}")
            );
        }
        daemon.exited(id);
        assert_eq!(
            fs::read_to_string(daemon.path(id)).expect("it ran"),
            "ran\n"
        );
    }
}

fn wish_28_a_half_close_of_stdin_arrives(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // The end alone, the end with the last bytes, and the end at once.
    for (id, writes) in [
        (
            "apart",
            vec![json!({"data_b64": "b25lCg=="}), json!({"signal": "eof"})],
        ),
        (
            "together",
            vec![json!({"data_b64": "b25lCg==", "signal": "eof"})],
        ),
    ] {
        // What is written after the end of the input still comes: only one half is closed.
        daemon.begin(
            id,
            &json!({"shell": true, "command": ["cat; echo after"], "stdin": true}),
        );
        for write in writes {
            assert_eq!(input(&daemon, id, &write).0, 200);
        }
        assert_eq!(daemon.exited(id)["stdout"], "one\nafter\n");
    }
    daemon.begin("empty", &json!({"command": ["wc", "-c"], "stdin": true}));
    assert_eq!(input(&daemon, "empty", &json!({"signal": "eof"})).0, 200);
    assert_eq!(daemon.exited("empty")["stdout"], "0\n");
}

fn wish_28_a_write_that_nobody_reads_neither_hangs_nor_ends_the_session(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stdin-write-timeout", "0.3")
        .ready();
    let script = "while [ ! -e go ]; do sleep 0.01; done; wc -c";
    daemon.begin(
        "e",
        &json!({"shell": true, "command": [script], "stdin": true}),
    );
    let large = json!({"data_b64": "AAAA".repeat(200_000)});
    let mut writer = daemon.connect();
    writer.send(
        Request::post("/v1/exec/e/stdin")
            .bearer()
            .json(&large)
            .bytes(),
    );
    // Meanwhile others are served.
    assert_eq!(daemon.script("echo served")["stdout"], "served\n");
    writer.reply().refuses(408, "stdin_write_timeout");
    writer.is_usable();
    assert_eq!(daemon.poll("e").json()["phase"], "running");
    // Once the child reads, the same pipe takes more, and its end.
    fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    wait_until("it reads", || {
        input(&daemon, "e", &json!({"data_b64": "AAAA"})).0 == 200
    });
    assert_eq!(input(&daemon, "e", &json!({"signal": "eof"})).0, 200);
    let result = daemon.exited("e");
    let read: usize = result["stdout"]
        .as_str()
        .and_then(|text| text.trim().parse().ok())
        .expect("a number");
    assert!(read >= 65_536 + 3, "{read}");
    assert_eq!(
        input(&daemon, "e", &json!({})),
        (410, Some("stdin_closed".into()))
    );
}

/// A daemon that is stopped for longer than the time limit of an exec sees what a restored machine sees.
fn wish_30_a_daemon_that_stood_still_does_not_time_an_exec_out(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let limited =
        json!({"shell": true, "command": ["echo $$ > up; sleep 5; echo on"], "timeout_sec": 4});
    daemon.begin("e", &limited);
    let child = daemon.pid_in("up");
    daemon.signal(Signal::STOP);
    wait_until("the command ends meanwhile", || !is_alive(child));
    daemon.signal(Signal::CONT);
    let result = daemon.exited("e");
    assert_eq!(result["timed_out"], false, "{result}");
    assert_eq!(result["stdout"], "on\n", "{result}");
    wait_until("the log tells of it", || {
        daemon
            .stderr()
            .iter()
            .any(|line| line.contains("stood still"))
    });
    // A limit that is still to come does come.
    let limited = json!({"command": ["sleep", "1000"], "timeout_sec": 0.5});
    assert_eq!(daemon.exec(&limited)["timed_out"], true);
}

/// Sends requests at once and reads their answers in order; what is not JSON is null.
#[track_caller]
fn pipelined(connection: &mut Connection, requests: impl Iterator<Item = Request>) -> Vec<Value> {
    let bytes: Vec<Vec<u8>> = requests.map(|request| request.bytes()).collect();
    connection.send(bytes.concat());
    let replies = bytes.iter().map(|_| connection.reply().is(200));
    replies
        .map(|reply| serde_json::from_slice(&reply.body).unwrap_or_default())
        .collect()
}

/// Asks for the state of an exec on a connection that is there.
#[track_caller]
fn daemon_after(mut connection: Connection, id: &str) -> Value {
    connection
        .call(&Request::get(exec_at(id)).bearer())
        .is(200)
        .json()
}

/// Writes to a standard input; answers the status and the slug of a refusal.
#[track_caller]
fn input(daemon: &Daemon, id: &str, body: &Value) -> (u16, Option<String>) {
    let request = Request::post(format!("{}/stdin", exec_at(id))).bearer();
    let reply = daemon.call(&request.json(body));
    let slug = reply.json()["error"].as_str().map(str::to_owned);
    (reply.status, slug)
}
