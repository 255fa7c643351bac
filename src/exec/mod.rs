//! Processes that the host asked for: started once per id, watched to their end, their output kept and followed.
//!
//! ```text
//! Execs::start ── claim ── Launch::resolve ── spawn ──> Exec (phase running)
//!                                                         │  supervise: reads both pipes, waits for the child,
//!                                                         │  enforces timeout, reap and linger
//!                                                         v
//!                              look, follow, kill ····> exited ── ack ──> acked ── sweep ──> gone
//! ```

mod account;
mod allowance;
mod budget;
mod capture;
mod cgroup;
mod counters;
mod drain;
mod entry;
mod follow;
mod kill;
mod launch;
mod marks;
mod members;
mod registry;
#[doc(hidden)]
pub mod replay;
mod scan;
mod spawn;
mod spill;
mod stdin;
mod supervise;
mod terminal;
#[cfg(test)]
mod tests;
mod texts;
mod together;
mod window;

use std::path::PathBuf;
use std::time::Duration;

pub use account::{Account, group_id, user_id};
pub use allowance::Allowance;
pub use counters::Counts;
pub use entry::{Excerpt, Exec, Outcome, Phase, Report};
pub use follow::{Follower, Next};
pub use kill::Recipient;
pub use launch::{Launch, Shell, Surroundings};
pub use registry::{Activity, Execs, Group};
pub use scan::Detail;
pub use terminal::Size;

/// Which of the two output streams of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

impl Stream {
    /// `stdout` or `stderr`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The bounds of every exec.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes kept of each stream for the polled result.
    pub max_output_bytes: usize,
    /// How long the pipes are read after the child has ended while somebody else holds them open.
    pub output_linger: Duration,
    /// How long an acked exec is kept.
    pub exec_ttl: Duration,
    /// Bytes of output kept for followers, both streams together.
    pub replay_bytes: usize,
    /// Bytes of older output kept for them on disk; 0 is none.
    pub spill_bytes: u64,
    /// Bytes of all such output together.
    pub max_spill_bytes: u64,
    /// Where such output is kept.
    pub spill_dir: PathBuf,
    /// Bytes that stay free there.
    pub disk_reserve: u64,
    /// Execs that may wait to be acked, and acked ones that are remembered.
    pub max_execs: usize,
    /// Bytes of memory that output may take before no more is started.
    pub max_output_memory: u64,
    /// Time between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// How long one write to a standard input may wait for the child.
    pub stdin_write_timeout: Duration,
    /// Bytes of one write to a standard input.
    pub max_stdin_write_bytes: usize,
    /// The OOM score adjustment that children get; `None` leaves what they inherit.
    pub oom_score: Option<i32>,
    /// The soft limit on descriptors that children get; `None` leaves what they inherit.
    pub descriptors: Option<u64>,
}
