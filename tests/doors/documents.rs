//! The two documents about the protocol, as clients read them and as they are kept in `docs/`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::documented::{document, name_of, routes};
use crate::driver::Driver;
use crate::reply::keys;
use crate::request::Request;

both![
    the_schema_has_the_form_of_the_reference,
    the_limits_are_those_in_force,
    a_document_is_sent_once_to_who_keeps_it,
    a_document_is_the_same_however_many_ask_at_once,
    the_documents_in_docs_are_those_of_the_daemon,
];

/// How to make the documents anew, told by the tests that find them old.
const ANEW: &str =
    "make it anew: `env -i target/debug/ringd schema > docs/schema.json`, and `openapi` likewise";

fn get(daemon: &Daemon, target: &str) -> Value {
    daemon.call(&Request::get(target)).is(200).json()
}

fn the_schema_has_the_form_of_the_reference(driver: Driver) {
    let daemon = Daemon::start(driver);
    let reply = daemon.call(&Request::get("/v1/schema")).is(200);
    let schema = reply.json();
    assert_eq!(
        reply.text(),
        schema.to_string(),
        "it is compact, and its keys are sorted"
    );
    let top = [
        "$defs",
        "$schema",
        "auth",
        "daemon_version",
        "definition_collisions",
        "generated_from",
        "hook_prefix",
        "limits",
        "protocol_version",
        "routes",
        "title",
        "unmatched_path",
        "version_header",
    ];
    assert_eq!(keys(&reply.text()), top);
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert_eq!(schema["protocol_version"], "1");
    assert_eq!(schema["daemon_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(schema["version_header"], "microvms-agentd-version");
    assert_eq!(schema["definition_collisions"], json!([]));
    assert_eq!(schema["unmatched_path"]["code"], 404);
    assert_eq!(schema["auth"]["scheme"], "bearer");
    assert_eq!(schema["auth"]["header"], "authorization");
    let bootstrap = &schema["auth"]["bootstrap"];
    assert_eq!(
        (&bootstrap["before_bootstrap"], &bootstrap["wrong_token"]),
        (&json!("503"), &json!("401"))
    );
}

fn the_limits_are_those_in_force(driver: Driver) {
    let defaults = get(&Daemon::start(driver), "/v1/schema");
    let expected = json!({
        "exec_ttl_secs": 900.0, "kill_grace_secs": 10.0, "max_body_bytes": 536_870_912,
        "max_drain_bytes": 65536, "max_output_bytes": 8_388_608, "max_stdin_write_bytes": 1_048_576,
        "max_tar_bytes": 8_589_934_592_u64, "max_tar_members": 100_000, "output_linger_secs": 5.0,
        "sse_keepalive_secs": 15.0, "stdin_write_timeout_secs": 5.0, "stream_replay_bytes": 1_048_576,
    });
    assert_eq!(defaults["limits"], expected);
    let daemon = Setup::new(driver)
        .flag("--max-body-bytes", "1234")
        .flag("--exec-ttl", "0.5")
        .env("AGENTD_SSE_KEEPALIVE_SECS", "7")
        .start();
    let limits = &get(&daemon, "/v1/schema")["limits"];
    assert_eq!(limits["max_body_bytes"], 1234);
    assert_eq!(limits["exec_ttl_secs"], 0.5);
    assert_eq!(limits["sse_keepalive_secs"], 7.0);
}

fn a_document_is_sent_once_to_who_keeps_it(driver: Driver) {
    let daemon = Daemon::start(driver);
    let other = Setup::new(driver).flag("--max-body-bytes", "1234").start();
    for (target, changes) in [("/v1/schema", true), ("/v1/openapi.json", false)] {
        let ask = Request::get(target);
        let reply = daemon.call(&ask).is(200);
        let etag = reply.field("etag").expect("a validator").to_owned();
        assert_eq!(
            reply.field("content-length"),
            Some(&*reply.body.len().to_string())
        );
        let unchanged = daemon
            .call(&ask.clone().field("if-none-match", &*etag))
            .bare(304);
        assert_eq!(unchanged.field("etag"), Some(&*etag));
        daemon
            .call(&ask.clone().field("if-none-match", "\"x\""))
            .is(200);
        let head = daemon.call(&Request::new("HEAD", target)).is(200);
        assert_eq!(head.field("content-length"), reply.field("content-length"));
        assert_eq!(head.field("etag"), Some(&*etag));
        // Only the first of the two tells limits.
        let moved = other.call(&ask.field("if-none-match", &*etag));
        assert_eq!(moved.status == 200, changes, "{target}");
    }
}

fn a_document_is_the_same_however_many_ask_at_once(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connections: Vec<_> = (0..20).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.send(Request::get("/v1/openapi.json").bytes());
    }
    let mut replies = connections.iter_mut().map(|one| one.reply().is(200).body);
    let first = replies.next().expect("twenty");
    assert!(replies.all(|body| body == first));
}

fn the_documents_in_docs_are_those_of_the_daemon(driver: Driver) {
    let daemon = Daemon::start(driver);
    assert!(
        get(&daemon, "/v1/schema") == *document(),
        "docs/schema.json is old: {ANEW}"
    );
    let kept = fs::read_to_string(docs("openapi.json")).expect("it is there");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    assert!(
        get(&daemon, "/v1/openapi.json") == kept,
        "docs/openapi.json is old: {ANEW}"
    );
}

fn docs(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name)
}

fn print(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringd"));
    command.args(words).env_clear().output().expect("it runs")
}

