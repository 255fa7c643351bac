//! The statuses of execs, each provoked.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::documented::{routes, shapes};
use crate::driver::Driver;
use crate::events::Events;
use crate::programs;
use crate::reply::Reply;
use crate::request::Request;
use crate::statuses::{Case, World, walk};
use crate::terminal::{in_terminal, stdin};

both![
    every_status_of_execs,
    every_event_of_a_stream_is_as_published,
];

fn every_status_of_execs(driver: Driver) {
    let is_mine = |path: &str| path.starts_with("/v1/exec") || path.starts_with("/v1/procs");
    walk(driver, is_mine, CASES, AS_ROOT);
}

const CASES: &[Case] = &[
    (START, 200, "", |world| {
        start(world, &json!({"command": ["true"]}))
    }),
    (START, 400, "malformed_request", |world| {
        start(world, &json!({"command": 1}))
    }),
    (START, 400, "unknown_user", |world| {
        start(world, &json!({"command": ["true"], "user": "no one"}))
    }),
    (START, 400, "unknown_group", |world| {
        start(world, &json!({"command": ["true"], "group": "no one"}))
    }),
    (START, 400, "unknown_shell", |world| {
        start(world, &json!({"command": ["true"], "shell": "/no/sh"}))
    }),
    (START, 500, "spawn_failed", |world| {
        start(world, &json!({"command": ["/no/such/program"]}))
    }),
    (START, 503, "busy", |world| {
        let daemon = world.setup().flag("--max-execs", "1").ready();
        daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
        daemon.ask(&json!({"exec_id": "b", "command": ["true"]}))
    }),
    (POLL, 200, "", |world| {
        done(world, "polled");
        world.daemon.get("/v1/exec/polled?stdout_offset=0")
    }),
    (POLL, 400, "malformed_request", |world| {
        world.daemon.get("/v1/exec/x?wait=soon")
    }),
    (POLL, 404, UNKNOWN, |world| {
        world.daemon.get("/v1/exec/unknown")
    }),
    (STREAM, 200, "", |world| {
        done(world, "streamed");
        world.daemon.get("/v1/exec/streamed/stream")
    }),
    (STREAM, 400, "malformed_request", |world| {
        world.daemon.get("/v1/exec/x/stream?offset=-1")
    }),
    (STREAM, 404, UNKNOWN, |world| {
        world.daemon.get("/v1/exec/unknown/stream")
    }),
    (STDIN, 200, "", |world| {
        reading(&world.daemon, "fed");
        stdin(&world.daemon, "fed", &json!({"data_b64": "eA=="}))
    }),
    (STDIN, 400, "malformed_request", |world| {
        reading(&world.daemon, "fed");
        stdin(&world.daemon, "fed", &json!({"signal": "stop"}))
    }),
    (STDIN, 404, UNKNOWN, |world| {
        stdin(&world.daemon, "unknown", &json!({}))
    }),
    (STDIN, 408, "stdin_write_timeout", |world| {
        sleeping(world.hasty(), "deaf");
        stdin(
            world.hasty(),
            "deaf",
            &json!({"data_b64": "AAAA".repeat(100_000)}),
        )
    }),
    (STDIN, 409, "stdin_not_requested", |world| {
        done(world, "closed");
        stdin(&world.daemon, "closed", &json!({}))
    }),
    (STDIN, 410, "stdin_closed", |world| {
        ended(world, "over");
        stdin(&world.daemon, "over", &json!({"data_b64": "eA=="}))
    }),
    (STDIN, 413, "stdin_write_too_large", |world| {
        reading(&world.daemon, "fed");
        stdin(
            &world.daemon,
            "fed",
            &json!({"data_b64": "AAAA".repeat(350_000)}),
        )
    }),
    (STDIN, 500, "stdin_write_failed", |world| {
        let daemon = failing(world);
        // 4099 bytes, whatever they are.
        let data = format!("{}AA==", "AAAA".repeat(1366));
        stdin(&daemon, "fed", &json!({"data_b64": data}))
    }),
    (PUT, 200, "", |world| put(&world.daemon, "?eof=0", "x")),
    (PUT, 400, "malformed_request", |world| {
        put(&world.daemon, "?offset=x", "x")
    }),
    (PUT, 404, UNKNOWN, |world| {
        world.daemon.put("/v1/exec/unknown/stdin", "x")
    }),
    (PUT, 408, "stdin_write_timeout", |world| {
        sleeping(world.hasty(), "deaf");
        world.hasty().put("/v1/exec/deaf/stdin", vec![0; 300_000])
    }),
    (PUT, 409, "stdin_not_requested", |world| {
        done(world, "closed");
        world.daemon.put("/v1/exec/closed/stdin", "x")
    }),
    (PUT, 409, "stdin_offset", |world| {
        put(&world.daemon, "?offset=1000000", "x")
    }),
    (PUT, 410, "stdin_closed", |world| {
        ended(world, "over");
        world.daemon.put("/v1/exec/over/stdin", "x")
    }),
    (PUT, 500, "stdin_write_failed", |world| {
        let daemon = failing(world);
        daemon.put("/v1/exec/fed/stdin", vec![0; 4099])
    }),
    (OFFSET, 200, "", |world| {
        reading(&world.daemon, "put");
        world.daemon.get("/v1/exec/put/stdin")
    }),
    (OFFSET, 404, UNKNOWN, |world| {
        world.daemon.get("/v1/exec/unknown/stdin")
    }),
    (OFFSET, 409, "stdin_not_requested", |world| {
        done(world, "closed");
        world.daemon.get("/v1/exec/closed/stdin")
    }),
    (RESIZE, 200, "", |world| {
        world
            .daemon
            .begin("screen", &in_terminal(&["sleep", "1000"]));
        resize(world, "screen", &json!({"cols": 7, "rows": 8}))
    }),
    (RESIZE, 400, "malformed_request", |world| {
        resize(world, "x", &json!({"cols": 7}))
    }),
    (RESIZE, 404, UNKNOWN, |world| {
        resize(world, "unknown", &json!({"cols": 7, "rows": 8}))
    }),
    (RESIZE, 409, "no_terminal", |world| {
        done(world, "blind");
        resize(world, "blind", &json!({"cols": 7, "rows": 8}))
    }),
    (RESIZE, 410, "terminal_closed", |world| {
        world.daemon.begin("dark", &in_terminal(&["true"]));
        world.daemon.exited("dark");
        resize(world, "dark", &json!({"cols": 7, "rows": 8}))
    }),
    (ACK, 200, "", |world| {
        done(world, "acked");
        world.daemon.post("/v1/exec/acked/ack")
    }),
    (ACK, 404, UNKNOWN, |world| {
        world.daemon.post("/v1/exec/unknown/ack")
    }),
    (ACK, 409, "still_running", |world| {
        sleeping(&world.daemon, "runs");
        world.daemon.post("/v1/exec/runs/ack")
    }),
    (ACK, 409, "already_acked", |world| {
        done(world, "twice");
        world.daemon.post("/v1/exec/twice/ack").is(200);
        world.daemon.post("/v1/exec/twice/ack")
    }),
    (KILL, 200, "", |world| {
        sleeping(&world.daemon, "killed");
        world.daemon.post("/v1/exec/killed/kill")
    }),
    (KILL, 404, UNKNOWN, |world| {
        world.daemon.post("/v1/exec/unknown/kill")
    }),
    (SIGNAL, 200, "", |world| {
        sleeping(&world.daemon, "told");
        signal(world, "told", &json!({"signal": "CONT"}))
    }),
    (SIGNAL, 400, "malformed_request", |world| {
        signal(world, "x", &json!({"signal": "NONE"}))
    }),
    (SIGNAL, 404, UNKNOWN, |world| {
        signal(world, "unknown", &json!({"signal": 15}))
    }),
    (PROCS, 200, "", |world| {
        sleeping(&world.daemon, "listed");
        world.daemon.get("/v1/procs?detail=1")
    }),
    (PROCS, 400, "malformed_request", |world| {
        world.daemon.get("/v1/procs?detail=x")
    }),
];

