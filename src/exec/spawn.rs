//! The start of one child: the pipes or the terminal around it, and the program in it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::OnceLock;

use rustix::pipe::{PipeFlags, pipe_with};

use super::Limits;
use super::allowance::Allowance;
use super::drain::Pipes;
use super::launch::Program;
use super::stdin::Stdin;
use super::terminal::{Input, Size, Terminal};
use crate::error::{Error, Kind, Result};
use crate::ring::Fd;
use crate::ring::child::{Bounds, Child, Image};
use crate::ring::clock::{self, Moment};

/// A child that was just started, and our ends of what it talks through.
pub(super) struct Spawned {
    /// The moment before it was started.
    pub(super) began: Moment,
    pub(super) child: Child,
    pub(super) stdin: Stdin,
    /// The read ends of its standard output and standard error, or of its terminal.
    pub(super) pipes: Pipes,
    pub(super) terminal: Option<Terminal>,
}

/// What a child is held to: what was asked for, and how it is set.
pub(super) struct Hold<'a> {
    pub(super) allowance: &'a Allowance,
    pub(super) bounds: Bounds,
}

/// Starts `program` with this standard input, and `mark` as its timer slack.
///
/// # Errors
/// `SpawnFailed`, `Unsupported`; no child and no descriptor is left then.
pub(super) async fn spawn(
    program: Program,
    input: Input,
    mark: Option<u64>,
    hold: Hold<'_>,
    limits: &Limits,
) -> Result<Spawned> {
    let ends = match input {
        Input::Terminal(size) => Ends::terminal(size, program.uid),
        Input::Pipe => Ends::pipes(true),
        Input::Null => Ends::pipes(false),
    };
    let ends = ends.map_err(failed)?;
    let image = Image {
        candidates: program.candidates,
        argv: program.argv,
        envp: program.envp,
        cwd: program.cwd,
        gid: program.gid,
        uid: program.uid,
        groups: program.groups,
        oom_score: limits.oom_score,
        descriptors: limits.descriptors,
        timer_slack: mark,
        bounds: hold.bounds,
        stdio: ends.far,
        terminal: ends.terminal.is_some(),
    };
    let began = clock::now();
    let child = Child::start(image).await;
    let child = child.map_err(|refusal| match refusal.bound {
        Some(bound) => hold.allowance.refused(bound, refusal.error),
        None => failed(refusal.error),
    })?;
    Ok(Spawned {
        began,
        child,
        stdin: ends.stdin,
        pipes: ends.pipes,
        terminal: ends.terminal,
    })
}

/// Both ends of what a child talks through.
struct Ends {
    /// The descriptors of the child.
    far: [OwnedFd; 3],
    stdin: Stdin,
    pipes: Pipes,
    terminal: Option<Terminal>,
}

impl Ends {
    fn pipes(with_stdin: bool) -> io::Result<Self> {
        let (far_in, stdin) = input(with_stdin)?;
        let (stdout, far_out) = output_pipe()?;
        let (stderr, far_err) = output_pipe()?;
        Ok(Self {
            far: [far_in, far_out, far_err],
            stdin: Stdin::new(stdin.map(Rc::new)),
            pipes: [stdout, stderr].map(|end| Some(Rc::new(end))),
            terminal: None,
        })
    }

    fn terminal(size: Size, owner: Option<u32>) -> io::Result<Self> {
        let (terminal, master, far) = Terminal::open(size, owner)?;
        Ok(Self {
            far,
            stdin: Stdin::of_terminal(Rc::clone(&master)),
            pipes: [Some(master), None],
            terminal: Some(terminal),
        })
    }
}

/// The child's standard input, and our write end of it if it is a pipe.
fn input(is_pipe: bool) -> io::Result<(OwnedFd, Option<Fd>)> {
    if !is_pipe {
        return Ok((null()?, None));
    }
    let (far, near) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((far, Some(Fd::of_fresh_pipe(near)?)))
}

/// `/dev/null`, looked up once.
fn null() -> io::Result<OwnedFd> {
    static NULL: OnceLock<File> = OnceLock::new();
    if let Some(null) = NULL.get() {
        return Ok(null.try_clone()?.into());
    }
    let null = File::open("/dev/null")?;
    Ok(NULL.get_or_init(|| null).try_clone()?.into())
}

/// A pipe: our read end and the child's write end.
fn output_pipe() -> io::Result<(Fd, OwnedFd)> {
    let (near, far) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Fd::of_fresh_pipe(near)?, far))
}

fn failed(error: io::Error) -> Error {
    Kind::SpawnFailed.told(error.to_string()).because(error)
}
