//! The list of execs with all that is known of their processes.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::{is_alive, stat, wait_until};
use crate::reply::keys;
use crate::request::Request;

both![
    without_detail_nothing_is_added,
    every_process_is_told_in_full,
    descendants_that_left_the_group_are_told_too,
    a_process_belongs_to_one_exec,
    usage_of_a_process_grows,
    a_long_command_line_is_cut,
    a_command_line_may_be_anything,
    what_has_ended_is_not_told,
    a_detail_that_is_no_flag_is_refused,
    health_answers_while_many_are_listed,
];

const NAMES: [&str; 12] = [
    "pid",
    "ppid",
    "pgid",
    "sid",
    "state",
    "command",
    "cmdline",
    "user_seconds",
    "system_seconds",
    "resident_bytes",
    "threads",
    "started_at",
];

/// The group of `id` in the detailed list.
#[track_caller]
fn group(daemon: &Daemon, id: &str) -> Value {
    let list = daemon.get("/v1/procs?detail=1").is(200).json();
    let groups = list["procs"].as_array().expect("an array");
    let mut found = groups.iter().filter(|group| group["exec_id"] == id);
    found
        .next()
        .unwrap_or_else(|| panic!("no {id} in {list}"))
        .clone()
}

/// The processes of `id` in the detailed list.
#[track_caller]
fn processes(daemon: &Daemon, id: &str) -> Vec<Value> {
    group(daemon, id)["processes"]
        .as_array()
        .expect("an array")
        .clone()
}

fn pids(processes: &[Value]) -> Vec<i64> {
    processes
        .iter()
        .map(|process| process["pid"].as_i64().expect("a number"))
        .collect()
}

fn without_detail_nothing_is_added(driver: Driver) {
    let daemon = Daemon::ready(driver);
    assert_eq!(
        daemon.get("/v1/procs?detail=1").is(200).text(),
        r#"{"procs":[]}"#
    );
    daemon.begin_script("e", "echo $$ > up; exec sleep 1000");
    let pid = daemon.pid_in("up");
    let plain = daemon.get("/v1/procs").is(200).text();
    let started_at = daemon.get("/v1/procs").json()["procs"][0]["started_at"].clone();
    assert_eq!(
        plain,
        format!(
            r#"{{"procs":[{{"exec_id":"e","pgid":{pid},"started_at":{started_at},"child_exited":false,"reap":false,"pids":[{pid}]}}]}}"#
        )
    );
    for query in ["detail=0", "detail=false", "x=1"] {
        assert_eq!(daemon.get(format!("/v1/procs?{query}")).text(), plain);
    }
    let detailed = daemon.get("/v1/procs?detail=true").is(200).text();
    let before = plain.trim_end_matches("}]}");
    assert!(
        detailed.starts_with(&format!("{before},\"processes\":[{{\"pid\":{pid},")),
        "{detailed}"
    );
}

fn every_process_is_told_in_full(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "sleep 1001 & echo $$ > up; wait");
    let leader = daemon.pid_in("up");
    wait_until("the second one runs its program", || {
        processes(&daemon, "e")
            .iter()
            .any(|process| process["command"] == "sleep")
    });
    let group = group(&daemon, "e");
    let found = processes(&daemon, "e");
    assert_eq!(found.len(), 2);
    assert_eq!(json!(pids(&found)), group["pids"]);
    for process in &found {
        let fields = stat(
            i32::try_from(process["pid"].as_i64().expect("a number")).expect("pids are small"),
        );
        let fields = fields.expect("it runs");
        assert_eq!(process["ppid"].to_string(), fields[1]);
        assert_eq!(process["pgid"], leader);
        assert_eq!(process["sid"].to_string(), fields[3]);
        assert_eq!(process["state"], "S");
        assert_eq!(process["threads"], 1);
        let resident = process["resident_bytes"].as_u64().expect("a number");
        assert!(resident > 100_000 && resident < 1 << 30, "{process}");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs();
        let started = process["started_at"].as_u64().expect("a number");
        // The clock of the process table has a grain, and counts from the start of the machine.
        assert!(
            started <= now + 2 && started + 120 > now,
            "{process} at {now}"
        );
    }
    let (parent, child) = (&found[0], &found[1]);
    assert_eq!(
        (&parent["pid"], &child["ppid"]),
        (&json!(leader), &json!(leader))
    );
    assert_eq!(parent["ppid"], daemon.pid());
    assert_eq!(
        (&parent["cmdline"][0], &parent["cmdline"][1]),
        (&json!("/bin/sh"), &json!("-c"))
    );
    assert_eq!(child["cmdline"], json!(["sleep", "1001"]));
    let text = daemon.get("/v1/procs?detail=1").text();
    let (_, first) = text.split_once("\"processes\":[").expect("a list");
    let end = first.find('}').expect("an object") + 1;
    assert_eq!(keys(&first[..end]), NAMES);
}

