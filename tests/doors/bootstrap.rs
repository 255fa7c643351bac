//! The run hook: one token, once; the refusal table of contract section 3.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::reply::Reply;
use crate::request::{Request, TOKEN};

both![
    a_body_that_is_no_envelope_is_refused_with_nothing_said,
    a_payload_of_the_wrong_shape_is_refused_by_name,
    the_first_wrong_thing_is_the_one_that_is_named,
    a_secret_is_never_quoted_in_a_refusal,
    a_refused_run_installs_nothing,
    the_first_valid_run_installs_token_and_environment,
    a_body_of_two_mebibytes_is_read_and_a_larger_one_is_not,
    the_same_token_again_changes_nothing,
    another_token_is_a_conflict_and_changes_nothing,
    a_refusal_after_bootstrap_is_still_a_refusal,
    unknown_keys_are_ignored_and_a_null_environment_is_none,
    two_first_runs_at_once_have_one_winner,
    a_host_that_uses_a_json_media_type_is_understood,
    the_identity_pair_is_accepted_whole,
];

const RUN: &str = "/aws/lambda-microvms/runtime/v1/run";
const SEED: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const ZEROES: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn a_body_that_is_no_envelope_is_refused_with_nothing_said(driver: Driver) {
    let daemon = Daemon::start(driver);
    let good = r#"{"runHookPayload":"{\"agent_token\":\"x\"}"}"#;
    let bodies = [
        "not json",
        "",
        "{}",
        r#"{"runHookPayload":null}"#,
        r#"{"runHookPayload":{"agent_token":"x"}}"#,
        r#"{"runHookPayload":7}"#,
        r#"{"agent_token":"x"}"#,
        r#"{"runHookPayload":"{\"agent_token\":\"x\"}"} trailing"#,
        r#"{"runHookPayload":"{\"agent_token\":\"x\"}","runHookPayload":"{\"agent_token\":\"y\"}"}"#,
        "\u{feff}{\"runHookPayload\":\"{\\\"agent_token\\\":\\\"x\\\"}\"}",
    ];
    for body in bodies {
        daemon.call(&Request::post(RUN).json_text(body)).bare(400);
    }
    daemon.call(&Request::post(RUN).body(good)).bare(400);
    let as_text = Request::post(RUN).field("content-type", "text/plain");
    daemon.call(&as_text.body(good)).bare(400);
    daemon.call(&Request::post(RUN)).bare(400);
    assert_eq!(daemon.health()["bootstrapped"], false);
}

