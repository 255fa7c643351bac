//! Cgroups of execs: one each where a subtree is ours, nobody escapes a kill from it, nothing of it stays.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::cgroups::{Grove, inside};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_alive, wait_until};

both![
    an_exec_runs_in_a_cgroup_of_its_own,
    what_an_exec_starts_is_in_its_cgroup,
    fifty_execs_leave_no_cgroup,
    a_start_that_fails_leaves_no_cgroup,
    a_survivor_keeps_the_cgroup_until_it_ends,
    cgroups_that_an_exec_makes_are_removed_with_its_own,
    processes_that_outrun_a_walk_are_ended_by_a_kill,
    processes_that_outrun_a_walk_are_ended_by_a_time_limit,
    a_process_that_obeys_is_asked_before_it_is_killed,
    a_process_that_has_left_the_cgroup_is_found,
    a_reap_ends_the_group_only,
    a_kill_stays_in_its_cgroup,
    limits_hold_in_a_cgroup_too,
    what_was_delegated_is_used_unasked,
    what_was_not_delegated_is_left_alone,
    a_daemon_without_root_uses_what_is_its_own,
    a_directory_of_an_earlier_daemon_is_no_obstacle,
    a_place_that_is_no_cgroup_stops_the_start,
    the_directory_ends_with_the_daemon,
];

fn an_exec_runs_in_a_cgroup_of_its_own(driver: Driver) {
    let Some(grove) = Grove::new("a cgroup for each exec") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    let subtree = format!("ringd-{}", daemon.pid());
    assert!(grove.subtrees()[0].ends_with(&subtree));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let own = own_cgroup(&daemon);
        assert!(own.contains(&format!("/{subtree}/")), "{own}");
        seen.push(own);
    }
    assert_ne!(seen[0], seen[1]);
    are_gone(&grove);
}

fn what_an_exec_starts_is_in_its_cgroup(driver: Driver) {
    let Some(grove) = Grove::new("descendants in a cgroup") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    daemon.begin_script(
        "k",
        "setsid sh -c 'echo $$ > one; exec sleep 1000' & echo $$ > two; wait",
    );
    let mut members = vec![daemon.pid_in("one"), daemon.pid_in("two")];
    members.sort_unstable();
    let leaf = grove.leaves().pop().expect("there is one");
    let listed = fs::read_to_string(leaf.join("cgroup.procs")).expect("it is a cgroup");
    let mut listed: Vec<i32> = listed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, members);
    daemon.post("/v1/exec/k/kill").is(200);
    assert!(!members.iter().any(|pid| is_alive(*pid)));
    are_gone(&grove);
}

fn fifty_execs_leave_no_cgroup(driver: Driver) {
    let Some(grove) = Grove::new("fifty cgroups") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    let before = daemon.at_rest();
    for number in 0..50 {
        daemon.begin(&format!("e{number}"), &json!({"command": ["true"]}));
    }
    for number in 0..50 {
        assert_eq!(daemon.exited(&format!("e{number}"))["exit_code"], 0);
    }
    are_gone(&grove);
    daemon.holds_at_most(before);
}

fn a_start_that_fails_leaves_no_cgroup(driver: Driver) {
    let Some(grove) = Grove::new("a cgroup for nothing") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    let asked = json!({"exec_id": "x", "command": ["/nonexistent"]});
    daemon.ask(&asked).refuses(500, "spawn_failed");
    are_gone(&grove);
}

fn a_survivor_keeps_the_cgroup_until_it_ends(driver: Driver) {
    let Some(grove) = Grove::new("a cgroup with a survivor") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    daemon.begin_script(
        "k",
        "setsid sleep 1000 >/dev/null 2>&1 & echo $! > survivor",
    );
    daemon.exited("k");
    let survivor = daemon.pid_in("survivor");
    assert_eq!(grove.leaves().len(), 1);
    assert!(is_alive(survivor));
    daemon.post("/v1/exec/k/kill").is(200);
    assert!(!is_alive(survivor));
    are_gone(&grove);
}

