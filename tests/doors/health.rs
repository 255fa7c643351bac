//! The health document: contract section 6 and D8.

use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_alive, wait_until};
use crate::reply::keys;
use crate::request::Request;

both![
    health_has_the_fields_of_the_contract_in_order,
    health_tells_whether_a_token_is_installed,
    health_measures_the_disk_at_the_working_directory,
    health_tells_pressure_when_less_than_the_reserve_is_free,
    health_counts_execs_and_says_whether_one_is_busy,
    a_lingering_exec_is_busy_and_an_acked_one_is_not,
    health_answers_while_everything_else_is_stuck,
];

fn health_has_the_fields_of_the_contract_in_order(driver: Driver) {
    let daemon = Daemon::start(driver);
    let reply = daemon.call(&Request::get("/v1/health")).is(200);
    let names = [
        "version",
        "bootstrapped",
        "disk",
        "identity_degraded",
        "identity_repaired",
        "busy",
        "execs",
        "hooks",
        "hooks_dropped",
        "identity_steps",
        "image_env_keys",
    ];
    assert_eq!(keys(&reply.text()), names);
    let health = reply.json();
    assert_eq!(
        keys(&raw_field(&reply.text(), "disk")),
        ["available_bytes", "reserve_bytes", "under_pressure"]
    );
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(health["identity_degraded"], false);
    assert_eq!(health["identity_repaired"], false);
    assert_eq!(health["busy"], false);
    assert_eq!(health["execs"], 0);
    assert_eq!(health["hooks"], json!([]));
    assert_eq!(health["hooks_dropped"], 0);
    assert_eq!(health["identity_steps"], json!([]));
    let keys = &health["image_env_keys"];
    assert!(keys.is_null() || keys.is_u64(), "{health}");
}

fn health_tells_whether_a_token_is_installed(driver: Driver) {
    let daemon = Daemon::start(driver);
    assert_eq!(daemon.health()["bootstrapped"], false);
    daemon.bootstrap("t", &json!({})).is(200);
    assert_eq!(daemon.health()["bootstrapped"], true);
}

fn health_measures_the_disk_at_the_working_directory(driver: Driver) {
    let daemon = Daemon::start(driver);
    let disk = daemon.health()["disk"].clone();
    let ours = rustix::fs::statvfs(daemon.path("")).expect("the scratch directory exists");
    let ours = ours.f_bavail * ours.f_frsize;
    let theirs = disk["available_bytes"].as_u64().expect("a number");
    // Others write to the same disk meanwhile.
    assert!(
        theirs > ours / 2 && theirs / 2 < ours,
        "{disk}, not near {ours}"
    );
    assert_eq!(disk["reserve_bytes"], 268_435_456);
    assert_eq!(disk["under_pressure"], ours < 268_435_456);
}

fn health_tells_pressure_when_less_than_the_reserve_is_free(driver: Driver) {
    let reserve = u64::MAX / 2;
    let daemon = Setup::new(driver)
        .flag("--disk-reserve-bytes", reserve.to_string())
        .start();
    let disk = daemon.health()["disk"].clone();
    assert_eq!(disk["reserve_bytes"], reserve);
    assert_eq!(disk["under_pressure"], true);
    let daemon = Setup::new(driver).flag("--disk-reserve-bytes", "0").start();
    assert_eq!(daemon.health()["disk"]["under_pressure"], false);
}

fn health_counts_execs_and_says_whether_one_is_busy(driver: Driver) {
    let daemon = Daemon::ready(driver);
    check(&daemon, false, 0);
    daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
    check(&daemon, true, 1);
    daemon.begin("b", &json!({"command": ["true"]}));
    daemon.exited("b");
    check(&daemon, true, 2);
    daemon.post("/v1/exec/a/kill").is(200);
    daemon.exited("a");
    check(&daemon, false, 2);
    daemon.post("/v1/exec/a/ack").is(200);
    check(&daemon, false, 2);
    daemon
        .ask(&json!({"exec_id": "failed", "command": ["/no/such"]}))
        .is(500);
    check(&daemon, false, 2);
}

fn a_lingering_exec_is_busy_and_an_acked_one_is_not(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "1000").ready();
    daemon.begin_script("a", "echo $$ > leader; sleep 1000 & echo $! > holder");
    let (leader, holder) = (daemon.pid_in("leader"), daemon.pid_in("holder"));
    wait_until("the child is gone", || !is_alive(leader));
    check(&daemon, true, 1);
    crate::process::signal(holder, rustix::process::Signal::KILL);
    daemon.exited("a");
    daemon.post("/v1/exec/a/ack").is(200);
    check(&daemon, false, 1);
}

fn health_answers_while_everything_else_is_stuck(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script(
        "flood",
        "trap '' TERM; echo $$ > flood; while :; do echo xxxxxxxxxxxxxxx; done",
    );
    daemon.pid_in("flood");
    let mut killing = daemon.connect();
    killing.send(Request::post("/v1/exec/flood/kill").bearer().bytes());
    let mut uploading = daemon.connect();
    uploading.send(
        Request::put(crate::request::file_at(daemon.path("f")))
            .bearer()
            .body([0; 100])
            .head(),
    );
    let mut downloading = daemon.connect();
    downloading.send(Request::get("/v1/fs/file?path=/dev/zero").bearer().bytes());
    for _ in 0..50 {
        assert_eq!(daemon.health()["busy"], true);
    }
}

#[track_caller]
fn check(daemon: &Daemon, busy: bool, execs: u64) {
    let health = daemon.health();
    assert_eq!(health["busy"], busy, "{health}");
    assert_eq!(health["execs"], execs, "{health}");
}

/// The text of an object-valued field.
fn raw_field(json: &str, name: &str) -> String {
    let (_, rest) = json
        .split_once(&format!("\"{name}\":"))
        .expect("the field is there");
    let end = rest.find('}').expect("an object ends");
    rest[..=end].to_owned()
}
