//! Every exec by its id: started at most once, looked at, ended, acked, collected.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::entry::{Birth, Exec, Report, Running};
use super::follow::Follower;
use super::kill::{Reach, Tree};
use super::launch::{Launch, Surroundings};
use super::marks::Marks;
use super::spawn::{Spawned, spawn};
use super::supervise::{Started, supervise};
use super::terminal::Size;
use super::{Limits, scan};
use crate::error::{Kind, Result};
use crate::ring;
use crate::ring::clock::{self, Deadline};
use crate::ring::notify::Event;
use crate::ring::pool::{self, Lane};

/// The registry of this thread.
pub struct Execs {
    limits: Rc<Limits>,
    by_id: RefCell<HashMap<String, Rc<Exec>>>,
    /// Ids that are claimed by a start of which nobody knows yet what it comes to.
    starting: RefCell<HashSet<String>>,
    /// Happens when such a start has come to something.
    decided: Event,
    /// The latest exec of each group number, to tell the earlier one that its number is taken.
    by_group: RefCell<HashMap<i32, Weak<Exec>>>,
    marks: RefCell<Marks>,
    serial: Cell<u64>,
    running: Rc<Cell<usize>>,
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
}

impl Execs {
    /// An empty registry.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits: Rc::new(limits),
            by_id: RefCell::default(),
            starting: RefCell::default(),
            decided: Event::default(),
            by_group: RefCell::default(),
            marks: RefCell::default(),
            serial: Cell::new(0),
            running: Rc::default(),
        }
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
    /// `UnknownUser`, `UnknownGroup`, `UnknownShell`, `SpawnFailed`; nothing is registered then.
    pub async fn start(self: &Rc<Self>, launch: Launch, around: &Surroundings) -> Result<()> {
        loop {
            let seen = self.decided.count();
            if self.knows(&launch.id) {
                return Ok(());
            }
            let Some(claim) = self.claim(&launch.id) else {
                self.decided.after(seen).await;
                continue;
            };
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
        self.look(id)?.ack(Instant::now())
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
            }
            under_way.0.stop_killing(ended.as_ref().ok().copied());
            ended
        });
        let ended = killing.await;
        let ended = ended.unwrap_or_else(|| Err(Kind::Internal.told("internal error")));
        ended.map_err(|error| unwalked().because(error))
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
    pub fn sweep(&self, now: Instant) {
        let ttl = self.limits.exec_ttl;
        let stale: Vec<_> = self
            .by_id
            .borrow_mut()
            .extract_if(|_, exec| exec.is_stale(now, ttl))
            .map(|(_, exec)| exec)
            .collect();
        for exec in stale {
            self.give_back(exec.tree.mark());
            let group = exec.tree.group();
            let mut by_group = self.by_group.borrow_mut();
            let is_latest = by_group
                .get(&group)
                .is_some_and(|latest| latest.as_ptr() == Rc::as_ptr(&exec));
            if is_latest {
                by_group.remove(&group);
            }
        }
    }

    /// How much is registered, and whether anything runs.
    pub fn activity(&self) -> Activity {
        Activity {
            busy: self.running.get() > 0,
            execs: self.by_id.borrow().len(),
        }
    }

    /// Every exec with the live processes of its group, in the order of their starts.
    ///
    /// # Errors
    /// `Busy` or `Internal` when the process table could not be walked.
    pub async fn procs(&self) -> Result<Vec<Group>> {
        let mut execs: Vec<_> = self.by_id.borrow().values().cloned().collect();
        if execs.is_empty() {
            return Ok(Vec::new());
        }
        execs.sort_unstable_by_key(|exec| exec.serial);
        let may_vanish: Vec<_> = execs.iter().map(|exec| exec.tree.may_vanish()).collect();
        let all = pool::run_on(Lane::Processes, scan::processes).await?;
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
            });
        }
        Ok(groups)
    }

    /// Claims an id for one start; `None` while another one has it.
    fn claim(self: &Rc<Self>, id: &str) -> Option<Claim> {
        let is_free = self.starting.borrow_mut().insert(id.to_owned());
        is_free.then(|| Claim {
            execs: Rc::clone(self),
            id: id.to_owned(),
        })
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
        let mark = execs.marks.borrow_mut().take();
        let spawned = spawn(program, launch.input(), mark, &execs.limits).await;
        let spawned = spawned.inspect_err(|_| execs.give_back(mark))?;
        self.enter(launch, spawned, mark);
        Ok(())
    }

    fn enter(&self, launch: Launch, spawned: Spawned, mark: Option<u64>) {
        let execs = &self.execs;
        let started_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        execs.serial.set(execs.serial.get() + 1);
        let birth = Birth {
            id: launch.id,
            serial: execs.serial.get(),
            started_at: started_at.unwrap_or_default().as_secs(),
            reap: launch.reap_group_on_exit,
            tree: Tree::new(spawned.child.pid, mark),
            stdin: spawned.stdin,
            terminal: spawned.terminal,
            running: Running::new(&execs.running),
        };
        let started = Started {
            child: spawned.child,
            pipes: spawned.pipes,
            deadline: launch.timeout.map_or(Deadline::NEVER, Deadline::after),
        };
        let exec = Rc::new(Exec::new(birth, &execs.limits));
        execs.register(&exec);
        ring::spawn("exec", supervise(exec, started, Rc::clone(&execs.limits)));
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