fn cgroups_that_an_exec_makes_are_removed_with_its_own(driver: Driver) {
    let Some(grove) = Grove::new("cgroups below a cgroup") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    let script = format!(
        "cd {}/*/1 && mkdir -p a/b && echo $$ > a/b/cgroup.procs && exec sleep 1000",
        grove.text()
    );
    daemon.begin_script("k", &script);
    let inner = grove
        .path()
        .join(format!("ringd-{}/1/a/b/cgroup.procs", daemon.pid()));
    wait_until("the exec has moved", || {
        fs::read_to_string(&inner).is_ok_and(|text| !text.is_empty())
    });
    let reply = daemon.post("/v1/exec/k/kill").is(200);
    assert_eq!(reply.json()["killed"], true);
    are_gone(&grove);
}

fn processes_that_outrun_a_walk_are_ended_by_a_kill(driver: Driver) {
    let Some(grove) = Grove::new("a kill that nobody escapes") else {
        return;
    };
    let daemon = within(driver, &grove).flag("--kill-grace", "0.3").ready();
    let script = chain(&daemon);
    daemon.begin_script("k", &format!("sh {script} & sh {script} & exec sleep 1000"));
    runs_away(&daemon);
    let reply = daemon.post("/v1/exec/k/kill").is(200);
    assert_eq!(reply.json()["killed"], true);
    are_empty(&grove);
    daemon.exited("k");
    are_gone(&grove);
}

fn processes_that_outrun_a_walk_are_ended_by_a_time_limit(driver: Driver) {
    let Some(grove) = Grove::new("a time limit that nobody escapes") else {
        return;
    };
    let daemon = within(driver, &grove).flag("--kill-grace", "0.3").ready();
    let script = chain(&daemon);
    let chains = format!("sh {script} & sh {script} & sh {script} & exec sleep 1000");
    let asked = json!({"shell": true, "command": [chains], "timeout_sec": 1});
    daemon.begin("k", &asked);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["timed_out"], true, "{outcome}");
    are_empty(&grove);
    are_gone(&grove);
}

fn a_process_that_obeys_is_asked_before_it_is_killed(driver: Driver) {
    let Some(grove) = Grove::new("a kill in a cgroup") else {
        return;
    };
    let daemon = within(driver, &grove).flag("--kill-grace", "1000").ready();
    daemon.begin_script(
        "k",
        "trap 'echo bye; exit 5' TERM; echo $$ > up; while :; do sleep 0.01; done",
    );
    daemon.pid_in("up");
    daemon.post("/v1/exec/k/kill").is(200);
    let outcome = daemon.exited("k");
    assert_eq!(outcome["exit_code"], 5, "{outcome}");
    assert_eq!(outcome["stdout"], "bye\n", "{outcome}");
    let reply = daemon.post("/v1/exec/k/kill").is(200);
    assert_eq!(reply.json()["killed"], false);
}

fn a_process_that_has_left_the_cgroup_is_found(driver: Driver) {
    let Some(grove) = Grove::new("a process that moves itself") else {
        return;
    };
    let elsewhere = grove.add("elsewhere");
    let daemon = within(driver, &grove).flag("--kill-grace", "0.3").ready();
    let script = format!(
        "echo $$ > {}/cgroup.procs; trap '' TERM; echo $$ > up; while :; do sleep 0.01; done",
        elsewhere.display()
    );
    daemon.begin_script("k", &script);
    let child = daemon.pid_in("up");
    daemon.post("/v1/exec/k/kill").is(200);
    assert!(!is_alive(child));
    assert_eq!(daemon.exited("k")["signal"], 9);
}

fn a_reap_ends_the_group_only(driver: Driver) {
    let Some(grove) = Grove::new("a reap in a cgroup") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    let script = "sleep 1000 & echo $! > member; \
                  setsid sh -c 'echo $$ > apart; exec sleep 1000' >/dev/null 2>&1 & \
                  while [ ! -s apart ]; do sleep 0.01; done";
    daemon.begin(
        "k",
        &json!({"shell": true, "command": [script], "reap_group_on_exit": true}),
    );
    daemon.exited("k");
    let (member, apart) = (daemon.pid_in("member"), daemon.pid_in("apart"));
    assert!(!is_alive(member) && is_alive(apart));
    daemon.post("/v1/exec/k/kill").is(200);
    assert!(!is_alive(apart));
}

