//! `baseline axum`: who is let in, files, trees.

use serde_json::json;

use crate::client::{Client, noise};
use crate::peer::{Peer, TOKEN};

const RUN: &str = "/aws/lambda-microvms/runtime/v1/run";

#[test]
fn strangers_are_refused_on_every_route_but_the_health() {
    let peer = Peer::axum();
    let mut client = peer.client();
    for fields in [
        "",
        "authorization: Bearer other\r\n",
        "authorization: Bear\r\n",
    ] {
        fields.clone_into(&mut client.fields);
        for target in ["/v1/fs/file?path=/", "/v1/exec/x", "/v1/tcp?port=1"] {
            assert_eq!(client.get(target).status, 401, "{target} with {fields:?}");
        }
        assert_eq!(client.get("/v1/health").json()["bootstrapped"], true);
    }
}

#[test]
fn without_a_token_the_first_run_hook_brings_it() {
    let peer = Peer::baseline(&["axum"]);
    let mut client = peer.client();
    let run = |client: &mut Client, payload: &str| {
        client
            .post(RUN, &json!({ "runHookPayload": payload }))
            .status
    };
    assert_eq!(client.get("/v1/health").json()["bootstrapped"], false);
    assert_eq!(client.get("/v1/fs/file?path=/").status, 503);
    assert_eq!(run(&mut client, r#"{"agent_token":""}"#), 400);
    assert_eq!(run(&mut client, r#"{"agent_token":7}"#), 400);
    let ours = json!({ "agent_token": TOKEN, "env": { "FROM": "launch" } }).to_string();
    assert_eq!(run(&mut client, &ours), 200);
    assert_eq!(run(&mut client, &ours), 200);
    assert_eq!(run(&mut client, r#"{"agent_token":"another"}"#), 409);
    assert_eq!(client.get("/v1/health").json()["bootstrapped"], true);
    let start = json!({ "exec_id": "e", "command": ["echo $FROM"], "shell": true });
    assert_eq!(client.post("/v1/exec/start", &start).status, 200);
    client.bytes("/v1/exec/e/stream");
    assert_eq!(client.get("/v1/exec/e").json()["stdout"], "launch\n");
}

#[test]
fn a_file_comes_back_as_it_went_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let peer = Peer::axum();
    let mut client = peer.client();
    let target = format!("/v1/fs/file?path={}/new/file", dir.path().display());
    for length in [300_001, 0] {
        let bytes = noise(length);
        assert_eq!(client.ask("PUT", &target, "", &bytes).status, 204);
        assert!(client.bytes(&target) == bytes, "{length} bytes differ");
        let head = client.ask("HEAD", &target, "", b"");
        assert_eq!(head.field("content-length"), Some(&*length.to_string()));
    }
    assert_eq!(client.get(&format!("{target}.absent")).status, 404);
    let above = format!("/v1/fs/file?path={}", dir.path().display());
    assert_eq!(client.get(&above).status, 400);
}

#[test]
fn a_range_is_that_part_of_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let bytes = noise(100_000);
    std::fs::write(&path, &bytes).expect("a file");
    let peer = Peer::axum();
    let mut client = peer.client();
    let target = format!("/v1/fs/file?path={}", path.display());
    for (range, first, end) in [
        ("0-0", 0, 1),
        ("5000-70000", 5000, 70_001),
        ("99990-", 99_990, 100_000),
        ("-7", 99_993, 100_000),
    ] {
        let answer = client.ask("GET", &target, &format!("range: bytes={range}\r\n"), b"");
        assert_eq!(answer.status, 206, "{range}");
        assert!(answer.body == bytes[first..end], "{range} differs");
        let span = format!("bytes {first}-{}/100000", end - 1);
        assert_eq!(answer.field("content-range"), Some(&*span));
    }
    let answer = client.ask("GET", &target, "range: bytes=100000-\r\n", b"");
    assert_eq!(answer.status, 416);
    assert_eq!(answer.field("content-range"), Some("bytes */100000"));
}

#[test]
fn a_line_window_is_those_lines_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let long = "x".repeat(9_000);
    let text = format!("one\r\n\n{long}\nfour\0\nlast");
    std::fs::write(&path, &text).expect("a file");
    let peer = Peer::axum();
    let mut client = peer.client();
    let target = format!("/v1/fs/file?path={}", path.display());
    for (window, expected) in [
        ("start_line=1&end_line=1", "one\r\n"),
        ("end_line=2", "one\r\n\n"),
        ("start_line=3&end_line=4", &*format!("{long}\nfour\0\n")),
        ("start_line=5", "last"),
        ("start_line=6", ""),
        ("start_line=1&end_line=99", &text),
    ] {
        let got = client.bytes(&format!("{target}&{window}"));
        assert!(got == expected.as_bytes(), "{window} differs");
    }
    for window in [
        "start_line=0",
        "start_line=3&end_line=2",
        "end_line=0",
        "start_line=x",
    ] {
        let answer = client.get(&format!("{target}&{window}"));
        assert_eq!(answer.status, 400, "{window}");
    }
}

#[test]
fn many_lines_arrive_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let lines: Vec<String> = (1..=20_000).map(|number| format!("{number}\n")).collect();
    std::fs::write(&path, lines.concat()).expect("a file");
    let peer = Peer::axum();
    let window = "start_line=777&end_line=19000";
    let target = format!("/v1/fs/file?path={}&{window}", path.display());
    assert!(peer.client().bytes(&target) == lines[776..19_000].concat().as_bytes());
}

#[test]
fn a_tree_comes_back_as_it_went_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut builder = tar::Builder::new(Vec::new());
    let bytes = noise(50_000);
    for name in ["deep/er/file", "other"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(50_000);
        header.set_mode(0o644);
        let added = builder.append_data(&mut header, name, &*bytes);
        added.expect("a member");
    }
    let archive = builder.into_inner().expect("an archive");
    let peer = Peer::axum();
    let mut client = peer.client();
    let target = format!("/v1/fs/tar?path={}/tree", dir.path().display());
    assert_eq!(client.ask("PUT", &target, "", &archive).status, 204);
    let written = std::fs::read(dir.path().join("tree/deep/er/file"));
    assert!(written.expect("a file") == bytes);
    let packed = client.bytes(&target);
    let mut names: Vec<String> = tar::Archive::new(&*packed)
        .entries()
        .expect("an archive")
        .map(|entry| {
            entry
                .expect("a member")
                .path()
                .expect("a name")
                .display()
                .to_string()
        })
        .collect();
    names.sort();
    let names: Vec<&str> = names
        .iter()
        .map(|name| name.trim_end_matches('/'))
        .collect();
    assert!(
        names.contains(&"deep/er/file") && names.contains(&"other"),
        "{names:?}"
    );
}
