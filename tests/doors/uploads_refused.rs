//! Uploads that are refused, and that nothing has changed then.

use std::fs;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::{Request, file_at, with_path};
use crate::resumable::{
    append, ask, began, begin, begin_parallel, creation, digest, list, offset, patch,
};
use crate::scratch::{Tree, noise, tree};

both![
    a_creation_that_is_refused_makes_nothing,
    a_part_that_is_refused_changes_nothing,
    more_bytes_than_were_said_end_an_upload,
    an_upload_that_is_not_known_is_refused_by_every_route,
    more_uploads_than_may_be_are_refused_for_now,
    a_body_over_its_limit_counts_for_nothing,
    access_is_decided_first,
    a_wrong_method_is_told_the_right_ones,
];

/// A daemon with an old file `f`, and what is there.
fn prepared(driver: Driver) -> (Daemon, Tree) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    fs::create_dir(daemon.path("dir")).expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    (daemon, before)
}

fn a_creation_that_is_refused_makes_nothing(driver: Driver) {
    let (daemon, before) = prepared(driver);
    let descriptors = daemon.at_rest();
    let at = |name: &str, more: &str| {
        let target = with_path("/v1/uploads", daemon.path(name));
        Request::post(format!("{target}{more}")).bearer()
    };
    let plain = at("new/f", "");
    for (request, status, slug) in [
        (
            Request::post("/v1/uploads").bearer(),
            400,
            "malformed_request",
        ),
        (at("f", "&mode=9"), 400, "malformed_request"),
        (at("f", "&mode=644&mode=644"), 400, "malformed_request"),
        (at("f", "&replace=in_place"), 400, "malformed_request"),
        (at("f", "&replace=no"), 400, "malformed_request"),
        (at("new/f", "&parallel=1"), 400, "malformed_request"),
        (at("new/f", "&parallel=2"), 400, "malformed_request"),
        (
            plain.clone().field("repr-digest", "sha-256=x"),
            400,
            "malformed_request",
        ),
        (
            plain.clone().field("content-digest", "sha-256=x").body("x"),
            400,
            "malformed_request",
        ),
        (
            plain.clone().field("upload-length", "3").body("text"),
            400,
            "inconsistent_length",
        ),
        (
            plain
                .clone()
                .field("upload-length", "3")
                .field("upload-complete", "?1")
                .body("te"),
            400,
            "inconsistent_length",
        ),
        (
            plain
                .clone()
                .field("upload-length", "3")
                .chunks(["te", "xt"]),
            400,
            "inconsistent_length",
        ),
        (
            plain.clone().field("content-encoding", "gzip").body("x"),
            415,
            "unsupported_coding",
        ),
        (at("dir", ""), 400, "malformed_request"),
        (
            Request::post(with_path("/v1/uploads", "/dev/null")).bearer(),
            400,
            "malformed_request",
        ),
        (
            Request::post(with_path("/v1/uploads", "/proc/self/comm")).bearer(),
            400,
            "malformed_request",
        ),
    ] {
        let reply = daemon.call(&request);
        assert_eq!(reply.status, status, "{request:?}: {reply:?}");
        if !slug.is_empty() {
            let document: serde_json::Value =
                serde_json::from_slice(&reply.body).expect("a document");
            assert_eq!(document["error"], slug, "{request:?}");
        }
        assert!(list(&daemon).is_empty(), "{request:?}");
        assert_eq!(reply.field("location"), None);
        // Directories are made when the file can be, as for any PUT.
        let _ = fs::remove_dir(daemon.path("new"));
        assert_eq!(tree(&daemon.path("")), before, "{request:?}");
    }
    // A PUT answers in its own form.
    let put = Request::put(file_at(daemon.path("f"))).bearer();
    let put = put
        .field("upload-complete", "?0")
        .field("upload-length", "3");
    daemon.call(&put.body("text")).explains(400);
    assert_eq!(tree(&daemon.path("")), before);
    daemon.holds_at_most(descriptors);
}

