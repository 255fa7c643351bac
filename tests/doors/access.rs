//! Who may call what: contract section 2.1.

use serde_json::json;

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, TOKEN};

both![
    before_bootstrap_everything_is_unavailable,
    the_presented_token_decides,
    only_the_first_authorization_field_counts,
    a_token_may_hold_spaces,
    access_is_decided_before_the_request_is_read,
    a_wrong_method_is_told_only_to_the_authorized,
    open_routes_ask_for_no_token,
    a_refused_request_does_nothing,
];

fn before_bootstrap_everything_is_unavailable(driver: Driver) {
    let daemon = Daemon::start(driver);
    for (method, target) in bearer_routes() {
        let request = Request::new(method, target);
        daemon.call(&request).bare(503);
        daemon.call(&request.clone().bearer()).bare(503);
        daemon
            .call(&request.field("authorization", "garbage"))
            .bare(503);
    }
}

fn the_presented_token_decides(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let passes = [
        format!("Bearer {TOKEN}"),
        format!("bEARER {TOKEN}"),
        format!("bearer {TOKEN}"),
        // The optional white space around a field value is not part of it (RFC 9110, section 5.5).
        format!("Bearer {TOKEN} "),
    ];
    for value in passes {
        let request = Request::get("/v1/exec/none").field("authorization", value);
        daemon.call(&request).refuses(404, "unknown_exec");
    }
    let refused = [
        "".to_owned(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer nope".to_owned(),
        format!("Basic {TOKEN}"),
        format!("Bearer  {TOKEN}"),
        format!("Bearer\t{TOKEN}"),
        format!("Bearer {TOKEN}x"),
        format!("Bearer {}", &TOKEN[1..]),
        format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]),
        format!("Bearer {}", TOKEN.to_uppercase()),
        format!("Bearer:{TOKEN}"),
        TOKEN.to_owned(),
        format!("Bearer \"{TOKEN}\""),
        "Bearer tökén".to_owned(),
    ];
    for value in refused {
        let request = Request::get("/v1/exec/none").field("authorization", value);
        daemon.call(&request).bare(401);
    }
    daemon.call(&Request::get("/v1/exec/none")).bare(401);
}

fn only_the_first_authorization_field_counts(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let wrong_first = Request::get("/v1/exec/none")
        .field("authorization", "Bearer nope")
        .bearer();
    daemon.call(&wrong_first).bare(401);
    let right_first = Request::get("/v1/exec/none")
        .bearer()
        .field("authorization", "Bearer nope");
    daemon.call(&right_first).is(404);
}

fn a_token_may_hold_spaces(driver: Driver) {
    let daemon = Daemon::start(driver);
    daemon.bootstrap("two words", &json!({})).bare(200);
    let request = Request::get("/v1/exec/none");
    daemon
        .call(&request.clone().field("authorization", "Bearer two words"))
        .is(404);
    daemon
        .call(&request.field("authorization", "Bearer two"))
        .bare(401);
}

fn access_is_decided_before_the_request_is_read(driver: Driver) {
    let daemon = Daemon::start(driver);
    let garbage = Request::post("/v1/exec/start").json_text("{nope");
    daemon.call(&garbage).bare(503);
    daemon.bootstrap(TOKEN, &json!({})).is(200);
    daemon.call(&garbage).bare(401);
    daemon
        .call(&garbage.bearer())
        .refuses(400, "malformed_request");
    daemon.call(&Request::get("/v1/exec/%ff")).bare(401);
    daemon.call(&Request::put("/v1/fs/file?mode=bad")).bare(401);
}

fn a_wrong_method_is_told_only_to_the_authorized(driver: Driver) {
    let daemon = Daemon::start(driver);
    let request = Request::new("DELETE", "/v1/exec/e1");
    let reply = daemon.call(&request).bare(503);
    assert_eq!(reply.field("allow"), Some("GET,HEAD"));
    daemon.bootstrap(TOKEN, &json!({})).is(200);
    let reply = daemon.call(&request).bare(401);
    assert_eq!(reply.field("allow"), Some("GET,HEAD"));
    let wrong = request.clone().field("authorization", "Bearer nope");
    assert_eq!(
        daemon.call(&wrong).bare(401).field("allow"),
        Some("GET,HEAD")
    );
    let reply = daemon.call(&request.bearer()).bare(405);
    assert_eq!(reply.field("allow"), Some("GET,HEAD"));
}

fn open_routes_ask_for_no_token(driver: Driver) {
    let daemon = Daemon::start(driver);
    for _ in 0..2 {
        daemon.call(&Request::get("/v1/health")).is(200);
        daemon
            .call(&Request::post("/aws/lambda-microvms/runtime/v1/ready"))
            .bare(200);
        // An unmatched path is no secret either.
        daemon.call(&Request::get("/v1/nope")).bare(404);
        daemon.bootstrap(TOKEN, &json!({})).is(200);
    }
}

fn a_refused_request_does_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("new");
    let start = json!({"exec_id": "e1", "command": ["touch", path.to_str()]});
    daemon
        .call(&Request::post("/v1/exec/start").json(&start))
        .bare(401);
    let put = Request::put(crate::request::file_at(&path)).body("x");
    daemon.call(&put).bare(401);
    daemon.get("/v1/exec/e1").is(404);
    assert!(!path.exists());
}

fn bearer_routes() -> [(&'static str, &'static str); 8] {
    [
        ("POST", "/v1/exec/start"),
        ("GET", "/v1/exec/e1"),
        ("POST", "/v1/exec/e1/ack"),
        ("POST", "/v1/exec/e1/kill"),
        ("GET", "/v1/fs/file?path=/x"),
        ("PUT", "/v1/fs/file?path=/x"),
        ("GET", "/v1/fs/tar?path=/x"),
        ("PUT", "/v1/fs/tar?path=/x"),
    ]
}
