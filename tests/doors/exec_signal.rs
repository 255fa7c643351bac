//! Signals to a running exec: to whom they go, and when nobody is left.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{children, is_alive, signal, stat, wait_until};
use crate::request::Request;

both![
    a_signal_reaches_the_whole_group,
    a_signal_reaches_the_leader_only,
    a_signal_may_be_named_in_many_ways,
    every_number_is_delivered,
    a_real_time_signal_ends_the_command,
    a_group_is_stopped_and_goes_on,
    a_process_that_left_the_group_gets_nothing,
    nobody_left_is_told,
    what_is_left_of_a_group_still_gets_signals,
    a_leader_that_was_reaped_gets_nothing,
    a_signal_spares_the_processes_of_others,
    what_is_no_signal_is_refused,
    a_signal_to_what_is_unknown_is_a_404,
];

fn send(body: &Value) -> Request {
    Request::post("/v1/exec/e/signal").bearer().json(body)
}

/// Sends a signal and checks the answer.
#[track_caller]
fn deliver(daemon: &Daemon, body: &Value, number: i32, delivered: bool) {
    let text = daemon.call(&send(body)).is(200).text();
    let expected = format!(r#"{{"exec_id":"e","signal":{number},"delivered":{delivered}}}"#);
    assert_eq!(text, expected, "{body}");
}

/// A shell that says which signals it gets, and its child that does too; both are ready when this returns.
fn begin_pair(daemon: &Daemon) {
    let script = "trap 'echo parent' USR1; \
                  sh -c 'trap \"echo child\" USR1; echo $$ > child; while :; do sleep 0.01; done' & \
                  echo $$ > parent; while :; do sleep 0.01; done";
    daemon.begin_script("e", script);
    daemon.pid_in("child");
    daemon.pid_in("parent");
}

/// Waits until the exec has written all of `words`, and tells everything that it wrote.
#[track_caller]
fn said(daemon: &Daemon, words: &[&str]) -> String {
    let mut text = String::new();
    wait_until(&format!("it says {words:?}"), || {
        let answer = daemon.get("/v1/exec/e?stdout_offset=0").json();
        text = answer["stdout"].as_str().expect("a string").to_owned();
        words.iter().all(|word| text.contains(word))
    });
    text
}

fn a_signal_reaches_the_whole_group(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin_pair(&daemon);
    deliver(&daemon, &json!({"signal": "USR1"}), 10, true);
    said(&daemon, &["parent", "child"]);
    assert_eq!(daemon.poll("e").json()["phase"], "running");
}

fn a_signal_reaches_the_leader_only(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin_pair(&daemon);
    deliver(
        &daemon,
        &json!({"signal": "USR1", "to": "leader"}),
        10,
        true,
    );
    said(&daemon, &["parent"]);
    deliver(&daemon, &json!({"signal": "USR1", "to": "group"}), 10, true);
    let text = said(&daemon, &["child"]);
    assert_eq!(text.matches("child").count(), 1, "{text}");
}

fn a_signal_may_be_named_in_many_ways(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let forms = [
        json!("TERM"),
        json!("SIGTERM"),
        json!("term"),
        json!("sigTerm"),
        json!(15),
    ];
    for (index, signal) in forms.iter().enumerate() {
        let id = format!("e{index}");
        daemon.begin(&id, &json!({"command": ["sleep", "1000"]}));
        let request = Request::post(format!("/v1/exec/{id}/signal")).bearer();
        let answer = daemon
            .call(&request.json(&json!({"signal": signal})))
            .is(200)
            .json();
        assert_eq!(
            answer,
            json!({"exec_id": id, "signal": 15, "delivered": true})
        );
        let outcome = daemon.exited(&id);
        assert_eq!(
            (&outcome["signal"], &outcome["timed_out"]),
            (&json!(15), &json!(false))
        );
    }
}

fn every_number_is_delivered(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin_pair(&daemon);
    // Those that a shell does not outlive are left out, but for the last one.
    for number in [17, 18, 23, 28] {
        deliver(&daemon, &json!({"signal": number}), number, true);
    }
    assert_eq!(daemon.poll("e").json()["phase"], "running");
    deliver(&daemon, &json!({"signal": 9}), 9, true);
    assert_eq!(daemon.exited("e")["signal"], 9);
}

fn a_real_time_signal_ends_the_command(driver: Driver) {
    for (name, number) in [
        (json!("RTMIN"), 34),
        (json!("SIGRTMAX-1"), 63),
        (json!(64), 64),
    ] {
        let daemon = Daemon::ready(driver);
        daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
        deliver(&daemon, &json!({"signal": name}), number, true);
        assert_eq!(daemon.exited("e")["signal"], number);
    }
}

fn a_group_is_stopped_and_goes_on(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Neither forks: a parent that waits for a stopped child to exec is not seen as stopped.
    let script = "sleep 1000 & echo $! > child; echo $$ > parent; exec sleep 1000";
    daemon.begin_script("e", script);
    let members = ["parent", "child"].map(|name| daemon.pid_in(name));
    let is_sleep =
        |pid| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"sleep\n");
    wait_until("both sleep", || members.iter().all(|pid| is_sleep(*pid)));
    let state = |pid| {
        stat(pid)
            .map(|fields| fields[0].clone())
            .unwrap_or_default()
    };
    deliver(&daemon, &json!({"signal": "STOP"}), 19, true);
    wait_until("they are stopped", || {
        members.iter().all(|pid| state(*pid) == "T")
    });
    assert_eq!(daemon.poll("e").json()["phase"], "running");
    deliver(&daemon, &json!({"signal": "CONT"}), 18, true);
    wait_until("they go on", || {
        members.iter().all(|pid| state(*pid) != "T")
    });
}

