//! The start of one child: the pipes around it, and the program in it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::Limits;
use super::drain::Pipes;
use super::launch::Program;
use super::limits::Allowance;
use crate::error::{Error, Kind, Result};
use crate::ring::Fd;
use crate::ring::child::{Bounds, Child, Image};

/// A child that was just started, and our ends of its pipes.
pub(super) struct Spawned {
    pub(super) child: Child,
    /// The write end of its standard input, when that is a pipe.
    pub(super) stdin: Option<Fd>,
    /// The read ends of its standard output and standard error.
    pub(super) pipes: Pipes,
}

/// What a child is held to: what was asked for, and how it is set.
pub(super) struct Hold<'a> {
    pub(super) allowance: &'a Allowance,
    pub(super) bounds: Bounds,
}

/// Starts `program`, its standard input a pipe or `/dev/null`, with `mark` as its timer slack.
///
/// # Errors
/// `SpawnFailed`, `Unsupported`; no child and no descriptor is left then.
pub(super) async fn spawn(
    program: Program,
    with_stdin: bool,
    mark: Option<u64>,
    hold: Hold<'_>,
    limits: &Limits,
) -> Result<Spawned> {
    let (far_in, stdin) = input(with_stdin).map_err(failed)?;
    let (stdout, far_out) = output_pipe().map_err(failed)?;
    let (stderr, far_err) = output_pipe().map_err(failed)?;
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
        stdio: [far_in, far_out, far_err],
    };
    let child = Child::start(image).await;
    let child = child.map_err(|refusal| match refusal.bound {
        Some(bound) => hold.allowance.refused(bound, refusal.error),
        None => failed(refusal.error),
    })?;
    Ok(Spawned {
        child,
        stdin,
        pipes: [Some(stdout), Some(stderr)],
    })
}

/// The child's standard input, and our write end of it if it is a pipe.
fn input(is_pipe: bool) -> io::Result<(OwnedFd, Option<Fd>)> {
    if !is_pipe {
        return Ok((File::open("/dev/null")?.into(), None));
    }
    let (far, near) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((far, Some(Fd::new(near)?)))
}

/// A large pipe: our read end and the child's write end.
fn output_pipe() -> io::Result<(Fd, OwnedFd)> {
    let (near, far) = pipe_with(PipeFlags::CLOEXEC)?;
    // A user over the kernel's pipe budget keeps the small pipe, which is only slower.
    let _ = fcntl_setpipe_size(&near, PIPE_BYTES);
    Ok((Fd::new(near)?, far))
}

fn failed(error: io::Error) -> Error {
    Kind::SpawnFailed.told(error.to_string()).because(error)
}

/// Room of an output pipe (`bench`: three times the throughput of the default).
const PIPE_BYTES: usize = 1024 * 1024;
