//! Bodies that are too large, or not wanted, or late: D1 and D2.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Broken, Connection};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, file_at, tar_at};
use crate::scratch::{noise, tree};

both![
    a_body_of_exactly_the_cap_is_taken,
    a_body_over_the_cap_is_413_however_it_is_framed,
    a_body_over_the_cap_leaves_nothing_behind,
    access_comes_before_size,
    a_refusal_on_the_head_does_not_wait_for_the_body,
    a_small_refused_body_is_drained_and_the_connection_kept,
    a_large_refused_body_closes_after_a_readable_response,
    a_refused_body_that_is_still_coming_does_not_hide_the_response,
    a_refused_body_that_never_comes_is_not_waited_for,
    the_drain_limit_can_be_set,
    json_needs_a_json_content_type,
    a_content_coding_we_do_not_know_is_refused,
    a_body_that_stops_arriving_is_let_go,
    a_body_that_ends_early_is_never_taken_for_a_whole_one,
];

const CAP: usize = 100_000;

fn a_body_of_exactly_the_cap_is_taken(driver: Driver) {
    let daemon = capped(driver);
    let content = noise(CAP);
    let mut connection = daemon.connect();
    let put = Request::put(file_at(daemon.path("f"))).bearer();
    for request in [
        put.clone().body(content.clone()),
        put.chunks([&content[..1], &content[1..]]),
    ] {
        connection.call(&request).bare(204);
        assert!(std::fs::read(daemon.path("f")).expect("it was written") == content);
        std::fs::remove_file(daemon.path("f")).expect("it was written");
    }
    connection.is_usable();
}

fn a_body_over_the_cap_is_413_however_it_is_framed(driver: Driver) {
    let daemon = capped(driver);
    for request in routes(&daemon) {
        let over = vec![b' '; CAP + 1];
        let pieces = over.chunks(4096).map(<[u8]>::to_vec);
        daemon.call(&request.clone().body(over.clone())).is(413);
        daemon.call(&request.clone().chunks(pieces)).is(413);
        daemon.call(&request.chunks([over])).is(413);
    }
}

fn a_body_over_the_cap_leaves_nothing_behind(driver: Driver) {
    let daemon = capped(driver);
    std::fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    std::fs::create_dir(daemon.path("root")).expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    let temporary = tree(&daemon.temporary());
    let archive = crate::archive::archive([crate::archive::file("f", vec![b'x'; 2 * CAP])]);
    for (target, body) in [
        (file_at(daemon.path("old")), vec![b'x'; 2 * CAP]),
        (file_at(daemon.path("new")), vec![b'x'; 2 * CAP]),
        (tar_at(daemon.path("root")), archive.clone()),
        (tar_at(daemon.path("new-root")), archive),
    ] {
        let put = Request::put(&*target).bearer();
        let pieces: Vec<Vec<u8>> = body.chunks(10_000).map(<[u8]>::to_vec).collect();
        for request in [put.clone().body(body), put.chunks(pieces)] {
            daemon.call(&request).is(413);
            assert_eq!(tree(&daemon.path("")), before, "{target}");
            assert_eq!(tree(&daemon.temporary()), temporary, "{target}");
        }
    }
}

fn access_comes_before_size(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-body-bytes", CAP.to_string())
        .start();
    let over = Request::put(file_at(daemon.path("f"))).body(vec![b'x'; CAP + 1]);
    daemon.call(&over).bare(503);
    daemon.bootstrap(crate::request::TOKEN, &json!({})).is(200);
    daemon.call(&over).bare(401);
    daemon
        .call(&over.clone().field("authorization", "Bearer nope"))
        .bare(401);
    daemon.call(&over.bearer()).is(413);
    // Size comes before the query.
    let bad_mode = Request::put("/v1/fs/file?mode=bad").bearer();
    daemon.call(&bad_mode.body(vec![b'x'; CAP + 1])).is(413);
}

fn a_refusal_on_the_head_does_not_wait_for_the_body(driver: Driver) {
    let daemon = capped(driver);
    let target = file_at(daemon.path("f"));
    let refused = [
        (Request::put(&*target).body(vec![0; 1000]), 401),
        (Request::put(&*target).body(vec![0; CAP]), 401),
        (Request::put(&*target).chunks(["never"]), 401),
        (Request::put(&*target).bearer().body(vec![0; CAP + 1]), 413),
        (Request::put("/v1/fs/file").bearer().body("never"), 400),
        (
            Request::put(format!("{target}&mode=bad"))
                .bearer()
                .body("never"),
            400,
        ),
        (
            Request::put(format!("{target}&mode=bad"))
                .bearer()
                .chunks(["never"]),
            400,
        ),
        (
            Request::put("/v1/fs/tar?path=relative")
                .bearer()
                .body("never"),
            400,
        ),
        (Request::post("/v1/nope").body("never"), 404),
        (Request::post("/v1/health").body("never"), 405),
    ];
    for (request, status) in refused {
        let mut connection = daemon.connect();
        connection.send(request.head());
        connection.reply().is(status);
    }
}