fn a_process_that_left_the_group_gets_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script(
        "e",
        "setsid sh -c 'echo $$ > escapee; exec sleep 1000' & exec sleep 1000",
    );
    let escapee = daemon.pid_in("escapee");
    deliver(&daemon, &json!({"signal": "KILL"}), 9, true);
    daemon.exited("e");
    deliver(&daemon, &json!({"signal": "KILL"}), 9, false);
    assert!(is_alive(escapee));
    signal(escapee, rustix::process::Signal::KILL);
}

fn nobody_left_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    daemon.exited("e");
    for to in ["group", "leader"] {
        deliver(&daemon, &json!({"signal": "KILL", "to": to}), 9, false);
    }
    daemon.post("/v1/exec/e/ack").is(200);
    deliver(&daemon, &json!({"signal": 64}), 64, false);
}

fn what_is_left_of_a_group_still_gets_signals(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "sleep 1000 >/dev/null 2>&1 & echo $! > survivor");
    daemon.exited("e");
    daemon.post("/v1/exec/e/ack").is(200);
    let survivor = daemon.pid_in("survivor");
    assert!(is_alive(survivor));
    deliver(&daemon, &json!({"signal": "TERM"}), 15, true);
    wait_until("it is gone", || !is_alive(survivor));
    wait_until("it is reaped", || children(daemon.pid()).is_empty());
    deliver(&daemon, &json!({"signal": "TERM"}), 15, false);
}

fn a_leader_that_was_reaped_gets_nothing(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "1000").ready();
    daemon.begin_script("e", "echo $$ > leader; sleep 1000 & echo $! > holder");
    let (leader, holder) = (daemon.pid_in("leader"), daemon.pid_in("holder"));
    wait_until("it is reaped", || stat(leader).is_none());
    assert_eq!(daemon.poll("e").json()["phase"], "running");
    deliver(
        &daemon,
        &json!({"signal": "KILL", "to": "leader"}),
        9,
        false,
    );
    assert!(is_alive(holder));
    deliver(&daemon, &json!({"signal": "KILL"}), 9, true);
    wait_until("it is gone", || !is_alive(holder));
    daemon.exited("e");
}

fn a_signal_spares_the_processes_of_others(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("other", "echo $$ > other; exec sleep 1000");
    let other = daemon.pid_in("other");
    daemon.begin_script("e", "sleep 1000 & exec sleep 1000");
    deliver(&daemon, &json!({"signal": "KILL"}), 9, true);
    daemon.exited("e");
    deliver(&daemon, &json!({"signal": "KILL"}), 9, false);
    assert!(is_alive(other));
    assert_eq!(daemon.poll("other").json()["phase"], "running");
}

fn what_is_no_signal_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    for signal in [
        json!(0),
        json!(65),
        json!(-9),
        json!("0"),
        json!("FOO"),
        json!("RTMIN+31"),
        json!(1.5),
    ] {
        let reply = daemon
            .call(&send(&json!({"signal": signal})))
            .refuses(400, "malformed_request");
        let detail = reply.json()["detail"]
            .as_str()
            .expect("a string")
            .to_owned();
        assert!(detail.contains(&signal.to_string()), "{signal}: {detail}");
    }
    for body in [
        json!({}),
        json!({"signal": null}),
        json!({"signal": []}),
        json!({"signal": 15, "to": "all"}),
        json!({"signal": 15, "to": 1}),
        json!([15]),
    ] {
        daemon.call(&send(&body)).refuses(400, "malformed_request");
    }
    daemon
        .post("/v1/exec/e/signal")
        .refuses(400, "malformed_request");
    assert_eq!(daemon.poll("e").json()["phase"], "running");
}

fn a_signal_to_what_is_unknown_is_a_404(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon
        .call(&send(&json!({"signal": 15})))
        .refuses(404, "unknown_exec");
    daemon
        .call(&send(&json!({"signal": 0})))
        .refuses(400, "malformed_request");
    daemon.get("/v1/exec/e/signal").bare(405);
}
