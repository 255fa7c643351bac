//! Which path and method is which operation: contract section 2.

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, file_at};

both![
    an_unmatched_path_is_an_empty_404,
    a_wrong_method_is_405_with_the_methods_that_are_right,
    the_method_is_case_sensitive,
    head_is_get_without_the_body,
    an_id_is_percent_decoded,
    an_id_that_is_not_utf8_is_refused,
    an_exec_named_start_is_reached_by_an_escape,
    a_query_is_form_urlencoded,
    a_query_key_that_is_unknown_is_ignored_and_one_given_twice_is_refused,
    the_absolute_form_is_the_same_target,
];

fn an_unmatched_path_is_an_empty_404(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let targets = [
        "/",
        "/v1",
        "/v1/",
        "/v1/nope",
        "/v1/health/",
        "//v1/health",
        "/v1//health",
        "/V1/health",
        "/v1/exec",
        "/v1/exec/",
        "/v1/exec/a/b",
        "/v1/exec/a/ack/",
        "/v1/fs",
        "/v1/fs/file/",
        "/aws/lambda-microvms/runtime/v1/ready/",
        "/aws/lambda-microvms/runtime/v1/nope",
        "/v1/health%2F",
    ];
    for target in targets {
        for method in ["GET", "POST", "FROB"] {
            let reply = daemon.call(&Request::new(method, target)).bare(404);
            assert_eq!(reply.field("content-length"), Some("0"), "{target}");
            assert_eq!(reply.field("allow"), None, "{target}");
        }
    }
    daemon
        .call(&Request::post("/v1/zzz").json_text("{\"a\":1}"))
        .bare(404);
}

fn a_wrong_method_is_405_with_the_methods_that_are_right(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let hook = "/aws/lambda-microvms/runtime/v1/ready";
    let rows = [
        ("/v1/health", "POST", "GET,HEAD"),
        ("/v1/health", "OPTIONS", "GET,HEAD"),
        ("/v1/health", "FROB", "GET,HEAD"),
        (hook, "GET", "POST"),
        (hook, "PUT", "POST"),
        ("/aws/lambda-microvms/runtime/v1/run", "HEAD", "POST"),
        ("/v1/exec/start", "GET", "POST"),
        ("/v1/exec/e1", "DELETE", "GET,HEAD"),
        ("/v1/exec/e1/ack", "GET", "POST"),
        ("/v1/exec/e1/kill", "GET", "POST"),
        ("/v1/fs/file?path=/x", "POST", "GET,HEAD,PUT"),
        ("/v1/fs/tar?path=/x", "PATCH", "GET,HEAD,POST,PUT"),
    ];
    for (target, method, allow) in rows {
        let reply = daemon
            .call(&Request::new(method, target).bearer())
            .bare(405);
        assert_eq!(reply.field("allow"), Some(allow), "{method} {target}");
        if method != "HEAD" {
            assert_eq!(
                reply.field("content-length"),
                Some("0"),
                "{method} {target}"
            );
        }
    }
}

fn the_method_is_case_sensitive(driver: Driver) {
    let daemon = Daemon::start(driver);
    daemon.call(&Request::new("get", "/v1/health")).bare(405);
}

fn head_is_get_without_the_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    std::fs::write(daemon.path("file"), "content").expect("the scratch directory is ours");
    let targets = [
        "/v1/exec/none".to_owned(),
        "/v1/nope".to_owned(),
        file_at(daemon.path("file")),
        file_at(daemon.path("absent")),
        format!("{}&start_line=1", file_at(daemon.path("file"))),
        crate::request::tar_at(daemon.path("")),
    ];
    for target in targets {
        let mut connection = daemon.connect();
        let whole = connection.call(&Request::get(&*target).bearer());
        let head = connection.call(&Request::new("HEAD", &*target).bearer());
        assert_eq!(head.status, whole.status, "{target}");
        assert!(head.body.is_empty(), "{target}");
        // A body of unknown length is chunked, which its head need not say (RFC 9112, section 6.1).
        for (name, value) in &whole.fields {
            if name != "date" && name != "transfer-encoding" {
                assert_eq!(head.field(name), Some(value.as_str()), "{target}");
            }
        }
        connection.is_usable();
    }
    let head = daemon.call(&Request::new("HEAD", "/v1/health")).is(200);
    let length = head
        .field("content-length")
        .and_then(|text| text.parse::<usize>().ok());
    assert!(length.is_some_and(|length| length > 100), "{head:?}");
}

