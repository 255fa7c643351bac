//! What is kept and what is let go: ack, collection, descriptors, zombies (sections 4.1 and 4.4, wishes 23 and 25).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{self, wait_until};
use crate::request::{Request, escaped};

both![
    an_ack_hands_out_the_result_once,
    an_ack_comes_only_after_the_end,
    an_ack_ignores_its_body,
    an_acked_exec_is_collected_after_its_time,
    an_acked_exec_is_kept_for_its_time_and_collected_within_seconds,
    an_exec_that_is_not_acked_is_never_collected,
    a_collected_id_may_be_used_again,
    an_id_is_taken_until_it_is_collected,
    two_hundred_execs_leave_no_descriptor,
    orphans_leave_no_zombie,
    a_hundred_execs_run_at_once,
    the_ends_of_many_execs_are_all_seen,
    results_that_were_acked_give_their_memory_back,
];

fn an_ack_hands_out_the_result_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("a", "echo hi; echo err >&2; exit 3");
    daemon.exited("a");
    let polled = daemon.poll("a").text();
    let acked = daemon.post("/v1/exec/a/ack").is(200).text();
    assert_eq!(
        acked,
        polled.replace("\"phase\":\"exited\"", "\"phase\":\"acked\"")
    );
    assert_eq!(
        daemon.poll("a").is(200).text(),
        r#"{"exec_id":"a","phase":"acked"}"#
    );
    daemon.post("/v1/exec/a/ack").refuses(409, "already_acked");
    assert_eq!(
        daemon.poll("a").is(200).text(),
        r#"{"exec_id":"a","phase":"acked"}"#
    );
}

fn an_ack_comes_only_after_the_end(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
    daemon.post("/v1/exec/a/ack").refuses(409, "still_running");
    assert_eq!(daemon.poll("a").json()["phase"], "running");
    let reply = daemon.post("/v1/exec/zz/ack").is(404);
    assert_eq!(reply.text(), r#"{"error":"unknown_exec","detail":"zz"}"#);
}

fn an_ack_ignores_its_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    for (id, request) in [
        (
            "a",
            Request::post("/v1/exec/a/ack")
                .bearer()
                .json_text("garbage"),
        ),
        (
            "b",
            Request::post("/v1/exec/b/ack")
                .bearer()
                .chunks(["some", "chunks"]),
        ),
        ("c", Request::post("/v1/exec/c/ack").bearer().body("x")),
    ] {
        daemon.begin(id, &json!({"command": ["true"]}));
        daemon.exited(id);
        assert_eq!(connection.call(&request).is(200).json()["phase"], "acked");
    }
    connection.is_usable();
}

fn an_acked_exec_is_collected_after_its_time(driver: Driver) {
    let daemon = collecting(driver);
    daemon.begin("a", &json!({"command": ["true"]}));
    daemon.exited("a");
    daemon.post("/v1/exec/a/ack").is(200);
    is_collected(&daemon, "a");
    daemon.post("/v1/exec/a/ack").refuses(404, "unknown_exec");
    daemon.post("/v1/exec/a/kill").refuses(404, "unknown_exec");
    assert_eq!(daemon.health()["execs"], 0);
}

fn an_acked_exec_is_kept_for_its_time_and_collected_within_seconds(driver: Driver) {
    const TTL: Duration = Duration::from_secs(1);
    let daemon = Setup::new(driver).flag("--exec-ttl", "1").ready();
    for round in 0..2 {
        let id = format!("a{round}");
        daemon.begin(&id, &json!({"command": ["true"]}));
        daemon.exited(&id);
        let before = Instant::now();
        daemon.post(format!("/v1/exec/{id}/ack")).is(200);
        is_collected(&daemon, &id);
        assert!(before.elapsed() >= TTL, "it was collected too early");
    }
}

fn an_exec_that_is_not_acked_is_never_collected(driver: Driver) {
    let daemon = collecting(driver);
    daemon.begin("kept", &json!({"command": ["echo", "kept"]}));
    daemon.begin("running", &json!({"command": ["sleep", "1000"]}));
    daemon.exited("kept");
    for round in 0..2 {
        let id = format!("a{round}");
        daemon.begin(&id, &json!({"command": ["true"]}));
        daemon.exited(&id);
        daemon.post(format!("/v1/exec/{id}/ack")).is(200);
        is_collected(&daemon, &id);
    }
    assert_eq!(daemon.poll("kept").is(200).json()["stdout"], "kept\n");
    assert_eq!(daemon.poll("running").is(200).json()["phase"], "running");
}

