//! Requests that two parsers could read differently are refused and the connection is closed (D10).

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, TOKEN, file_at};
use crate::scratch::tree;

both![
    an_ambiguous_length_is_refused,
    a_transfer_coding_that_is_not_chunked_alone_is_refused,
    an_ambiguous_field_is_refused,
    a_broken_chunk_is_refused,
    a_broken_chunk_leaves_no_file,
    odd_but_plain_chunks_are_read,
    what_follows_a_refusal_is_never_run,
];

fn an_ambiguous_length_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let fields = [
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 3",
        "content-length: 3\r\ncontent-length: 4",
        "content-length: 3\r\ncontent-length: 3",
        "content-length: 3, 3",
        "content-length: 3,4",
        "content-length: abc",
        "content-length: -1",
        "content-length: +3",
        "content-length: 0x3",
        "content-length: 3 3",
        "content-length: 3.0",
        "content-length:",
        "content-length: 18446744073709551616",
        "content-length: 99999999999999999999999999",
    ];
    for field in fields {
        let head = format!("{}{field}\r\n\r\n0\r\n\r\n", start_line());
        let mut connection = daemon.connect();
        connection.send(&head);
        is_refused(&mut connection, field);
    }
}

fn a_transfer_coding_that_is_not_chunked_alone_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let fields = [
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: identity",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: xchunked",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding:",
    ];
    for field in fields {
        let head = format!("{}{field}\r\n\r\n0\r\n\r\n", start_line());
        let mut connection = daemon.connect();
        connection.send(&head);
        // A coding we do not know may be told apart (RFC 9112, section 6.1).
        is_refused_with(&mut connection, field, &[400, 501]);
    }
}

fn an_ambiguous_field_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let fields = [
        "content-length : 2",
        "content-length\t: 2",
        " content-length: 2",
        "x-folded: a\r\n b",
        "x-folded: a\r\n\tb",
        "content-length: 2\r\n ",
        "x-bare: a\rb",
        "x-bare: a\r",
        "x-nul: a\0b",
        "transfer-encoding : chunked",
        "transfer-encoding\r: chunked",
        "\x0btransfer-encoding: chunked",
    ];
    for field in fields {
        let head = format!("{}{field}\r\n\r\n{{}}", start_line());
        let mut connection = daemon.connect();
        connection.send(&head);
        is_refused(&mut connection, field);
    }
    let mut connection = daemon.connect();
    connection.send("GET /v1/health\rX HTTP/1.1\r\nhost: x\r\n\r\n");
    is_refused(&mut connection, "a bare CR in the request line");
}

fn a_broken_chunk_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for body in broken_chunks() {
        let head = format!("{}transfer-encoding: chunked\r\n\r\n{body}", start_line());
        let mut connection = daemon.connect();
        // The refusal may come before everything is sent.
        let _ = connection.try_send(&head);
        is_refused(&mut connection, &body);
    }
}

fn a_broken_chunk_leaves_no_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    std::fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    for name in ["old", "new", "dir/new"] {
        let request = Request::put(file_at(daemon.path(name))).bearer();
        let request = request.field("transfer-encoding", "chunked");
        let mut connection = daemon.connect();
        connection.send(request.head());
        connection.send("3\r\nabc\r\nZZ\r\n");
        is_refused(&mut connection, name);
        // The directories of a path are made before its body is read, and stay.
        let mut after = tree(&daemon.path(""));
        after.remove("dir");
        assert_eq!(after, before, "{name}");
    }
}

fn odd_but_plain_chunks_are_read(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bodies = [
        "3\r\nabc\r\n0\r\n\r\n",
        "0003\r\nabc\r\n000\r\n\r\n",
        "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n",
        "3;name=value\r\nabc\r\n0;last\r\n\r\n",
        "3;name=\"quoted; value\"\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nx-trailer: 1\r\ncontent-length: 9\r\n\r\n",
    ];
    for body in bodies {
        let request = Request::put(file_at(daemon.path("file"))).bearer();
        let request = request.field("Transfer-Encoding", "Chunked");
        let mut connection = daemon.connect();
        connection.send(request.head());
        connection.send(body);
        let reply = connection.reply();
        assert_eq!(reply.status, 204, "{body:?}: {reply:?}");
        let content = std::fs::read_to_string(daemon.path("file")).expect("it was written");
        assert_eq!(content, "abc", "{body:?}");
        connection.is_usable();
    }
    let request = Request::put(file_at(daemon.path("hex")))
        .bearer()
        .chunks([vec![b'x'; 0xab]]);
    let upper = String::from_utf8(request.bytes())
        .expect("it is ASCII")
        .replace("\r\nab\r\n", "\r\nAB\r\n");
    let mut connection = daemon.connect();
    connection.send(upper);
    connection.reply().is(204);
}

fn what_follows_a_refusal_is_never_run(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let hidden = Request::put(file_at(daemon.path("smuggled")))
        .bearer()
        .body("x");
    let mut bytes = format!(
        "{}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        start_line()
    );
    bytes.push_str(&String::from_utf8_lossy(&hidden.bytes()));
    let mut connection = daemon.connect();
    connection.send(bytes);
    is_refused(&mut connection, "a hidden request");
    assert!(!daemon.path("smuggled").exists());
}

fn broken_chunks() -> Vec<String> {
    let mut bodies: Vec<String> = [
        "Z\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabcXX0\r\n\r\n",
        "3\rabc\r\n0\r\n\r\n",
        "10000000000000000\r\nabc",
        "FFFFFFFFFFFFFFFFF\r\nabc",
        "100000000000000000003\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        "3;bare\rcr\r\nabc\r\n0\r\n\r\n",
    ]
    .map(str::to_owned)
    .to_vec();
    // Nothing in a chunk head or a trailer may go on for ever.
    bodies.push(format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(100_000)));
    bodies.push(format!("{}3\r\nabc\r\n0\r\n\r\n", "0".repeat(100_000)));
    bodies.push(format!(
        "3\r\nabc\r\n0\r\nx: {}\r\n\r\n",
        "y".repeat(100_000)
    ));
    bodies
}

/// The head of a start request up to where its framing is declared.
fn start_line() -> String {
    format!(
        "POST /v1/exec/start HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\n"
    )
}

#[track_caller]
fn is_refused(connection: &mut Connection, what: &str) {
    is_refused_with(connection, what, &[400]);
}

#[track_caller]
fn is_refused_with(connection: &mut Connection, what: &str, statuses: &[u16]) {
    let what: String = what.chars().take(80).collect();
    let reply = match connection.reply_to("GET") {
        Ok(reply) => reply,
        Err(broken) => panic!("{what:?}: {broken:?}"),
    };
    assert!(statuses.contains(&reply.status), "{what:?}: {reply:?}");
    assert_eq!(
        reply.field("connection"),
        Some("close"),
        "{what:?}: {reply:?}"
    );
    let (rest, _) = connection.rest();
    assert!(
        rest.is_empty(),
        "{what:?}: {}",
        String::from_utf8_lossy(&rest)
    );
}
