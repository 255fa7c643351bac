//! Every exec by its id: started at most once, looked at, ended, acked, collected.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::{Duration, SystemTime};

use super::budget::{Budget, Share};
use super::cgroup::Cgroups;
use super::counters::{Counters, Counts};
use super::entry::{Birth, Exec, Report};
use super::follow::Follower;
use super::kill::{Reach, Recipient, Tree, members_of};
use super::launch::{Launch, Surroundings};
use super::marks::Marks;
use super::spawn::{Hold, Spawned, spawn};
use super::spill::{Place, Spill};
use super::supervise::{Started, supervise};
use super::terminal::Size;
use super::{Detail, Limits, scan};
use crate::error::{Kind, Result};
use crate::ring::cgroup::{Leaf, Subtree};
use crate::ring::clock::{self, Deadline, Moment};
use crate::ring::notify::Event;
use crate::ring::pool::{self, Lane};
use crate::ring::{self, Inflow};

/// The registry of this thread.
pub struct Execs {
    limits: Rc<Limits>,
    by_id: RefCell<HashMap<String, Rc<Exec>>>,
    /// Acked ones in the order of their acks.
    acked: RefCell<VecDeque<Rc<Exec>>>,
    /// Ids that are claimed by a start of which nobody knows yet what it comes to.
    starting: RefCell<HashSet<String>>,
    /// Happens when such a start has come to something.
    decided: Event,
    /// The latest exec of each group number, to tell the earlier one that its number is taken.
    by_group: RefCell<HashMap<i32, Weak<Exec>>>,
    marks: RefCell<Marks>,
    cgroups: Cgroups,
    serial: Cell<u64>,
    counters: Rc<Counters>,
    /// The memory that output takes.
    memory: Rc<Budget>,
    spills: Rc<Place>,
}

/// What health says of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// True while an exec has not ended.
    pub busy: bool,
    /// Execs registered, in any phase.
    pub execs: usize,
}

/// The live processes of one exec's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The exec.
    pub exec_id: String,
    /// The number of the group.
    pub pgid: i32,
    /// Seconds since the epoch at the start.
    pub started_at: u64,
    /// True once the exec has ended, linger included.
    pub child_exited: bool,
    /// What the start request said.
    pub reap: bool,
    /// Live processes, in ascending order.
    pub pids: Vec<i32>,
    /// Every live process of the exec, whatever its group, by ascending pid; `None` unless they were asked for.
    pub processes: Option<Vec<Detail>>,
}

impl Execs {
    /// An empty registry.
    pub fn new(limits: Limits) -> Self {
        let spills = Place {
            dir: limits.spill_dir.clone(),
            reserve: limits.disk_reserve,
            budget: Budget::new(limits.max_spill_bytes),
        };
        Self {
            memory: Budget::new(limits.max_output_memory),
            spills: Rc::new(spills),
            limits: Rc::new(limits),
            by_id: RefCell::default(),
            acked: RefCell::default(),
            starting: RefCell::default(),
            decided: Event::default(),
            by_group: RefCell::default(),
            marks: RefCell::default(),
            cgroups: Cgroups::default(),
            serial: Cell::new(0),
            counters: Rc::default(),
        }
    }

    /// The same registry, with execs in cgroups below `subtree` if there is one.
    #[must_use]
    pub fn within(mut self, subtree: Option<Subtree>) -> Self {
        self.cgroups = Cgroups::new(subtree);
        self
    }

    /// Leaves nothing behind that nobody needs. To be called at the end of the process.
    pub fn close(&self) {
        self.cgroups.close();
    }

    /// True when `id` was started and not collected.
    pub fn knows(&self, id: &str) -> bool {
        self.by_id.borrow().contains_key(id)
    }

