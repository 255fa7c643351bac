//! What has become of execs, counted for all of them together.

use std::cell::Cell;
use std::rc::Rc;

/// The counters of a registry; shared by its execs.
#[derive(Default)]
pub(super) struct Counters {
    running: Cell<usize>,
    followers: Cell<usize>,
    start_failures: Cell<u64>,
    timeouts: Cell<u64>,
    kills: Cell<u64>,
    gaps: Cell<u64>,
    output_bytes: Cell<u64>,
}

/// How many execs there are, and what has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Execs that have not ended, lingering ones too.
    pub running: usize,
    /// Execs whose result waits to be acked.
    pub exited: usize,
    /// Execs whose result was handed out, and that are remembered.
    pub acked: usize,
    /// Execs that were started.
    pub starts: u64,
    /// Starts that came to nothing.
    pub start_failures: u64,
    /// Execs that their time limit has ended.
    pub timeouts: u64,
    /// Kills that have found somebody to end.
    pub kills: u64,
    /// Bytes of output that were read.
    pub output_bytes: u64,
    /// Followers now.
    pub followers: usize,
    /// Gaps that followers were told of.
    pub gaps: u64,
    /// Bytes of memory that kept output takes.
    pub memory: u64,
    /// Bytes of disk that it takes.
    pub spilled: u64,
}

impl Counters {
    /// Execs that have not ended.
    pub(super) fn running(&self) -> usize {
        self.running.get()
    }

    /// A start has come to nothing.
    pub(super) fn failed_to_start(&self) {
        add(&self.start_failures, 1);
    }

    /// A time limit has ended an exec.
    pub(super) fn timed_out(&self) {
        add(&self.timeouts, 1);
    }

    /// A kill has found somebody.
    pub(super) fn killed(&self) {
        add(&self.kills, 1);
    }

    /// Output was read.
    pub(super) fn output(&self, bytes: usize) {
        add(&self.output_bytes, bytes as u64);
    }

    /// A follower was told of a gap.
    pub(super) fn gap(&self) {
        add(&self.gaps, 1);
    }

    /// One more follows.
    pub(super) fn follow(&self) {
        self.followers.set(self.followers.get() + 1);
    }

    /// One less follows.
    pub(super) fn unfollow(&self) {
        self.followers.set(self.followers.get() - 1);
    }

    /// The counters as they are, with what only the registry knows left at zero.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            running: self.running.get(),
            start_failures: self.start_failures.get(),
            timeouts: self.timeouts.get(),
            kills: self.kills.get(),
            output_bytes: self.output_bytes.get(),
            followers: self.followers.get(),
            gaps: self.gaps.get(),
            ..Counts::default()
        }
    }
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

/// An exec counted among those that run, until this is dropped.
pub(super) struct Running(Rc<Counters>);

impl Running {
    /// One more that runs.
    pub(super) fn new(counters: &Rc<Counters>) -> Self {
        let running = &counters.running;
        running.set(running.get() + 1);
        Self(Rc::clone(counters))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let running = &self.0.running;
        running.set(running.get() - 1);
    }
}
