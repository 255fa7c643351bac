//! Execs of `baseline axum`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::{Client, PATIENCE, noise};
use crate::peer::Peer;

fn start(client: &mut Client, id: &str, script: &str, stdin: bool) {
    let request = json!({ "exec_id": id, "command": [script], "shell": true, "stdin": stdin });
    let answer = client.post("/v1/exec/start", &request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json(), json!({ "exec_id": id, "phase": "running" }));
}

/// Follows an exec from `offset` to its exit: what it wrote to stdout, and the exit event.
fn follow(client: &mut Client, id: &str, offset: u64) -> (Vec<u8>, Value) {
    let body = client.bytes(&format!("/v1/exec/{id}/stream?offset={offset}"));
    let text = String::from_utf8(body).expect("events are text");
    let mut stdout = Vec::new();
    let mut next = offset;
    for event in text
        .split("\n\n")
        .filter(|event| event.starts_with("event: "))
    {
        let (name, data) = event.split_once("\ndata: ").expect("an event with data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        match name {
            "event: output" => {
                assert_eq!(data["offset"], next, "output was lost or doubled");
                let output = data["output"].as_str().expect("base64");
                let bytes = STANDARD.decode(output).expect("base64");
                next += bytes.len() as u64;
                if data["stream"] == "stdout" {
                    stdout.extend(bytes);
                }
            }
            "event: exit" => return (stdout, data),
            other => panic!("{other} was not expected: {data}"),
        }
    }
    panic!("the stream ended without an exit: {text}")
}

#[test]
fn an_exec_is_started_followed_polled_and_acknowledged() {
    let peer = Peer::axum();
    let mut client = peer.client();
    start(&mut client, "e", "echo out; echo err >&2; exit 7", false);
    let (stdout, exit) = follow(&mut client, "e", 0);
    assert_eq!(stdout, b"out\n");
    assert_eq!(
        (&exit["exit_code"], &exit["offset"]),
        (&json!(7), &json!(8))
    );
    let outcome = |phase: &str| {
        json!({
            "exec_id": "e", "phase": phase, "exit_code": 7, "signal": null,
            "stdout": "out\n", "stderr": "err\n", "truncated": false, "writers_may_be_alive": false,
        })
    };
    assert_eq!(client.get("/v1/exec/e").json(), outcome("exited"));
    let ack = client.post("/v1/exec/e/ack", &json!({}));
    assert_eq!(ack.json(), outcome("acked"));
    assert_eq!(client.get("/v1/exec/e").status, 404);
}

#[test]
fn an_id_that_is_known_starts_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let marks = dir.path().join("marks");
    let script = format!("echo x >>{}", marks.display());
    let peer = Peer::axum();
    let mut client = peer.client();
    for _ in 0..2 {
        start(&mut client, "e", &script, false);
        follow(&mut client, "e", 0);
    }
    assert_eq!(std::fs::read_to_string(&marks).expect("a file"), "x\n");
}

#[test]
fn a_request_that_asks_for_more_than_is_served_is_refused() {
    let peer = Peer::axum();
    let mut client = peer.client();
    let request = json!({ "exec_id": "e", "command": ["true"], "timeout_sec": 1 });
    let answer = client.post("/v1/exec/start", &request);
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("timeout_sec"), "{}", answer.text());
    let answer = client.post("/v1/exec/start", &json!({ "exec_id": "e", "command": [] }));
    assert_eq!(answer.status, 400);
}

#[test]
fn output_is_followed_from_an_offset() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let bytes = noise(400_000);
    std::fs::write(&path, &bytes).expect("a file");
    let peer = Peer::axum();
    let mut client = peer.client();
    start(&mut client, "e", &format!("cat {}", path.display()), false);
    assert!(follow(&mut client, "e", 0).0 == bytes);
    assert!(follow(&mut client, "e", 123_457).0 == bytes[123_457..]);
}

#[test]
fn standard_input_arrives_and_ends() {
    let peer = Peer::axum();
    let mut client = peer.client();
    start(&mut client, "e", "cat", true);
    let bytes = noise(200_000);
    let halves = bytes.split_at(70_000);
    for (half, signal) in [(halves.0, Value::Null), (halves.1, json!("eof"))] {
        let request = json!({ "data_b64": STANDARD.encode(half), "signal": signal });
        let answer = client.post("/v1/exec/e/stdin", &request).json();
        let eof = !signal.is_null();
        assert_eq!(
            answer,
            json!({ "exec_id": "e", "written": half.len(), "eof": eof })
        );
    }
    let (stdout, exit) = follow(&mut client, "e", 0);
    assert!(stdout == bytes);
    assert_eq!(exit["exit_code"], 0);
    let more = client.post("/v1/exec/e/stdin", &json!({ "data_b64": "eA==" }));
    assert_eq!(more.status, 410);
}

#[test]
fn standard_input_that_was_not_asked_for_is_refused() {
    let peer = Peer::axum();
    let mut client = peer.client();
    start(&mut client, "e", "true", false);
    let answer = client.post("/v1/exec/e/stdin", &json!({ "signal": "eof" }));
    assert_eq!(answer.status, 409);
    let answer = client.post("/v1/exec/absent/stdin", &json!({}));
    assert_eq!(answer.status, 404);
}

fn make_fifo(dir: &Path) -> PathBuf {
    let fifo = dir.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo can be run").success());
    fifo
}

#[test]
fn kill_ends_the_whole_group() {
    let peer = Peer::axum();
    let mut client = peer.client();
    start(&mut client, "e", "sleep 100 & sleep 100", false);
    assert_eq!(client.post("/v1/exec/e/ack", &json!({})).status, 409);
    let kill = |client: &mut Client| client.post("/v1/exec/e/kill", &json!({})).json();
    assert_eq!(kill(&mut client), json!({ "exec_id": "e", "killed": true }));
    let (_, exit) = follow(&mut client, "e", 0);
    assert_eq!(
        (&exit["exit_code"], &exit["signal"]),
        (&Value::Null, &json!(15))
    );
    assert_eq!(
        kill(&mut client),
        json!({ "exec_id": "e", "killed": false })
    );
}

#[test]
fn kill_answers_when_the_group_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = make_fifo(dir.path());
    let mark = dir.path().join("mark");
    let script = format!(
        "trap 'sleep 0.3; echo gone >{}; exit 3' TERM; : >{}; sleep 100 & wait",
        mark.display(),
        fifo.display()
    );
    let peer = Peer::axum();
    let mut client = peer.client();
    start(&mut client, "e", &script, false);
    // Opened once the exec is past its trap.
    std::fs::File::open(&fifo).expect("a FIFO");
    assert_eq!(
        client.post("/v1/exec/e/kill", &json!({})).json()["killed"],
        true
    );
    assert_eq!(
        std::fs::read_to_string(&mark).expect("it is past its sleep"),
        "gone\n"
    );
    assert_eq!(follow(&mut client, "e", 0).1["exit_code"], 3);
}

#[test]
fn sigterm_ends_the_server_and_its_execs() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = make_fifo(dir.path());
    let peer = Peer::axum();
    let script = format!("exec sleep 100 >{}", fifo.display());
    start(&mut peer.client(), "e", &script, false);
    // Opened once the exec has opened it too; at its end when the exec has ended.
    let mut fifo = std::fs::File::open(&fifo).expect("a FIFO");
    let (_, status) = peer.end();
    assert!(status.success(), "{status}");
    let (said, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.send(fifo.read(&mut [0])));
    let count = end.recv_timeout(PATIENCE).expect("the exec has ended");
    assert_eq!(count.expect("a read"), 0);
}