fn a_collected_id_may_be_used_again(driver: Driver) {
    let daemon = collecting(driver);
    for life in ["first", "second"] {
        daemon.begin("a", &json!({"command": ["echo", life]}));
        assert_eq!(daemon.exited("a")["stdout"], format!("{life}\n"));
        daemon.post("/v1/exec/a/ack").is(200);
        is_collected(&daemon, "a");
    }
}

fn an_id_is_taken_until_it_is_collected(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("a", &json!({"command": ["true"]}));
    daemon.exited("a");
    daemon.post("/v1/exec/a/ack").is(200);
    daemon.begin(
        "a",
        &json!({"command": ["touch", daemon.path("ran").to_str()]}),
    );
    assert_eq!(daemon.poll("a").json()["phase"], "acked");
    assert!(!daemon.path("ran").exists());
}

fn two_hundred_execs_leave_no_descriptor(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    let before = daemon.at_rest();
    for number in 0..200 {
        finish(&mut connection, &format!("e{number}"));
    }
    daemon.holds_at_most(before);
    assert_eq!(daemon.health()["execs"], 201);
}

fn orphans_leave_no_zombie(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for _ in 0..5 {
        let script = "i=0; while [ $i -lt 60 ]; do (true &); i=$((i+1)); done";
        assert_eq!(daemon.script(script)["exit_code"], 0);
    }
    daemon.script("(setsid sh -c 'sleep 0.1; true' >/dev/null 2>&1 &)");
    daemon.script("sleep 0.1 >/dev/null 2>&1 &");
    wait_until("every child is reaped", || {
        process::children(daemon.pid()).is_empty()
    });
}

fn a_hundred_execs_run_at_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    for number in 0..100 {
        // Each waits for a file that comes when all have been started.
        let script = format!("while [ ! -e go ]; do sleep 0.05; done; echo {number}");
        daemon.begin_script(&format!("e{number}"), &script);
    }
    assert_eq!(daemon.health()["busy"], true);
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    for number in 0..100 {
        let outcome = daemon.exited(&format!("e{number}"));
        assert_eq!(outcome["stdout"], format!("{number}\n"), "{outcome}");
    }
    daemon.holds_at_most(before);
}

fn the_ends_of_many_execs_are_all_seen(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    let requests: Vec<u8> = (0..150)
        .map(|number| json!({"exec_id": format!("e{number}"), "command": ["sh", "-c", format!("exit {number}")]}))
        .flat_map(|request| Request::post("/v1/exec/start").bearer().json(&request).bytes())
        .collect();
    connection.send(requests);
    for _ in 0..150 {
        connection.reply().is(200);
    }
    for number in 0..150 {
        assert_eq!(daemon.exited(&format!("e{number}"))["exit_code"], number);
    }
    wait_until("every child is reaped", || {
        process::children(daemon.pid()).is_empty()
    });
}

fn results_that_were_acked_give_their_memory_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let resident = || {
        let text = process::status(daemon.pid(), "VmRSS");
        text.trim_end_matches(" kB")
            .parse::<u64>()
            .expect("kibibytes")
    };
    let round = |id: &str| {
        daemon.begin_script(id, "head -c 8000000 /dev/zero | tr '\\0' x");
        wait_until("it exits", || {
            // A poll would send all of it.
            daemon.health()["busy"] == false
        });
        daemon.post(format!("/v1/exec/{id}/ack")).is(200);
    };
    round("warm");
    let before = resident();
    for number in 0..6 {
        round(&format!("e{number}"));
    }
    // Six results are 48 MB; the allocator and what may still be replayed keep a part of that.
    wait_until("the memory is back", || resident() < before + 36_000);
}

/// A daemon that forgets an acked exec at once.
fn collecting(driver: Driver) -> Daemon {
    Setup::new(driver).flag("--exec-ttl", "0.1").ready()
}

#[track_caller]
fn is_collected(daemon: &Daemon, id: &str) {
    let target = format!("/v1/exec/{}", escaped(id.as_bytes()));
    wait_until("it is collected", || daemon.get(&*target).status == 404);
}

/// Runs one exec from start to ack over a connection that is kept.
#[track_caller]
fn finish(connection: &mut Connection, id: &str) {
    let start = json!({"exec_id": id, "command": ["echo", id]});
    connection
        .call(&Request::post("/v1/exec/start").bearer().json(&start))
        .is(200);
    let poll = Request::get(format!("/v1/exec/{id}")).bearer();
    wait_until("it exits", || {
        connection.call(&poll).is(200).json()["phase"] == "exited"
    });
    let ack = Request::post(format!("/v1/exec/{id}/ack")).bearer();
    assert_eq!(
        connection.call(&ack).is(200).json()["stdout"],
        format!("{id}\n")
    );
}
