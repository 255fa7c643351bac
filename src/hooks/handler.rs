//! The programs that an image has for its hooks: one process at a time, each against a budget.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use schemars::JsonSchema;
use serde::Serialize;

use super::queue::{Queue, WAITING};
use super::{Environment, Settings, output};
use crate::ring::child::{Bounds, Child, Exit, Image};
use crate::ring::clock::{self, Deadline, Moment, until, within};
use crate::ring::notify::Once;
use crate::ring::process::{Whom, send_signal};
use crate::ring::{Fd, detached, pool};

/// How a handler ended, or why it did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "HandlerOutcome")]
pub struct Outcome {
    /// The exit status; null when it did not exit by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it; null when none did.
    pub signal: Option<i32>,
    /// True when it was killed because the budget was gone.
    pub timed_out: bool,
    /// How long it ran, in milliseconds; when it did not run, how long it waited.
    pub duration_ms: u64,
    /// Why it did not run, or did not end; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Outcome {
    pub(super) fn is_success(&self) -> bool {
        self.exit_code == Some(0) && !self.timed_out
    }

    pub(super) fn not_run(error: String, duration_ms: u64) -> Self {
        Self {
            exit_code: None,
            signal: None,
            timed_out: false,
            duration_ms,
            error: Some(error),
        }
    }
}

/// The handlers of one daemon.
pub(super) struct Handlers {
    settings: Settings,
    queue: Queue,
    /// The process group of the one that runs.
    running: Cell<Option<Pid>>,
}

