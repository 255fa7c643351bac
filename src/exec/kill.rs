//! Ending the processes of one exec, and sending signals to them.
//!
//! They are those that a walk of the process table finds ([`super::members`]) and, where the exec has a cgroup, whoever
//! is in it: a walk can be outrun by a process that forks all the time, the kernel's own list cannot.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group,
};

use super::members::{Target, children, members, members_below};
use super::scan::{self, Process};
use crate::error::{Error, Kind, Result};
use crate::ring::cgroup::Leaf;
use crate::ring::clock::{self, Deadline};
use crate::ring::pool::{self, Lane};
use crate::ring::process::{Whom, send_signal};
use crate::ring::{Fd, child};

/// Which members an ending is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The processes of the child's group.
    Group,
    /// Every member.
    All,
}

/// Who of an exec gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// Every process of the child's group.
    Group,
    /// The child itself.
    Leader,
}

/// What is known of the processes of one exec; a copy knows what the others learn.
#[derive(Clone)]
pub(super) struct Tree {
    leader: i32,
    mark: Option<u64>,
    leaf: Option<Leaf>,
    fate: Arc<Fate>,
}

/// What may change while a walk waits for its thread or is under way.
#[derive(Default)]
struct Fate {
    reaped: AtomicBool,
    gone: AtomicBool,
}

impl Tree {
    /// The tree of a child that was just started, with the mark it was given.
    pub(super) fn new(leader: i32, mark: Option<u64>) -> Self {
        Self {
            leader,
            mark,
            leaf: None,
            fate: Arc::default(),
        }
    }

    /// The same tree, in a cgroup of its own.
    pub(super) fn within(mut self, leaf: Option<Leaf>) -> Self {
        self.leaf = leaf;
        self
    }

    /// The number of the group, which is the pid of the child.
    pub(super) fn group(&self) -> i32 {
        self.leader
    }

    /// The mark that descendants carry.
    pub(super) fn mark(&self) -> Option<u64> {
        self.mark
    }

    /// Says that the child was reaped: from now on its group can vanish.
    pub(super) fn reaped(&self) {
        self.fate.reaped.store(true, Ordering::SeqCst);
        if let Some(group) = Pid::from_raw(self.leader)
            && test_kill_process_group(group) == Err(rustix::io::Errno::SRCH)
        {
            self.forget_group();
        }
    }

    /// Says that the number of the group belongs to somebody else now.
    pub(super) fn forget_group(&self) {
        self.fate.gone.store(true, Ordering::SeqCst);
    }

    /// True when the group is known to be empty for good.
    pub(super) fn is_gone(&self) -> bool {
        self.fate.gone.load(Ordering::SeqCst)
    }

    /// True when the group may vanish, so that a walk that finds it empty proves it gone.
    pub(super) fn may_vanish(&self) -> bool {
        self.fate.reaped.load(Ordering::SeqCst)
    }

    /// Sends SIGTERM to the members in `reach`, SIGKILL to those left after `grace`; false when there was none.
    ///
    /// Ends as soon as no live member is left. If dropped, only a walk that is queued or under way still signals.
    ///
    /// # Errors
    /// `Busy` or `Internal` when the process table could not be walked; the group was then killed without looking.
    pub(super) async fn end(&self, reach: Reach, grace: Duration) -> Result<bool> {
        let ended = self.ask_then_force(reach, grace).await;
        if ended.is_err() {
            self.end_blindly(reach);
        }
        ended
    }

    /// Sends the signal of this number once; false when nobody is left who could get it.
    ///
    /// # Errors
    /// `Busy` or `Internal` when the process table could not be walked; `Internal` when the system refuses.
    pub(super) async fn send(&self, number: i32, to: Recipient) -> Result<bool> {
        let holds_number = child::is_unreaped(self.leader) && !self.may_vanish() && !self.is_gone();
        match (Pid::from_raw(self.leader), to) {
            (Some(child), Recipient::Leader) if holds_number => {
                send_signal(Whom::Process(child), number).map_err(refused)
            }
            (Some(group), Recipient::Group) if holds_number => {
                send_signal(Whom::Group(group), number).map_err(refused)
            }
            (Some(group), Recipient::Group) if !self.is_gone() => {
                let tree = self.clone();
                let job = move || signal_rest(&tree, group, number);
                pool::run_on(Lane::Processes, job).await?
            }
            _ => Ok(false),
        }
    }

