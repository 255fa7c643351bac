//! `baseline bare`: that the loops do what they are the floor of.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};

use crate::client::noise;
use crate::peer::Peer;
use crate::tunnel::{echo, listen};

#[test]
fn sendfile_sends_the_bytes_of_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let bytes = noise(3_000_000);
    std::fs::write(&path, &bytes).expect("a file");
    let peer = Peer::bare();
    let mut client = peer.client();
    let target = format!("/v1/fs/file?path={}&sendfile=1", path.display());
    assert!(client.bytes(&target) == bytes);
    let part = client.ask("GET", &target, "range: bytes=1000000-2000000\r\n", b"");
    assert_eq!(part.status, 206);
    assert!(part.body == bytes[1_000_000..=2_000_000]);
    let span = part.field("content-range");
    assert_eq!(span, Some("bytes 1000000-2000000/3000000"));
    let behind = client.ask("GET", &target, "range: bytes=3000000-\r\n", b"");
    assert_eq!((behind.status, behind.body.len()), (416, 0));
}

#[test]
fn the_hot_buffer_is_as_long_as_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let peer = Peer::bare();
    let mut client = peer.client();
    for length in [0, 10, 700_001] {
        std::fs::write(&path, noise(length)).expect("a file");
        let target = format!("/v1/fs/file?path={}", path.display());
        assert!(client.bytes(&target) == vec![0x5a; length], "{length}");
    }
}

#[test]
fn an_upload_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let peer = Peer::bare();
    let mut client = peer.client();
    let target = format!("/v1/fs/file?path={}", path.display());
    for length in [0, 100, 2_000_003] {
        let bytes = noise(length);
        assert_eq!(client.ask("PUT", &target, "", &bytes).status, 204);
        assert!(
            std::fs::read(&path).expect("a file") == bytes,
            "{length} bytes differ"
        );
    }
}

#[test]
fn a_relay_moves_bytes_both_ways_and_passes_an_end_on() {
    let (port, server) = listen(echo);
    let peer = Peer::bare();
    let mut client = peer.client();
    let bytes = noise(5_000_000);
    // Part of it comes with the head.
    let head = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
    let first = [head.as_bytes(), &bytes[..100]].concat();
    let mut stream = client.stream.get_ref().try_clone().expect("a socket");
    stream.write_all(&first).expect("a write");
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || {
        stream.write_all(&sent[100..]).expect("a write");
        stream.shutdown(Shutdown::Write).expect("a socket");
    });
    let mut answer = Vec::new();
    client.stream.read_to_end(&mut answer).expect("a read");
    let echoed = answer.strip_prefix(b"HTTP/1.1 200 OK\r\n\r\n".as_slice());
    assert!(echoed.expect("a 200") == bytes);
    sending.join().expect("all was sent");
    server.join().expect("the server saw the end");
}

#[test]
fn programs_are_run_and_timed() {
    let peer = Peer::bare();
    let mut client = peer.client();
    let mut post = |target: &str| client.ask("POST", target, "", b"");
    let times = post("/v1/spawn?path=/bin/true&count=5").json();
    assert_eq!(times.as_array().map(Vec::len), Some(5));
    for target in [
        "/v1/spawn-many?path=/bin/true&count=20&width=6",
        "/v1/capture?path=small&count=100000",
        "/v1/capture?path=large&count=131072",
    ] {
        let nanoseconds = post(target).json().as_u64();
        assert!(nanoseconds.is_some_and(|count| count > 0), "{target}");
    }
}

#[test]
fn what_cannot_be_done_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let absent = format!("/v1/fs/file?path={}/absent", dir.path().display());
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = free.local_addr().expect("an address").to_string();
    drop(free);
    let peer = Peer::bare();
    for (method, target, status, named) in [
        ("GET", &*absent, 404, "absent: No such file"),
        ("GET", "/v1/fs/tar", 400, "GET /v1/fs/tar"),
        (
            "POST",
            "/v1/spawn?path=/bin/false&count=2",
            400,
            "/bin/false",
        ),
        (
            "POST",
            "/v1/spawn-many?path=/absent&count=2",
            404,
            "/absent",
        ),
        (
            "POST",
            "/v1/spawn-many?path=/bin/true&width=0",
            400,
            "width",
        ),
        ("POST", "/v1/capture?path=medium", 400, "medium"),
        ("CONNECT", "example.org:80", 400, "example.org:80"),
        ("CONNECT", &nobody, 400, &nobody),
    ] {
        let answer = peer.client().ask(method, target, "", b"");
        assert_eq!(answer.status, status, "{method} {target}");
        assert!(answer.text().contains(named), "{}", answer.text());
    }
}

#[test]
fn sigterm_ends_the_loops() {
    use std::os::unix::process::ExitStatusExt;
    let (_, status) = Peer::bare().end();
    assert_eq!(status.signal(), Some(15));
}