fn a_small_refused_body_is_drained_and_the_connection_kept(driver: Driver) {
    let daemon = capped(driver);
    let mut connection = daemon.connect();
    for length in [1, 1000, 65_535, 65_536] {
        for request in refusals(&daemon) {
            let body = vec![b'x'; length];
            for request in [request.clone().body(body.clone()), request.chunks([body])] {
                let reply = connection.call(&request);
                assert!(reply.status >= 400, "{reply:?}");
                connection.is_usable();
            }
        }
    }
}

fn a_large_refused_body_closes_after_a_readable_response(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for request in refusals(&daemon) {
        let mut connection = daemon.connect();
        let began = Instant::now();
        connection.send(request.clone().body(vec![0; 10_000_000]).head());
        connection.send([0; 1000]);
        let reply = connection.reply();
        assert!(reply.status >= 400, "{reply:?}");
        assert_eq!(reply.field("connection"), Some("close"), "{reply:?}");
        // For a second what still comes is read away; a daemon that had closed would answer it with a reset.
        let sent = connection.try_send([0; 1000]);
        daemon.health();
        let sent_again = connection.try_send([0; 1000]);
        if began.elapsed() < Duration::from_millis(500) {
            assert!(
                sent.is_ok() && sent_again.is_ok(),
                "{sent:?}, {sent_again:?}"
            );
        }
        connection.finish();
        connection.is_closed();
    }
}

fn a_refused_body_that_is_still_coming_does_not_hide_the_response(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for request in refusals(&daemon) {
        for length in [1_000_000, 8_000_000] {
            let mut connection = daemon.connect();
            let body = vec![0; length];
            let sender = connection.send_aside(request.clone().body(body).bytes());
            let reply = connection.reply();
            assert!(reply.status >= 400, "{reply:?}");
            // Whether the rest could be sent is the daemon's choice, but it must not be waited for.
            let _ = sender.join().expect("no panic");
        }
    }
}

fn a_refused_body_that_never_comes_is_not_waited_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let mut waiting = Vec::new();
    for request in refusals(&daemon) {
        for request in [
            request.clone().body(vec![0; 1000]),
            request.chunks([vec![0; 1000]]),
        ] {
            let mut connection = daemon.connect();
            connection.send(request.head());
            let reply = connection.reply();
            assert!(reply.status >= 400, "{reply:?}");
            waiting.push(connection);
        }
    }
    for mut connection in waiting {
        connection.is_closed();
    }
    daemon.holds_at_most(before);
}

fn the_drain_limit_can_be_set(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-drain-bytes", "10").ready();
    let request = Request::put("/v1/fs/file?path=/x");
    let mut connection = daemon.connect();
    connection.call(&request.clone().body([0; 10])).bare(401);
    connection.is_usable();
    let reply = connection.call(&request.body([0; 11])).bare(401);
    assert_eq!(reply.field("connection"), Some("close"));
    connection.rest();
}

fn json_needs_a_json_content_type(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let accepted = [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=\"utf-8\"",
        "APPLICATION/JSON",
        "application/vnd.x+json",
        "application/problem+json; a=b",
    ];
    for (number, media) in accepted.iter().enumerate() {
        let body = json!({"exec_id": format!("ok-{number}"), "command": ["true"]}).to_string();
        let request = Request::post("/v1/exec/start")
            .bearer()
            .field("content-type", *media);
        daemon.call(&request.body(body)).is(200);
    }
    let body = json!({"exec_id": "refused", "command": ["true"]}).to_string();
    let refused = [
        "text/plain",
        "text/json",
        "application/jsonx",
        "application/xml",
        "json",
        "",
        "x+json",
    ];
    for media in refused {
        let request = Request::post("/v1/exec/start")
            .bearer()
            .field("content-type", media);
        daemon
            .call(&request.body(body.clone()))
            .refuses(400, "malformed_request");
    }
    let none = Request::post("/v1/exec/start").bearer().body(body);
    daemon.call(&none).refuses(400, "malformed_request");
    daemon.poll("refused").is(404);
}

