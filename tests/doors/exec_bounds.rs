//! Bounds on what is kept for those who have not read it: starts are refused, nothing unread is dropped.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::events::Events;
use crate::reply::Reply;
use crate::request::Request;

both![
    starts_are_refused_while_too_many_execs_are_unread,
    running_execs_count,
    starts_that_fail_do_not_count,
    starts_at_once_keep_the_bound,
    acked_execs_beyond_the_bound_go_before_their_time,
    starts_are_refused_while_output_takes_too_much_memory,
    acked_output_makes_room_at_once,
    acked_output_on_disk_makes_room_for_the_next,
    nothing_acked_goes_where_that_would_not_help,
    a_follower_that_has_left_takes_no_memory,
];

/// Starts a program that only exits.
fn start(daemon: &Daemon, id: &str) -> Reply {
    daemon.ask(&json!({"exec_id": id, "command": ["true"]}))
}

#[track_caller]
fn is_busy(reply: Reply) {
    let reply = reply.is(503);
    assert_eq!(reply.field("retry-after"), Some("1"));
    let answer = reply.json();
    assert_eq!(answer["error"], "busy");
    assert!(answer["detail"].is_string());
}

fn starts_are_refused_while_too_many_execs_are_unread(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-execs", "2").ready();
    for id in ["a", "b"] {
        start(&daemon, id).is(200);
        daemon.exited(id);
    }
    is_busy(start(&daemon, "c"));
    daemon.poll("c").refuses(404, "unknown_exec");
    // A retry is no start.
    start(&daemon, "a").is(200);
    daemon.post("/v1/exec/a/ack").is(200);
    start(&daemon, "c").is(200);
    is_busy(start(&daemon, "d"));
    for id in ["b", "c"] {
        daemon.exited(id);
    }
}

fn running_execs_count(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-execs", "1").ready();
    daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
    is_busy(start(&daemon, "b"));
    daemon.post("/v1/exec/a/kill").is(200);
    daemon.exited("a");
    daemon.post("/v1/exec/a/ack").is(200);
    start(&daemon, "b").is(200);
}

fn starts_that_fail_do_not_count(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-execs", "1").ready();
    for _ in 0..3 {
        let request = json!({"exec_id": "x", "command": ["/no/such/program"]});
        daemon.ask(&request).refuses(500, "spawn_failed");
    }
    start(&daemon, "a").is(200);
}

fn starts_at_once_keep_the_bound(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-execs", "5").ready();
    let mut connections: Vec<_> = (0..20).map(|_| daemon.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let request = json!({"exec_id": format!("e{number}"), "command": ["true"]});
        let start = Request::post("/v1/exec/start").bearer().json(&request);
        connection.send(start.bytes());
    }
    let replies = connections.iter_mut().map(|one| one.reply());
    let (taken, refused): (Vec<_>, Vec<_>) = replies.partition(|reply| reply.status == 200);
    assert_eq!((taken.len(), refused.len()), (5, 15));
    refused.into_iter().for_each(is_busy);
}

fn acked_execs_beyond_the_bound_go_before_their_time(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-execs", "3").ready();
    let last = 9;
    for number in 0..=last {
        let id = format!("e{number}");
        start(&daemon, &id).is(200);
        daemon.exited(&id);
        daemon.post(format!("/v1/exec/{id}/ack")).is(200);
    }
    crate::process::wait_until("the oldest go", || daemon.health()["execs"] == 3);
    daemon.poll("e0").refuses(404, "unknown_exec");
    assert_eq!(daemon.poll(&format!("e{last}")).json()["phase"], "acked");
}

/// A daemon with room for two results of [`LOUD`] bytes, or a little more.
fn short_of_memory(driver: Driver) -> Daemon {
    Setup::new(driver)
        .flag("--max-output-memory", (3 * LOUD / 2).to_string())
        .flag("--stream-spill-bytes", "0")
        .ready()
}

const LOUD: usize = 1 << 20;

fn loud(id: &str) -> Value {
    json!({"exec_id": id, "command": ["head", "-c", LOUD.to_string(), "/dev/zero"]})
}

fn starts_are_refused_while_output_takes_too_much_memory(driver: Driver) {
    let daemon = short_of_memory(driver);
    daemon.ask(&loud("a")).is(200);
    daemon.exited("a");
    is_busy(start(&daemon, "b"));
    // What is unread stays, all of it.
    let polled = daemon.poll("a").json();
    assert_eq!(polled["stdout"].as_str().map(str::len), Some(LOUD));
    Events::follow(&daemon, "a", 0).rest().is_whole();
}

fn acked_output_makes_room_at_once(driver: Driver) {
    let daemon = short_of_memory(driver);
    for id in ["a", "b", "c", "d"] {
        daemon.ask(&loud(id)).is(200);
        daemon.exited(id);
        let acked = daemon.post(format!("/v1/exec/{id}/ack")).is(200).json();
        assert_eq!(acked["stdout"].as_str().map(str::len), Some(LOUD));
    }
    // The last one is remembered still.
    Events::follow(&daemon, "d", 0).rest().is_whole();
}

fn acked_output_on_disk_makes_room_for_the_next(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--disk-reserve-bytes", "0")
        .flag("--stream-buffer-bytes", "65536")
        .flag("--stream-spill-bytes", (3 * LOUD).to_string())
        .flag("--max-spill-bytes", (4 * LOUD).to_string())
        .ready();
    let count = (3 * LOUD).to_string();
    for id in ["a", "b", "c"] {
        daemon.begin(id, &json!({"command": ["head", "-c", count, "/dev/zero"]}));
        daemon.exited(id);
        Events::follow(&daemon, id, 0).rest().is_whole();
        daemon.post(format!("/v1/exec/{id}/ack")).is(200);
    }
    daemon.poll("a").refuses(404, "unknown_exec");
    // What took no disk was not in the way.
    daemon.begin(
        "unread",
        &json!({"command": ["head", "-c", count, "/dev/zero"]}),
    );
    daemon.exited("unread");
    daemon.begin(
        "late",
        &json!({"command": ["head", "-c", count, "/dev/zero"]}),
    );
    daemon.exited("late");
    let heard = Events::follow(&daemon, "late", 0).rest();
    assert!(heard.bytes.len() > LOUD / 2, "{}", heard.bytes.len());
    Events::follow(&daemon, "unread", 0).rest().is_whole();
}

fn nothing_acked_goes_where_that_would_not_help(driver: Driver) {
    let daemon = short_of_memory(driver);
    start(&daemon, "small").is(200);
    daemon.exited("small");
    daemon.post("/v1/exec/small/ack").is(200);
    daemon.ask(&loud("unread")).is(200);
    daemon.exited("unread");
    is_busy(start(&daemon, "b"));
    assert_eq!(daemon.poll("small").json()["phase"], "acked");
}

fn a_follower_that_has_left_takes_no_memory(driver: Driver) {
    // Room for the output, in memory twice, and not for its events beside it.
    let daemon = Setup::new(driver)
        .flag("--max-output-memory", (4 * LOUD).to_string())
        .ready();
    daemon.begin(
        "a",
        &json!({"shell": true, "command": ["head -c 1048576 /dev/zero; cat"], "stdin": true}),
    );
    let followers = [0, 0, 0].map(|offset| Events::follow(&daemon, "a", offset));
    let eof = Request::post("/v1/exec/a/stdin").bearer();
    daemon.call(&eof.json(&json!({"signal": "eof"}))).is(200);
    for mut follower in followers {
        follower.rest().is_whole();
    }
    start(&daemon, "b").is(200);
}
