//! What an exec may use: each limit is seen by the command and bites; what this host cannot do is refused.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::is_root;

both![
    resource_limits_are_seen_by_the_command,
    descriptors_past_the_limit_are_refused,
    processor_time_past_the_limit_is_a_signal_and_a_second_later_the_end,
    a_file_past_the_limit_is_a_signal,
    memory_past_the_limit_is_refused,
    processes_past_the_limit_are_refused_to_a_user,
    nice_and_oom_score_are_seen_in_the_process_table,
    limits_hold_under_another_user,
    what_is_no_limit_is_malformed_and_named,
    root_cannot_be_limited_in_processes_without_a_controller,
    a_daemon_without_privilege_refuses_what_it_may_not_do,
    a_refused_start_leaves_nothing,
    a_retry_is_answered_whatever_its_limits_say,
];

fn resource_limits_are_seen_by_the_command(driver: Driver) {
    let daemon = plain(driver).ready();
    let limits = json!({"nofile": 64, "memory": 1 << 30, "cpu_seconds": 7, "file_size": 1_000_000});
    let text = daemon.output(&json!({"command": ["cat", "/proc/self/limits"], "limits": limits}));
    assert_eq!(limit(&text, "Max open files"), ["64", "64"]);
    assert_eq!(
        limit(&text, "Max address space"),
        ["1073741824", "1073741824"]
    );
    assert_eq!(limit(&text, "Max cpu time"), ["7", "8"]);
    assert_eq!(limit(&text, "Max file size"), ["1000000", "1000000"]);
    // One exec's limits are not the next one's, and nobody's is no limit.
    let before = std::fs::read_to_string("/proc/self/limits").expect("proc is mounted");
    for limits in [json!({}), Value::Null] {
        let asked = json!({"command": ["cat", "/proc/self/limits"], "limits": limits});
        let text = daemon.output(&asked);
        assert_eq!(
            limit(&text, "Max file size"),
            limit(&before, "Max file size")
        );
        assert_eq!(
            limit(&text, "Max open files"),
            limit(&before, "Max open files")
        );
    }
}

fn descriptors_past_the_limit_are_refused(driver: Driver) {
    let daemon = plain(driver).ready();
    let script = "exec 3</dev/null 4</dev/null; echo five; read line </dev/null";
    let outcome = limited(&daemon, script, json!({"nofile": 5}));
    assert_eq!(outcome["stdout"], "five\n", "{outcome}");
    says(&outcome, "Too many open files");
}

fn processor_time_past_the_limit_is_a_signal_and_a_second_later_the_end(driver: Driver) {
    let daemon = plain(driver).ready();
    let limits = json!({"cpu_seconds": 1});
    for (id, script) in [
        ("soft", "while :; do :; done"),
        ("hard", "trap '' XCPU; while :; do :; done"),
    ] {
        daemon.begin(
            id,
            &json!({"shell": true, "command": [script], "limits": limits}),
        );
    }
    assert_eq!(daemon.exited("soft")["signal"], 24, "SIGXCPU");
    assert_eq!(daemon.exited("hard")["signal"], 9, "SIGKILL");
}

fn a_file_past_the_limit_is_a_signal(driver: Driver) {
    let daemon = plain(driver).ready();
    let command = ["dd", "if=/dev/zero", "of=big", "bs=1000", "count=100"];
    let outcome = daemon.exec(&json!({"command": command, "limits": {"file_size": 4096}}));
    assert_eq!(outcome["signal"], 25, "SIGXFSZ: {outcome}");
    let length = std::fs::metadata(daemon.path("big"))
        .expect("it was begun")
        .len();
    assert_eq!(length, 4096);
}

fn memory_past_the_limit_is_refused(driver: Driver) {
    let daemon = plain(driver).ready();
    let command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=500M", "count=1"];
    let outcome = daemon.exec(&json!({"command": command, "limits": {"memory": 100 << 20}}));
    assert_eq!(outcome["exit_code"], 1, "{outcome}");
    says(&outcome, "memory");
}

