//! Answers about execs as they are written: the order of the fields is part of the contract.

use schemars::JsonSchema;
use serde::Serialize;

use crate::exec::{Detail, Group, Outcome, Phase};

/// An exec without a result; a start answers `running`, whatever the exec has come to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartResponse")]
pub(super) struct Brief<'a> {
    /// The id that the caller has chosen.
    pub(super) exec_id: &'a str,
    /// How far it is.
    pub(super) phase: Phase,
}

/// An exec with its result, once it has ended, or what a poll asks for before.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "it describes; what is written are a `Brief`, or the parts of a `Document`"
)]
pub(super) struct PollResponse {
    /// The id that the caller has chosen.
    exec_id: String,
    /// How far it is.
    phase: Phase,
    #[schemars(flatten)]
    result: Option<PollResult>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "as of `PollResponse`")]
struct PollResult {
    /// The exit status; null when a signal ended the command.
    exit_code: Option<i32>,
    /// The signal that ended the command.
    signal: Option<i32>,
    /// True when the time limit ended it.
    timed_out: bool,
    /// The head of the standard output, or what is behind the offset that was asked for.
    stdout: String,
    /// The same of the standard error.
    stderr: String,
    /// True when a stream has more than is kept for a poll.
    truncated: bool,
    /// True when somebody still held a pipe when reading stopped.
    writers_may_be_alive: bool,
    /// What was used; null when nobody could count.
    usage: Option<UsageAnswer>,
    /// Where to go on in the standard output; only when an offset was asked for.
    stdout_offset: u64,
    /// The same of the standard error.
    stderr_offset: u64,
}

/// The last event of a stream.
#[derive(Serialize, JsonSchema)]
pub(super) struct ExitEvent {
    /// The exit status; null when a signal ended the command.
    pub(super) exit_code: Option<i32>,
    /// The signal that ended the command.
    pub(super) signal: Option<i32>,
    /// True when the time limit ended it.
    pub(super) timed_out: bool,
    /// True when the polled result lacks output.
    pub(super) truncated: bool,
    /// True when somebody still held a pipe when reading stopped.
    pub(super) writers_may_be_alive: bool,
    /// Bytes of output, both streams together.
    pub(super) offset: u64,
    /// What was used; null when nobody could count.
    pub(super) usage: Option<UsageAnswer>,
}

impl From<&Outcome> for ExitEvent {
    fn from(outcome: &Outcome) -> Self {
        Self {
            exit_code: outcome.exit.code,
            signal: outcome.exit.signal,
            timed_out: outcome.timed_out,
            truncated: outcome.truncated,
            writers_may_be_alive: outcome.writers_may_be_alive,
            offset: outcome.total,
            usage: UsageAnswer::of(outcome),
        }
    }
}

/// What a command and the descendants it waited for have used.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub(super) struct UsageAnswer {
    user_seconds: f64,
    system_seconds: f64,
    /// Of the largest single process.
    peak_resident_bytes: u64,
    /// In units of 512 bytes.
    block_reads: u64,
    /// In units of 512 bytes.
    block_writes: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    /// From the start to the end, linger included.
    wall_seconds: f64,
}

impl UsageAnswer {
    /// The usage of an exec that has ended; `None` when nobody could count it.
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        let usage = outcome.exit.usage?;
        Some(Self {
            user_seconds: usage.user.as_secs_f64(),
            system_seconds: usage.system.as_secs_f64(),
            peak_resident_bytes: usage.peak,
            block_reads: usage.block_reads,
            block_writes: usage.block_writes,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            wall_seconds: outcome.wall.as_secs_f64(),
        })
    }
}

/// What became of a write.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StdinResponse")]
pub(super) struct StdinAnswer<'a> {
    pub(super) exec_id: &'a str,
    /// Decoded bytes.
    pub(super) written: usize,
    /// True when the request has closed standard input.
    pub(super) eof: bool,
}

/// How far a standard input is.
#[derive(Serialize, JsonSchema)]
pub(super) struct StdinState<'a> {
    pub(super) exec_id: &'a str,
    /// Bytes that it has taken.
    pub(super) offset: u64,
    /// True when a writer has closed it.
    pub(super) eof: bool,
}

/// What became of a kill.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KillResponse")]
pub(super) struct KillAnswer<'a> {
    pub(super) exec_id: &'a str,
    /// False when nobody was alive.
    pub(super) killed: bool,
}

/// What became of a signal.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignalResponse")]
pub(super) struct SignalAnswer<'a> {
    pub(super) exec_id: &'a str,
    /// The number of the signal.
    pub(super) signal: i32,
    /// False when nobody is left to get it.
    pub(super) delivered: bool,
}

/// Every exec with its processes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProcsResponse")]
pub(super) struct ProcsAnswer<'a> {
    pub(super) procs: Vec<ProcGroup<'a>>,
}

/// One exec with its processes.
#[derive(Serialize, JsonSchema)]
pub(super) struct ProcGroup<'a> {
    pub(super) exec_id: &'a str,
    /// The process group, which is the pid of the command.
    pub(super) pgid: i32,
    /// Seconds since 1970.
    pub(super) started_at: u64,
    /// True once the result is complete.
    pub(super) child_exited: bool,
    /// What `reap_group_on_exit` was.
    pub(super) reap: bool,
    /// The live members of the group, ascending.
    pub(super) pids: &'a [i32],
    /// Every live process that a kill would find; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processes: Option<Vec<ProcDetail<'a>>>,
}

/// One process.
#[derive(Serialize, JsonSchema)]
pub(super) struct ProcDetail<'a> {
    pid: i32,
    ppid: i32,
    pgid: i32,
    sid: i32,
    /// The letter of proc(5).
    state: char,
    /// The name that the kernel has.
    command: &'a str,
    /// The arguments, the first 4 KiB of them.
    cmdline: &'a [String],
    user_seconds: f64,
    system_seconds: f64,
    resident_bytes: u64,
    threads: u64,
    /// Seconds since 1970.
    started_at: u64,
}

impl<'a> From<&'a Detail> for ProcDetail<'a> {
    fn from(detail: &'a Detail) -> Self {
        Self {
            pid: detail.pid,
            ppid: detail.parent,
            pgid: detail.group,
            sid: detail.session,
            state: detail.state,
            command: &detail.name,
            cmdline: &detail.command_line,
            user_seconds: detail.user.as_secs_f64(),
            system_seconds: detail.system.as_secs_f64(),
            resident_bytes: detail.resident,
            threads: detail.threads,
            started_at: detail.started_at,
        }
    }
}

impl<'a> From<&'a Group> for ProcGroup<'a> {
    fn from(group: &'a Group) -> Self {
        Self {
            exec_id: &group.exec_id,
            pgid: group.pgid,
            started_at: group.started_at,
            child_exited: group.child_exited,
            reap: group.reap,
            pids: &group.pids,
            processes: group
                .processes
                .as_ref()
                .map(|processes| processes.iter().map(ProcDetail::from).collect()),
        }
    }
}