fn a_kill_stays_in_its_cgroup(driver: Driver) {
    let Some(grove) = Grove::new("two cgroups at once") else {
        return;
    };
    let daemon = within(driver, &grove).flag("--kill-grace", "0.3").ready();
    for id in ["k", "other"] {
        let script = format!("trap '' TERM; echo $$ > {id}; while :; do sleep 0.01; done");
        daemon.begin_script(id, &script);
    }
    let (mine, other) = (daemon.pid_in("k"), daemon.pid_in("other"));
    daemon.post("/v1/exec/k/kill").is(200);
    assert!(!is_alive(mine) && is_alive(other));
    daemon.post("/v1/exec/other/kill").is(200);
    are_gone(&grove);
}

fn limits_hold_in_a_cgroup_too(driver: Driver) {
    let Some(grove) = Grove::new("limits in a cgroup") else {
        return;
    };
    let daemon = within(driver, &grove).ready();
    let asked = json!({"shell": true, "command": ["ulimit -n"], "limits": {"nofile": 77}});
    assert_eq!(daemon.output(&asked), "77\n");
    let memory = json!({"command": ["dd", "if=/dev/zero", "of=/dev/null", "bs=500M", "count=1"],
        "limits": {"memory": 100 << 20}});
    let outcome = daemon.exec(&memory);
    // By the controller it is killed, by the limit of the process it is told.
    assert!(
        outcome["signal"] == 9 || outcome["exit_code"] == 1,
        "{outcome}"
    );
}

fn what_was_delegated_is_used_unasked(driver: Driver) {
    let Some(grove) = Grove::new("a delegated cgroup") else {
        return;
    };
    grove.delegate();
    let below = grove.add("main");
    // Its own cgroup carries the mark, or the one above (systemd's DelegateSubgroup=).
    for place in [grove.path(), &below] {
        let daemon = Setup::new(driver).under(&words(&inside(place))).ready();
        let own = own_cgroup(&daemon);
        assert!(own.contains(&format!("/ringd-{}/", daemon.pid())), "{own}");
        drop(daemon);
    }
}

fn what_was_not_delegated_is_left_alone(driver: Driver) {
    let Some(grove) = Grove::new("a cgroup that is not delegated") else {
        return;
    };
    let wrapper = inside(grove.path());
    let daemon = Setup::new(driver).under(&words(&wrapper)).ready();
    assert_eq!(daemon.script("true")["exit_code"], 0);
    assert!(grove.subtrees().is_empty());
    grove.delegate();
    let off = Setup::new(driver).flag("--cgroup", "off");
    let daemon = off.under(&words(&wrapper)).ready();
    assert_eq!(daemon.script("true")["exit_code"], 0);
    assert!(grove.subtrees().is_empty());
}

fn a_daemon_without_root_uses_what_is_its_own(driver: Driver) {
    let Some(grove) = Grove::new("a cgroup of another user") else {
        return;
    };
    for name in ["", "cgroup.procs", "cgroup.subtree_control"] {
        std::os::unix::fs::chown(grove.path().join(name), Some(65534), Some(65534))
            .expect("root may");
    }
    let mut wrapper = inside(grove.path()).to_vec();
    wrapper.extend(
        [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ]
        .map(str::to_owned),
    );
    let setup = Setup::new(driver).flag("--cgroup", grove.text());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(setup.path(""), open).expect("the directory is ours");
    let daemon = setup
        .under(&words(&wrapper))
        .flag("--kill-grace", "0.3")
        .ready();
    let script = chain(&daemon);
    daemon.begin_script("k", &format!("sh {script} & exec sleep 1000"));
    runs_away(&daemon);
    daemon.post("/v1/exec/k/kill").is(200);
    are_empty(&grove);
    are_gone(&grove);
    // One that sits elsewhere may not move processes in.
    let outside = Setup::new(driver).flag("--cgroup", grove.text());
    let refusal = outside.under(&words(&wrapper[4..])).refused();
    assert_eq!(refusal.code, Some(1), "{refusal:?}");
    assert!(refusal.stderr.contains("--cgroup"), "{refusal:?}");
}

