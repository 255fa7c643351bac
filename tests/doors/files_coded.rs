//! Reading a file in a content coding, and with a digest.

use std::fs::{self, File};
use std::io::{Read, Write};

use ringd::api::digest::{Hasher, field};

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::reply::Reply;
use crate::request::{Request, TOKEN, file_at};
use crate::scratch::noise;

both![
    a_file_comes_in_the_coding_that_is_preferred,
    lines_come_in_a_coding_too,
    a_small_file_and_one_without_a_size_come_as_they_are,
    each_coding_is_a_representation_of_its_own,
    a_digest_is_told_beforehand_of_what_is_small,
    a_digest_follows_what_is_large,
    no_digest_is_promised_where_none_can_follow,
    head_computes_a_digest,
    a_part_comes_without_a_digest,
    a_file_that_changes_while_it_is_digested_ends_the_connection,
    a_client_that_leaves_ends_the_digest,
];

fn a_file_comes_in_the_coding_that_is_preferred(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = "a line that repeats itself\n".repeat(200_000);
    fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    for (accepted, coding) in [
        ("gzip", Some("gzip")),
        ("gzip, deflate, br", Some("gzip")),
        ("zstd, gzip", Some("zstd")),
        ("gzip;q=1, zstd;q=0.1", Some("gzip")),
        ("identity", None),
        ("br", None),
        ("gzip;q=0", None),
    ] {
        let reply = get(&daemon, "f", &[("accept-encoding", accepted)]).is(200);
        assert_eq!(reply.field("content-encoding"), coding, "{accepted}");
        assert_eq!(reply.field("vary"), Some("accept-encoding"), "{accepted}");
        assert!(decoded(&reply) == content.as_bytes(), "{accepted}");
        let is_smaller = reply.body.len() < content.len() / 10;
        assert_eq!(is_smaller, coding.is_some(), "{accepted}");
        let is_plain = coding.is_none();
        assert_eq!(
            reply.field("content-length").is_some(),
            is_plain,
            "{accepted}"
        );
        assert_eq!(
            reply.field("accept-ranges").is_some(),
            is_plain,
            "{accepted}"
        );
    }
}

fn lines_come_in_a_coding_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let line = "a line that repeats itself\n";
    fs::write(daemon.path("f"), line.repeat(1000)).expect("the scratch directory is ours");
    for query in ["start_line=101", "last_lines=900"] {
        for coding in ["gzip", "zstd"] {
            let target = format!("{}&{query}", file_at(daemon.path("f")));
            let request = Request::get(target)
                .bearer()
                .field("accept-encoding", coding);
            let reply = daemon.call(&request).is(200);
            assert_eq!(reply.field("content-encoding"), Some(coding), "{query}");
            assert!(decoded(&reply) == line.repeat(900).as_bytes(), "{query}");
        }
    }
}

fn a_small_file_and_one_without_a_size_come_as_they_are(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x".repeat(1023)).expect("the scratch directory is ours");
    for name in ["f", "/proc/cpuinfo"] {
        let reply = get(&daemon, name, &[("accept-encoding", "zstd, gzip")]).is(200);
        assert_eq!(reply.field("content-encoding"), None, "{name}");
    }
}

fn each_coding_is_a_representation_of_its_own(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x".repeat(10_000)).expect("the scratch directory is ours");
    let mut tags = Vec::new();
    for coding in ["identity", "gzip", "zstd"] {
        let reply = get(&daemon, "f", &[("accept-encoding", coding)]).is(200);
        let tag = reply.field("etag").expect("a validator").to_owned();
        let held = [("accept-encoding", coding), ("if-none-match", &*tag)];
        let reply = get(&daemon, "f", &held).bare(304);
        assert_eq!(reply.field("etag"), Some(&*tag));
        assert!(!tags.contains(&tag), "{tag} of {tags:?}");
        // It names the version, whatever the coding.
        get(&daemon, "f", &[("if-match", &*tag)]).is(200);
        tags.push(tag);
    }
    let other = [("accept-encoding", "gzip"), ("if-none-match", &*tags[2])];
    get(&daemon, "f", &other).is(200);
}

fn a_digest_is_told_beforehand_of_what_is_small(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for size in [0, 1, 1000, 1 << 20] {
        let content = noise(size);
        fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
        let wanted = [
            ("want-repr-digest", "sha-256=1"),
            ("accept-encoding", "gzip"),
        ];
        let reply = get(&daemon, "f", &wanted).is(200);
        assert!(reply.body == content, "{size}");
        assert_eq!(
            reply.field("repr-digest"),
            Some(&*digest(&content)),
            "{size}"
        );
        assert_eq!(reply.field("content-length"), Some(&*size.to_string()));
        assert_eq!(
            reply.field("content-encoding"),
            None,
            "a digest is of the file"
        );
        assert_eq!(get(&daemon, "f", &[]).is(200).field("repr-digest"), None);
    }
}

fn a_digest_follows_what_is_large(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise((5 << 20) + 1);
    fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    let mut connection = wanting(&daemon);
    let head = connection.head().expect("a response");
    assert_eq!(head.field("transfer-encoding"), Some("chunked"), "{head:?}");
    assert_eq!(head.field("trailer"), Some("repr-digest"), "{head:?}");
    assert_eq!(head.field("repr-digest"), None, "{head:?}");
    let (rest, is_orderly) = connection.rest();
    assert!(is_orderly);
    let (body, trailers) = unchunked(&rest);
    assert!(body == content);
    assert_eq!(trailers, format!("repr-digest: {}\r\n", digest(&content)));
}

