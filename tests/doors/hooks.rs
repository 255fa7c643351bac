//! The five hooks beside run, and the record of all six: contract section 3, D5 and D20.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::Request;

both![
    every_hook_is_acknowledged_before_and_after_bootstrap,
    what_a_hook_is_sent_is_ignored,
    every_invocation_is_recorded_before_it_is_judged,
    the_earliest_64_invocations_are_kept,
    a_terminate_hook_can_be_told_to_acknowledge_only,
];

const PREFIX: &str = "/aws/lambda-microvms/runtime/v1";

fn every_hook_is_acknowledged_before_and_after_bootstrap(driver: Driver) {
    let daemon = Setup::new(driver).flag("--terminate-hook", "ack").start();
    for _ in 0..2 {
        for name in ["ready", "validate", "suspend", "resume", "terminate"] {
            let reply = fire(&daemon, name).bare(200);
            assert_eq!(reply.field("content-length"), Some("0"));
        }
        daemon.bootstrap(crate::request::TOKEN, &json!({})).is(200);
    }
}

fn what_a_hook_is_sent_is_ignored(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    for name in ["ready", "validate", "suspend", "resume"] {
        let request = Request::post(format!("{PREFIX}/{name}"));
        connection.call(&request.clone().json(&json!({}))).bare(200);
        connection
            .call(&request.clone().json_text("not json"))
            .bare(200);
        connection
            .call(&request.clone().body("no content type"))
            .bare(200);
        connection
            .call(&request.clone().chunks(["some", "chunks"]))
            .bare(200);
        connection
            .call(&request.field("authorization", "Bearer nope"))
            .bare(200);
    }
}

fn every_invocation_is_recorded_before_it_is_judged(driver: Driver) {
    let daemon = Setup::new(driver).flag("--terminate-hook", "ack").start();
    let began = now();
    assert_eq!(daemon.health()["hooks"], json!([]));
    fire(&daemon, "ready").is(200);
    fire(&daemon, "run").is(400);
    daemon.bootstrap("a", &json!({})).is(200);
    daemon.bootstrap("b", &json!({})).is(409);
    for name in ["validate", "suspend", "resume", "terminate"] {
        fire(&daemon, name).is(200);
    }
    // A request that reaches no hook is none.
    daemon
        .call(&Request::get(format!("{PREFIX}/ready")))
        .is(405);
    let hooks = daemon.health()["hooks"].clone();
    let expected = [
        "ready",
        "run",
        "run",
        "run",
        "validate",
        "suspend",
        "resume",
        "terminate",
    ];
    assert_eq!(names(&hooks), expected, "{hooks}");
    for hook in hooks.as_array().expect("a list") {
        let fired = hook["fired_at"].as_f64().expect("seconds since the epoch");
        assert!(fired >= began.floor() && fired <= now().ceil(), "{hook}");
    }
    assert_eq!(daemon.health()["hooks_dropped"], 0);
}

fn the_earliest_64_invocations_are_kept(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    connection
        .call(&Request::post(format!("{PREFIX}/validate")))
        .is(200);
    for _ in 0..70 {
        connection
            .call(&Request::post(format!("{PREFIX}/ready")))
            .is(200);
    }
    let health = daemon.health();
    let kept = names(&health["hooks"]);
    assert_eq!(kept.len(), 64);
    assert_eq!(kept[0], "validate");
    assert_eq!(health["hooks_dropped"], 7);
}

fn a_terminate_hook_can_be_told_to_acknowledge_only(driver: Driver) {
    let daemon = Setup::new(driver)
        .env("RINGD_TERMINATE_HOOK", "ack")
        .start();
    for _ in 0..3 {
        fire(&daemon, "terminate").bare(200);
        daemon.health();
    }
}

#[track_caller]
fn fire(daemon: &Daemon, name: &str) -> crate::reply::Reply {
    daemon.call(&Request::post(format!("{PREFIX}/{name}")))
}

fn names(hooks: &Value) -> Vec<&str> {
    let list = hooks.as_array().expect("a list");
    list.iter()
        .map(|hook| hook["hook"].as_str().expect("a name"))
        .collect()
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs_f64()
}