fn a_directory_of_an_earlier_daemon_is_no_obstacle(driver: Driver) {
    let Some(grove) = Grove::new("a directory that is there") else {
        return;
    };
    // The wrapper has the pid that the daemon will have.
    let script = format!(
        "mkdir -p {0}/ringd-$$/1; sleep 1000 & echo $! > {0}/ringd-$$/1/cgroup.procs; exec \"$@\"",
        grove.text()
    );
    let setup = within(driver, &grove).under(&["/bin/sh", "-c", &script, "sh"]);
    let daemon = setup.ready();
    let own = own_cgroup(&daemon);
    assert!(
        own.contains(&format!("/ringd-{}-2/", daemon.pid())),
        "{own}"
    );
}

fn a_place_that_is_no_cgroup_stops_the_start(driver: Driver) {
    for (place, code) in [("/tmp", 1), ("/nonexistent", 1), ("here", 2), ("", 2)] {
        let refusal = Setup::new(driver).flag("--cgroup", place).refused();
        assert_eq!(refusal.code, Some(code), "{place}: {refusal:?}");
        assert!(refusal.stderr.contains("--cgroup"), "{place}: {refusal:?}");
        assert!(
            !refusal.stdout.contains("listening"),
            "{place}: {refusal:?}"
        );
    }
}

fn the_directory_ends_with_the_daemon(driver: Driver) {
    let Some(grove) = Grove::new("the end of a cgroup") else {
        return;
    };
    let mut daemon = within(driver, &grove).ready();
    daemon.script("true");
    assert_eq!(grove.subtrees().len(), 1);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(grove.subtrees().is_empty());
    // A start that fails for another reason leaves none either.
    let setup = within(driver, &grove).listen("tcp://192.0.2.1:1");
    assert_eq!(setup.refused().code, Some(1));
    assert!(grove.subtrees().is_empty());
}

fn within(driver: Driver, grove: &Grove) -> Setup {
    Setup::new(driver).flag("--cgroup", grove.text())
}

/// The cgroup that a command sees itself in.
fn own_cgroup(daemon: &Daemon) -> String {
    let text = daemon.output(&json!({"command": ["cat", "/proc/self/cgroup"]}));
    let line = text.lines().find_map(|line| line.strip_prefix("0::"));
    line.unwrap_or_else(|| panic!("no cgroup2 in {text}"))
        .to_owned()
}

/// Checks that nobody is alive in a cgroup of an exec now, not soon: a list of processes would be late.
#[track_caller]
fn are_empty(grove: &Grove) {
    for leaf in grove.leaves() {
        let events = fs::read_to_string(leaf.join("cgroup.events")).unwrap_or_default();
        assert!(
            !events.contains("populated 1"),
            "they run on: {}",
            leaf.display()
        );
    }
}

#[track_caller]
fn are_gone(grove: &Grove) {
    wait_until("every cgroup of an exec is removed", || {
        grove.leaves().is_empty()
    });
}

/// Writes a script that is deaf to SIGTERM and goes on in a new process and a new session all the time.
///
/// It ends with the daemon's working directory.
fn chain(daemon: &Daemon) -> String {
    let path = daemon.path("chain.sh");
    let text =
        "trap '' TERM; echo >> hops; [ -e chain.sh ] && setsid -f sh \"$0\" >/dev/null 2>&1\n";
    fs::write(&path, text).expect("the directory is ours");
    path.to_str().expect("ASCII").to_owned()
}

/// Waits until the chain has left its first process far behind.
#[track_caller]
fn runs_away(daemon: &Daemon) {
    let hops = daemon.path("hops");
    wait_until("the chain is under way", || {
        fs::metadata(&hops).is_ok_and(|meta| meta.len() > 20)
    });
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}