    /// Starts `launch`, unless its id is known: then nothing happens.
    ///
    /// Of starts of one id at once, one goes ahead and the others wait: when it fails, the next one tries.
    /// If dropped, a start under way goes on to its end, and an exec that it starts is registered and watched.
    ///
    /// # Errors
    /// `UnknownUser`, `UnknownGroup`, `UnknownShell`, `Unsupported`, `SpawnFailed`; `Busy` when too many execs wait to
    /// be acked, or their output takes too much memory. Nothing is registered then.
    pub async fn start(self: &Rc<Self>, launch: Launch, around: &Surroundings) -> Result<()> {
        let started = self.start_once(launch, around).await;
        if started.is_err() {
            self.counters.failed_to_start();
        }
        started
    }

    async fn start_once(self: &Rc<Self>, launch: Launch, around: &Surroundings) -> Result<()> {
        loop {
            let seen = self.decided.count();
            if self.knows(&launch.id) {
                return Ok(());
            }
            if self.starting.borrow().contains(&launch.id) {
                self.decided.after(seen).await;
                continue;
            }
            self.admit()?;
            let claim = self.claim(&launch.id);
            let started = ring::detached("start", claim.start(launch, around.clone())).await;
            return started.unwrap_or_else(|| Err(Kind::Internal.told("internal error")));
        }
    }

    /// The exec of this id.
    ///
    /// # Errors
    /// `UnknownExec`.
    pub fn look(&self, id: &str) -> Result<Rc<Exec>> {
        let found = self.by_id.borrow().get(id).cloned();
        found.ok_or_else(|| Kind::UnknownExec.told(id.to_owned()))
    }

    /// Hands the result of an exec out for the last time; from now on it is kept for the TTL.
    ///
    /// # Errors
    /// `UnknownExec`, `StillRunning`, `AlreadyAcked`.
    pub fn ack(&self, id: &str) -> Result<Report> {
        let exec = self.look(id)?;
        let report = exec.ack(clock::now())?;
        self.acked.borrow_mut().push_back(exec);
        Ok(report)
    }

    /// Ends every process of an exec and answers when none is left; false when there was none.
    ///
    /// If dropped, the killing goes on: who asked for it must not be able to stop it half way.
    ///
    /// # Errors
    /// `UnknownExec`; `Internal` when the process table could not be walked.
    pub async fn kill(&self, id: &str) -> Result<bool> {
        let exec = self.look(id)?;
        let unwalked = || Kind::Internal.told("the process table could not be walked");
        // Whoever asks while a kill is under way waits for that one.
        if let Some(killing) = exec.killing() {
            return killing.wait().await.ok_or_else(unwalked);
        }
        let (under_way, grace) = (UnderWay::new(&exec), self.limits.kill_grace);
        let killing = ring::detached("kill", async move {
            let ended = exec.tree.end(Reach::All, grace).await;
            if let Ok(true) = ended {
                // The result of what has just ended is moments away: a poll after the answer should find it.
                clock::within(SETTLE, exec.finished()).await;
                exec.counters.killed();
            }
            under_way.0.stop_killing(ended.as_ref().ok().copied());
            ended
        });
        let ended = killing.await;
        let ended = ended.unwrap_or_else(|| Err(Kind::Internal.told("internal error")));
        ended.map_err(|error| unwalked().because(error))
    }

    /// Sends the signal of this number to an exec; false when nobody is left who could get it.
    ///
    /// # Errors
    /// `UnknownExec`; `Busy` or `Internal` when the process table could not be walked or the system refuses.
    pub async fn signal(&self, id: &str, number: i32, to: Recipient) -> Result<bool> {
        self.look(id)?.tree.send(number, to).await
    }

    /// The standard input of an exec, checked to be one that can be asked to take writes.
    ///
    /// # Errors
    /// `UnknownExec`, `StdinNotRequested`.
    pub fn stdin(&self, id: &str) -> Result<Rc<Exec>> {
        let exec = self.look(id)?;
        if exec.stdin.is_requested() {
            return Ok(exec);
        }
        Err(Kind::StdinNotRequested
            .told("the exec was started without \"stdin\": true, so it reads /dev/null"))
    }