#[test]
fn the_command_line_prints_what_is_in_docs() {
    for (command, name) in [("schema", "schema.json"), ("openapi", "openapi.json")] {
        let printed = print(&[command]);
        assert!(printed.status.success(), "{printed:?}");
        let kept = fs::read(docs(name)).expect("it is there");
        assert!(printed.stdout == kept, "docs/{name} is old: {ANEW}");
    }
}

#[test]
fn the_command_line_takes_the_options_that_matter() {
    let printed = print(&["schema", "--max-body-bytes", "1234"]);
    let schema: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(schema["limits"]["max_body_bytes"], 1234);
    for words in [
        &["schema", "--print-config"][..],
        &["schema", "--nonsense", "1"],
        &["openapi", "--max-body-bytes", "1234"],
        &["openapi", "more"],
    ] {
        let refused = print(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(
            refused.stdout.is_empty() && !refused.stderr.is_empty(),
            "{words:?}"
        );
    }
}

#[test]
fn the_routes_of_the_reference_come_first_and_in_its_order() {
    let hooks = ["ready", "validate", "run", "suspend", "resume", "terminate"];
    let hooks = hooks.map(|name| format!("POST /aws/lambda-microvms/runtime/v1/{name}"));
    let others = [
        "POST /v1/exec/start",
        "GET /v1/exec/{id}",
        "GET /v1/exec/{id}/stream",
        "POST /v1/exec/{id}/stdin",
        "POST /v1/exec/{id}/ack",
        "POST /v1/exec/{id}/kill",
        "GET /v1/procs",
        "GET /v1/tcp",
        "GET /v1/fs/file",
        "PUT /v1/fs/file",
        "GET /v1/fs/tar",
        "PUT /v1/fs/tar",
        "GET /v1/health",
        "GET /v1/schema",
    ];
    let expected: Vec<String> = hooks.into_iter().chain(others.map(str::to_owned)).collect();
    let listed: Vec<String> = routes().map(name_of).collect();
    assert_eq!(listed[..expected.len()], expected);
    let every: Vec<&str> = ringd::api::rows().map(|row| row.path).collect();
    assert_eq!(listed.len(), every.len());
}

#[test]
fn the_types_of_the_reference_have_its_names_and_formats() {
    let types = document()["$defs"].as_object().expect("types");
    for name in [
        "DiskHealth",
        "ExitEvent",
        "FileReadQuery",
        "FsQuery",
        "GapEvent",
        "Health",
        "HookObservation",
        "KillResponse",
        "OutputEvent",
        "Phase",
        "PollResponse",
        "ProcGroup",
        "ProcsResponse",
        "RunHookEnvelope",
        "StartRequest",
        "StartResponse",
        "StdinRequest",
        "StdinResponse",
        "StreamKind",
        "StreamQuery",
    ] {
        assert!(types.contains_key(name), "there is no {name}");
    }
    let property = |name: &str, property: &str| {
        let mut schema = types[name]["properties"][property].clone();
        schema
            .as_object_mut()
            .expect("it is there")
            .remove("description");
        schema
    };
    let uint64 = json!({"type": "integer", "format": "uint64", "minimum": 0});
    assert_eq!(property("DiskHealth", "available_bytes"), uint64);
    let uint = json!({"type": "integer", "format": "uint", "minimum": 0});
    assert_eq!(property("Health", "execs"), uint);
    let seconds = json!({"type": ["number", "null"], "format": "double", "default": null});
    assert_eq!(property("StartRequest", "timeout_sec"), seconds);
    let offset =
        json!({"type": ["integer", "null"], "format": "uint64", "minimum": 0, "default": null});
    assert_eq!(property("StreamQuery", "offset"), offset);
    assert_eq!(
        property("ExitEvent", "signal"),
        json!({"type": ["integer", "null"], "format": "int32"})
    );
    assert_eq!(
        types["PollResponse"]["required"],
        json!(["exec_id", "phase"])
    );
    assert_eq!(
        types["StartRequest"]["required"],
        json!(["exec_id", "command"])
    );
    let phases = types["Phase"]["oneOf"].as_array().expect("one of several");
    let phases: Vec<&Value> = phases.iter().map(|phase| &phase["const"]).collect();
    assert_eq!(phases, ["running", "exited", "acked"]);
    assert_eq!(types["StreamKind"]["enum"], json!(["stdout", "stderr"]));
    let health = types["Health"]["required"].as_array().expect("names");
    for name in [
        "version",
        "bootstrapped",
        "disk",
        "identity_degraded",
        "identity_repaired",
        "busy",
        "execs",
    ] {
        assert!(health.contains(&json!(name)), "health may lack {name}");
    }
    for route in routes().filter(|route| !route["query"].is_null()) {
        let name = route["query"]["schema"]["$ref"]
            .as_str()
            .expect("a reference");
        let expected = match &*name_of(route) {
            "GET /v1/exec/{id}/stream" => "StreamQuery",
            "GET /v1/fs/file" => "FileReadQuery",
            "PUT /v1/fs/file" | "GET /v1/fs/tar" | "PUT /v1/fs/tar" => "FsQuery",
            _ => continue,
        };
        assert_eq!(name, format!("#/$defs/{expected}"));
    }
}

#[test]
fn everything_that_is_referred_to_is_there() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                let own = members.get("$ref").and_then(Value::as_str);
                found.extend(own.map(str::to_owned));
                members
                    .values()
                    .for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let text = fs::read_to_string(docs("openapi.json")).expect("it is there");
    let openapi: Value = serde_json::from_str(&text).expect("JSON");
    for document in [document(), &openapi] {
        let mut found = Vec::new();
        references(document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("it is inside");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