const AS_ROOT: &[Case] = &[(START, 400, "unsupported", |world| {
    world
        .servant()
        .ask(&json!({"exec_id": "x", "command": ["true"], "nice": -20}))
})];

const START: &str = "POST /v1/exec/start";
const POLL: &str = "GET /v1/exec/{id}";
const STREAM: &str = "GET /v1/exec/{id}/stream";
const STDIN: &str = "POST /v1/exec/{id}/stdin";
const PUT: &str = "PUT /v1/exec/{id}/stdin";
const OFFSET: &str = "GET /v1/exec/{id}/stdin";
const RESIZE: &str = "POST /v1/exec/{id}/resize";
const ACK: &str = "POST /v1/exec/{id}/ack";
const KILL: &str = "POST /v1/exec/{id}/kill";
const SIGNAL: &str = "POST /v1/exec/{id}/signal";
const PROCS: &str = "GET /v1/procs";
const UNKNOWN: &str = "unknown_exec";

fn start(world: &World, request: &Value) -> Reply {
    // An id of its own for each request: a known one starts nothing.
    let mut request = request.clone();
    request["exec_id"] = json!(request.to_string());
    world.daemon.ask(&request)
}

fn put(daemon: &Daemon, query: &str, body: &str) -> Reply {
    reading(daemon, "put");
    daemon.put(format!("/v1/exec/put/stdin{query}"), body)
}