    /// Writes `bytes` to the standard input of `exec`, then closes it if `eof` says so.
    ///
    /// # Errors
    /// `StdinWriteTooLarge`, `StdinClosed`, `StdinWriteTimeout`, `StdinWriteFailed`.
    pub async fn write(&self, exec: &Exec, bytes: &[u8], eof: bool) -> Result<()> {
        let most = self.limits.max_stdin_write_bytes;
        if bytes.len() > most {
            let told = format!(
                "{} bytes are more than the {most} of one write",
                bytes.len()
            );
            return Err(Kind::StdinWriteTooLarge.told(told));
        }
        let patience = self.limits.stdin_write_timeout;
        exec.stdin.write(bytes, eof, patience).await
    }

    /// Writes what `source` brings to the standard input of `exec`, as [`Execs::write`] does, without a bound on its
    /// length; byte 0 of it is byte `offset` of the standard input, or the next one.
    ///
    /// # Errors
    /// `StdinOffset`, `StdinClosed`, `StdinWriteTimeout`, `StdinWriteFailed`, and those of the source.
    pub async fn flow(
        &self,
        exec: &Exec,
        source: &mut dyn Inflow,
        offset: Option<u64>,
        eof: bool,
    ) -> Result<()> {
        let patience = self.limits.stdin_write_timeout;
        exec.stdin.flow(source, offset, eof, patience).await
    }

    /// Gives the terminal of an exec another size; the kernel tells the foreground processes with SIGWINCH.
    ///
    /// # Errors
    /// `UnknownExec`, `NoTerminal`, `TerminalClosed`.
    pub fn resize(&self, id: &str, size: Size) -> Result<()> {
        let exec = self.look(id)?;
        let Some(terminal) = &exec.terminal else {
            return Err(Kind::NoTerminal.told("the exec was started without \"tty\""));
        };
        terminal.resize(size)
    }

    /// A follower of an exec's output from `offset` on.
    ///
    /// # Errors
    /// `UnknownExec`.
    pub fn follow(&self, id: &str, offset: u64) -> Result<Follower> {
        Ok(Follower::new(self.look(id)?, offset))
    }

    /// Collects what was acked longer than the TTL before `now`. To be called every second.
    pub fn sweep(self: &Rc<Self>, now: Moment) {
        if self.cgroups.has_left() {
            let execs = Rc::clone(self);
            ring::spawn("cgroups", async move { execs.cgroups.sweep().await });
        }
        let (ttl, most) = (self.limits.exec_ttl, self.limits.max_execs);
        let is_due = |acked: &VecDeque<Rc<Exec>>| {
            let oldest = acked.front();
            acked.len() > most || oldest.is_some_and(|exec| exec.is_stale(now, ttl))
        };
        while is_due(&self.acked.borrow()) {
            self.collect_oldest(|_| true);
        }
    }

    /// Forgets the exec that was acked first of those that `takes` says yes to; false when there is none.
    fn collect_oldest(&self, takes: impl Fn(&Exec) -> bool) -> bool {
        let found = self.acked.borrow().iter().position(|exec| takes(exec));
        let taken = found.and_then(|index| self.acked.borrow_mut().remove(index));
        let Some(exec) = taken else { return false };
        self.by_id.borrow_mut().remove(&exec.id);
        self.give_back(exec.tree.mark());
        let group = exec.tree.group();
        let mut by_group = self.by_group.borrow_mut();
        let is_latest = by_group
            .get(&group)
            .is_some_and(|latest| latest.as_ptr() == Rc::as_ptr(&exec));
        if is_latest {
            by_group.remove(&group);
        }
        true
    }

