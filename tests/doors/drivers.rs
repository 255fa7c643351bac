//! Which driver runs, that it says so, and the same binary where io_uring is forbidden.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::{Driver, uring_is_allowed, uring_is_refused};
use crate::process::wait_until;
use crate::programs;
use crate::request::{file_at, tar_at};
use crate::scratch::noise;

both![the_driver_that_was_asked_for_is_the_one_that_runs];

fn the_driver_that_was_asked_for_is_the_one_that_runs(driver: Driver) {
    let daemon = Daemon::ready(driver);
    works(&daemon);
    assert_eq!(has_a_ring(&daemon), driver == Driver::Uring);
    says_its_driver(
        &daemon,
        if driver == Driver::Uring {
            "uring"
        } else {
            "epoll"
        },
    );
}

#[test]
fn the_ring_is_taken_where_it_is_allowed() {
    let daemon = Setup::new(Driver::Auto).ready();
    works(&daemon);
    assert_eq!(has_a_ring(&daemon), uring_is_allowed());
    says_its_driver(&daemon, if uring_is_allowed() { "uring" } else { "epoll" });
}

#[test]
fn where_the_ring_is_forbidden_everything_is_served_without() {
    let daemon = Setup::new(Driver::Auto).under(&[&forbidding()]).ready();
    works(&daemon);
    assert!(!has_a_ring(&daemon));
    says_its_driver(&daemon, "epoll");
}

#[test]
fn where_the_ring_is_forbidden_asking_for_it_is_refused() {
    uring_is_refused(Setup::new(Driver::Uring).under(&[&forbidding()]));
}

/// Checks one operation of each kind.
#[track_caller]
fn works(daemon: &Daemon) {
    let content = noise(700_000);
    daemon
        .put(file_at(daemon.path("t/f")), content.clone())
        .is(204);
    assert!(daemon.get(file_at(daemon.path("t/f"))).is(200).body == content);
    let packed = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    daemon.put(tar_at(daemon.path("u")), packed).is(204);
    assert!(std::fs::read(daemon.path("u/f")).expect("it was put back") == content);
    assert_eq!(daemon.output(&json!({"command": ["cat"]})), "");
    daemon.begin("k", &json!({"command": ["sleep", "1000"]}));
    daemon.post("/v1/exec/k/kill").is(200);
    assert_eq!(daemon.exited("k")["signal"], 15);
}

fn has_a_ring(daemon: &Daemon) -> bool {
    daemon
        .descriptor_targets()
        .iter()
        .any(|target| target.contains("io_uring"))
}

/// Waits for the line that names the driver and a reason.
#[track_caller]
fn says_its_driver(daemon: &Daemon, name: &str) {
    wait_until("the log names the driver", || {
        daemon.stderr().iter().any(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            let fields = &line["fields"];
            let driver = fields["driver"].as_str().unwrap_or_default();
            driver.contains(name) && fields["why"].as_str().is_some_and(|why| !why.is_empty())
        })
    });
}

/// The program that runs another without io_uring.
fn forbidding() -> String {
    programs::built("forbid_io_uring")
}