fn a_content_coding_we_do_not_know_is_refused(driver: Driver) {
    let daemon = capped(driver);
    // The routes that carry files have codings; JSON has none.
    for request in routes(&daemon).into_iter().take(2) {
        for coding in ["x-unknown", "br", "identity, x-unknown"] {
            let reply = daemon.call(&request.clone().field("content-encoding", coding).body("x"));
            assert_eq!(reply.status, 415, "{coding}: {reply:?}");
            assert!(
                reply.field("accept-encoding").is_some(),
                "{coding}: {reply:?}"
            );
        }
    }
    assert!(tree(&daemon.path("")).is_empty());
    let plain = Request::put(file_at(daemon.path("f"))).bearer();
    daemon
        .call(&plain.field("content-encoding", "identity").body("x"))
        .bare(204);
}

fn a_body_that_stops_arriving_is_let_go(driver: Driver) {
    let daemon = Setup::new(driver).flag("--body-timeout", "0.3").ready();
    std::fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = (tree(&daemon.path("")), daemon.at_rest());
    let mut stalled = Vec::new();
    for request in [
        Request::put(file_at(daemon.path("old"))),
        Request::put(file_at(daemon.path("new"))),
        Request::put(tar_at(daemon.path("root"))),
        Request::post("/v1/exec/start").field("content-type", "application/json"),
    ] {
        for request in [
            request.clone().body(vec![b'x'; 70_000]),
            request.chunks([vec![b'x'; 70_000]]),
        ] {
            let mut connection = daemon.connect();
            let bytes = request.bearer().bytes();
            connection.send(&bytes[..bytes.len() - 3000]);
            stalled.push(connection);
        }
    }
    for connection in stalled {
        is_let_go(connection);
    }
    wait_until("nothing is left", || tree(&daemon.path("")) == before.0);
    daemon.holds_at_most(before.1);
}

fn a_body_that_ends_early_is_never_taken_for_a_whole_one(driver: Driver) {
    let daemon = Daemon::ready(driver);
    std::fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = (tree(&daemon.path("")), daemon.at_rest());
    let put = Request::put(file_at(daemon.path("old"))).bearer();
    let start =
        json!({"exec_id": "e", "command": ["touch", daemon.path("ran").to_str()]}).to_string();
    let exec = Request::post("/v1/exec/start")
        .bearer()
        .field("content-type", "application/json");
    for request in [
        put.clone().body(vec![b'x'; 1000]),
        put.chunks([vec![b'x'; 500], vec![b'x'; 500]]),
        exec.clone().body(format!("{start}     ")),
        exec.chunks([start]),
    ] {
        let bytes = request.bytes();
        let mut connection = daemon.connect();
        connection.send(&bytes[..bytes.len() - 5]);
        connection.finish();
        match connection.reply_to("GET") {
            Ok(reply) => assert!(reply.status == 400 || reply.status == 408, "{reply:?}"),
            Err(broken) => assert_eq!(broken, Broken::Closed),
        }
        connection.rest();
    }
    daemon.poll("e").is(404);
    assert_eq!(tree(&daemon.path("")), before.0);
    daemon.holds_at_most(before.1);
}

fn capped(driver: Driver) -> Daemon {
    Setup::new(driver)
        .flag("--max-body-bytes", CAP.to_string())
        .ready()
}

/// A request for each route that takes a body from the authorized.
fn routes(daemon: &Daemon) -> [Request; 3] {
    [
        Request::put(file_at(daemon.path("f"))).bearer(),
        Request::put(tar_at(daemon.path("t"))).bearer(),
        Request::post("/v1/exec/start")
            .bearer()
            .field("content-type", "application/json"),
    ]
}

/// Requests that are refused without a look at their bodies.
fn refusals(daemon: &Daemon) -> [Request; 5] {
    [
        Request::put(file_at(daemon.path("f"))),
        Request::post("/v1/exec/start").field("authorization", "Bearer nope"),
        Request::put("/v1/fs/file").bearer(),
        Request::post("/v1/nope"),
        Request::post("/v1/health"),
    ]
}

#[track_caller]
fn is_let_go(mut connection: Connection) {
    match connection.reply_to("GET") {
        Ok(reply) => {
            assert!(reply.status == 408 || reply.status == 400, "{reply:?}");
            connection.rest();
        }
        Err(broken) => assert!(
            matches!(broken, Broken::Closed | Broken::Reset),
            "{broken:?}"
        ),
    }
}
