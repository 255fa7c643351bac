//! The log: JSON lines on standard error, and nothing in it that is not the reader's business.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::{Request, file_at};

both![
    every_line_is_a_json_object,
    the_filter_decides_what_is_logged,
    no_secret_is_ever_logged,
    no_refused_value_is_ever_logged,
    standard_output_holds_the_listeners_only,
    a_log_that_nobody_reads_stops_nothing,
];

fn every_line_is_a_json_object(driver: Driver) {
    let daemon = Setup::new(driver).flag("--log", "trace").ready();
    busy(&daemon, "a");
    let lines = daemon.stderr();
    assert!(!lines.is_empty());
    for line in lines {
        let parsed: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for name in ["timestamp", "level", "fields"] {
            assert!(!parsed[name].is_null(), "no {name}: {line}");
        }
        assert!(parsed["fields"]["message"].is_string(), "{line}");
    }
}

fn the_filter_decides_what_is_logged(driver: Driver) {
    let daemon = Setup::new(driver).flag("--log", "error").ready();
    busy(&daemon, "a");
    assert!(daemon.stderr().is_empty(), "{:?}", daemon.stderr());
    let daemon = Setup::new(driver).env("AGENTD_LOG", "debug").ready();
    busy(&daemon, "a");
    assert!(!daemon.stderr().is_empty());
}

fn no_secret_is_ever_logged(driver: Driver) {
    let daemon = Setup::new(driver).flag("--log", "trace").start();
    let env = json!({"LAUNCH": "s3cret-launch"});
    daemon.bootstrap("s3cret-token", &env).is(200);
    daemon.bootstrap("s3cret-other", &env).is(409);
    let with = |request: Request| request.field("authorization", "Bearer s3cret-token");
    daemon
        .call(&Request::get("/v1/exec/e").field("authorization", "Bearer s3cret-wrong"))
        .is(401);
    let start = json!({
        "exec_id": "e", "command": ["echo", "s3cret-argument"], "env": {"A": "s3cret-value"},
    });
    daemon
        .call(&with(Request::post("/v1/exec/start")).json(&start))
        .is(200);
    daemon
        .call(&with(Request::post("/v1/exec/start")).json_text("{\"s3cret-body\""))
        .is(400);
    let failing = json!({"exec_id": "x", "command": ["/no/such"], "env": {"A": "s3cret-value"}});
    daemon
        .call(&with(Request::post("/v1/exec/start")).json(&failing))
        .is(500);
    daemon
        .call(&with(Request::put(file_at(daemon.path("f")))).body("s3cret-content"))
        .is(204);
    daemon
        .call(&with(Request::get(file_at(daemon.path("f")))))
        .is(200);
    let mut broken = daemon.connect();
    broken.send(
        "GET /v1/health HTTP/1.1\r\nauthorization: Bearer s3cret-token\r\nbad header: x\r\n\r\n",
    );
    broken.reply().is(400);
    daemon.health();
    let logged = daemon.stderr().join("\n");
    assert!(!logged.is_empty());
    assert!(!logged.contains("s3cret"), "{logged}");
}

fn no_refused_value_is_ever_logged(driver: Driver) {
    let daemon = Setup::new(driver).flag("--log", "debug").ready();
    daemon.begin("cat", &json!({"command": ["cat"], "stdin": true}));
    for body in [
        json!({"signal": "s3cret-signal"}),
        json!({"data_b64": "s3cret-data"}),
    ] {
        let request = Request::post("/v1/exec/cat/stdin").bearer().json(&body);
        daemon.call(&request).refuses(400, "malformed_request");
    }
    for (name, slug) in [
        ("shell", "unknown_shell"),
        ("user", "unknown_user"),
        ("group", "unknown_group"),
        ("timeout_sec", "malformed_request"),
    ] {
        let start = json!({"exec_id": "x", "command": ["true"], name: format!("s3cret-{name}")});
        daemon.ask(&start).refuses(400, slug);
    }
    let target = format!("{}&mode=s3cret-mode", file_at(daemon.path("f")));
    daemon.put(target, "x").explains(400);
    let logged = daemon.stderr().join("\n");
    assert!(logged.contains("exec.start"), "{logged}");
    assert!(!logged.contains("s3cret"), "{logged}");
}

fn standard_output_holds_the_listeners_only(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--log", "trace").ready();
    busy(&daemon, "a");
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(daemon.more_stdout(), Vec::<String>::new());
}

fn a_log_that_nobody_reads_stops_nothing(driver: Driver) {
    // Standard error is a pipe that is full and stays so.
    let wrapper = "mkfifo full; exec 3<>full; head -c 65536 /dev/zero >&3; exec \"$@\" 2>full";
    let setup = Setup::new(driver).under(&["/bin/sh", "-c", wrapper, "sh"]);
    let daemon = setup.flag("--log", "trace").ready();
    for round in 0..300 {
        busy(&daemon, &format!("round-{round}"));
    }
    daemon.health();
}

/// A little of everything that is logged.
#[track_caller]
fn busy(daemon: &Daemon, id: &str) {
    daemon.begin(id, &json!({"command": ["true"]}));
    daemon.exited(id);
    daemon.put(file_at(daemon.path("f")), "x").is(204);
    daemon.get("/v1/nope").is(404);
}
