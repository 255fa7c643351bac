//! Every exec by its id: started at most once, looked at, ended, acked, collected.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant, SystemTime};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::entry::{Birth, Exec, Report};
use super::follow::Follower;
use super::kill::{Reach, Tree};
use super::launch::{Launch, Program, Surroundings};
use super::marks::Marks;
use super::stdin::Stdin;
use super::supervise::{Started, supervise};
use super::{Limits, scan};
use crate::error::{Error, Kind, Result};
use crate::ring::child::{Child, Image};
use crate::ring::clock::{self, Deadline};
use crate::ring::notify::Once;
use crate::ring::{self, Fd, pool};

/// The registry of this thread.
pub struct Execs {
    limits: Rc<Limits>,
    by_id: RefCell<HashMap<String, Rc<Exec>>>,
    /// The latest exec of each group number, to tell the earlier one that its number is taken.
    by_group: RefCell<HashMap<i32, Weak<Exec>>>,
    marks: RefCell<Marks>,
    serial: Cell<u64>,
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
            by_group: RefCell::default(),
            marks: RefCell::default(),
            serial: Cell::new(0),
        }
    }

    /// True when `id` was started and not collected.
    pub fn knows(&self, id: &str) -> bool {
        self.by_id.borrow().contains_key(id)
    }

    /// Starts `launch`, unless its id is known: then nothing happens.
    ///
    /// If dropped, either nothing was started or the exec is registered and watched.
    ///
    /// # Errors
    /// `UnknownUser`, `UnknownGroup`, `UnknownShell`, `SpawnFailed`; nothing is registered then.
    pub async fn start(&self, launch: Launch, around: &Surroundings) -> Result<()> {
        if self.knows(&launch.id) {
            return Ok(());
        }
        let program = launch.resolve(around).await?;
        // From this look to the insertion nothing waits, so of two starts of one id only one spawns.
        if self.knows(&launch.id) {
            return Ok(());
        }
        let mark = self.marks.borrow_mut().take();
        match self.spawn(launch, &program, mark) {
            Ok((exec, started)) => {
                self.register(&exec);
                ring::spawn("exec", supervise(exec, started, Rc::clone(&self.limits)));
                Ok(())
            }
            Err(error) => {
                self.give_back(mark);
                Err(error)
            }
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
        let done = Rc::new(Once::default());
        let (told, grace) = (Rc::clone(&done), self.limits.kill_grace);
        ring::spawn("kill", async move {
            let ended = exec.tree.end(Reach::All, grace).await;
            if let Ok(true) = ended {
                // The result of what has just ended is moments away: a poll after the answer should find it.
                clock::within(SETTLE, exec.finished()).await;
            }
            told.set(ended.map_err(|error| error.to_string()));
        });
        done.wait().await.map_err(|error| {
            let cause = std::io::Error::other(error);
            Kind::Internal
                .told("the process table could not be walked")
                .because(cause)
        })
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
        let by_id = self.by_id.borrow();
        Activity {
            busy: by_id.values().any(|exec| exec.outcome().is_none()),
            execs: by_id.len(),
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
        let all = pool::run(scan::processes).await?;
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

    fn spawn(
        &self,
        launch: Launch,
        program: &Program,
        mark: Option<u64>,
    ) -> Result<(Rc<Exec>, Started)> {
        let plumbing = Plumbing::lay(launch.stdin).map_err(failed)?;
        let image = Image {
            candidates: program.candidates.clone(),
            argv: program.argv.clone(),
            envp: program.envp.clone(),
            cwd: program.cwd.clone(),
            gid: program.gid,
            uid: program.uid,
            groups: program.groups.clone(),
            oom_score: self.limits.oom_score,
            descriptors: self.limits.descriptors,
            timer_slack: mark,
            stdio: plumbing.far.each_ref().map(AsFd::as_fd),
        };
        let deadline = launch.timeout.map_or(Deadline::NEVER, Deadline::after);
        let child = Child::start(&image).map_err(failed)?;
        let started_at = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.serial.set(self.serial.get() + 1);
        let birth = Birth {
            id: launch.id,
            serial: self.serial.get(),
            started_at: started_at.as_secs(),
            reap: launch.reap_group_on_exit,
            tree: Tree::new(child.pid, mark),
            stdin: Stdin::new(plumbing.stdin),
        };
        let started = Started {
            child,
            stdout: plumbing.stdout,
            stderr: plumbing.stderr,
            deadline,
        };
        Ok((Rc::new(Exec::new(birth, &self.limits)), started))
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

/// The descriptors around a child: its three, and our ends of the pipes.
struct Plumbing {
    far: [OwnedFd; 3],
    stdin: Option<Fd>,
    stdout: Fd,
    stderr: Fd,
}

impl Plumbing {
    fn lay(with_stdin: bool) -> std::io::Result<Self> {
        let (far_in, stdin) = if with_stdin {
            let (far, near) = pipe_with(PipeFlags::CLOEXEC)?;
            (far, Some(Fd::new(near)?))
        } else {
            (OwnedFd::from(File::open("/dev/null")?), None)
        };
        let (stdout, far_out) = output_pipe()?;
        let (stderr, far_err) = output_pipe()?;
        Ok(Self {
            far: [far_in, far_out, far_err],
            stdin,
            stdout,
            stderr,
        })
    }
}

/// A large pipe: our read end and the child's write end.
fn output_pipe() -> std::io::Result<(Fd, OwnedFd)> {
    let (near, far) = pipe_with(PipeFlags::CLOEXEC)?;
    // A user over the kernel's pipe budget keeps the small pipe, which is only slower.
    let _ = fcntl_setpipe_size(&near, PIPE_BYTES);
    Ok((Fd::new(near)?, far))
}

fn failed(error: std::io::Error) -> Error {
    Kind::SpawnFailed.told(error.to_string()).because(error)
}

/// Room of an output pipe (`bench`: three times the throughput of the default).
const PIPE_BYTES: usize = 1024 * 1024;
/// How long an answer to a kill waits for the result of what it killed.
const SETTLE: Duration = Duration::from_millis(250);
