//! One exec: what it was asked, what it wrote, how it ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::budget::Share;
use super::capture::Capture;
use super::counters::{Counters, Running};
use super::kill::Tree;
use super::replay::Replay;
use super::spill::Spill;
use super::stdin::Stdin;
use super::terminal::Terminal;
use super::texts::Texts;
use super::{Limits, Stream};
use crate::error::{Kind, Result};
use crate::ring::child::Exit;
use crate::ring::clock::{self, Moment};
use crate::ring::notify::{Event, Once};

/// An exec from its start until it is collected.
pub struct Exec {
    pub(super) id: String,
    /// Counts starts, so that listings have an order.
    pub(super) serial: u64,
    pub(super) began: Moment,
    /// Seconds since the epoch at the start.
    pub(super) started_at: u64,
    pub(super) reap: bool,
    pub(super) tree: Tree,
    pub(super) stdin: Stdin,
    pub(super) terminal: Option<Terminal>,
    pub(super) replay: RefCell<Replay>,
    pub(super) spill: Spill,
    pub(super) texts: RefCell<Texts>,
    /// The memory that the output takes.
    memory: Share,
    /// Happens when output was added and when the exec has ended.
    pub(super) changed: Event,
    heads: RefCell<[Capture; 2]>,
    outcome: Cell<Option<Outcome>>,
    acked: Cell<Option<Moment>>,
    running: Cell<Option<Running>>,
    pub(super) counters: Rc<Counters>,
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

/// A part of what an exec has written so far, of each stream from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The bytes of the standard output and of the standard error; no character is torn at their ends.
    pub texts: [Vec<u8>; 2],
    /// The offsets behind them; those that were asked for where there is nothing.
    pub next: [u64; 2],
    /// True when output was read that is not kept.
    pub truncated: bool,
}

/// What a supervisor has seen of the end of an exec.
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) timed_out: bool,
    pub(super) writers_may_be_alive: bool,
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
    pub(super) began: Moment,
    pub(super) counters: Rc<Counters>,
    pub(super) spill: Spill,
    pub(super) memory: Share,
}

impl Exec {
    pub(super) fn new(birth: Birth, limits: &Limits) -> Self {
        Self {
            id: birth.id,
            serial: birth.serial,
            began: birth.began,
            started_at: birth.started_at,
            reap: birth.reap,
            tree: birth.tree,
            stdin: birth.stdin,
            terminal: birth.terminal,
            replay: RefCell::new(Replay::new(limits.replay_bytes, limits.spill_bytes)),
            spill: birth.spill,
            texts: RefCell::default(),
            memory: birth.memory,
            changed: Event::default(),
            heads: RefCell::new([(); 2].map(|()| Capture::new(limits.max_output_bytes))),
            outcome: Cell::new(None),
            acked: Cell::new(None),
            killing: RefCell::new(None),
            running: Cell::new(Some(Running::new(&birth.counters))),
            counters: birth.counters,
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

    /// A part of what was written so far, each stream from its offset in `from` on.
    ///
    /// What is kept grows while the exec runs, so this is a copy, of a bounded size.
    pub fn excerpt(&self, from: [u64; 2]) -> Excerpt {
        let heads = self.heads.borrow();
        let piece = |stream: Stream| {
            let index = stream as usize;
            heads[index].piece(from[index], MOST_EXCERPT).to_vec()
        };
        let texts = [piece(Stream::Stdout), piece(Stream::Stderr)];
        let behind = |index: usize| from[index].saturating_add(texts[index].len() as u64);
        Excerpt {
            next: [behind(0), behind(1)],
            texts,
            truncated: heads.iter().any(Capture::is_truncated),
        }
    }

    /// Waits until an [`Exec::excerpt`] from `from` would not be empty, or the end.
    ///
    /// If dropped, nothing is lost.
    pub async fn advanced(&self, from: [u64; 2]) {
        loop {
            let seen = self.changed.count();
            let has_more = {
                let heads = self.heads.borrow();
                let mut both = heads.iter().zip(from);
                both.any(|(head, from)| !head.piece(from, MOST_EXCERPT).is_empty())
            };
            if has_more || self.outcome.get().is_some() {
                return;
            }
            self.changed.after(seen).await;
        }
    }

    /// Bytes that its standard input has taken, and whether a writer has said that there are no more.
    pub fn stdin_progress(&self) -> (u64, bool) {
        self.stdin.progress()
    }

    /// Hands the result out for the last time and frees it.
    pub(super) fn ack(&self, now: Moment) -> Result<Report> {
        let Some(outcome) = self.outcome.get() else {
            return Err(Kind::StillRunning.told("the exec has not ended"));
        };
        if self.acked.get().is_some() {
            return Err(Kind::AlreadyAcked.told("the result was handed out by an earlier ack"));
        }
        self.acked.set(Some(now));
        let [stdout, stderr] = self.heads.borrow_mut().each_mut().map(Capture::take);
        self.account();
        Ok(Report {
            outcome,
            stdout,
            stderr,
        })
    }

    /// True when it was acked at least `ttl` before `now`.
    pub(super) fn is_stale(&self, now: Moment, ttl: Duration) -> bool {
        self.acked
            .get()
            .is_some_and(|acked| now.since(acked) >= ttl)
    }

    /// Adds output that was read; a large buffer may be taken over.
    pub(super) fn publish(&self, stream: Stream, bytes: &mut Vec<u8>) {
        self.counters.output(bytes.len());
        self.heads.borrow_mut()[stream as usize].push(bytes);
        self.replay.borrow_mut().push(stream, bytes);
        self.account();
        self.changed.happen();
    }

    /// True while somebody follows.
    pub(super) fn is_followed(&self) -> bool {
        self.texts.borrow().is_wanted()
    }

    /// Bytes of memory that the output takes.
    pub(super) fn memory(&self) -> u64 {
        self.memory.bytes()
    }

    /// Says how much memory the output takes now.
    pub(super) fn account(&self) {
        let heads: usize = self.heads.borrow().iter().map(Capture::memory).sum();
        let bytes = heads + self.replay.borrow().memory() + self.texts.borrow().memory();
        self.memory.set(bytes as u64);
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
            wall: clock::now().since(self.began),
        }));
        self.running.take();
        if end.timed_out {
            self.counters.timed_out();
        }
        self.spill.rest();
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
    pub async fn finished(&self) -> Outcome {
        loop {
            let seen = self.changed.count();
            if let Some(outcome) = self.outcome.get() {
                return outcome;
            }
            self.changed.after(seen).await;
        }
    }
}

/// Bytes of each stream in one excerpt.
const MOST_EXCERPT: usize = 256 * 1024;
