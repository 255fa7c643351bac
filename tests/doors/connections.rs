//! Connections: kept, pipelined, half-closed, of HTTP/1.0, and with `Expect` (contract section 2).

use crate::client::Broken;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::{Request, TOKEN, file_at};
use crate::scratch::noise;

both![
    a_connection_is_kept_for_the_next_request,
    a_client_that_says_close_gets_it,
    pipelined_requests_are_answered_in_order,
    thousands_of_pipelined_requests_are_answered_in_order,
    a_request_may_be_pipelined_behind_a_body,
    a_refusal_does_not_upset_what_is_pipelined_behind_it,
    a_request_may_be_cut_anywhere,
    a_client_that_has_closed_its_half_is_still_answered,
    http_1_0_closes_unless_asked_to_stay,
    http_1_0_gets_no_chunks,
    an_expected_continue_is_sent_when_the_body_is_wanted,
    an_expected_continue_is_not_sent_when_the_request_is_refused,
    http_1_0_gets_no_continue,
    a_body_that_comes_without_waiting_for_the_continue_is_taken,
    many_connections_are_served_side_by_side,
];

fn a_connection_is_kept_for_the_next_request(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    let target = file_at(daemon.path("f"));
    for round in 0..20 {
        let content = noise(round * 1000);
        connection
            .call(&Request::put(&*target).bearer().body(content.clone()))
            .is(204);
        let reply = connection.call(&Request::get(&*target).bearer()).is(200);
        assert!(reply.body == content, "round {round}");
        connection
            .call(&Request::get("/v1/exec/none").bearer())
            .is(404);
        connection.call(&Request::get("/v1/nope")).is(404);
        connection
            .call(&Request::new("HEAD", &*target).bearer())
            .is(200);
    }
}

fn a_client_that_says_close_gets_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for value in ["close", "Close", "keep-alive, close", "x, close"] {
        for request in [
            Request::get("/v1/health"),
            Request::get("/v1/nope"),
            Request::get("/v1/exec/x"),
        ] {
            let mut connection = daemon.connect();
            let reply = connection.call(&request.field("connection", value));
            assert_eq!(
                reply.field("connection"),
                Some("close"),
                "{value}: {reply:?}"
            );
            connection.is_closed();
        }
    }
}

fn pipelined_requests_are_answered_in_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let requests: Vec<u8> = (0..100)
        .flat_map(|number| request(number).bytes())
        .collect();
    let mut connection = daemon.connect();
    connection.send(requests);
    for number in 0..100 {
        let reply = connection.reply().is(404);
        assert_eq!(reply.json()["detail"], format!("id-{number}"));
    }
    connection.is_usable();
}

fn thousands_of_pipelined_requests_are_answered_in_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    let requests: Vec<u8> = (0..3000)
        .flat_map(|number| request(number).bytes())
        .collect();
    let sender = connection.send_aside(requests);
    for number in 0..3000 {
        let reply = connection.reply().is(404);
        assert_eq!(reply.json()["detail"], format!("id-{number}"));
    }
    sender
        .join()
        .expect("no panic")
        .expect("everything is taken");
    connection.is_usable();
}

fn a_request_may_be_pipelined_behind_a_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    for length in [0, 1, 1000, 70_000, 300_000] {
        let content = noise(length);
        let put = Request::put(&*target).bearer();
        let parts: Vec<Vec<u8>> = content.chunks(9999).map(<[u8]>::to_vec).collect();
        for put in [put.clone().body(content.clone()), put.chunks(parts)] {
            let mut bytes = put.bytes();
            bytes.extend(Request::get(&*target).bearer().bytes());
            bytes.extend(Request::get("/v1/health").bytes());
            let mut connection = daemon.connect();
            connection.send(bytes);
            connection.reply().is(204);
            assert!(connection.reply().is(200).body == content, "{length}");
            connection.reply().is(200);
        }
    }
}

fn a_refusal_does_not_upset_what_is_pipelined_behind_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let refused = [
        Request::put("/v1/fs/file?path=/x").body("unauthorized"),
        Request::put("/v1/fs/file").bearer().body("no path"),
        Request::post("/v1/exec/start")
            .bearer()
            .json_text("not json"),
        Request::post("/v1/nope").body("no such path"),
        Request::post("/v1/health").body("no such method"),
        Request::put("/v1/fs/file?path=/x").chunks(["unauth", "orized"]),
        Request::post("/v1/exec/none/kill")
            .bearer()
            .body("GET /v1/smuggled HTTP/1.1\r\n\r\n"),
    ];
    let mut connection = daemon.connect();
    for request in refused {
        let mut bytes = request.bytes();
        bytes.extend(Request::get("/v1/health").bytes());
        connection.send(bytes);
        let reply = connection.reply();
        assert!(reply.status >= 400, "{reply:?}");
        connection.reply().is(200);
    }
}