    async fn ask_then_force(&self, reach: Reach, grace: Duration) -> Result<bool> {
        let deadline = Deadline::after(grace);
        let asked = self.press(reach, Signal::TERM, deadline).await?;
        if asked.left {
            let deadline = Deadline::after(KILL_WAIT);
            let forced = self.press(reach, Signal::KILL, deadline).await?;
            if forced.left {
                tracing::warn!(group = self.leader, "processes outlive SIGKILL");
            }
        }
        Ok(asked.found)
    }

    /// Kills the group without looking, for when looking failed; once the child was reaped, only what a cgroup holds.
    fn end_blindly(&self, reach: Reach) {
        self.kill_leaf(reach);
        if let Some(group) = Pid::from_raw(self.leader)
            && !self.may_vanish()
        {
            // ESRCH: it ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Kills everybody in the cgroup, if the exec has one and it is everybody who is to end.
    fn kill_leaf(&self, reach: Reach) {
        if let Some(leaf) = self.leaf.as_ref().filter(|_| reach == Reach::All) {
            // Where the kernel cannot, each member is killed by itself.
            leaf.kill();
        }
    }

    /// The live processes in the cgroup, as far as `reach` goes.
    ///
    /// A number is read before and after its start time, which is compared again at the signal: whoever has the
    /// number and the start time then was in the cgroup.
    fn housed(&self, reach: Reach) -> Vec<Process> {
        let Some(leaf) = &self.leaf else {
            return Vec::new();
        };
        let seen: Vec<_> = leaf.pids().into_iter().filter_map(scan::process).collect();
        let still: HashSet<i32> = leaf.pids().into_iter().collect();
        let is_member = |one: &Process| {
            let in_reach = reach == Reach::All || one.group == self.leader;
            one.live && in_reach && still.contains(&one.pid)
        };
        seen.into_iter().filter(is_member).collect()
    }

    /// True when somebody is alive in the cgroup, whom a walk may have missed.
    fn is_housed(&self, reach: Reach) -> bool {
        let leaf = self.leaf.as_ref().filter(|_| reach == Reach::All);
        leaf.is_some_and(Leaf::is_populated)
    }

    /// Sends `signal` to the members, new ones included, until none is left or the deadline passes.
    async fn press(&self, reach: Reach, signal: Signal, deadline: Deadline) -> Result<Pressed> {
        let mut told = HashSet::new();
        let mut found = false;
        loop {
            let tree = self.clone();
            let job = move || strike_surely(&tree, reach, signal, told);
            let left = deadline.left().unwrap_or(Duration::MAX);
            let walk = pool::run_on(Lane::Processes, job);
            let Some(strike) = clock::within(left.saturating_add(WALK_WAIT), walk).await else {
                return Err(Kind::Busy.told("the process table could not be walked in time"));
            };
            let strike = strike?;
            if strike.is_gone {
                self.forget_group();
            }
            found |= strike.live > 0;
            if strike.live == 0 {
                return Ok(Pressed { found, left: false });
            }
            wait_for_ends(strike.watched, deadline).await;
            if deadline.has_passed() {
                return Ok(Pressed { found, left: true });
            }
            told = strike.told;
        }
    }

    /// What a walk that has just been made looks for.
    fn target(&self, reach: Reach) -> Target {
        Target {
            reach,
            leader: self.leader,
            reaped: self.may_vanish(),
            gone: self.is_gone(),
            mark: self.mark,
            reaper: getpid().as_raw_nonzero().get(),
        }
    }
}

struct Pressed {
    found: bool,
    left: bool,
}

/// A process for good: pid and start time.
type Who = (i32, u64);

/// What one walk found and signalled.
struct Strike {
    live: usize,
    /// True when the group was seen empty after the child was reaped.
    is_gone: bool,
    told: HashSet<Who>,
    watched: Vec<OwnedFd>,
}

/// Waits until each of the watched processes has ended, or the deadline passes.
async fn wait_for_ends(watched: Vec<OwnedFd>, deadline: Deadline) {
    let mut seen = 0;
    for pidfd in watched {
        let Ok(pidfd) = Fd::new(pidfd) else { continue };
        seen += 1;
        if clock::until(deadline, pidfd.readable()).await.is_none() {
            return;
        }
    }
    if seen == 0 {
        // Out of descriptors: the one case in which there is nothing to wait for.
        clock::sleep(BLIND_PAUSE).await;
    }
}

/// Strikes until somebody is found, or nobody several times over: a walk can miss what forks and exits meanwhile.
fn strike_surely(tree: &Tree, reach: Reach, signal: Signal, told: HashSet<Who>) -> Strike {
    let mut struck = strike(tree, reach, signal, told);
    for _ in 0..DOUBTS {
        if struck.live > 0 {
            break;
        }
        struck = strike(tree, reach, signal, struck.told);
    }
    struck
}

/// Walks the process table and signals every member that is not in `told`; the first time, the group as one.
fn strike(tree: &Tree, reach: Reach, signal: Signal, mut told: HashSet<Who>) -> Strike {
    if signal == Signal::KILL {
        tree.kill_leaf(reach);
    }
    let was_reaped = tree.may_vanish();
    let all = scan::processes();
    // Asked after the walk: if the child is not reaped even now, its number was its own in all of the walk.
    let target = tree.target(reach);
    let mut found = members(&all, &target, scan::timer_slack);
    let is_known = !target.gone && found.iter().any(|one| one.group == target.leader);
    let housed = tree.housed(reach);
    let known: HashSet<Who> = found.iter().map(|one| (one.pid, one.started)).collect();
    let is_new = |one: &&Process| !known.contains(&(one.pid, one.started));
    found.extend(housed.iter().filter(is_new));
    // And again before the signal: a number that was just set free is no longer a group of ours.
    let as_one = told.is_empty() && is_known && tree.target(reach) == target;
    if let Some(group) = Pid::from_raw(target.leader)
        && as_one
    {
        // What is sent to the group reaches what was forked since the walk; a refusal leaves members to be seen.
        let _ = kill_process_group(group, signal);
    }
    let mut watched = Vec::new();
    for member in &found {
        let is_new = told.insert((member.pid, member.started));
        let needs_signal = is_new && !(as_one && member.group == target.leader);
        if !needs_signal && watched.len() >= WATCHED {
            continue;
        }
        let Some(pidfd) = open(member) else { continue };
        if needs_signal {
            let _ = pidfd_send_signal(&pidfd, signal);
        }
        if watched.len() < WATCHED {
            watched.push(pidfd);
        }
    }
    Strike {
        live: found.len().max(usize::from(tree.is_housed(reach))),
        is_gone: was_reaped && !all.iter().any(|process| process.group == target.leader),
        told,
        watched,
    }
}

/// Signals what is left of the group of a child that was reaped, while the number is known to be its own.
fn signal_rest(tree: &Tree, group: Pid, number: i32) -> Result<bool> {
    for _ in 0..=DOUBTS {
        let all = scan::processes();
        let target = Target {
            reaped: true,
            ..tree.target(Reach::Group)
        };
        let is_found = !members(&all, &target, scan::timer_slack).is_empty();
        if is_found && !tree.is_gone() {
            return send_signal(Whom::Group(group), number).map_err(refused);
        }
        if !all.iter().any(|process| process.group == target.leader) {
            tree.forget_group();
            break;
        }
    }
    Ok(false)
}

fn refused(error: io::Error) -> Error {
    Kind::Internal
        .told("the signal could not be sent")
        .because(error)
}

/// The live members of each of `trees` among `all`. Blocks: it reads the marks of orphans.
pub(super) fn members_of(trees: &[Tree], all: &[Process]) -> Vec<Vec<Process>> {
    let children = children(all);
    let known = RefCell::new(HashMap::new());
    let slack = |pid| {
        let mut known = known.borrow_mut();
        *known.entry(pid).or_insert_with(|| scan::timer_slack(pid))
    };
    let of_tree = |tree: &Tree| {
        let found = members_below(all, &children, &tree.target(Reach::All), slack);
        found.into_iter().copied().collect()
    };
    trees.iter().map(of_tree).collect()
}

/// A descriptor for exactly the process that was seen; `None` when it has ended.
fn open(seen: &Process) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(seen.pid)?, PidfdFlags::empty()).ok()?;
    // The number was free to be reused until the descriptor was open.
    let now = scan::process(seen.pid)?;
    (now.started == seen.started).then_some(pidfd)
}

/// Processes watched at a time; the walk is repeated when they have ended.
const WATCHED: usize = 16;
/// Walks that must find nobody before that is believed, beyond the first.
const DOUBTS: usize = 3;
/// How long processes may take to vanish after SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long a walk may take beyond the deadline of the signal that it is for.
const WALK_WAIT: Duration = Duration::from_secs(1);
/// Pause between walks when no process can be watched.
const BLIND_PAUSE: Duration = Duration::from_millis(20);
