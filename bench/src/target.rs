//! A server under measurement: how it is started, reached, watched and ended.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::client::{Client, Connection, Manner};
use crate::cpu;

const TOKEN: &str = "ringbench-token";
const MAX_BODY_BYTES: u64 = 8 << 30;
const START_PATIENCE: Duration = Duration::from_secs(10);
const END_PATIENCE: Duration = Duration::from_secs(3);
const NGINX: &str = "/usr/sbin/nginx";
const NGINX_CONFIG: &str = include_str!("../baseline/nginx.conf");

/// The kinds of server that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Ringd,
    /// axum with ReaderStream's default chunk of 4 KiB.
    Axum,
    /// The same with 64 KiB chunks.
    Axum64,
    Nginx,
    /// Loops without a service around them.
    Bare,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ringd => "ringd",
            Self::Axum => "axum",
            Self::Axum64 => "axum-64k",
            Self::Nginx => "nginx",
            Self::Bare => "bare",
        }
    }

    /// Whether its downloads are the file's real bytes.
    pub(crate) fn sends_content(self) -> bool {
        self != Self::Bare
    }
}

/// Where a server may run, with all its threads and children.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Placement {
    #[default]
    ServerCpu,
    /// The server CPU and the load CPU.
    BothCpus,
}

impl Placement {
    /// Moves the calling thread; what it starts then inherits that.
    fn apply(self) -> Result<()> {
        match self {
            Self::ServerCpu => cpu::pin(cpu::SERVER_CPU),
            Self::BothCpus => cpu::float(2),
        }
    }
}

/// How a server is started beyond its defaults.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) placement: Placement,
    /// Further words on its command line.
    pub(crate) flags: Vec<String>,
}

/// A running server. Ended when dropped.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    child: Child,
    // Held open, so that the server can go on printing.
    _stdout: Option<ChildStdout>,
}

impl Server {
    /// Starts a server. `Err` also when its program is not there; `available` says that beforehand.
    pub(crate) fn start(kind: Kind, setup: &Setup, ringd: &Path, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{}.log", kind.name()));
        let server = Self::spawn(kind, setup, ringd, dir, &log)
            .with_context(|| format!("cannot start {}", kind.name()));
        let server = server.with_context(|| format!("its log says: {:?}", tail(&log)))?;
        if kind == Kind::Ringd {
            server.bootstrap()?;
        }
        Ok(server)
    }

