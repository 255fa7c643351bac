//! What `/proc` tells about a process, and waiting for states that send no event.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// The bound of every wait: whoever needs longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `holds`, by asking again and again.
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes_true(holds), "this never came true: {what}");
}

/// The same for those who have more to say when it does not come true.
pub(crate) fn comes_true(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// The fields of `/proc/PID/stat` after the name, from the state on; `None` when there is no such process.
pub(crate) fn stat(pid: i32) -> Option<Vec<String>> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let (_, fields) = line.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// True while the process exists and is not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// The processes whose parent is `pid`, zombies included.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    everybody()
        .filter(|candidate| stat(*candidate).is_some_and(|fields| fields[1] == pid.to_string()))
        .collect()
}

/// Every process below `pid`.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(children(parent));
        next += 1;
    }
    found
}

/// The value of a line `name:\tvalue` of `/proc/PID/status`.
#[track_caller]
pub(crate) fn status(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
    status_line(&text, name)
}

/// The same of a text that was read elsewhere.
#[track_caller]
pub(crate) fn status_line(text: &str, name: &str) -> String {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .trim()
        .to_owned()
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("pids are positive");
    // The process may have ended on its own.
    let _ = rustix::process::kill_process(pid, signal);
}

/// True when the tests run as root; those that need it say so and pass otherwise.
pub(crate) fn is_root(needed_for: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not root: {needed_for} is not checked");
    }
    root
}

fn everybody() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .expect("proc is mounted")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}
