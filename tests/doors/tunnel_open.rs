//! The request that opens a tunnel: who may, what it must say, and what is answered (guest HTTP contract, section 8).

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::Request;
use crate::websocket::{BINARY, FINAL, Guest, WebSocket, frame, is_upgraded, read, upgrade};

both![
    access_is_decided_before_anything_is_read,
    a_query_that_names_no_port_is_malformed,
    a_request_that_does_not_ask_for_a_websocket_is_refused,
    the_query_is_judged_before_the_handshake,
    only_get_over_http_11_opens_a_tunnel,
    a_request_with_a_body_opens_no_tunnel,
    the_subprotocol_of_the_platform_is_selected_and_no_other,
    bytes_behind_the_request_belong_to_the_tunnel,
    requests_before_the_upgrade_share_its_connection,
];

fn access_is_decided_before_anything_is_read(driver: Driver) {
    let daemon = Daemon::start(driver);
    let wrong = Request::get("/v1/tcp?port=nonsense");
    daemon.call(&wrong).bare(503);
    daemon
        .bootstrap(crate::request::TOKEN, &serde_json::json!({}))
        .is(200);
    daemon.call(&wrong).bare(401);
    let guest = Guest::new();
    let port = guest.port();
    let right = upgrade(format!("/v1/tcp?port={port}"));
    let text = String::from_utf8(right.bytes()).expect("it is a text");
    let mut connection = daemon.connect();
    connection.send(text.replace("Bearer tok", "Bearer no"));
    connection.reply().bare(401);
    guest.was_not_dialled();
}

fn a_query_that_names_no_port_is_malformed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for query in [
        "",
        "?",
        "?port=",
        "?port=http",
        "?port=65536",
        "?port=-1",
        "?port=1&port=1",
        "?port=1&identity=maybe",
        "?port=1&identity=1&identity=1",
        "?port=1&unix=/run/x",
        "?unix=/run/x&identity=1",
    ] {
        let reply = daemon.call(&upgrade(format!("/v1/tcp{query}")));
        reply.refuses(400, "malformed_request");
    }
}

fn the_query_is_judged_before_the_handshake(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reply = daemon.get("/v1/tcp?port=x");
    let detail = reply.refuses(400, "malformed_request").json()["detail"].to_string();
    assert!(detail.contains("port"), "{detail}");
}

fn a_request_that_does_not_ask_for_a_websocket_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let whole = upgrade(format!("/v1/tcp?port={}", guest.port())).bytes();
    let whole = String::from_utf8(whole).expect("it is a text");
    let mut connection = daemon.connect();
    for (right, wrong) in [
        ("connection: Upgrade\r\n", ""),
        ("connection: Upgrade\r\n", "connection: keep-alive\r\n"),
        ("upgrade: websocket\r\n", ""),
        ("upgrade: websocket\r\n", "upgrade: h2c\r\n"),
        ("sec-websocket-version: 13\r\n", ""),
        (
            "sec-websocket-version: 13\r\n",
            "sec-websocket-version: 8\r\n",
        ),
        ("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        (
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            "sec-websocket-key: c2hvcnQ=",
        ),
    ] {
        assert!(whole.contains(right), "{right} is there");
        connection.send(whole.replacen(right, wrong, 1));
        let reply = connection.reply();
        assert_eq!(reply.field("sec-websocket-version"), Some("13"), "{wrong}");
        reply.refuses(400, "malformed_request");
    }
    guest.was_not_dialled();
    connection.is_usable();
}

fn only_get_over_http_11_opens_a_tunnel(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let target = format!("/v1/tcp?port={}", guest.port());
    let whole = String::from_utf8(upgrade(&target).bytes()).expect("it is a text");
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let mut connection = daemon.connect();
        connection.send(whole.replacen("GET", method, 1));
        let reply = connection.reply().bare(405);
        assert_eq!(reply.field("allow"), Some("GET,HEAD"));
    }
    let mut connection = daemon.connect();
    connection.send(whole.replacen("GET", "HEAD", 1));
    let reply = connection.reply_to("HEAD").expect("a response");
    assert_eq!(reply.status, 400);
    connection.is_usable();
    let mut connection = daemon.connect();
    connection.send(whole.replacen("HTTP/1.1", "HTTP/1.0", 1));
    connection.reply().refuses(400, "malformed_request");
    connection.is_closed();
    guest.was_not_dialled();
}

fn a_request_with_a_body_opens_no_tunnel(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let target = format!("/v1/tcp?port={}", guest.port());
    for request in [
        upgrade(&target).body("body"),
        upgrade(&target).chunks(["body"]),
    ] {
        let mut connection = daemon.connect();
        connection.call(&request).refuses(400, "malformed_request");
        connection.is_usable();
    }
    guest.was_not_dialled();
}

fn the_subprotocol_of_the_platform_is_selected_and_no_other(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    for (offered, selected) in [
        (&["lambda-microvms"][..], Some("lambda-microvms")),
        (
            &["lambda-microvms, lambda-microvms.authentication.x, lambda-microvms.port.9000"],
            Some("lambda-microvms"),
        ),
        (&["chat", "lambda-microvms"], Some("lambda-microvms")),
        (&["lambda-microvms.port.9000, chat"], None),
        (&[], None),
    ] {
        let mut request = upgrade(format!("/v1/tcp?port={}", guest.port()));
        request = request.field("sec-websocket-extensions", "permessage-deflate");
        for value in offered {
            request = request.field("sec-websocket-protocol", *value);
        }
        let mut connection = daemon.connect();
        connection.send(request.bytes());
        let reply = connection.head().expect("a response");
        is_upgraded(&reply);
        assert_eq!(
            reply.field("sec-websocket-protocol"),
            selected,
            "{offered:?}"
        );
    }
}

fn bytes_behind_the_request_belong_to_the_tunnel(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut bytes = upgrade(format!("/v1/tcp?port={}", guest.port())).bytes();
    bytes.extend(frame(FINAL | BINARY, b"early"));
    let late = frame(FINAL | BINARY, b"and late");
    bytes.extend(&late[..3]);
    let mut connection = daemon.connect();
    connection.send(bytes);
    is_upgraded(&connection.head().expect("a response"));
    let mut service = guest.accept();
    assert_eq!(read(&mut service, 5), b"early");
    connection.send(&late[3..]);
    assert_eq!(read(&mut service, 8), b"and late");
}

fn requests_before_the_upgrade_share_its_connection(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut connection = daemon.connect();
    connection.is_usable();
    connection.send(upgrade(format!("/v1/tcp?port={}", guest.port())).bytes());
    is_upgraded(&connection.head().expect("a response"));
    let mut socket = WebSocket { connection };
    socket.send("over");
    assert_eq!(read(&mut guest.accept(), 4), b"over");
}
