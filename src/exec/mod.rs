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
mod capture;
mod drain;
mod entry;
mod follow;
mod kill;
mod launch;
mod marks;
mod registry;
mod replay;
mod scan;
mod spawn;
mod stdin;
mod supervise;
mod terminal;
#[cfg(test)]
mod tests;
mod together;

use std::time::Duration;

pub use account::Account;
pub use entry::{Exec, Outcome, Phase, Report};
pub use follow::{Follower, Told};
pub use launch::{Launch, Shell, Surroundings};
pub use registry::{Activity, Execs, Group};
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
