//! Starting an exec: what is refused, and what starting twice means (contract section 4.2).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::execs::{quiet_success, without_usage};
use crate::request::Request;

both![
    a_start_is_answered_with_running,
    a_body_of_the_wrong_shape_is_refused,
    fields_of_the_wrong_type_are_refused,
    optional_fields_may_be_null_and_unknown_ones_are_ignored,
    a_start_may_arrive_in_chunks,
    the_checks_run_in_order,
    a_timeout_must_be_positive_and_finite,
    a_huge_timeout_is_no_timeout,
    a_program_that_cannot_be_run_is_a_failed_spawn,
    a_failed_spawn_registers_nothing,
    a_user_group_or_shell_that_is_unknown_is_refused_before_the_spawn,
    any_text_is_an_id,
    an_id_and_an_error_are_of_bounded_length,
    a_start_that_is_retried_runs_once,
    a_malformed_retry_is_still_refused,
    starts_of_one_id_at_once_spawn_once,
    a_client_that_leaves_does_not_stop_its_exec,
    a_failed_spawn_leaks_nothing,
];

fn a_start_is_answered_with_running(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reply = daemon
        .ask(&json!({"exec_id": "e1", "command": ["true"]}))
        .is(200);
    assert_eq!(reply.text(), r#"{"exec_id":"e1","phase":"running"}"#);
    assert_eq!(reply.field("content-type"), Some("application/json"));
    daemon.exited("e1");
    let polled = daemon.poll("e1").text();
    assert_eq!(without_usage(&polled), quiet_success("e1"));
}

fn a_body_of_the_wrong_shape_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bodies = [
        "nope",
        "",
        "null",
        "7",
        "\"x\"",
        "{}",
        r#"{"exec_id":"x"}"#,
        r#"{"command":["true"]}"#,
        r#"{"exec_id":"x","command":["true"]} x"#,
        r#"{"exec_id":"x","command":["true"]}{}"#,
        r#"{"exec_id":"x","command":["true"],}"#,
        r#"{"exec_id":"x","exec_id":"y","command":["true"]}"#,
        r#"{"exec_id":"x","command":["true"],"timeout_sec":NaN}"#,
        r#"{"exec_id":"x","command":["true"],"timeout_sec":Infinity}"#,
        r#"{"exec_id":"x","command":["true"],"timeout_sec":1e999}"#,
        "\u{feff}{\"exec_id\":\"x\",\"command\":[\"true\"]}",
        r#"{'exec_id':'x','command':['true']}"#,
    ];
    for body in bodies {
        refused(&daemon, body.as_bytes());
    }
    refused(&daemon, b"{\"exec_id\":\"x\xff\",\"command\":[\"true\"]}");
    // Nesting without end must not cost a stack without end.
    refused(&daemon, "[".repeat(200_000).as_bytes());
    daemon.poll("x").is(404);
}

fn fields_of_the_wrong_type_are_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let wrong = [
        ("exec_id", vec![json!(1), json!(null), json!(["x"])]),
        (
            "command",
            vec![
                json!("true"),
                json!(null),
                json!([1]),
                json!([null]),
                json!([["true"]]),
            ],
        ),
        ("shell", vec![json!(null), json!(1), json!([])]),
        ("cwd", vec![json!(1), json!([])]),
        (
            "env",
            vec![
                json!(null),
                json!([]),
                json!("A=1"),
                json!({"A": 1}),
                json!({"A": null}),
            ],
        ),
        (
            "user",
            vec![
                json!(-1),
                json!(1.5),
                json!(4_294_967_296_u64),
                json!([]),
                json!(true),
            ],
        ),
        (
            "group",
            vec![json!(-1), json!(1.5), json!(4_294_967_296_u64), json!({})],
        ),
        ("timeout_sec", vec![json!("5"), json!([]), json!(true)]),
        ("stdin", vec![json!(null), json!(1), json!("true")]),
        (
            "reap_group_on_exit",
            vec![json!(null), json!(1), json!("true")],
        ),
    ];
    for (field, values) in wrong {
        for value in values {
            let mut request = json!({"exec_id": "x", "command": ["true"]});
            request[field] = value;
            refused(&daemon, request.to_string().as_bytes());
        }
    }
    daemon.poll("x").is(404);
}

fn optional_fields_may_be_null_and_unknown_ones_are_ignored(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let outcome = daemon.exec(&json!({
        "command": ["true"], "cwd": null, "user": null, "group": null, "timeout_sec": null, "frob": {"x": [1]},
    }));
    assert_eq!(outcome["exit_code"], 0, "{outcome}");
}

fn a_start_may_arrive_in_chunks(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = json!({"exec_id": "ch", "command": ["true"]}).to_string();
    let chunks = body.as_bytes().chunks(1).map(<[u8]>::to_vec);
    let request = Request::post("/v1/exec/start")
        .bearer()
        .field("content-type", "application/json");
    daemon.call(&request.chunks(chunks)).is(200);
    daemon.exited("ch");
}