    fn spawn(kind: Kind, setup: &Setup, ringd: &Path, dir: &Path, log: &Path) -> Result<Self> {
        if kind == Kind::Nginx {
            return Self::spawn_nginx(dir, log);
        }
        let mut command = Command::new(if kind == Kind::Ringd {
            ringd.to_path_buf()
        } else {
            baseline()
        });
        match kind {
            Kind::Ringd => command.args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--max-body-bytes",
                &MAX_BODY_BYTES.to_string(),
            ]),
            Kind::Bare => command.arg("bare"),
            Kind::Axum64 => command.args(["axum", "--token", TOKEN, "--chunk", "65536"]),
            Kind::Axum | Kind::Nginx => command.args(["axum", "--token", TOKEN]),
        };
        command
            .args(&setup.flags)
            .env("RINGD_DISK_RESERVE_BYTES", "0")
            .stdout(Stdio::piped());
        let mut child = launch(command, setup.placement, log)?;
        let mut stdout = child.stdout.take().context("the child has no stdout")?;
        let announced = announced_address(&mut stdout);
        let server = Self {
            kind,
            address: announced.unwrap_or_else(|_| unreachable_address()),
            child,
            _stdout: Some(stdout),
        };
        if server.address.port() == 0 {
            bail!("it did not say where it listens");
        }
        Ok(server)
    }

    fn spawn_nginx(dir: &Path, log: &Path) -> Result<Self> {
        // nginx cannot choose a port by itself: one that was just free is given to it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let config = NGINX_CONFIG
            .replace("{port}", &address.port().to_string())
            .replace("{root}", &dir.to_string_lossy())
            .replace("{dir}", &dir.to_string_lossy());
        let path = dir.join("nginx.conf");
        std::fs::write(&path, config)?;
        let mut command = Command::new(NGINX);
        command
            .arg("-c")
            .arg(&path)
            .arg("-p")
            .arg(dir)
            .arg("-e")
            .arg(dir.join("nginx-error.log"))
            .stdout(Stdio::null());
        let server = Self {
            kind: Kind::Nginx,
            address,
            child: launch(command, Placement::ServerCpu, log)?,
            _stdout: None,
        };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if start.elapsed() > START_PATIENCE {
                bail!("it cannot be reached at {address}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn bootstrap(&self) -> Result<()> {
        let payload = serde_json::json!({ "agent_token": TOKEN }).to_string();
        let body = serde_json::json!({ "runHookPayload": payload }).to_string();
        let (status, _) = self.client(Manner::Sleep)?.ask(
            "POST",
            "/aws/lambda-microvms/runtime/v1/run",
            body.as_bytes(),
        )?;
        if status != 200 {
            bail!("the run hook answered {status}");
        }
        Ok(())
    }

    pub(crate) fn client(&self, manner: Manner) -> Result<Client> {
        Client::connect(self.address, TOKEN, manner)
    }

    pub(crate) fn connection(&self, manner: Manner) -> Result<Connection> {
        Connection::connect(self.address, TOKEN, manner)
    }

    pub(crate) fn token(&self) -> &'static str {
        TOKEN
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The request target that downloads `path`, a file below `dir`.
    pub(crate) fn file_target(&self, path: &Path, dir: &Path) -> String {
        match (self.kind, path.strip_prefix(dir)) {
            (Kind::Nginx, Ok(below)) => format!("/{}", below.display()),
            _ => format!("/v1/fs/file?path={}", path.display()),
        }
    }

    fn end(&mut self) {
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
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether the program of a kind is installed.
pub(crate) fn available(kind: Kind, ringd: &Path) -> bool {
    match kind {
        Kind::Ringd => ringd.is_file(),
        Kind::Nginx => Path::new(NGINX).is_file(),
        Kind::Axum | Kind::Axum64 | Kind::Bare => baseline().is_file(),
    }
}

/// Whether this ringd knows a setting.
pub(crate) fn knows_setting(ringd: &Path, name: &str) -> bool {
    let printed = Command::new(ringd)
        .args(["serve", "--print-config"])
        .env_clear()
        .output();
    printed.is_ok_and(|printed| String::from_utf8_lossy(&printed.stdout).contains(name))
}

/// As [`launch`], with the standard output where `out` says.
pub(crate) fn launch_to(
    mut command: Command,
    placement: Placement,
    out: Stdio,
    log: &Path,
) -> Result<Child> {
    command.stdout(out);
    launch(command, placement, log)
}

/// Starts a command with a clean environment; its stderr goes to `log`.
pub(crate) fn launch(mut command: Command, placement: Placement, log: &Path) -> Result<Child> {
    let kept: Vec<_> = command
        .get_envs()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
        .collect();
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TMPDIR", std::env::temp_dir())
        .envs(kept);
    command.stdin(Stdio::null()).stderr(File::create(log)?);
    // The child inherits the pin of the thread that starts it.
    placement.apply()?;
    let child = command.spawn();
    cpu::pin(cpu::LOAD_CPU)?;
    child.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

/// Reads `listening tcp://ADDRESS`. A server that ends first closes its stdout, so this does not hang on one.
fn announced_address(stdout: &mut ChildStdout) -> Result<SocketAddr> {
    let mut line = String::new();
    BufReader::with_capacity(1, stdout.take(256)).read_line(&mut line)?;
    let address = line
        .trim()
        .strip_prefix("listening tcp://")
        .with_context(|| format!("unexpected first line {line:?}"))?;
    Ok(address.parse()?)
}

fn unreachable_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let from = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    text[from..].to_owned()
}

/// Default place of the ringd binary: beside this program.
pub(crate) fn default_ringd() -> PathBuf {
    beside_this_program("ringd")
}

/// The program that is the axum server and the bare loops.
pub(crate) fn baseline() -> PathBuf {
    beside_this_program("baseline")
}

fn beside_this_program(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join(name)))
        .unwrap_or_else(|| PathBuf::from(name))
}
