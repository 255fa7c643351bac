//! Request heads: what is taken, what is refused, where the limits are (contract section 2 and D19).

use crate::client::{Broken, Connection};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::Request;

both![
    heads_that_are_a_little_odd_are_served,
    a_head_may_arrive_byte_by_byte,
    what_is_not_http_is_refused_and_closed,
    an_http2_preface_is_closed,
    a_tls_handshake_is_refused_and_noted,
    a_hundred_fields_are_taken_and_one_more_is_not,
    a_head_of_64_kib_is_taken_and_a_larger_one_is_not,
    a_target_of_8_kib_is_taken_and_a_longer_one_is_not,
    the_limits_of_a_head_can_be_set,
    a_head_without_end_is_refused_before_it_ends,
    a_refusal_of_the_parser_reaches_a_client_that_sends_on,
    a_head_that_stops_arriving_is_let_go,
    a_connection_that_says_nothing_is_let_go,
    an_idle_connection_is_let_go,
    a_slow_connection_delays_no_other,
];

fn heads_that_are_a_little_odd_are_served(driver: Driver) {
    let daemon = Daemon::start(driver);
    let heads = [
        "GET /v1/health HTTP/1.1\r\n\r\n",
        "GET /v1/health HTTP/1.1\nhost: x\n\n",
        "GET /v1/health HTTP/1.1\nhost: x\r\n\n",
        "\r\nGET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
        "\r\n\r\nGET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /v1/health HTTP/1.1\r\nHOST:x\r\n\r\n",
        "GET /v1/health HTTP/1.1\r\nhost:\t x \t\r\nempty:\r\n\r\n",
        "GET /v1/health HTTP/1.1\r\nhost: a\r\nx-latin: caf\u{e9}\r\n\r\n",
        "GET /v1/health HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
        "GET /v1/health?a=b&c HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /v1/health? HTTP/1.1\r\nhost: x\r\n\r\n",
    ];
    for head in heads {
        let mut connection = daemon.connect();
        connection.send(head);
        let reply = connection.reply();
        assert_eq!(reply.status, 200, "{head:?}: {reply:?}");
        connection.is_usable();
    }
}

fn a_head_may_arrive_byte_by_byte(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    for byte in Request::get("/v1/health").bytes() {
        connection.send([byte]);
    }
    connection.reply().is(200);
    connection.is_usable();
}

fn what_is_not_http_is_refused_and_closed(driver: Driver) {
    let daemon = Daemon::start(driver);
    let heads: [&[u8]; 15] = [
        b"HELLO\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/health\r\n\r\n",
        b"GET /v1/health HTTP/9\r\n\r\n",
        b"GET /v1/health HTTP/1.1 x\r\nhost: x\r\n\r\n",
        b"GET  /v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/ health HTTP/1.1\r\nhost: x\r\n\r\n",
        b"G\x01T /v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nbad header: x\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nx: nul\0byte\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nb\xe9d: x\r\n\r\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\r\n\r\n",
        b"{\"jsonrpc\":\"2.0\"}\r\n\r\n",
    ];
    for head in heads {
        let mut connection = daemon.connect();
        connection.send(head);
        is_refused(&mut connection, 400, &String::from_utf8_lossy(head));
    }
    daemon.health();
}

fn an_http2_preface_is_closed(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00");
    match connection.reply_to("GET") {
        Ok(reply) => assert_eq!(reply.status, 400, "{reply:?}"),
        Err(broken) => assert!(
            matches!(broken, Broken::Closed | Broken::Reset),
            "{broken:?}"
        ),
    }
    connection.rest();
    daemon.health();
}

fn a_tls_handshake_is_refused_and_noted(driver: Driver) {
    let daemon = Setup::new(driver).flag("--log", "debug").start();
    let noted = || {
        daemon
            .stderr()
            .iter()
            .filter(|line| line.contains("DEBUG"))
            .count()
    };
    let before = noted();
    let mut connection = daemon.connect();
    let mut hello = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03".to_vec();
    hello.extend_from_slice(&[0; 194]);
    connection.send(hello);
    is_refused(&mut connection, 400, "a ClientHello");
    wait_until("the log has a note of it", || noted() > before);
}

fn a_hundred_fields_are_taken_and_one_more_is_not(driver: Driver) {
    let daemon = Daemon::start(driver);
    for count in [1, 99, 100] {
        let mut connection = daemon.connect();
        connection.send(with_fields(count));
        connection.reply().is(200);
        connection.is_usable();
    }
    for count in [101, 150, 1000] {
        let mut connection = daemon.connect();
        connection.send(with_fields(count));
        is_refused(&mut connection, 431, &format!("{count} fields"));
    }
}

fn a_head_of_64_kib_is_taken_and_a_larger_one_is_not(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    connection.send(of_size(65536));
    connection.reply().is(200);
    connection.is_usable();
    let mut connection = daemon.connect();
    connection.send(of_size(65537));
    is_refused(&mut connection, 431, "one byte more");
}

fn a_target_of_8_kib_is_taken_and_a_longer_one_is_not(driver: Driver) {
    let daemon = Daemon::start(driver);
    daemon.call(&Request::get(target_of(8192))).is(200);
    for length in [8193, 20_000, 60_000] {
        let mut connection = daemon.connect();
        connection.send(Request::get(target_of(length)).bytes());
        is_refused(&mut connection, 414, &format!("a target of {length}"));
    }
}

