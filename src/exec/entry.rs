//! One exec: what it was asked, what it wrote, how it ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::capture::Capture;
use super::kill::Tree;
use super::replay::Replay;
use super::stdin::Stdin;
use super::terminal::Terminal;
use super::{Limits, Stream};
use crate::error::{Kind, Result};
use crate::ring::child::Exit;
use crate::ring::notify::{Event, Once};

/// An exec from its start until it is collected.
pub struct Exec {
    pub(super) id: String,
    /// Counts starts, so that listings have an order.
    pub(super) serial: u64,
    pub(super) began: Instant,
    /// Seconds since the epoch at the start.
    pub(super) started_at: u64,
    pub(super) reap: bool,
    pub(super) tree: Tree,
    pub(super) stdin: Stdin,
    pub(super) terminal: Option<Terminal>,
    pub(super) replay: RefCell<Replay>,
    /// Happens when output was added and when the exec has ended.
    pub(super) changed: Event,
    heads: RefCell<[Capture; 2]>,
    outcome: Cell<Option<Outcome>>,
    acked: Cell<Option<Instant>>,
    running: Cell<Option<Running>>,
    /// Set while a kill is under way, to what it comes to: whether it found anybody, nothing when it failed.
    killing: RefCell<Option<Rc<Once<Option<bool>>>>>,
}

/// How far an exec is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not ended, or still lingering.
    Running,
    /// Ended; the result waits.
    Exited,
    /// The result was handed out.
    Acked,
}

/// How an exec ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the kernel said of the child.
    pub exit: Exit,
    /// True when the time limit ended it.
    pub timed_out: bool,
    /// True when the result lacks output that was read.
    pub truncated: bool,
    /// True when somebody still held a pipe when reading stopped.
    pub writers_may_be_alive: bool,
    /// Bytes of output, both streams together.
    pub total: u64,
    /// Running time from the start to the last byte.
    pub wall: Duration,
}

/// A result: how an exec ended and the head of what it wrote, which is shared and not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The head of the standard output, as it was written.
    pub stdout: Rc<Vec<u8>>,
    /// The head of the standard error, likewise.
    pub stderr: Rc<Vec<u8>>,
}

/// What a supervisor has seen of the end of an exec.
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) timed_out: bool,
    pub(super) writers_may_be_alive: bool,
}

/// An exec counted among those that run, until this is dropped.
pub(super) struct Running(Rc<Cell<usize>>);

impl Running {
    /// One more in `count`.
    pub(super) fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What is fixed when an exec is registered.
pub(super) struct Birth {
    pub(super) id: String,
    pub(super) serial: u64,
    pub(super) started_at: u64,
    pub(super) reap: bool,
    pub(super) tree: Tree,
    pub(super) stdin: Stdin,
    pub(super) terminal: Option<Terminal>,
    pub(super) running: Running,
}

impl Exec {
    pub(super) fn new(birth: Birth, limits: &Limits) -> Self {
        Self {
            id: birth.id,
            serial: birth.serial,
            began: Instant::now(),
            started_at: birth.started_at,
            reap: birth.reap,
            tree: birth.tree,
            stdin: birth.stdin,
            terminal: birth.terminal,
            replay: RefCell::new(Replay::new(limits.replay_bytes)),
            changed: Event::default(),
            heads: RefCell::new([(); 2].map(|()| Capture::new(limits.max_output_bytes))),
            outcome: Cell::new(None),
            acked: Cell::new(None),
            killing: RefCell::new(None),
            running: Cell::new(Some(birth.running)),
        }
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match (self.outcome.get(), self.acked.get()) {
            (None, _) => Phase::Running,
            (Some(_), None) => Phase::Exited,
            (Some(_), Some(_)) => Phase::Acked,
        }
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get()
    }

    /// The result, while it waits to be acked.
    pub fn report(&self) -> Option<Report> {
        let outcome = self.outcome.get()?;
        if self.acked.get().is_some() {
            return None;
        }
        let heads = self.heads.borrow();
        let [stdout, stderr] = heads.each_ref().map(Capture::share);
        Some(Report {
            outcome,
            stdout,
            stderr,
        })
    }

    /// Hands the result out for the last time and frees it.
    pub(super) fn ack(&self, now: Instant) -> Result<Report> {
        let Some(outcome) = self.outcome.get() else {
            return Err(Kind::StillRunning.told("the exec has not ended"));
        };
        if self.acked.get().is_some() {
            return Err(Kind::AlreadyAcked.told("the result was handed out by an earlier ack"));
        }
        self.acked.set(Some(now));
        let [stdout, stderr] = self.heads.borrow_mut().each_mut().map(Capture::take);
        Ok(Report {
            outcome,
            stdout,
            stderr,
        })
    }

    /// True when it was acked at least `ttl` before `now`.
    pub(super) fn is_stale(&self, now: Instant, ttl: Duration) -> bool {
        self.acked
            .get()
            .is_some_and(|acked| now.saturating_duration_since(acked) >= ttl)
    }

    /// Adds output that was read.
    pub(super) fn publish(&self, stream: Stream, bytes: &[u8]) {
        self.heads.borrow_mut()[stream as usize].push(bytes);
        self.replay.borrow_mut().push(stream, bytes);
        self.changed.happen();
    }

    /// Publishes the end, after the last byte of output.
    pub(super) fn finish(&self, end: End) {
        self.stdin.close();
        if let Some(terminal) = &self.terminal {
            terminal.close();
        }
        self.outcome.set(Some(Outcome {
            exit: end.exit,
            timed_out: end.timed_out,
            truncated: self.heads.borrow().iter().any(Capture::is_truncated),
            writers_may_be_alive: end.writers_may_be_alive,
            total: self.replay.borrow().total(),
            wall: self.began.elapsed(),
        }));
        self.running.take();
        self.changed.happen();
    }

    /// The kill that is under way.
    pub(super) fn killing(&self) -> Option<Rc<Once<Option<bool>>>> {
        self.killing.borrow().clone()
    }

    /// Says that a kill starts.
    pub(super) fn start_killing(&self) {
        *self.killing.borrow_mut() = Some(Rc::default());
    }

    /// Says what a kill came to.
    pub(super) fn stop_killing(&self, found: Option<bool>) {
        if let Some(killing) = self.killing.borrow_mut().take() {
            killing.set(found);
        }
    }

    /// Waits for the end.
    pub(super) async fn finished(&self) -> Outcome {
        loop {
            let seen = self.changed.count();
            if let Some(outcome) = self.outcome.get() {
                return outcome;
            }
            self.changed.after(seen).await;
        }
    }
}
