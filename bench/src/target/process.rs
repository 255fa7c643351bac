//! Processes that we start: servers, and programs that do the same work without one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::{TOKEN, which};
use crate::cpu;
use crate::stop::Ward;

/// Where a process may run, with all its threads and children.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Placement {
    /// The servers' CPU, which the load does not use.
    #[default]
    ServerCpu,
    /// That one and the load's.
    BothCpus,
}

/// A server that we started. Ended when dropped.
pub(crate) struct Process {
    child: Child,
    _ward: Option<Ward>,
    /// Held open, so that it can go on printing.
    stdout: Option<ChildStdout>,
}

impl Process {
    /// Starts a server and learns where it listens.
    ///
    /// With `{port}` among its words it is given a free one, and is asked until it answers there. Without, it must say
    /// `listening tcp://ADDRESS` on its first line.
    pub(super) fn start(
        name: &str,
        words: &[&str],
        placement: Placement,
        dir: &Path,
    ) -> Result<(Self, SocketAddr)> {
        let log = dir.join(format!("{name}.log"));
        let started = Self::launch(words, placement, dir, &log);
        started.with_context(|| format!("its log says: {:?}", tail(&log)))
    }

    fn launch(
        words: &[&str],
        placement: Placement,
        dir: &Path,
        log: &Path,
    ) -> Result<(Self, SocketAddr)> {
        let given = match words.iter().any(|word| word.contains("{port}")) {
            true => Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?),
            false => None,
        };
        let port = given.map_or_else(String::new, |address| address.port().to_string());
        let fill = |word: &&str| {
            word.replace("{port}", &port)
                .replace("{dir}", &dir.to_string_lossy())
                .replace("{token}", TOKEN)
        };
        let mut words = words.iter().map(fill);
        let program = words.next().context("a command has a program")?;
        let path = which(&program).with_context(|| format!("{program} is not installed"))?;
        let mut command = Command::new(path);
        command.args(words).stdout(match given {
            Some(_) => Stdio::null(),
            None => Stdio::piped(),
        });
        let mut child = launch(command, placement, log)?;
        // From here on it is ended whatever happens.
        let mut process = Self {
            _ward: Ward::of(Pid::from_child(&child)),
            stdout: child.stdout.take(),
            child,
        };
        let address = match (given, &mut process.stdout) {
            (Some(address), _) => process.await_port(address)?,
            (None, Some(stdout)) => announced(stdout)?,
            (None, None) => bail!("it has no output"),
        };
        Ok((process, address))
    }

    fn await_port(&self, address: SocketAddr) -> Result<SocketAddr> {
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(
                start.elapsed() < START_PATIENCE,
                "it cannot be reached at {address}"
            );
            std::thread::sleep(KNOCK_EVERY);
        }
        Ok(address)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // A failed signal means that it has just ended, which the wait below sees.
        let _ = rustix::process::kill_process(self.pid(), Signal::TERM);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > END_PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// What a program cost that does its work and ends.
pub(crate) struct Spent {
    pub(crate) cpu_s: f64,
    pub(crate) wall_s: f64,
}

/// Runs a program on the servers' CPU to its end; what it writes to a pipe is read and dropped.
pub(crate) fn run_program(mut command: Command, out: Stdio, log: &Path) -> Result<Spent> {
    let name = command.get_program().to_owned();
    let start = Instant::now();
    command.stdout(out);
    let mut child = launch(command, Placement::ServerCpu, log)?;
    if let Some(mut pipe) = child.stdout.take() {
        std::io::copy(&mut pipe, &mut std::io::sink())?;
    }
    let pid = Pid::from_child(&child);
    // Left unreaped for a moment: its CPU clock can still be read.
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let wall_s = start.elapsed().as_secs_f64();
    let cpu_s = cpu::used_s(pid)?;
    let status = child.wait()?;
    ensure!(
        status.success(),
        "{} failed: {status}: {}",
        name.display(),
        tail(log)
    );
    Ok(Spent { cpu_s, wall_s })
}

/// Starts a command with a clean environment; its stderr goes to `log`.
fn launch(mut command: Command, placement: Placement, log: &Path) -> Result<Child> {
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("TMPDIR", std::env::temp_dir())
        // Else a transfer of a few GiB is refused on a disk that is nearly full.
        .env("RINGD_DISK_RESERVE_BYTES", "0");
    command.stdin(Stdio::null()).stderr(File::create(log)?);
    // Ctrl-C on a terminal is for us, and what we measure goes on meanwhile.
    command.process_group(0);
    // The child inherits the pin of the thread that starts it.
    match placement {
        Placement::ServerCpu => cpu::pin(cpu::SERVER_CPU)?,
        Placement::BothCpus => cpu::float(2)?,
    }
    let child = command.spawn();
    cpu::pin(cpu::LOAD_CPU)?;
    child.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

/// Reads `listening tcp://ADDRESS`. A server that ends first closes its stdout, so this does not hang on one.
fn announced(stdout: &mut ChildStdout) -> Result<SocketAddr> {
    let mut look = [PollFd::new(&*stdout, PollFlags::IN)];
    let patience = Timespec::try_from(START_PATIENCE)?;
    let is_there = rustix::event::poll(&mut look, Some(&patience))? > 0;
    ensure!(
        is_there,
        "it said nothing in {START_PATIENCE:?}: a server whose command has no {{port}} says `listening tcp://ADDRESS`"
    );
    let mut line = String::new();
    BufReader::with_capacity(1, stdout.take(256)).read_line(&mut line)?;
    let Some(address) = line.trim().strip_prefix("listening tcp://") else {
        bail!("its first line is {line:?} instead of `listening tcp://ADDRESS`");
    };
    address.parse().context("its address is none")
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let from = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    text[from..].to_owned()
}

const START_PATIENCE: Duration = Duration::from_secs(10);
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Short, since the time that a daemon takes to start is measured.
const KNOCK_EVERY: Duration = Duration::from_micros(100);
const LOOK_EVERY: Duration = Duration::from_millis(5);
