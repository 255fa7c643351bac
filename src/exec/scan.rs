//! The process table, read from `/proc` in one walk (proc(5)).

use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

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

/// All that is told of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Its number.
    pub pid: i32,
    /// That of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The letter for its state.
    pub state: char,
    /// Its name, 15 bytes at most unless it is a thread of the kernel.
    pub name: String,
    /// Its arguments; what is past 4 KiB is left out.
    pub command_line: Vec<String>,
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Its threads.
    pub threads: u64,
    /// Seconds since the epoch at its start.
    pub started_at: u64,
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
    parse(&read_stat(pid)?)
}

fn read_stat(pid: i32) -> Option<Vec<u8>> {
    let mut buffer = vec![0; STAT_BYTES];
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let count = file.read(&mut buffer).ok()?;
    buffer.truncate(count);
    Some(buffer)
}

/// All that is known of the processes that were seen, by ascending pid; those that have ended are left out.
///
/// Blocks: it reads two small files per process, and may wait for a process whose memory is locked.
pub(super) fn describe(groups: Vec<Vec<Process>>) -> Vec<Vec<Detail>> {
    let booted = booted();
    let of_group = |mut group: Vec<Process>| {
        group.sort_unstable_by_key(|process| process.pid);
        let details = group.iter().filter_map(|process| detail(process, booted));
        details.collect()
    };
    groups.into_iter().map(of_group).collect()
}

fn detail(seen: &Process, booted: u64) -> Option<Detail> {
    let pid = seen.pid;
    let mut detail = parse_detail(&read_stat(pid)?, seen, booted)?;
    let mut line = Vec::new();
    // A process that has no memory left has no arguments either.
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        let _ = file.take(COMMAND_BYTES).read_to_end(&mut line);
    }
    detail.command_line = arguments(&line);
    Some(detail)
}

/// Seconds since the epoch when the machine was started.
fn booted() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
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

/// Reads what a stat line tells of the process that was `seen`; `None` when it has ended, or is another one by now.
fn parse_detail(stat: &[u8], seen: &Process, booted: u64) -> Option<Detail> {
    let now = parse(stat).filter(|now| now.live && now.started == seen.started)?;
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The numbers are those of proc(5); the first field behind the name is 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at)?.parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let time = |ticks_spent: u64| {
        let rest = Duration::from_secs(ticks_spent % ticks);
        Duration::from_secs(ticks_spent / ticks) + rest / u32::try_from(ticks).unwrap_or(u32::MAX)
    };
    Some(Detail {
        pid: now.pid,
        parent: now.parent,
        group: now.group,
        session: field(6)?.parse().ok()?,
        state: field(3)?.chars().next()?,
        name: String::from_utf8_lossy(&stat[open + 1..close]).into_owned(),
        command_line: Vec::new(),
        user: time(number(14)?),
        system: time(number(15)?),
        threads: number(20)?,
        started_at: booted + now.started / ticks,
        resident: number(24)?.saturating_mul(rustix::param::page_size() as u64),
    })
}

/// The arguments in a command line: each ends in a NUL, the last one may be cut.
fn arguments(line: &[u8]) -> Vec<String> {
    if line.is_empty() {
        return Vec::new();
    }
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    line.split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// Bytes of a command line that are read.
const COMMAND_BYTES: u64 = 4096;
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
    fn a_stat_line_is_read_in_full() {
        let line = "42 (a) b) S 7 42 41 0 -1 4194560 1 2 3 4 250 3 8 9 20 0 6 0 12345 999 17 1";
        let seen = parse(line.as_bytes()).expect("a process");
        let detail = parse_detail(line.as_bytes(), &seen, 1_000).expect("the same process");
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!((detail.parent, detail.group, detail.session), (7, 42, 41));
        assert_eq!(
            (detail.state, detail.name.as_str(), detail.threads),
            ('S', "a) b", 6)
        );
        assert!((detail.user.as_secs_f64() * ticks as f64 - 250.0).abs() < 0.001);
        assert!((detail.system.as_secs_f64() * ticks as f64 - 3.0).abs() < 0.001);
        assert_eq!(detail.resident, 17 * rustix::param::page_size() as u64);
        assert_eq!(detail.started_at, 1_000 + 12345 / ticks);
        let other = Process { started: 1, ..seen };
        assert_eq!(parse_detail(line.as_bytes(), &other, 1_000), None);
        let ended = line.replace(") S", ") Z");
        assert_eq!(parse_detail(ended.as_bytes(), &seen, 1_000), None);
    }

    #[test]
    fn arguments_are_what_stands_between_nuls() {
        let check = |line: &[u8], expected: &[&str]| assert_eq!(arguments(line), expected);
        check(b"", &[]);
        check(b"sh\0-c\0\0", &["sh", "-c", ""]);
        check(b"a title without an end", &["a title without an end"]);
        check(b"\xff\0", &["\u{fffd}"]);
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