fn a_part_that_is_refused_changes_nothing(driver: Driver) {
    let (daemon, before) = prepared(driver);
    let upload = begin(&daemon, "f", Some(1000));
    let bytes = noise(1000);
    append(&daemon, &upload, 0, false, &bytes[..400]).is(204);
    let bare = Request::new("PATCH", &*upload).bearer();
    let at = |offset: usize, complete: &str| patch(&upload, offset, complete);
    let rest = &bytes[400..];
    for (request, status, slug) in [
        (
            bare.clone().field("upload-complete", "?0").body(rest),
            400,
            "malformed_request",
        ),
        (
            bare.clone().field("upload-offset", "400").body(rest),
            400,
            "malformed_request",
        ),
        (
            bare.clone()
                .field("upload-offset", "-1")
                .field("upload-complete", "?0")
                .body(rest),
            400,
            "malformed_request",
        ),
        (
            bare.clone()
                .field("content-type", "application/octet-stream")
                .field("upload-offset", "400")
                .field("upload-complete", "?1")
                .body(rest),
            415,
            "unsupported_media_type",
        ),
        (
            at(400, "?1").field("content-encoding", "zstd").body(rest),
            415,
            "unsupported_coding",
        ),
        (
            at(400, "?1")
                .field("content-digest", digest(b"x"))
                .body(rest),
            400,
            "malformed_request",
        ),
        (
            at(400, "?1")
                .field("content-digest", "sha-256=1")
                .body(rest),
            400,
            "malformed_request",
        ),
        (
            at(400, "?1").field("repr-digest", "sha-256=1").body(rest),
            400,
            "malformed_request",
        ),
        // Nobody could tell yet whether it is that.
        (
            at(400, "?0")
                .field("repr-digest", digest(&bytes))
                .body(rest),
            400,
            "malformed_request",
        ),
        (at(0, "?0").body(rest), 409, "upload_offset"),
        (at(401, "?0").body(&rest[1..]), 409, "upload_offset"),
        (at(399, "?0").chunks([rest]), 409, "upload_offset"),
        (at(999_999, "?1"), 409, "upload_offset"),
        (at(400, "?1").body(&rest[..599]), 400, "inconsistent_length"),
        (
            at(400, "?1").chunks([&rest[..599]]),
            400,
            "inconsistent_length",
        ),
        (at(400, "?1"), 400, "inconsistent_length"),
        (
            at(400, "?0").body([rest, b"x"].concat()),
            400,
            "inconsistent_length",
        ),
        (
            at(400, "?0").field("upload-length", "1001").body(rest),
            400,
            "inconsistent_length",
        ),
        (
            Request::post(format!("{upload}/finish")).bearer(),
            409,
            "upload_incomplete",
        ),
    ] {
        let reply = daemon.call(&request);
        assert_eq!(reply.status, status, "{request:?}: {reply:?}");
        let document: serde_json::Value = serde_json::from_slice(&reply.body).expect("a document");
        assert_eq!(document["error"], slug, "{request:?}");
        match status {
            409 => assert_eq!(reply.field("upload-offset"), Some("400"), "{request:?}"),
            415 => {
                let told = ["accept-patch", "accept-encoding"].map(|name| reply.field(name));
                let expected = match slug {
                    "unsupported_coding" => [None, Some("identity")],
                    _ => [Some("application/partial-upload"), None],
                };
                assert_eq!(told, expected);
            }
            _ => {}
        }
        assert_eq!(offset(&daemon, &upload), 400, "{request:?}");
        assert_eq!(tree(&daemon.path("")), before, "{request:?}");
    }
    // A body that breaks the framing counts for nothing either.
    let mut connection = daemon.connect();
    connection.send(at(400, "?1").chunks([rest]).head());
    connection.send("3\r\nabc\r\nnonsense\r\n");
    connection.reply().is(400);
    assert_eq!(offset(&daemon, &upload), 400);
    append(&daemon, &upload, 400, true, rest).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn more_bytes_than_were_said_end_an_upload(driver: Driver) {
    let (daemon, before) = prepared(driver);
    let descriptors = daemon.at_rest();
    let upload = begin(&daemon, "f", Some(1000));
    append(&daemon, &upload, 0, false, &noise(400)).is(204);
    let reply = daemon.call(&patch(&upload, 400, "?1").chunks([noise(300), noise(301)]));
    let reply = reply.is(400);
    let document: serde_json::Value = serde_json::from_slice(&reply.body).expect("a document");
    assert_eq!(document["error"], "inconsistent_length");
    assert_eq!(
        document["type"],
        "https://iana.org/assignments/http-problem-types#inconsistent-upload-length"
    );
    ask(&daemon, &upload).is(404);
    assert_eq!(tree(&daemon.path("")), before);
    daemon.holds_at_most(descriptors);
}

fn an_upload_that_is_not_known_is_refused_by_every_route(driver: Driver) {
    let (daemon, before) = prepared(driver);
    for unknown in ["/v1/uploads/0123456789abcdef", "/v1/uploads/%2e%2e"] {
        ask(&daemon, unknown).is(404);
        for request in [
            Request::get(unknown).bearer(),
            Request::new("DELETE", unknown).bearer(),
            patch(unknown, 0, "?1").body("text"),
            Request::post(format!("{unknown}/finish")).bearer(),
        ] {
            let reply = daemon.call(&request).is(404);
            assert_eq!(reply.json()["error"], "unknown_upload", "{request:?}");
        }
    }
    assert_eq!(tree(&daemon.path("")), before);
}

fn more_uploads_than_may_be_are_refused_for_now(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-uploads", "2").ready();
    let first = begin(&daemon, "a", None);
    let second = begin_parallel(&daemon, "b", 3);
    let reply = daemon.call(&creation(&daemon, "c/d", None)).is(503);
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert_eq!(reply.json()["error"], "busy");
    assert_eq!(tree(&daemon.path("")), Tree::new());
    // One that ends makes room, however it ends.
    append(&daemon, &first, 0, true, b"a").is(204);
    let third = began(&daemon.call(&creation(&daemon, "c", None)));
    daemon.call(&creation(&daemon, "d", None)).is(503);
    for upload in [second, third] {
        daemon
            .call(&Request::new("DELETE", upload).bearer())
            .is(204);
    }
    begin(&daemon, "d", None);
    begin(&daemon, "e", None);
}

fn a_body_over_its_limit_counts_for_nothing(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-body-bytes", "1000000")
        .ready();
    let bytes = noise(2_500_000);
    let upload = begin(&daemon, "f", None);
    let told = ask(&daemon, &upload);
    let limit = told.field("upload-limit").expect("limits");
    assert!(limit.starts_with("max-append-size=1000000, "), "{limit}");
    daemon
        .call(&patch(&upload, 0, "?0").body(&bytes[..1_000_001]))
        .is(413);
    let over: Vec<_> = bytes[..1_000_001]
        .chunks(100_000)
        .map(<[u8]>::to_vec)
        .collect();
    daemon.call(&patch(&upload, 0, "?0").chunks(over)).is(413);
    assert_eq!(offset(&daemon, &upload), 0);
    // Together the parts may be more than one request may bring.
    for (at, end) in [(0, 1_000_000), (1_000_000, 2_000_000)] {
        append(&daemon, &upload, at, false, &bytes[at..end]).is(204);
    }
    append(&daemon, &upload, 2_000_000, true, &bytes[2_000_000..]).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn access_is_decided_first(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let upload = begin(&daemon, "f", None);
    for (method, target) in [
        ("GET", "/v1/uploads"),
        ("POST", "/v1/uploads?path=x"),
        ("HEAD", &*upload),
        ("GET", &*upload),
        ("PATCH", &*upload),
        ("DELETE", &*upload),
        ("POST", &*format!("{upload}/finish")),
    ] {
        let request = Request::new(method, target).body("x");
        let mut connection = daemon.connect();
        connection.send(request.head());
        let reply = connection.reply_to(method).expect("a response");
        reply.bare(401);
    }
    assert_eq!(offset(&daemon, &upload), 0);
}

fn a_wrong_method_is_told_the_right_ones(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let put = daemon.put("/v1/uploads/x", "");
    assert_eq!(put.is(405).field("allow"), Some("DELETE,GET,HEAD,PATCH"));
    let put = daemon.put("/v1/uploads", "");
    assert_eq!(put.is(405).field("allow"), Some("GET,HEAD,POST"));
}