fn resize(world: &World, id: &str, body: &Value) -> Reply {
    let target = format!("/v1/exec/{id}/resize");
    world
        .daemon
        .call(&Request::post(target).bearer().json(body))
}

fn signal(world: &World, id: &str, body: &Value) -> Reply {
    let target = format!("/v1/exec/{id}/signal");
    world
        .daemon
        .call(&Request::post(target).bearer().json(body))
}

/// An exec that has ended.
fn done(world: &World, id: &str) {
    world
        .daemon
        .begin(id, &json!({"command": ["echo", "text"]}));
    world.daemon.exited(id);
}

/// An exec that has ended, and could be written to.
fn ended(world: &World, id: &str) {
    world
        .daemon
        .begin(id, &json!({"command": ["true"], "stdin": true}));
    let polled = world.daemon.poll(id);
    if polled.json()["phase"] == "running" {
        world.daemon.exited(id);
    }
}

/// An exec that reads what it is sent.
fn reading(daemon: &Daemon, id: &str) {
    daemon.begin(id, &json!({"command": ["cat"], "stdin": true}));
}

/// An exec that reads nothing.
fn sleeping(daemon: &Daemon, id: &str) {
    daemon.begin(id, &json!({"command": ["sleep", "1000"], "stdin": true}));
}

/// A daemon whose writes of 4099 bytes fail, with an exec that could be written to.
fn failing(world: &World) -> Daemon {
    let setup = world.setup().under(&[&programs::built("fail_writes")]);
    let daemon = setup.ready();
    reading(&daemon, "fed");
    daemon
}

fn every_event_of_a_stream_is_as_published(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo out; echo err >&2");
    let mut stream = daemon.connect();
    stream.send(Request::get("/v1/exec/e/stream").bearer().bytes());
    let reply = stream.reply().is(200);
    let route = routes().find(|route| route["path"] == "/v1/exec/{id}/stream");
    let published = route.expect("it is published")["sse_events"].as_array();
    let published = published.expect("events");
    let mut seen = Vec::new();
    for event in reply.text().split_terminator("\n\n") {
        let (name, data) = event.split_once("\ndata: ").expect("a name and data");
        let name = name.strip_prefix("event: ").expect("a name");
        let event = published.iter().find(|event| event["event"] == name);
        let schema = &event.unwrap_or_else(|| panic!("{name} is not published"))["schema"];
        let data = serde_json::from_str(data).expect("JSON");
        shapes()
            .fit(schema, &data)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        seen.push(name.to_owned());
    }
    assert_eq!(seen, ["output", "output", "exit"]);
    Events::follow(&daemon, "e", 0).rest().is_whole();
    let gap = published.iter().find(|event| event["event"] == "gap");
    let schema = &gap.expect("it is published")["schema"];
    assert_eq!(shapes().fit(schema, &json!({"from": 0, "to": 1})), Ok(()));
}