fn the_checks_run_in_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        (
            json!({"exec_id": "", "command": [], "timeout_sec": 0}),
            "exec_id",
        ),
        (
            json!({"exec_id": "x", "command": [], "timeout_sec": 0}),
            "timeout_sec",
        ),
        (json!({"exec_id": "x", "command": []}), "command"),
    ];
    for (request, named) in rows {
        let reply = daemon.ask(&request).refuses(400, "malformed_request");
        assert!(reply.text().contains(named), "{request}: {reply:?}");
    }
    // An empty script is a script.
    let outcome = daemon.exec(&json!({"command": [], "shell": true}));
    assert_eq!(outcome["exit_code"], 0, "{outcome}");
}

fn a_timeout_must_be_positive_and_finite(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for timeout in [json!(0), json!(0.0), json!(-0.0), json!(-1), json!(-1e-300)] {
        let request = json!({"exec_id": "x", "command": ["true"], "timeout_sec": timeout});
        let reply = daemon.ask(&request).refuses(400, "malformed_request");
        assert!(reply.text().contains("timeout_sec"), "{reply:?}");
    }
    daemon.poll("x").is(404);
}

fn a_huge_timeout_is_no_timeout(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for timeout in [1e10, 1e18, 1e19, 1e30, 1e300, f64::MAX] {
        let outcome = daemon.exec(&json!({"command": ["true"], "timeout_sec": timeout}));
        assert_eq!(outcome["exit_code"], 0, "{timeout}: {outcome}");
        assert_eq!(outcome["timed_out"], false, "{timeout}: {outcome}");
    }
    assert_eq!(daemon.health()["busy"], false);
}

fn a_program_that_cannot_be_run_is_a_failed_spawn(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("plain"), "text").expect("the scratch directory is ours");
    fs::write(daemon.path("garbage"), b"\x01\x02\x03\x04").expect("the scratch directory is ours");
    fs::write(daemon.path("lost"), "#!/no/such/interpreter\n")
        .expect("the scratch directory is ours");
    for (name, mode) in [("plain", 0o644), ("garbage", 0o755), ("lost", 0o755)] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(daemon.path(name), permissions).expect("the file is ours");
    }
    let requests = [
        json!({"command": ["/no/such/bin"]}),
        json!({"command": ["no-such-program-anywhere"]}),
        json!({"command": [""]}),
        json!({"command": ["."]}),
        json!({"command": ["/"]}),
        json!({"command": ["./plain"]}),
        json!({"command": ["./garbage"]}),
        json!({"command": ["./lost"]}),
        json!({"command": ["true"], "cwd": "/no/such/dir"}),
        json!({"command": ["true"], "cwd": "plain"}),
        json!({"command": ["true"], "cwd": ""}),
        json!({"command": ["true"], "env": {"PATH": "/nonexistent"}}),
        json!({"command": ["true"], "env": {"PATH": ""}}),
        json!({"command": ["echo", "a\0b"]}),
        json!({"command": ["a\0b"]}),
        json!({"command": ["echo a\0b"], "shell": true}),
        json!({"command": ["true"], "env": {"A": "a\0b"}}),
        json!({"command": ["true"], "env": {"A\0B": "a"}}),
        json!({"command": ["true"], "cwd": "/tmp\0"}),
    ];
    for request in requests {
        let mut whole = request.clone();
        whole["exec_id"] = json!("x");
        let reply = daemon.ask(&whole);
        assert_eq!(reply.status, 500, "{request}: {reply:?}");
        reply.refuses(500, "spawn_failed");
        daemon.poll("x").refuses(404, "unknown_exec");
    }
}

fn a_failed_spawn_registers_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon
        .ask(&json!({"exec_id": "x", "command": ["/no/such"]}))
        .refuses(500, "spawn_failed");
    assert_eq!(daemon.health()["execs"], 0);
    daemon.begin("x", &json!({"command": ["echo", "second"]}));
    assert_eq!(daemon.exited("x")["stdout"], "second\n");
}

fn a_user_group_or_shell_that_is_unknown_is_refused_before_the_spawn(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("user", "no-such-user", "unknown_user"),
        ("user", "", "unknown_user"),
        ("group", "no-such-group", "unknown_group"),
        ("shell", "no-such-shell", "unknown_shell"),
        ("shell", "/no/such/shell", "unknown_shell"),
    ];
    for (field, name, slug) in rows {
        let mut request = json!({"exec_id": "x", "command": ["true"]});
        request[field] = name.into();
        daemon.ask(&request).refuses(400, slug);
    }
    daemon.poll("x").is(404);
}

fn any_text_is_an_id(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let long = "a".repeat(7000);
    for id in [
        "a/b",
        "a b",
        "ü",
        "..",
        ".",
        "?x=1",
        "%2F",
        "a\0b",
        "\"quoted\"",
        "+",
        &long,
    ] {
        daemon.begin(id, &json!({"command": ["true"]}));
        assert_eq!(daemon.exited(id)["exec_id"], id);
    }
    let longer = "b".repeat(10_000);
    daemon.begin(&longer, &json!({"command": ["true"]}));
}

