//! Killing an exec: everybody it started is found, and the answer comes when they are gone (section 4.5, D11).

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_alive, signal, stat, wait_until};
use crate::request::Request;

both![
    a_kill_ends_as_soon_as_everybody_is_dead,
    a_kill_reaches_the_whole_group,
    a_group_that_ignores_term_is_killed_after_the_grace,
    a_member_that_ignores_term_is_killed_though_its_leader_obeys,
    a_stopped_child_is_killed_too,
    a_child_may_end_in_its_own_way,
    output_during_the_grace_is_read,
    a_finished_exec_is_not_killed,
    a_survivor_of_a_finished_exec_is_killed,
    a_descendant_in_a_session_of_its_own_is_found,
    an_orphan_in_a_session_of_its_own_is_found,
    a_chain_of_orphans_is_found,
    a_kill_spares_the_processes_of_others,
    a_kill_of_what_is_unknown_is_a_404,
    a_kill_ignores_its_body,
    two_kills_at_once_are_both_answered,
    a_kill_goes_on_when_its_client_leaves,
];

const KILLED: &str = r#"{"exec_id":"k","killed":true}"#;

fn a_kill_ends_as_soon_as_everybody_is_dead(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin("k", &json!({"command": ["sleep", "1000"]}));
    assert_eq!(kill(&daemon), KILLED);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["signal"], 15, "{outcome}");
    assert_eq!(outcome["exit_code"], Value::Null, "{outcome}");
    assert_eq!(outcome["timed_out"], false, "{outcome}");
    assert_eq!(kill(&daemon), r#"{"exec_id":"k","killed":false}"#);
}

fn a_kill_reaches_the_whole_group(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin_script(
        "k",
        "sleep 1000 & echo $! > a; (sleep 1000 & echo $! > b; wait) & echo $! > c; wait",
    );
    let members = ["a", "b", "c"].map(|name| daemon.pid_in(name));
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&members);
    daemon.exited("k");
}

fn a_group_that_ignores_term_is_killed_after_the_grace(driver: Driver) {
    let daemon = hasty(driver);
    daemon.begin_script(
        "k",
        "trap '' TERM; echo $$ > up; while :; do sleep 1000; done",
    );
    let leader = daemon.pid_in("up");
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&[leader]);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["signal"], 9, "{outcome}");
}

fn a_member_that_ignores_term_is_killed_though_its_leader_obeys(driver: Driver) {
    let daemon = hasty(driver);
    daemon.begin_script(
        "k",
        "(trap '' TERM; sh -c 'echo $PPID > up'; while :; do sleep 1000; done) & wait",
    );
    let member = daemon.pid_in("up");
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&[member]);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["signal"], 15, "{outcome}");
}

fn a_stopped_child_is_killed_too(driver: Driver) {
    let daemon = hasty(driver);
    daemon.begin_script("k", "echo $$ > up; exec sleep 1000");
    let child = daemon.pid_in("up");
    signal(child, Signal::STOP);
    wait_until("it is stopped", || {
        stat(child).is_some_and(|fields| fields[0] == "T")
    });
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&[child]);
    daemon.exited("k");
}

fn a_child_may_end_in_its_own_way(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin_script("k", &trapping("echo bye; exit 5"));
    daemon.pid_in("up");
    assert_eq!(kill(&daemon), KILLED);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["exit_code"], 5, "{outcome}");
    assert_eq!(outcome["stdout"], "bye\n", "{outcome}");
}

fn output_during_the_grace_is_read(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin_script("k", &trapping("head -c 3000000 /dev/zero; exit 0"));
    daemon.pid_in("up");
    assert_eq!(kill(&daemon), KILLED);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["exit_code"], 0);
    assert_eq!(outcome["stdout"].as_str().map(str::len), Some(3_000_000));
}

fn a_finished_exec_is_not_killed(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin("k", &json!({"command": ["true"]}));
    daemon.exited("k");
    assert_eq!(kill(&daemon), r#"{"exec_id":"k","killed":false}"#);
    daemon.post("/v1/exec/k/ack").is(200);
    assert_eq!(kill(&daemon), r#"{"exec_id":"k","killed":false}"#);
}

fn a_survivor_of_a_finished_exec_is_killed(driver: Driver) {
    for acked in [false, true] {
        let daemon = patient(driver);
        daemon.begin_script("k", "sleep 1000 >/dev/null 2>&1 & echo $! > survivor");
        daemon.exited("k");
        if acked {
            daemon.post("/v1/exec/k/ack").is(200);
        }
        let survivor = daemon.pid_in("survivor");
        assert!(is_alive(survivor));
        assert_eq!(kill(&daemon), KILLED);
        are_dead(&[survivor]);
        assert_eq!(kill(&daemon), r#"{"exec_id":"k","killed":false}"#);
    }
}

fn a_descendant_in_a_session_of_its_own_is_found(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin_script(
        "k",
        "setsid sh -c 'echo $$ > escapee; exec sleep 1000' & wait",
    );
    let escapee = daemon.pid_in("escapee");
    leads_a_session(escapee);
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&[escapee]);
    daemon.exited("k");
}

fn an_orphan_in_a_session_of_its_own_is_found(driver: Driver) {
    let daemon = patient(driver);
    // The parent of the escapee is gone before the kill.
    let script =
        "(setsid sh -c 'echo $$ > escapee; exec sleep 1000' >/dev/null 2>&1 &); exec sleep 1000";
    daemon.begin_script("k", script);
    let escapee = daemon.pid_in("escapee");
    leads_a_session(escapee);
    let pid = daemon.pid().to_string();
    wait_until("the orphan is the daemon's", || {
        stat(escapee).is_some_and(|fields| fields[1] == pid)
    });
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&[escapee]);
    daemon.exited("k");
}

fn a_chain_of_orphans_is_found(driver: Driver) {
    let daemon = hasty(driver);
    // A daemon in the usual manner: a second fork behind the new session, and deaf to SIGTERM.
    let script = "(setsid sh -c '(trap \"\" TERM; sh -c \"echo \\$PPID > escapee\"; \
                  while :; do sleep 1000; done) & exit 0' >/dev/null 2>&1 &); exec sleep 1000";
    daemon.begin_script("k", script);
    let escapee = daemon.pid_in("escapee");
    let pid = daemon.pid().to_string();
    wait_until("the orphan is the daemon's", || {
        stat(escapee).is_some_and(|fields| fields[1] == pid)
    });
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&[escapee]);
    daemon.exited("k");
}