fn a_payload_of_the_wrong_shape_is_refused_by_name(driver: Driver) {
    let daemon = Daemon::start(driver);
    let named = [
        ("not json", "runHookPayload"),
        ("[]", "runHookPayload"),
        ("7", "runHookPayload"),
        ("{}", "agent_token"),
        (r#"{"agent_token":7}"#, "agent_token"),
        (r#"{"agent_token":null}"#, "agent_token"),
        (r#"{"agent_token":""}"#, "agent_token is empty"),
        (r#"{"agent_token":"t","env":"A=1"}"#, "env"),
        (r#"{"agent_token":"t","env":["A"]}"#, "env"),
        (
            r#"{"agent_token":"t","env":{"PORT":8080}}"#,
            "env[\"PORT\"] is not a string",
        ),
        (
            r#"{"agent_token":"t","env":{"A":"1","B":null}}"#,
            "env[\"B\"] is not a string",
        ),
        (
            r#"{"agent_token":"t","env":{"A":{"x":"y"}}}"#,
            "env[\"A\"] is not a string",
        ),
    ];
    for (payload, name) in named {
        let reply = run(&daemon, payload).explains(400);
        assert!(reply.text().contains(name), "{payload}: {reply:?}");
    }
    for (seed, key, named) in identities() {
        let mut payload = json!({"agent_token": "t"});
        payload["identity_seed"] = seed;
        payload["identity_host_public_key"] = key;
        payload
            .as_object_mut()
            .expect("an object")
            .retain(|_, value| value != "absent");
        let reply = run(&daemon, &payload.to_string()).explains(400);
        assert!(reply.text().contains(named), "{payload}: {reply:?}");
    }
    assert_eq!(daemon.health()["bootstrapped"], false);
}

/// A seed, a host key and the one of them that a refusal must name; "absent" is left out.
fn identities() -> Vec<(Value, Value, &'static str)> {
    let mut cases = Vec::new();
    for bad in [
        json!("absent"),
        json!(7),
        json!(""),
        json!("!!!"),
        json!("BwcH"),
        json!(ZEROES),
    ] {
        cases.push((bad.clone(), json!(SEED), "identity_seed"));
        cases.push((json!(SEED), bad, "identity_host_public_key"));
    }
    let unpadded = SEED.trim_end_matches('=');
    cases.push((json!(unpadded), json!(SEED), "identity_seed"));
    cases
}

fn the_first_wrong_thing_is_the_one_that_is_named(driver: Driver) {
    let daemon = Daemon::start(driver);
    let all_wrong = json!({"env": 7, "identity_seed": 7});
    let reply = run(&daemon, &all_wrong.to_string()).explains(400);
    assert!(reply.text().contains("agent_token"), "{reply:?}");
    let two_wrong = json!({"agent_token": "t", "env": {"A": 1}, "identity_seed": 7});
    let reply = run(&daemon, &two_wrong.to_string()).explains(400);
    assert!(reply.text().contains("env[\"A\"]"), "{reply:?}");
}

fn a_secret_is_never_quoted_in_a_refusal(driver: Driver) {
    let daemon = Daemon::start(driver);
    let payloads = [
        json!({"agent_token": {"s3cret": 1}}),
        json!({"agent_token": "s3cret", "env": {"A": {"k": "s3cret"}}}),
        json!({"agent_token": "s3cret", "env": "s3cret"}),
        json!({"agent_token": "s3cret", "identity_seed": "s3cret", "identity_host_public_key": SEED}),
    ];
    for payload in payloads {
        let reply = run(&daemon, &payload.to_string()).is(400);
        assert!(!reply.text().contains("s3cret"), "{reply:?}");
    }
    let reply = run(&daemon, "s3cret").is(400);
    assert!(!reply.text().contains("s3cret"), "{reply:?}");
    let logged = daemon.stderr().join("\n");
    assert!(!logged.contains("s3cret"), "{logged}");
}

fn a_refused_run_installs_nothing(driver: Driver) {
    let daemon = Daemon::start(driver);
    let payload = json!({"agent_token": TOKEN, "env": {"A": 1}});
    run(&daemon, &payload.to_string()).is(400);
    daemon.get("/v1/exec/none").bare(503);
    // Another token still wins the first place.
    daemon.bootstrap("second", &json!({})).bare(200);
    daemon.get("/v1/exec/none").bare(401);
}

fn the_first_valid_run_installs_token_and_environment(driver: Driver) {
    let daemon = Daemon::start(driver);
    daemon.get("/v1/exec/none").bare(503);
    let reply = daemon.bootstrap(TOKEN, &json!({"LAUNCH": "yes", "EMPTY": ""}));
    assert_eq!(reply.bare(200).field("content-length"), Some("0"));
    daemon.get("/v1/exec/none").is(404);
    assert_eq!(daemon.health()["bootstrapped"], true);
    assert_eq!(environment(&daemon), "EMPTY=\nLAUNCH=yes\n");
}

fn a_body_of_two_mebibytes_is_read_and_a_larger_one_is_not(driver: Driver) {
    let daemon = Daemon::start(driver);
    let payload = json!({"agent_token": TOKEN}).to_string();
    let mut body = json!({"runHookPayload": payload}).to_string();
    let whole = 2 * 1024 * 1024;
    let over = format!("{body}{}", " ".repeat(whole + 1 - body.len()));
    let mut connection = daemon.connect();
    connection
        .call(&Request::post(RUN).json_text(over.clone()))
        .bare(400);
    let chunks = over.as_bytes().chunks(65536).map(<[u8]>::to_vec);
    let chunked = Request::post(RUN)
        .field("content-type", "application/json")
        .chunks(chunks);
    daemon.call(&chunked).bare(400);
    body.push_str(&" ".repeat(whole - body.len()));
    daemon.call(&Request::post(RUN).json_text(body)).bare(200);
}

fn the_same_token_again_changes_nothing(driver: Driver) {
    let daemon = Daemon::start(driver);
    daemon.bootstrap(TOKEN, &json!({"A": "first"})).bare(200);
    daemon
        .bootstrap(TOKEN, &json!({"A": "hijack", "B": "new"}))
        .bare(200);
    assert_eq!(environment(&daemon), "A=first\n");
}

fn another_token_is_a_conflict_and_changes_nothing(driver: Driver) {
    let daemon = Daemon::start(driver);
    daemon.bootstrap(TOKEN, &json!({"A": "first"})).bare(200);
    daemon.bootstrap("other", &json!({"A": "hijack"})).bare(409);
    assert_eq!(environment(&daemon), "A=first\n");
    let other = Request::get("/v1/exec/none").field("authorization", "Bearer other");
    daemon.call(&other).bare(401);
}

fn a_refusal_after_bootstrap_is_still_a_refusal(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for token in [TOKEN, "other"] {
        let payload = json!({"agent_token": token, "env": {"A": 1}});
        run(&daemon, &payload.to_string()).explains(400);
    }
    daemon.get("/v1/exec/none").is(404);
}

fn unknown_keys_are_ignored_and_a_null_environment_is_none(driver: Driver) {
    let daemon = Daemon::start(driver);
    let payload = json!({"agent_token": TOKEN, "env": null, "future": {"x": [1]}}).to_string();
    let envelope = json!({"runHookPayload": payload, "more": true});
    daemon.call(&Request::post(RUN).json(&envelope)).bare(200);
    assert_eq!(environment(&daemon), "");
}

fn two_first_runs_at_once_have_one_winner(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut first = daemon.connect();
    let mut second = daemon.connect();
    for (connection, token) in [(&mut first, "a"), (&mut second, "b")] {
        let payload = json!({"agent_token": token}).to_string();
        let request = Request::post(RUN).json(&json!({"runHookPayload": payload}));
        connection.send(request.bytes());
    }
    let mut statuses = [first.reply().status, second.reply().status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

fn a_host_that_uses_a_json_media_type_is_understood(driver: Driver) {
    for media in [
        "application/json; charset=utf-8",
        "application/vnd.x+json",
        "Application/JSON",
    ] {
        let daemon = Daemon::start(driver);
        let payload = json!({"agent_token": TOKEN}).to_string();
        let body = json!({"runHookPayload": payload}).to_string();
        let request = Request::post(RUN).field("content-type", media).body(body);
        daemon.call(&request).bare(200);
    }
}

fn the_identity_pair_is_accepted_whole(driver: Driver) {
    let daemon = Daemon::start(driver);
    let payload = json!({
        "agent_token": TOKEN, "env": {}, "identity_seed": SEED, "identity_host_public_key": SEED,
    });
    run(&daemon, &payload.to_string()).bare(200);
    assert_eq!(environment(&daemon), "");
}

#[track_caller]
fn run(daemon: &Daemon, payload: &str) -> Reply {
    daemon.call(&Request::post(RUN).json(&json!({"runHookPayload": payload})))
}

/// The environment of a child, sorted.
#[track_caller]
fn environment(daemon: &Daemon) -> String {
    let printed = daemon.output(&json!({"command": ["env"]}));
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{line}\n")).collect()
}