fn the_limits_of_a_head_can_be_set(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-head-fields", "3")
        .flag("--max-head-bytes", "300")
        .flag("--max-target-bytes", "64")
        .start();
    let mut connection = daemon.connect();
    connection.send(with_fields(3));
    connection.reply().is(200);
    connection.send(with_fields(4));
    is_refused(&mut connection, 431, "4 fields");
    let mut connection = daemon.connect();
    connection.send(of_size(300));
    connection.reply().is(200);
    connection.send(of_size(301));
    is_refused(&mut connection, 431, "301 bytes");
    daemon.call(&Request::get(target_of(64))).is(200);
    let mut connection = daemon.connect();
    connection.send(Request::get(target_of(65)).bytes());
    is_refused(&mut connection, 414, "65 bytes");
}

fn a_head_without_end_is_refused_before_it_ends(driver: Driver) {
    let daemon = Daemon::start(driver);
    let endless = "GET /v1/health HTTP/1.1\r\nx: ";
    let mut connection = daemon.connect();
    connection.send(endless);
    // The daemon may close while we are still sending.
    let _ = connection.try_send(vec![b'a'; 70_000]);
    is_refused(&mut connection, 431, "an endless field");
    let mut connection = daemon.connect();
    connection.send("GET /");
    let _ = connection.try_send(vec![b'a'; 70_000]);
    let reply = connection.reply();
    assert!(reply.status == 414 || reply.status == 431, "{reply:?}");
    let mut connection = daemon.connect();
    let _ = connection.try_send(b"\r\n".repeat(40_000));
    let reply = connection.reply();
    assert!(reply.status == 400 || reply.status == 431, "{reply:?}");
}

fn a_refusal_of_the_parser_reaches_a_client_that_sends_on(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    let mut bytes = b"POST /v1/exec/start HTTP/1.1\r\ncontent-length: abc\r\n\r\n".to_vec();
    bytes.extend_from_slice(&[b'x'; 30_000]);
    connection.send(bytes);
    is_refused(&mut connection, 400, "a bad head with a body behind it");
}

fn a_head_that_stops_arriving_is_let_go(driver: Driver) {
    let daemon = Setup::new(driver).flag("--head-timeout", "0.3").start();
    for part in [
        "G",
        "GET /v1/health HTTP/1.1\r\nhost:",
        "GET /v1/health HTTP/1.1\r\nhost: x\r\n",
    ] {
        let mut connection = daemon.connect();
        connection.send(part);
        is_let_go(connection);
    }
    // A second head on a used connection has the same limit.
    let mut connection = daemon.connect();
    connection.is_usable();
    connection.send("GET /v1/heal");
    is_let_go(connection);
}

fn a_connection_that_says_nothing_is_let_go(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--head-timeout", "0.3")
        .flag("--idle-timeout", "0.3")
        .start();
    let before = daemon.descriptors();
    is_let_go(daemon.connect());
    daemon.holds_at_most(before);
}

fn an_idle_connection_is_let_go(driver: Driver) {
    let daemon = Setup::new(driver).flag("--idle-timeout", "0.3").start();
    let mut connection = daemon.connect();
    connection.is_usable();
    connection.is_usable();
    is_let_go(connection);
}

fn a_slow_connection_delays_no_other(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut slow: Vec<Connection> = (0..20).map(|_| daemon.connect()).collect();
    for connection in &mut slow {
        connection.send("GET /v1/health HTTP/1.1\r\nhost: ");
    }
    daemon.health();
    for connection in &mut slow {
        connection.send("x\r\n\r\n");
        connection.reply().is(200);
    }
}

/// Checks an empty refusal that says it closes, and the close.
#[track_caller]
fn is_refused(connection: &mut Connection, status: u16, what: &str) {
    let reply = match connection.reply_to("GET") {
        Ok(reply) => reply,
        Err(broken) => panic!("{what}: {broken:?}"),
    };
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert!(reply.body.is_empty(), "{what}: {reply:?}");
    assert_eq!(
        reply.field("connection"),
        Some("close"),
        "{what}: {reply:?}"
    );
    assert_eq!(
        reply.field("content-length"),
        Some("0"),
        "{what}: {reply:?}"
    );
    let (rest, _) = connection.rest();
    assert!(
        rest.is_empty(),
        "{what}: {}",
        String::from_utf8_lossy(&rest)
    );
}

/// Checks that the daemon ends the connection, with or without saying why.
#[track_caller]
fn is_let_go(mut connection: Connection) {
    match connection.reply_to("GET") {
        Ok(reply) => {
            assert_eq!(reply.status, 408, "{reply:?}");
            assert_eq!(reply.field("connection"), Some("close"), "{reply:?}");
            connection.is_closed();
        }
        Err(broken) => assert_eq!(broken, Broken::Closed),
    }
}

fn with_fields(count: usize) -> String {
    let fields: String = (0..count)
        .map(|number| format!("x-h{number}: 1\r\n"))
        .collect();
    format!("GET /v1/health HTTP/1.1\r\n{fields}\r\n")
}

/// A target of exactly this many bytes.
fn target_of(length: usize) -> String {
    format!("/v1/health?{}", "a".repeat(length - "/v1/health?".len()))
}

/// A head of exactly this many bytes.
fn of_size(size: usize) -> String {
    let empty = "GET /v1/health HTTP/1.1\r\nx-big: \r\n\r\n";
    format!(
        "GET /v1/health HTTP/1.1\r\nx-big: {}\r\n\r\n",
        "a".repeat(size - empty.len())
    )
}