fn an_id_and_an_error_are_of_bounded_length(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let most = "i".repeat(65_536);
    daemon
        .ask(&json!({"exec_id": most, "command": ["true"]}))
        .is(200);
    let request = json!({"exec_id": format!("{most}i"), "command": ["true"]});
    daemon.ask(&request).refuses(400, "malformed_request");
    assert_eq!(daemon.health()["execs"], 1);
    // An error that quotes the request quotes a part of it.
    let limits = json!({"\u{1}".repeat(1 << 20): 1});
    let request = json!({"exec_id": "e", "command": ["true"], "limits": limits});
    let reply = daemon.ask(&request).refuses(400, "malformed_request");
    assert!(reply.body.len() < 200_000, "{}", reply.body.len());
}

fn a_start_that_is_retried_runs_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let request = json!({"exec_id": "e", "shell": true, "command": ["echo ran >> log; echo once"]});
    let other = json!({"exec_id": "e", "command": ["/no/such/bin"], "user": "no-such-user"});
    let answer = r#"{"exec_id":"e","phase":"running"}"#;
    for _ in 0..3 {
        assert_eq!(daemon.ask(&request).is(200).text(), answer);
    }
    daemon.exited("e");
    let before = daemon.poll("e").text();
    // The body of a retry is not looked at once its id is known.
    assert_eq!(daemon.ask(&other).is(200).text(), answer);
    assert_eq!(daemon.poll("e").text(), before);
    daemon.post("/v1/exec/e/ack").is(200);
    assert_eq!(daemon.ask(&request).is(200).text(), answer);
    assert_eq!(
        fs::read_to_string(daemon.path("log")).expect("it ran"),
        "ran\n"
    );
}

fn a_malformed_retry_is_still_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    daemon
        .ask(&json!({"exec_id": "e", "command": []}))
        .refuses(400, "malformed_request");
    daemon
        .ask(&json!({"exec_id": "e", "command": ["true"], "timeout_sec": 0}))
        .is(400);
    daemon
        .ask(&json!({"exec_id": "e", "command": ["true"], "env": null}))
        .is(400);
}

fn starts_of_one_id_at_once_spawn_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for round in 0..5 {
        let id = format!("e{round}");
        let request =
            json!({"exec_id": id, "shell": true, "command": [format!("echo ran >> {id}")]});
        let bytes = Request::post("/v1/exec/start")
            .bearer()
            .json(&request)
            .bytes();
        let mut connections: Vec<_> = (0..16).map(|_| daemon.connect()).collect();
        for connection in &mut connections {
            connection.send(&bytes);
        }
        for connection in &mut connections {
            assert_eq!(connection.reply().is(200).json()["phase"], "running");
        }
        daemon.exited(&id);
        assert_eq!(
            fs::read_to_string(daemon.path(&id)).expect("it ran"),
            "ran\n"
        );
    }
}

fn a_client_that_leaves_does_not_stop_its_exec(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for round in 0..20 {
        let id = format!("e{round}");
        let request = json!({"exec_id": id, "command": ["echo", "done"]});
        let mut connection = daemon.connect();
        connection.send(
            Request::post("/v1/exec/start")
                .bearer()
                .json(&request)
                .bytes(),
        );
        connection.finish();
        // Until the end of the answer, so that the request was read; then the client is gone.
        connection.rest();
        assert_eq!(daemon.exited(&id)["stdout"], "done\n");
    }
}

fn a_failed_spawn_leaks_nothing(driver: Driver) {
    let daemon = Setup::new(driver).ready();
    daemon
        .ask(&json!({"exec_id": "x", "command": ["/no/such"]}))
        .is(500);
    let before = daemon.at_rest();
    let mut connection = daemon.connect();
    for request in [
        json!({"exec_id": "x", "command": ["/no/such"]}),
        json!({"exec_id": "x", "command": ["true"], "cwd": "/no/such"}),
        json!({"exec_id": "x", "command": ["true"], "user": "no-such-user"}),
    ] {
        let request = Request::post("/v1/exec/start").bearer().json(&request);
        for _ in 0..30 {
            let reply = connection.call(&request);
            assert!(reply.status >= 400, "{reply:?}");
        }
    }
    drop(connection);
    daemon.holds_at_most(before);
    let pid = daemon.pid();
    crate::process::wait_until("no zombie is left", || {
        crate::process::children(pid).is_empty()
    });
}

#[track_caller]
fn refused(daemon: &Daemon, body: &[u8]) {
    let reply = daemon.call(&Request::post("/v1/exec/start").bearer().json_text(body));
    let shown: String = String::from_utf8_lossy(body).chars().take(120).collect();
    assert_eq!(reply.status, 400, "{shown}: {reply:?}");
    let error: Value = reply.refuses(400, "malformed_request").json();
    assert!(error["detail"].is_string(), "{shown}: {error}");
}