    /// Refuses a start while too much is kept for those who have not read it.
    fn admit(&self) -> Result<()> {
        let (known, acked) = (self.by_id.borrow().len(), self.acked.borrow().len());
        let unread = known + self.starting.borrow().len() - acked;
        if unread >= self.limits.max_execs {
            let told = format!("{unread} execs run or wait to be acked, and no more may");
            return Err(Kind::Busy.told(told));
        }
        // What was acked was read: it may go before its time, if that helps.
        let acked = || self.acked.borrow().iter().map(|exec| exec.memory()).sum();
        if self.memory.is_spent() && !self.memory.is_spent_without(acked()) {
            while self.memory.is_spent() && self.collect_oldest(|exec| exec.memory() > 0) {}
        }
        let disk = &self.spills.budget;
        let wanted = self.limits.spill_bytes.min(self.limits.max_spill_bytes);
        while !disk.has(wanted) && self.collect_oldest(|exec| exec.spill.bytes() > 0) {}
        if self.memory.is_spent() {
            let used = self.memory.used();
            let told = format!("the output of execs takes {used} bytes, and no more may be kept");
            return Err(Kind::Busy.told(told));
        }
        Ok(())
    }

    /// How much is registered, and whether anything runs.
    pub fn activity(&self) -> Activity {
        Activity {
            busy: self.counters.running() > 0,
            execs: self.by_id.borrow().len(),
        }
    }

    /// How many there are, and what has happened since the start.
    pub fn counts(&self) -> Counts {
        let counts = self.counters.counts();
        let (known, acked) = (self.by_id.borrow().len(), self.acked.borrow().len());
        Counts {
            exited: known - acked - counts.running,
            acked,
            starts: self.serial.get(),
            memory: self.memory.used(),
            spilled: self.spills.budget.used(),
            ..counts
        }
    }

    /// Every exec with the live processes of its group, in the order of their starts.
    ///
    /// # Errors
    /// `Busy` or `Internal` when the process table could not be walked.
    pub async fn procs(&self) -> Result<Vec<Group>> {
        self.list(false).await
    }

    /// The same with all that is known of every process of each exec, those that left its group included.
    ///
    /// # Errors
    /// As [`Execs::procs`].
    pub async fn procs_in_detail(&self) -> Result<Vec<Group>> {
        self.list(true).await
    }

    async fn list(&self, in_detail: bool) -> Result<Vec<Group>> {
        let mut execs: Vec<_> = self.by_id.borrow().values().cloned().collect();
        if execs.is_empty() {
            return Ok(Vec::new());
        }
        execs.sort_unstable_by_key(|exec| exec.serial);
        let may_vanish: Vec<_> = execs.iter().map(|exec| exec.tree.may_vanish()).collect();
        let trees: Vec<_> = execs.iter().map(|exec| exec.tree.clone()).collect();
        let walk = move || {
            let all = scan::processes();
            let members = in_detail.then(|| members_of(&trees, &all));
            (all, members)
        };
        let (all, found) = pool::run_on(Lane::Processes, walk).await?;
        // A command line lies in the memory of its process, which may hang with what that waits for.
        let described = match found {
            Some(found) => pool::run(move || scan::describe(found)).await?,
            None => Vec::new(),
        };
        let mut described = described.into_iter();
        let mut members: HashMap<i32, Vec<scan::Process>> = HashMap::new();
        for process in all {
            members.entry(process.group).or_default().push(process);
        }
        let mut groups = Vec::with_capacity(execs.len());
        for (exec, may_vanish) in execs.iter().zip(may_vanish) {
            let group = exec.tree.group();
            if may_vanish && !members.contains_key(&group) {
                exec.tree.forget_group();
            }
            let mut pids = Vec::new();
            if !exec.tree.is_gone() {
                let live = members.get(&group).into_iter().flatten();
                pids.extend(live.filter(|one| one.live).map(|one| one.pid));
                pids.sort_unstable();
            }
            groups.push(Group {
                exec_id: exec.id.clone(),
                pgid: group,
                started_at: exec.started_at,
                child_exited: exec.outcome().is_some(),
                reap: exec.reap,
                pids,
                processes: described.next(),
            });
        }
        Ok(groups)
    }

