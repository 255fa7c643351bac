//! The process table, read from `/proc` in one walk (proc(5)).

use std::fs::{self, File};
use std::io::Read;

/// One process as `/proc/PID/stat` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// False for a process that has ended and was not reaped.
    pub(super) live: bool,
    /// Start time in clock ticks since boot: with the pid it names a process for good.
    pub(super) started: u64,
}

/// Every process that can be seen. Blocks: it reads one small file per process.
pub(super) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| process(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// The process `pid`, if there is one. Blocks.
pub(super) fn process(pid: i32) -> Option<Process> {
    let mut buffer = [0; STAT_BYTES];
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let count = file.read(&mut buffer).ok()?;
    parse(&buffer[..count])
}

/// The timer slack of `pid` in nanoseconds; `None` where it may not be read. Blocks.
pub(super) fn timer_slack(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/timerslack_ns")).ok()?;
    text.trim().parse().ok()
}

/// Reads the fields of a stat line; the name may contain anything, so they count from its last parenthesis.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(&stat[..open]).ok()?.trim();
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // The start time is field 22 of the line; three were taken behind the name, which is field 2.
    let started = fields.nth(22 - 6)?.parse().ok()?;
    Some(Process {
        pid: pid.parse().ok()?,
        parent,
        group,
        live: !matches!(state, "Z" | "X" | "x"),
        started,
    })
}

/// Room for a stat line: 52 numbers and a name.
const STAT_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 1";

    fn check(name: &str, state: &str, live: bool) {
        let line = format!("42 ({name}) {state} {TAIL}");
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 42,
            live,
            started: 987_654,
        };
        assert_eq!(parse(line.as_bytes()), Some(expected), "{line}");
    }

    #[test]
    fn fields_count_from_the_last_parenthesis() {
        check("sh", "S", true);
        check("a) Z 1 2 (b", "R", true);
        check("", "D", true);
    }

    #[test]
    fn what_has_ended_is_not_live() {
        check("sh", "Z", false);
        check("sh", "X", false);
    }

    #[test]
    fn a_cut_line_is_no_process() {
        let line = format!("42 (sh) S {TAIL}");
        for end in 0..line.find("987654").expect("it is there") {
            assert_eq!(parse(&line.as_bytes()[..end]), None, "{end}");
        }
    }

    #[test]
    fn this_process_is_in_the_table() {
        let me = i32::try_from(std::process::id()).expect("pids are small");
        let seen: Vec<_> = processes()
            .into_iter()
            .filter(|process| process.pid == me)
            .collect();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].live);
        assert_eq!(process(me), Some(seen[0]));
    }
}
