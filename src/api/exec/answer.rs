//! Answers about execs as they are written: the order of the fields is part of the contract.

use serde::Serialize;

use crate::exec::{Detail, Group, Outcome, Phase};

/// An exec without a result.
#[derive(Serialize)]
pub(super) struct Brief<'a> {
    pub(super) exec_id: &'a str,
    pub(super) phase: &'a str,
}

/// The last event of a stream.
#[derive(Serialize)]
pub(super) struct ExitEvent {
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) timed_out: bool,
    pub(super) truncated: bool,
    pub(super) writers_may_be_alive: bool,
    pub(super) offset: u64,
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
#[derive(Serialize)]
pub(super) struct UsageAnswer {
    user_seconds: f64,
    system_seconds: f64,
    peak_resident_bytes: u64,
    block_reads: u64,
    block_writes: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
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
#[derive(Serialize)]
pub(super) struct StdinAnswer<'a> {
    pub(super) exec_id: &'a str,
    pub(super) written: usize,
    pub(super) eof: bool,
}

/// How far a standard input is.
#[derive(Serialize)]
pub(super) struct StdinState<'a> {
    pub(super) exec_id: &'a str,
    pub(super) offset: u64,
    pub(super) eof: bool,
}

/// What became of a kill.
#[derive(Serialize)]
pub(super) struct KillAnswer<'a> {
    pub(super) exec_id: &'a str,
    pub(super) killed: bool,
}

/// What became of a signal.
#[derive(Serialize)]
pub(super) struct SignalAnswer<'a> {
    pub(super) exec_id: &'a str,
    pub(super) signal: i32,
    pub(super) delivered: bool,
}

/// Every exec with its processes.
#[derive(Serialize)]
pub(super) struct ProcsAnswer<'a> {
    pub(super) procs: Vec<ProcGroup<'a>>,
}

/// One exec with its processes.
#[derive(Serialize)]
pub(super) struct ProcGroup<'a> {
    pub(super) exec_id: &'a str,
    pub(super) pgid: i32,
    pub(super) started_at: u64,
    pub(super) child_exited: bool,
    pub(super) reap: bool,
    pub(super) pids: &'a [i32],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processes: Option<Vec<ProcDetail<'a>>>,
}

/// One process.
#[derive(Serialize)]
pub(super) struct ProcDetail<'a> {
    pid: i32,
    ppid: i32,
    pgid: i32,
    sid: i32,
    state: char,
    command: &'a str,
    cmdline: &'a [String],
    user_seconds: f64,
    system_seconds: f64,
    resident_bytes: u64,
    threads: u64,
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

/// The word for a phase.
pub(super) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Running => "running",
        Phase::Exited => "exited",
        Phase::Acked => "acked",
    }
}