fn descendants_that_left_the_group_are_told_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script(
        "e",
        "setsid sh -c 'echo $$ > escapee; exec sleep 1000' & echo $$ > up; wait",
    );
    let (escapee, leader) = (daemon.pid_in("escapee"), daemon.pid_in("up"));
    let found = processes(&daemon, "e");
    let mut expected = vec![i64::from(leader), i64::from(escapee)];
    expected.sort_unstable();
    assert_eq!(pids(&found), expected);
    assert_eq!(group(&daemon, "e")["pids"], json!([leader]));
    let one = found
        .iter()
        .find(|process| process["pid"] == escapee)
        .expect("it is there");
    assert_eq!(
        (&one["pgid"], &one["sid"]),
        (&json!(escapee), &json!(escapee))
    );
}

fn a_process_belongs_to_one_exec(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for id in ["a", "b"] {
        daemon.begin_script(
            id,
            &format!("setsid sh -c 'echo $$ > {id}; exec sleep 1000' </dev/null >/dev/null 2>&1 &"),
        );
        daemon.exited(id);
    }
    // Orphans in sessions of their own: only their marks tell whose they are.
    for id in ["a", "b"] {
        let orphan = daemon.pid_in(id);
        assert_eq!(pids(&processes(&daemon, id)), [i64::from(orphan)], "{id}");
        daemon.post(format!("/v1/exec/{id}/kill")).is(200);
        assert!(!is_alive(orphan));
    }
    assert!(processes(&daemon, "a").is_empty());
}

fn usage_of_a_process_grows(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "while :; do :; done");
    wait_until("it has used some time", || {
        let process = &processes(&daemon, "e")[0];
        process["user_seconds"].as_f64() > Some(0.05)
    });
}

fn a_long_command_line_is_cut(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let long = "x".repeat(100_000);
    daemon.begin(
        "e",
        &json!({"command": ["sh", "-c", "sleep 1000; true", "sh", long]}),
    );
    let mut line = json!([]);
    wait_until("the program runs", || {
        let found = processes(&daemon, "e");
        let leader = found.iter().find(|process| process["cmdline"][0] == "sh");
        line = leader
            .map(|leader| leader["cmdline"].clone())
            .unwrap_or_default();
        !line.is_null()
    });
    let bytes: usize = line
        .as_array()
        .expect("an array")
        .iter()
        .map(|word| word.as_str().expect("a string").len() + 1)
        .sum();
    assert!(bytes > 4000 && bytes <= 4097, "{bytes}");
}

fn a_command_line_may_be_anything(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin(
        "e",
        &json!({"command": ["sh", "-c", "echo $$ > up; sleep 1000; true", "a b", "", "\n\"é"]}),
    );
    let leader = daemon.pid_in("up");
    let found = processes(&daemon, "e");
    let process = found
        .iter()
        .find(|process| process["pid"] == leader)
        .expect("it runs");
    assert_eq!(
        process["cmdline"],
        json!([
            "sh",
            "-c",
            "echo $$ > up; sleep 1000; true",
            "a b",
            "",
            "\n\"é"
        ])
    );
}

fn what_has_ended_is_not_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    daemon.exited("e");
    assert_eq!(group(&daemon, "e")["processes"], json!([]));
    daemon.post("/v1/exec/e/ack").is(200);
    assert_eq!(group(&daemon, "e")["processes"], json!([]));
}

fn a_detail_that_is_no_flag_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for value in ["", "2", "yes", "TRUE", "1&detail=1"] {
        let reply = daemon
            .get(format!("/v1/procs?detail={value}"))
            .refuses(400, "malformed_request");
        assert!(reply.text().contains("detail"), "{reply:?}");
    }
}

fn health_answers_while_many_are_listed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for number in 0..60 {
        daemon.begin(
            &format!("e{number}"),
            &json!({"command": ["sleep", "1000"]}),
        );
    }
    let mut listing: Vec<_> = (0..20).map(|_| daemon.connect()).collect();
    for connection in &mut listing {
        connection.send(Request::get("/v1/procs?detail=1").bearer().bytes());
    }
    daemon.health();
    for connection in &mut listing {
        let list = connection.reply().is(200).json();
        let groups = list["procs"].as_array().expect("an array");
        assert_eq!(groups.len(), 60);
        assert!(
            groups
                .iter()
                .all(|group| group["processes"].as_array().map(Vec::len) == Some(1))
        );
    }
}
