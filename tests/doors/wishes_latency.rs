//! Wishes 10 and 11: an exec costs what it is, not an interval; and no less when others run.
//!
//! Durations prove nothing on a machine that others use. What makes an exec wait can be seen instead: a timer that is
//! set near while a command runs, a thread that wakes up without a reason, a socket that holds small writes back, and
//! work for each exec that runs when another one ends.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::json;

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::events::Events;
use crate::execs::exec_at;
use crate::process::{status_line, wait_until};
use crate::request::Request;

both![
    wish_10_no_timer_is_near_while_a_command_runs,
    wish_10_a_daemon_sleeps_while_a_command_runs,
    wish_10_small_writes_are_not_held_back,
    wish_11_no_timer_is_near_with_a_hundred_others,
    wish_11_an_end_costs_the_same_work_with_a_hundred_others,
];

fn wish_10_no_timer_is_near_while_a_command_runs(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["cat"], "stdin": true}));
    let _events = Events::follow(&daemon, "e", 0);
    no_timer_is_near(&daemon);
    assert_eq!(daemon.poll("e").json()["phase"], "running");
}

fn wish_10_a_daemon_sleeps_while_a_command_runs(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.at_rest();
    daemon.begin("e", &json!({"command": ["sleep", "2"]}));
    let mut events = Events::follow(&daemon, "e", 0);
    let (before, begin) = (wakes(&daemon), Instant::now());
    events.rest().is_whole();
    let (woken, took) = (wakes(&daemon) - before, begin.elapsed());
    // The end of the child, of two pipes and of the stream are events; once a second the house is kept. Whoever looks
    // every tenth of a second wakes twenty times.
    let bound = 8 + 2 * took.as_secs();
    assert!(woken <= bound, "woken {woken} times in {took:?}");
}

fn wish_10_small_writes_are_not_held_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connections: Vec<_> = (0..3).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.is_usable();
    }
    let Some(sockets) = sockets(&daemon) else {
        return;
    };
    let accepted = sockets
        .iter()
        .filter(|fd| rustix::net::getpeername(fd).is_ok());
    let mut seen = 0;
    for fd in accepted {
        let set = rustix::net::sockopt::tcp_nodelay(fd).expect("a TCP socket");
        assert!(set, "an accepted socket without TCP_NODELAY");
        seen += 1;
    }
    assert!(seen >= 3, "{seen} connections are seen");
}

fn wish_11_no_timer_is_near_with_a_hundred_others(driver: Driver) {
    let daemon = crowded(driver);
    no_timer_is_near(&daemon);
    assert_eq!(daemon.health()["busy"], true);
}

fn wish_11_an_end_costs_the_same_work_with_a_hundred_others(driver: Driver) {
    let alone = Daemon::ready(driver);
    let crowded = crowded(driver);
    let (few, many) = (work(&alone), work(&crowded));
    // What a start and an end cost in reads, writes and wakes does not depend on who else runs. One look at each of the
    // others per end would be a hundred times fifty more.
    let bound = |few: u64| few + few / 2 + 500;
    for (name, few, many) in [("calls", few.0, many.0), ("wakes", few.1, many.1)] {
        assert!(
            many <= bound(few),
            "{name}: {few} alone, {many} with others"
        );
    }
    // None of the others had to end for it.
    for number in 0..100 {
        assert_eq!(
            crowded.poll(&format!("other{number}")).json()["phase"],
            "running"
        );
    }
}

/// A daemon with a hundred commands that run and write nothing.
fn crowded(driver: Driver) -> Daemon {
    let daemon = Daemon::ready(driver);
    for number in 0..100 {
        daemon.begin(
            &format!("other{number}"),
            &json!({"command": ["cat"], "stdin": true}),
        );
    }
    daemon
}

/// Runs fifty execs one after the other, each followed to its end; answers the calls and the wakes that it took.
#[track_caller]
fn work(daemon: &Daemon) -> (u64, u64) {
    daemon.at_rest();
    let mut connection = daemon.connect();
    connection.is_usable();
    let before = (calls(daemon), wakes(daemon));
    for number in 0..50 {
        let id = format!("e{number}");
        let start = json!({"exec_id": id, "command": ["true"]});
        connection
            .call(&Request::post("/v1/exec/start").bearer().json(&start))
            .is(200);
        let mut events = Events::over(connection, &id, 0);
        events.rest().is_whole();
        connection = events.connection();
        let poll = Request::get(exec_at(&id)).bearer();
        assert_eq!(connection.call(&poll).is(200).json()["exit_code"], 0);
    }
    (calls(daemon) - before.0, wakes(daemon) - before.1)
}

/// Checks that the daemon has one timer, and that it is left alone for a third of a second.
///
/// The daemon waits for time with nothing else, so nothing is looked at three times a second or more. The timer is set a
/// second ahead once a second, so this comes true soon, and never where something is looked at in shorter intervals.
#[track_caller]
fn no_timer_is_near(daemon: &Daemon) {
    const ALONE: Duration = Duration::from_millis(333);
    const JITTER: Duration = Duration::from_millis(20);
    let targets = daemon.descriptor_targets();
    let clocks = targets.iter().filter(|target| target.contains("timerfd"));
    assert_eq!(clocks.count(), 1, "one clock");
    let mut alone: Option<(Instant, Instant)> = None;
    wait_until("the timer is left alone", || {
        let left = left_on_timers(daemon).pop().unwrap_or_default();
        let now = Instant::now();
        let end = now + left;
        let is_same = |other: Instant| end.max(other) - end.min(other) < JITTER;
        let (since, _) = *match &mut alone {
            Some(span) if is_same(span.1) => span,
            other => other.insert((now, end)),
        };
        now - since >= ALONE
    });
}

/// The time left on each timer descriptor of the daemon that is set.
fn left_on_timers(daemon: &Daemon) -> Vec<Duration> {
    let folder = format!("/proc/{}/fdinfo", daemon.pid());
    let entries = fs::read_dir(folder).expect("the daemon runs");
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let values = texts.filter_map(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("it_value: ("))?;
        let (seconds, nanoseconds) = line.trim_end_matches(')').split_once(", ")?;
        Some(Duration::new(
            seconds.parse().ok()?,
            nanoseconds.parse().ok()?,
        ))
    });
    values.collect()
}

/// How often the daemon's thread has gone to sleep and was woken.
#[track_caller]
fn wakes(daemon: &Daemon) -> u64 {
    let pid = daemon.pid();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).expect("it runs");
    let count = status_line(&text, "voluntary_ctxt_switches");
    count.parse().expect("a number")
}

/// How many read and write calls the daemon has made; zero where the kernel does not count them.
fn calls(daemon: &Daemon) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", daemon.pid())).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    of("syscr:").unwrap_or(0) + of("syscw:").unwrap_or(0)
}

/// The sockets of the daemon, as descriptors of this process; `None` where it may not have them.
fn sockets(daemon: &Daemon) -> Option<Vec<OwnedFd>> {
    let pid = Pid::from_raw(daemon.pid()).expect("pids are positive");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("the daemon runs");
    let folder = format!("/proc/{}/fd", daemon.pid());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the daemon runs") {
        let entry = entry.expect("an entry");
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if !target.to_string_lossy().starts_with("socket:") {
            continue;
        }
        let number = entry
            .file_name()
            .to_string_lossy()
            .parse()
            .expect("a number");
        match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
            Ok(fd) => found.push(fd),
            Err(error) => {
                eprintln!("no look at another process's sockets here: {error}");
                return None;
            }
        }
    }
    Some(found)
}