impl Handlers {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            queue: Queue::default(),
            running: Cell::new(None),
        }
    }

    /// Runs the handler of `hook`; `None` when the image has none. Waiting for others counts against the budget, so
    /// that whoever invokes the hook is answered in time.
    pub(super) async fn run(
        &self,
        hook: &'static str,
        environment: impl FnOnce() -> Environment,
    ) -> Option<Outcome> {
        let came = clock::now();
        let deadline = Deadline::after(self.settings.budget);
        let path = self.settings.dir.join(hook);
        let not_run = |error: String| Some(Outcome::not_run(error, ms_since(came)));
        let looked = path.clone();
        match until(deadline, pool::run(move || look(&looked))).await {
            Some(Ok(Found::Nothing)) => return None,
            Some(Ok(Found::Program)) => {}
            Some(Ok(Found::Unfit(why))) => return not_run(why),
            Some(Err(error)) => return not_run(error.to_string()),
            None => return not_run("its directory does not answer".into()),
        }
        let Some(place) = self.queue.join() else {
            return not_run(format!("{WAITING} others wait already"));
        };
        if until(deadline, place.turn()).await.is_none() {
            return not_run("others took the whole time".into());
        }
        let began = clock::now();
        match self.start(path, environment(), deadline).await {
            Ok((child, pipes)) => Some(self.attend(hook, &child, pipes, began, deadline).await),
            Err(error) => not_run(error),
        }
    }

    /// Kills the group of the handler that runs.
    pub(super) fn close(&self) {
        if let Some(group) = self.running.take() {
            kill(group);
        }
    }

    async fn start(
        &self,
        path: PathBuf,
        environment: Environment,
        deadline: Deadline,
    ) -> Result<(Child, [Fd; 2]), String> {
        let failed = |error: io::Error| format!("it cannot be started: {error}");
        let (image, pipes) = self.image(path, environment).map_err(failed)?;
        // A start that hangs with its file system may still succeed when nobody waits any more.
        let late = Rc::new(Cell::new(false));
        let is_late = Rc::clone(&late);
        let starting = detached("hook handler", async move {
            let started = Child::start(image).await;
            if let Ok(child) = &started
                && is_late.get()
                && let Some(group) = Pid::from_raw(child.pid)
            {
                kill(group);
            }
            started
        });
        match until(deadline, starting).await {
            Some(Some(Ok(child))) => Ok((child, pipes)),
            Some(Some(Err(refusal))) => Err(failed(refusal.error)),
            Some(None) => Err("it cannot be started".into()),
            None => {
                late.set(true);
                Err("it cannot be started in time".into())
            }
        }
    }

    /// What is started, and our ends of its standard output and standard error.
    fn image(&self, path: PathBuf, environment: Environment) -> io::Result<(Image, [Fd; 2])> {
        let program = CString::new(path.into_os_string().into_vec())?;
        let variable = |(mut name, value): (Vec<u8>, Vec<u8>)| {
            name.push(b'=');
            name.extend(value);
            CString::new(name).map_err(|_| io::Error::other("a variable has a NUL byte"))
        };
        let envp = environment.into_iter().map(variable);
        let (stdout, far_out) = pipe()?;
        let (stderr, far_err) = pipe()?;
        let image = Image {
            candidates: vec![program.clone()],
            argv: vec![program],
            envp: envp.collect::<Result<_, _>>()?,
            cwd: Some(c"/".into()),
            gid: None,
            uid: None,
            groups: None,
            oom_score: self.settings.oom_score,
            descriptors: self.settings.descriptors,
            timer_slack: None,
            bounds: Bounds::default(),
            stdio: [File::open("/dev/null")?.into(), far_out, far_err],
            terminal: false,
        };
        Ok((image, [stdout, stderr]))
    }

    /// Waits for the end of a handler, and brings it about at the deadline.
    async fn attend(
        &self,
        hook: &'static str,
        child: &Child,
        [stdout, stderr]: [Fd; 2],
        began: Moment,
        deadline: Deadline,
    ) -> Outcome {
        let group = Pid::from_raw(child.pid);
        self.running.set(group);
        let over = Rc::new(Once::default());
        let told = [(stdout, "stdout"), (stderr, "stderr")].map(|(pipe, stream)| {
            let following = output::follow(pipe, hook, stream, Rc::clone(&over));
            detached("hook output", following)
        });
        let in_time = until(deadline, child.exited()).await;
        let timed_out = in_time.is_none();
        let exit = match in_time {
            Some(exit) => Some(exit),
            None => {
                // It is not reaped, so the number of its group is its own.
                if let Some(group) = group {
                    kill(group);
                }
                within(LAST_WORDS, child.exited()).await
            }
        };
        self.running.set(None);
        over.set(());
        for told in told {
            told.await;
        }
        outcome(exit, timed_out, ms_since(began))
    }
}

fn outcome(exit: Option<Exit>, timed_out: bool, duration_ms: u64) -> Outcome {
    Outcome {
        exit_code: exit.and_then(|exit| exit.code),
        signal: exit.and_then(|exit| exit.signal),
        timed_out,
        duration_ms,
        error: exit.is_none().then(|| "it outlives SIGKILL".into()),
    }
}

/// What stands where a handler would.
enum Found {
    Nothing,
    Program,
    /// Something that cannot be run, and why.
    Unfit(String),
}

/// Looks for a handler. It may wait for its file system.
fn look(path: &Path) -> Found {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
        Err(error) => Found::Unfit(error.to_string()),
        Ok(meta) if !meta.is_file() => Found::Unfit("it is not a regular file".into()),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => {
            Found::Unfit("it is not executable".into())
        }
        Ok(_) => Found::Program,
    }
}

fn kill(group: Pid) {
    if let Err(error) = send_signal(Whom::Group(group), libc::SIGKILL) {
        tracing::warn!(%error, "a hook handler cannot be killed");
    }
}

/// A pipe: our read end and the child's write end.
fn pipe() -> io::Result<(Fd, OwnedFd)> {
    let (near, far) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Fd::of_fresh_pipe(near)?, far))
}

fn ms_since(earlier: Moment) -> u64 {
    let span: Duration = clock::now().since(earlier);
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How long a killed handler may take to be gone.
const LAST_WORDS: Duration = Duration::from_secs(2);