fn head_computes_a_digest(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for size in [0, 100, (9 << 20) + 1] {
        let content = noise(size);
        fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
        let head = Request::new("HEAD", file_at(daemon.path("f"))).bearer();
        let reply = daemon.call(&head.field("want-repr-digest", "sha-256=1"));
        assert_eq!(
            reply.is(200).field("repr-digest"),
            Some(&*digest(&content)),
            "{size}"
        );
    }
}

fn a_part_comes_without_a_digest(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "l1\nl2\n").expect("the scratch directory is ours");
    let wanted = ("want-repr-digest", "sha-256=1");
    let reply = get(&daemon, "f", &[wanted, ("range", "bytes=0-1")]).is(206);
    assert_eq!(reply.field("repr-digest"), None, "{reply:?}");
    let target = format!("{}&last_lines=1", file_at(daemon.path("f")));
    let reply = daemon.call(&Request::get(target).bearer().field(wanted.0, wanted.1));
    assert_eq!(reply.is(200).field("repr-digest"), None);
}

fn a_file_that_changes_while_it_is_digested_ends_the_connection(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut file = File::create(daemon.path("f")).expect("the scratch directory is ours");
    file.set_len(64 << 20).expect("a sparse file");
    let mut connection = wanting(&daemon);
    connection.head().expect("a response");
    file.write_all(b"another").expect("there is room");
    let (rest, _) = connection.rest();
    let end = &rest[rest.len().saturating_sub(200)..];
    assert!(!end.ends_with(b"\r\n0\r\n\r\n"), "it looks whole");
    let told = end.windows(11).any(|window| window == b"repr-digest");
    assert!(!told, "a digest of no version");
}

fn a_client_that_leaves_ends_the_digest(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let file = File::create(daemon.path("f")).expect("the scratch directory is ours");
    file.set_len(1 << 40).expect("a sparse file");
    let before = daemon.at_rest();
    for method in ["HEAD", "GET"] {
        let mut connection = daemon.connect();
        let request = Request::new(method, file_at(daemon.path("f"))).bearer();
        connection.send(request.field("want-repr-digest", "sha-256=1").bytes());
        // Others are served meanwhile.
        get(&daemon, "f", &[("range", "bytes=0-9")]).is(206);
        drop(connection);
        daemon.holds_at_most(before);
    }
}

/// Reads a file with these fields.
#[track_caller]
fn get(daemon: &Daemon, name: &str, fields: &[(&str, &str)]) -> Reply {
    let mut request = Request::get(file_at(daemon.path(name))).bearer();
    for (name, value) in fields {
        request = request.field(name, *value);
    }
    daemon.call(&request)
}

/// A connection on which the file `f` was asked for with its digest.
#[track_caller]
fn wanting(daemon: &Daemon) -> Connection {
    let mut connection = daemon.connect();
    let request = Request::get(file_at(daemon.path("f"))).bearer();
    let request = request.field("want-repr-digest", "sha-256=1");
    connection.send(request.field("connection", "close").bytes());
    connection
}

fn digest(content: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(content);
    field(&hasher.finish())
}

/// The body as it was before its coding.
#[track_caller]
fn decoded(reply: &Reply) -> Vec<u8> {
    let mut plain = Vec::new();
    match reply.field("content-encoding") {
        Some("gzip") => {
            let mut decoder = flate2::read::MultiGzDecoder::new(&*reply.body);
            decoder.read_to_end(&mut plain).expect("a gzip body");
        }
        Some("zstd") => {
            plain.reserve(64 << 20);
            zstd_safe::decompress(&mut plain, &reply.body).expect("a zstd body");
        }
        other => {
            assert_eq!(other, None);
            plain.extend_from_slice(&reply.body);
        }
    }
    plain
}

fn no_digest_is_promised_where_none_can_follow(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise(3_000_000);
    fs::write(daemon.path("f"), &content).expect("ours");
    let mut connection = daemon.connect();
    let target = file_at(daemon.path("f"));
    connection.send(format!(
        "GET {target} HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\nwant-repr-digest: sha-256=1\r\n\r\n"
    ));
    let head = connection.head().expect("a head");
    assert_eq!((head.status, head.field("trailer")), (200, None));
    let (body, _) = connection.rest();
    assert!(body == content);
}

/// The body and the trailers of a chunked message.
#[track_caller]
fn unchunked(mut message: &[u8]) -> (Vec<u8>, String) {
    let mut body = Vec::new();
    loop {
        let end = message.windows(2).position(|pair| pair == b"\r\n");
        let (line, rest) = message.split_at(end.expect("a size"));
        let line = std::str::from_utf8(line).expect("a size");
        let size = usize::from_str_radix(line, 16).expect("a size");
        message = &rest[2..];
        if size == 0 {
            let trailers = message.strip_suffix(b"\r\n").expect("an empty line");
            return (body, String::from_utf8_lossy(trailers).into_owned());
        }
        body.extend_from_slice(&message[..size]);
        assert_eq!(&message[size..size + 2], b"\r\n");
        message = &message[size + 2..];
    }
}