    /// Claims an id, which nobody has, for one start.
    fn claim(self: &Rc<Self>, id: &str) -> Claim {
        self.starting.borrow_mut().insert(id.to_owned());
        Claim {
            execs: Rc::clone(self),
            id: id.to_owned(),
        }
    }

    fn register(&self, exec: &Rc<Exec>) {
        let group = exec.tree.group();
        let earlier = self
            .by_group
            .borrow_mut()
            .insert(group, Rc::downgrade(exec));
        if let Some(earlier) = earlier.and_then(|earlier| earlier.upgrade()) {
            earlier.tree.forget_group();
        }
        let before = self
            .by_id
            .borrow_mut()
            .insert(exec.id.clone(), Rc::clone(exec));
        assert!(before.is_none(), "an id is claimed once");
    }

    fn give_back(&self, mark: Option<u64>) {
        if let Some(mark) = mark {
            self.marks.borrow_mut().give_back(mark);
        }
    }
}

/// The sole right to start an exec of this id; dropped, it says that the start has come to something.
struct Claim {
    execs: Rc<Execs>,
    id: String,
}

impl Claim {
    /// Starts and registers; the claim is held until both are done or have failed.
    async fn start(self, launch: Launch, around: Surroundings) -> Result<()> {
        let execs = &self.execs;
        let program = launch.resolve(&around).await?;
        let subtree = execs.cgroups.subtree();
        let mut means = launch.allowance.means(program.uid, subtree)?;
        let (leaf, directory) = execs.cgroups.make(&means).await?.unzip();
        means.bounds.cgroup = directory;
        let hold = Hold {
            allowance: &launch.allowance,
            bounds: means.bounds,
        };
        let mark = execs.marks.borrow_mut().take();
        match spawn(program, launch.input(), mark, hold, &execs.limits).await {
            Ok(spawned) => self.enter(launch, spawned, mark, leaf),
            Err(error) => {
                execs.give_back(mark);
                if let Some(leaf) = leaf {
                    execs.cgroups.remove(leaf).await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn enter(&self, launch: Launch, spawned: Spawned, mark: Option<u64>, leaf: Option<Leaf>) {
        let execs = &self.execs;
        let started_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        execs.serial.set(execs.serial.get() + 1);
        let birth = Birth {
            id: launch.id,
            serial: execs.serial.get(),
            started_at: started_at.unwrap_or_default().as_secs(),
            reap: launch.reap_group_on_exit,
            tree: Tree::new(spawned.child.pid, mark).within(leaf.clone()),
            stdin: spawned.stdin,
            terminal: spawned.terminal,
            began: spawned.began,
            counters: Rc::clone(&execs.counters),
            spill: Spill::new(&execs.spills),
            memory: Share::new(&execs.memory),
        };
        let started = Started {
            child: spawned.child,
            pipes: spawned.pipes,
            deadline: launch.timeout.map_or(Deadline::NEVER, Deadline::after),
        };
        let exec = Rc::new(Exec::new(birth, &execs.limits));
        execs.register(&exec);
        let life = supervise(exec, started, Rc::clone(&execs.limits));
        let execs = Rc::clone(execs);
        ring::spawn("exec", async move {
            life.await;
            if let Some(leaf) = leaf {
                execs.cgroups.remove(leaf).await;
            }
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.execs.starting.borrow_mut().remove(&self.id);
        self.execs.decided.happen();
    }
}

/// A kill under way; dropped, it tells those who wait that it failed, unless it has told its outcome.
struct UnderWay(Rc<Exec>);

impl UnderWay {
    fn new(exec: &Rc<Exec>) -> Self {
        exec.start_killing();
        Self(Rc::clone(exec))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.stop_killing(None);
    }
}

/// How long an answer to a kill waits for the result of what it killed.
const SETTLE: Duration = Duration::from_millis(250);