fn a_kill_spares_the_processes_of_others(driver: Driver) {
    let daemon = patient(driver);
    let orphaning = "(setsid sh -c 'echo $$ > NAME; exec sleep 1000' >/dev/null 2>&1 &); \
                     (setsid sh -c 'sleep 1000 & echo $! > NAME2; exit 0' >/dev/null 2>&1 &); exec sleep 1000";
    daemon.begin_script("other", &orphaning.replace("NAME", "other"));
    daemon.begin_script("k", &orphaning.replace("NAME", "mine"));
    let others = [daemon.pid_in("other"), daemon.pid_in("other2")];
    let mine = [daemon.pid_in("mine"), daemon.pid_in("mine2")];
    assert_eq!(kill(&daemon), KILLED);
    are_dead(&mine);
    assert!(
        others.iter().all(|pid| is_alive(*pid)),
        "the other exec's processes"
    );
    assert_eq!(daemon.poll("other").json()["phase"], "running");
    daemon.post("/v1/exec/other/kill").is(200);
    are_dead(&others);
}

fn a_kill_of_what_is_unknown_is_a_404(driver: Driver) {
    let daemon = patient(driver);
    let reply = daemon.post("/v1/exec/zz/kill").is(404);
    assert_eq!(reply.text(), r#"{"error":"unknown_exec","detail":"zz"}"#);
}

fn a_kill_ignores_its_body(driver: Driver) {
    let daemon = patient(driver);
    daemon.begin("k", &json!({"command": ["sleep", "1000"]}));
    let request = Request::post("/v1/exec/k/kill").bearer();
    let mut connection = daemon.connect();
    let reply = connection
        .call(&request.clone().json_text("garbage"))
        .is(200);
    assert_eq!(reply.text(), KILLED);
    connection
        .call(&request.chunks(["more", "garbage"]))
        .is(200);
    connection.is_usable();
}

fn two_kills_at_once_are_both_answered(driver: Driver) {
    let daemon = hasty(driver);
    daemon.begin_script(
        "k",
        "trap '' TERM; echo $$ > up; while :; do sleep 1000; done",
    );
    daemon.pid_in("up");
    let bytes = Request::post("/v1/exec/k/kill").bearer().bytes();
    let mut connections: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.send(&bytes);
    }
    for connection in &mut connections {
        let reply = connection.reply().is(200);
        assert_eq!(reply.json()["exec_id"], "k");
    }
    daemon.exited("k");
}

fn a_kill_goes_on_when_its_client_leaves(driver: Driver) {
    let daemon = hasty(driver);
    daemon.begin_script(
        "k",
        "trap 'echo term > heard' TERM; echo $$ > up; while :; do sleep 0.01; done",
    );
    let child = daemon.pid_in("up");
    let mut connection = daemon.connect();
    connection.send(Request::post("/v1/exec/k/kill").bearer().bytes());
    wait_until("the signal has arrived", || daemon.path("heard").exists());
    drop(connection);
    wait_until("the grace ends in SIGKILL", || !is_alive(child));
    assert_eq!(daemon.exited("k")["signal"], 9);
}

/// A daemon whose grace is longer than any test waits: what ends, ended without it.
fn patient(driver: Driver) -> Daemon {
    Setup::new(driver)
        .flag("--kill-grace", "1000")
        .flag("--output-linger", "1000")
        .ready()
}

/// A daemon whose grace is short, for children that will not obey.
fn hasty(driver: Driver) -> Daemon {
    Setup::new(driver)
        .flag("--kill-grace", "0.3")
        .flag("--output-linger", "1000")
        .ready()
}

/// A script that answers SIGTERM with `action`, and writes its pid to `up` when it and its child are ready.
fn trapping(action: &str) -> String {
    // Between fork and exec a child has the handler of its shell, and a signal to it would be lost.
    format!(
        "trap '{action}' TERM; sh -c 'echo ready > ready; exec sleep 1000' & \
         while [ ! -s ready ]; do sleep 0.01; done; echo $$ > up; wait"
    )
}

/// Kills `k` and returns what was answered.
#[track_caller]
fn kill(daemon: &Daemon) -> String {
    daemon.post("/v1/exec/k/kill").is(200).text()
}

/// Checks that processes are dead now, not soon.
#[track_caller]
fn are_dead(pids: &[i32]) {
    for pid in pids {
        assert!(!is_alive(*pid), "{pid} is alive: {:?}", stat(*pid));
    }
}

#[track_caller]
fn leads_a_session(pid: i32) {
    let fields = stat(pid).expect("it runs");
    assert_eq!(fields[3], pid.to_string(), "not a session of its own");
}