fn an_id_is_percent_decoded(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("none", "none"),
        ("a%2Fb%20c", "a/b c"),
        ("a+b", "a+b"),
        ("%C3%BC", "ü"),
        ("%zz", "%zz"),
        ("..", ".."),
        ("%2e%2E", ".."),
        ("a%00b", "a\0b"),
    ];
    for (id, decoded) in rows {
        let reply = daemon.get(format!("/v1/exec/{id}")).is(404);
        let expected = serde_json::json!({"error": "unknown_exec", "detail": decoded});
        assert_eq!(reply.json(), expected, "{id}");
    }
    let reply = daemon.get("/v1/exec/none");
    assert_eq!(reply.text(), r#"{"error":"unknown_exec","detail":"none"}"#);
}

fn an_id_that_is_not_utf8_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for id in ["%ff", "a%c3", "%ed%a0%80"] {
        daemon.get(format!("/v1/exec/{id}")).is(400);
        daemon.post(format!("/v1/exec/{id}/kill")).is(400);
        daemon.post(format!("/v1/exec/{id}/ack")).is(400);
    }
}

fn an_exec_named_start_is_reached_by_an_escape(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("start", &serde_json::json!({"command": ["true"]}));
    daemon.get("/v1/exec/start").bare(405);
    let reply = daemon.get("/v1/exec/%73tart").is(200);
    assert_eq!(reply.json()["exec_id"], "start");
}

fn a_query_is_form_urlencoded(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let base = daemon
        .path("")
        .to_str()
        .expect("ours is UTF-8")
        .trim_end_matches('/')
        .to_owned();
    let rows = [
        ("plain", "plain"),
        ("sp%20ace+plus", "sp ace plus"),
        ("real%2Bplus", "real+plus"),
        ("%C3%BC", "ü"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("a%26b%3Dc", "a&b=c"),
        ("a=b", "a=b"),
        ("semi;colon", "semi;colon"),
        // What is not UTF-8 becomes U+FFFD.
        ("bad%ff", "bad\u{fffd}"),
    ];
    for (escaped, name) in rows {
        daemon
            .put(format!("/v1/fs/file?path={base}/{escaped}"), name)
            .bare(204);
        let found = std::fs::read(daemon.path(name));
        assert_eq!(found.ok().as_deref(), Some(name.as_bytes()), "{escaped}");
    }
    daemon
        .put(format!("/v1/fs/file?p%61th={base}/key"), "x")
        .bare(204);
    assert!(daemon.path("key").exists());
}

fn a_query_key_that_is_unknown_is_ignored_and_one_given_twice_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    daemon
        .put(format!("{target}&foo=1&foo=2&&x"), "x")
        .bare(204);
    for target in [
        format!("{target}&path=/other"),
        format!("{target}&path={}", daemon.path("f").display()),
        "/v1/fs/file".to_owned(),
        "/v1/fs/file?".to_owned(),
        "/v1/fs/file?Path=/x".to_owned(),
    ] {
        daemon.put(&*target, "x").explains(400);
        daemon.get(&*target).explains(400);
        let tar = target.replace("/fs/file", "/fs/tar");
        daemon.get(&*tar).explains(400);
        daemon.put(&*tar, "").explains(400);
    }
}

fn the_absolute_form_is_the_same_target(driver: Driver) {
    let daemon = Daemon::ready(driver);
    std::fs::write(daemon.path("file"), "content").expect("the scratch directory is ours");
    daemon.get("http://127.0.0.1/v1/health").is(200);
    daemon.get("http://guest:9000/v1/nope").bare(404);
    let reply = daemon
        .get(format!("http://guest{}", file_at(daemon.path("file"))))
        .is(200);
    assert_eq!(reply.text(), "content");
    daemon
        .call(&Request::get("http://guest/v1/exec/none"))
        .bare(401);
}