fn processes_past_the_limit_are_refused_to_a_user(driver: Driver) {
    if !is_root("a limit on the processes of another user") {
        return;
    }
    let daemon = plain(driver).ready();
    // A user that has no other process, on either driver.
    let user = 1_000_000 + std::process::id() * 2 + u32::from(driver.flag() == "epoll");
    let script = "echo one; sh -c 'exit 0' & wait $!";
    let asked = json!({
        "shell": true, "command": [script], "cwd": "/", "user": user, "limits": {"processes": 1}
    });
    let outcome = daemon.exec(&asked);
    assert_eq!(outcome["stdout"], "one\n", "{outcome}");
    says(&outcome, "fork");
}

fn nice_and_oom_score_are_seen_in_the_process_table(driver: Driver) {
    let daemon = plain(driver).ready();
    let command = ["cat", "/proc/self/stat", "/proc/self/oom_score_adj"];
    for nice in [0, 5, 19] {
        let printed =
            daemon.output(&json!({"command": command, "nice": nice, "oom_score_adj": 321}));
        let (stat, score) = printed.trim_end().rsplit_once('\n').expect("two lines");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        // Field 19 of the line; the state behind the name is field 3.
        let seen = fields.split_whitespace().nth(19 - 3).expect("it is there");
        assert_eq!((seen, score), (nice.to_string().as_str(), "321"));
    }
    if is_root("a negative nice value") {
        let printed = daemon.output(&json!({"command": command, "nice": -3}));
        assert_eq!(printed.split_whitespace().nth(18), Some("-3"), "{printed}");
    }
}

fn limits_hold_under_another_user(driver: Driver) {
    if !is_root("limits of another user") {
        return;
    }
    let daemon = plain(driver).ready();
    let asked = json!({
        "command": ["cat", "/proc/self/limits"], "cwd": "/", "user": 1234, "nice": -2,
        "limits": {"nofile": 33, "processes": 44}
    });
    let text = daemon.output(&asked);
    assert_eq!(limit(&text, "Max open files"), ["33", "33"]);
    assert_eq!(limit(&text, "Max processes"), ["44", "44"]);
}

fn what_is_no_limit_is_malformed_and_named(driver: Driver) {
    let daemon = plain(driver).ready();
    let mut rows = vec![
        (json!({"limits": []}), "limits"),
        (json!({"limits": 1}), "limits"),
        (json!({"limits": {"nofiles": 1}}), "nofiles"),
        (json!({"limits": {"nofile": 1, "": 1}}), "limits"),
        (json!({"nice": 20}), "nice"),
        (json!({"nice": -21}), "nice"),
        (json!({"nice": 0.5}), "nice"),
        (json!({"nice": "1"}), "nice"),
        (json!({"oom_score_adj": 1001}), "oom_score_adj"),
        (json!({"oom_score_adj": -1001}), "oom_score_adj"),
        (json!({"oom_score_adj": u64::MAX}), "oom_score_adj"),
        (json!({"oom_score_adj": true}), "oom_score_adj"),
    ];
    for name in ["nofile", "memory", "cpu_seconds", "file_size", "processes"] {
        for value in [
            json!(0),
            json!(-1),
            json!(1.5),
            json!("1"),
            json!(null),
            json!(1e30),
        ] {
            rows.push((json!({"limits": {name: value}}), name));
        }
    }
    for (mut asked, name) in rows {
        let shown = asked.to_string();
        asked["exec_id"] = "x".into();
        asked["command"] = json!(["true"]);
        let reply = daemon.ask(&asked).refuses(400, "malformed_request");
        let detail = reply.json()["detail"].as_str().expect("text").to_owned();
        assert!(detail.contains(name), "{shown}: {detail}");
    }
    daemon.poll("x").refuses(404, "unknown_exec");
}

fn root_cannot_be_limited_in_processes_without_a_controller(driver: Driver) {
    if !is_root("a refusal to root") {
        return;
    }
    let daemon = plain(driver).ready();
    for user in [json!(null), json!(0), json!("root")] {
        let asked =
            json!({"exec_id": "x", "command": ["true"], "user": user, "limits": {"processes": 9}});
        refuses(&daemon, &asked, "limits.processes");
    }
}