fn a_request_may_be_cut_anywhere(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let whole = Request::put(file_at(daemon.path("f")))
        .bearer()
        .chunks(["abc", "defg"])
        .bytes();
    let mut connection = daemon.connect();
    for cut in 1..whole.len() {
        connection.send(&whole[..cut]);
        // The other connection's answer shows that the daemon has had its turn in between.
        daemon.health();
        connection.send(&whole[cut..]);
        connection.reply().is(204);
    }
    assert_eq!(
        std::fs::read_to_string(daemon.path("f")).expect("it was written"),
        "abcdefg"
    );
}

fn a_client_that_has_closed_its_half_is_still_answered(driver: Driver) {
    let daemon = Daemon::ready(driver);
    std::fs::write(daemon.path("f"), noise(3_000_000)).expect("the scratch directory is ours");
    let mut connection = daemon.connect();
    connection.send(Request::get("/v1/health").bytes());
    connection.send(Request::get(file_at(daemon.path("f"))).bearer().bytes());
    connection.finish();
    connection.reply().is(200);
    assert!(connection.reply().is(200).body == noise(3_000_000));
    connection.is_closed();
}

fn http_1_0_closes_unless_asked_to_stay(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    connection.send("GET /v1/health HTTP/1.0\r\n\r\n");
    let reply = connection.reply().is(200);
    assert_eq!(reply.json()["bootstrapped"], false);
    connection.is_closed();
    let mut connection = daemon.connect();
    for _ in 0..3 {
        connection.send("GET /v1/health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
        let reply = connection.reply().is(200);
        assert_eq!(reply.field("connection"), Some("keep-alive"));
    }
    connection.send("GET /v1/nope HTTP/1.0\r\n\r\n");
    connection.reply().is(404);
    connection.is_closed();
}

fn http_1_0_gets_no_chunks(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = "one\ntwo\nthree\n".repeat(10_000);
    std::fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    let target = file_at(daemon.path("f"));
    for query in ["", "&start_line=1"] {
        let mut connection = daemon.connect();
        connection.send(format!(
            "GET {target}{query} HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\nconnection: keep-alive\r\n\r\n"
        ));
        let reply = connection.reply().is(200);
        assert_eq!(reply.field("transfer-encoding"), None, "{reply:?}");
        assert_eq!(reply.text(), content, "{query}");
    }
}

fn an_expected_continue_is_sent_when_the_body_is_wanted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    for request in [
        Request::put(&*target).bearer().body("hello"),
        Request::put(&*target).bearer().chunks(["hel", "lo"]),
    ] {
        let request = request.field("expect", "100-continue");
        let mut connection = daemon.connect();
        connection.send(request.head());
        let interim = connection.head().expect("the daemon asks for the body");
        assert_eq!(interim.status, 100);
        assert!(interim.field("microvms-agentd-version").is_some());
        connection.send(request.payload());
        connection.reply().is(204);
        connection.is_usable();
        assert_eq!(
            std::fs::read_to_string(daemon.path("f")).expect("it was written"),
            "hello"
        );
    }
}

fn an_expected_continue_is_not_sent_when_the_request_is_refused(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-body-bytes", "1000").ready();
    let target = file_at(daemon.path("f"));
    let refused = [
        (Request::put(&*target).body("hello"), 401),
        (Request::put(&*target).body(vec![0; 900]), 401),
        (Request::put(&*target).bearer().body(vec![0; 1001]), 413),
        (
            Request::put(format!("{target}&mode=bad"))
                .bearer()
                .body("hello"),
            400,
        ),
        (Request::put("/v1/fs/file").bearer().body("hello"), 400),
        (Request::post("/v1/nope").body("hello"), 404),
        (Request::post("/v1/health").body("hello"), 405),
    ];
    for (request, status) in refused {
        let request = request.field("Expect", "100-Continue");
        let mut connection = daemon.connect();
        connection.send(request.head());
        let reply = connection
            .head()
            .expect("the daemon answers on the head alone");
        assert_eq!(reply.status, status, "{reply:?}");
    }
    assert!(!daemon.path("f").exists());
}

fn http_1_0_gets_no_continue(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let mut connection = daemon.connect();
    connection.send(format!(
        "PUT {target} HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\nhello"
    ));
    let reply = connection.head().expect("a response");
    assert_eq!(reply.status, 204, "{reply:?}");
}

fn a_body_that_comes_without_waiting_for_the_continue_is_taken(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    for round in 0..3 {
        let request = Request::put(file_at(daemon.path("f")))
            .bearer()
            .field("expect", "100-continue");
        connection
            .call(&request.body(format!("round {round}")))
            .is(204);
    }
    connection.is_usable();
}

fn many_connections_are_served_side_by_side(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connections: Vec<_> = (0..200).map(|_| daemon.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        connection.send(request(number).bytes());
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        let reply = connection.reply().is(404);
        assert_eq!(reply.json()["detail"], format!("id-{number}"));
    }
    drop(connections);
    let mut last = daemon.connect();
    last.is_usable();
    last.finish();
    assert_eq!(last.reply_to("GET"), Err(Broken::Closed));
}

/// A request whose response tells which one it was.
fn request(number: usize) -> Request {
    Request::get(format!("/v1/exec/id-{number}")).bearer()
}