fn a_daemon_without_privilege_refuses_what_it_may_not_do(driver: Driver) {
    let Some(daemon) = unprivileged(driver) else {
        return;
    };
    let rows = [
        (json!({"nice": 4}), "nice"),
        (json!({"oom_score_adj": -1000}), "oom_score_adj"),
        (json!({"limits": {"nofile": 501}}), "limits.nofile"),
        (
            json!({"limits": {"file_size": 2_000_000_000}}),
            "limits.file_size",
        ),
        (
            json!({"limits": {"cpu_seconds": 1000}}),
            "limits.cpu_seconds",
        ),
        (json!({"limits": {"memory": 1_u64 << 60}}), "limits.memory"),
        (json!({"limits": {"processes": 4000}}), "limits.processes"),
    ];
    for (mut asked, name) in rows {
        asked["exec_id"] = "x".into();
        asked["command"] = json!(["true"]);
        refuses(&daemon, &asked, name);
    }
    // What goes in the permitted direction is done.
    let asked = json!({
        "command": ["cat", "/proc/self/limits"], "nice": 6, "oom_score_adj": 100,
        "limits": {"nofile": 500, "processes": 900, "cpu_seconds": 998}
    });
    let text = daemon.output(&asked);
    assert_eq!(limit(&text, "Max open files"), ["500", "500"]);
    assert_eq!(limit(&text, "Max processes"), ["900", "900"]);
}

fn a_refused_start_leaves_nothing(driver: Driver) {
    let Some(daemon) = unprivileged(driver) else {
        return;
    };
    let before = daemon.at_rest();
    for _ in 0..20 {
        let asked = json!({"exec_id": "x", "command": ["true"], "nice": 0});
        refuses(&daemon, &asked, "nice");
    }
    daemon.holds_at_most(before);
    // The id is free, and the next start is none the worse for it.
    daemon.begin("x", &json!({"command": ["true"]}));
    assert_eq!(daemon.exited("x")["exit_code"], 0);
}

fn a_retry_is_answered_whatever_its_limits_say(driver: Driver) {
    let Some(daemon) = unprivileged(driver) else {
        return;
    };
    daemon.begin("x", &json!({"command": ["true"]}));
    daemon.exited("x");
    daemon.begin(
        "x",
        &json!({"command": ["true"], "nice": -20, "limits": {"nofile": 1_u64 << 40}}),
    );
    let asked = json!({"exec_id": "x", "command": ["true"], "limits": {"nofile": 0}});
    daemon.ask(&asked).refuses(400, "malformed_request");
}

/// A daemon whose limits are those of processes, whatever cgroup the tests run in.
fn plain(driver: Driver) -> Setup {
    Setup::new(driver).flag("--cgroup", "off")
}

/// A daemon of a user without privilege, with hard limits and a nice value of its own.
fn unprivileged(driver: Driver) -> Option<Daemon> {
    if !is_root("a daemon of another user") {
        return None;
    }
    let wrapper = [
        "nice",
        "-n",
        "5",
        "prlimit",
        "--nofile=500",
        "--nproc=1000",
        "--cpu=999",
        "--fsize=1000000000",
        "--as=1000000000000",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let setup = plain(driver).under(&wrapper);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(setup.path(""), open).expect("the directory is ours");
    Some(setup.ready())
}

#[track_caller]
fn refuses(daemon: &Daemon, asked: &Value, name: &str) {
    let reply = daemon.ask(asked).refuses(400, "unsupported");
    let detail = reply.json()["detail"].as_str().expect("text").to_owned();
    assert!(detail.contains(name), "{asked}: {detail}");
    daemon.poll("x").refuses(404, "unknown_exec");
}

/// Runs a script with limits to an end that is no success.
#[track_caller]
fn limited(daemon: &Daemon, script: &str, limits: Value) -> Value {
    let outcome = daemon.exec(&json!({"shell": true, "command": [script], "limits": limits}));
    assert_ne!(outcome["exit_code"], 0, "{outcome}");
    outcome
}

#[track_caller]
fn says(outcome: &Value, word: &str) {
    let text = outcome["stderr"].as_str().expect("a string");
    assert!(text.contains(word), "{outcome}");
}

/// Soft and hard value of a line of `/proc/PID/limits`.
#[track_caller]
fn limit(text: &str, name: &str) -> [String; 2] {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let mut values = line.expect("the kernel has it").split_whitespace();
    [(); 2].map(|()| values.next().expect("two values").to_owned())
}
