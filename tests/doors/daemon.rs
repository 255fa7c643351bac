//! The daemon as a process: started with nothing around it, watched from outside, gone at the end of the test.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Resource, Rlimit, Signal};
use serde_json::{Value, json};

use crate::client::Connection;
use crate::driver::Driver;
use crate::process::{self, PATIENCE, comes_true, wait_until};
use crate::reply::Reply;
use crate::request::{Request, TOKEN, file_at, tar_at};
use crate::scratch::Scratch;

/// How a daemon is to be started.
pub(crate) struct Setup {
    flags: Vec<String>,
    listeners: Vec<String>,
    env: Vec<(String, String)>,
    wrapper: Vec<String>,
    stdin: Stdio,
    scratch: Scratch,
}

/// A running daemon.
pub(crate) struct Daemon {
    child: Child,
    pid: i32,
    addresses: Vec<Address>,
    stdout: Receiver<String>,
    stderr: Arc<Mutex<Vec<String>>>,
    scratch: Scratch,
}

/// What a daemon that did not start has left to say.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Where a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Other(String),
}

impl Setup {
    pub(crate) fn new(driver: Driver) -> Self {
        let scratch = Scratch::new();
        for name in ["work", "tmp"] {
            std::fs::create_dir(scratch.path().join(name)).expect("the scratch directory is ours");
        }
        Self {
            flags: vec!["--driver".into(), driver.flag().into()],
            listeners: Vec::new(),
            env: Vec::new(),
            wrapper: Vec::new(),
            stdin: Stdio::null(),
            scratch,
        }
    }

    pub(crate) fn flag(mut self, name: &str, value: impl Into<String>) -> Self {
        self.flags.extend([name.to_owned(), value.into()]);
        self
    }

    /// Adds a flag that takes no value.
    pub(crate) fn switch(mut self, name: &str) -> Self {
        self.flags.push(name.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a listener; without any, the daemon gets a free port of 127.0.0.1.
    pub(crate) fn listen(mut self, address: impl Into<String>) -> Self {
        self.listeners.push(address.into());
        self
    }

    /// Puts a command in front: it is called with the daemon's own command line as its last arguments.
    pub(crate) fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Gives the daemon mounts of its own, and makes one there: `mount` is what follows that word. Needs root.
    pub(crate) fn with_mount(self, mount: &str) -> Self {
        let script = format!("mount {mount} && exec \"$@\"");
        let alone = ["unshare", "--mount", "--propagation", "private"];
        let shell = ["/bin/sh", "-c", &script, "sh"];
        self.under(&[alone, shell].concat())
    }

    pub(crate) fn stdin(mut self, fd: OwnedFd) -> Self {
        self.stdin = fd.into();
        self
    }

    /// A path below the daemon's working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join("work").join(name)
    }

    /// Starts the daemon and waits until it listens.
    #[track_caller]
    pub(crate) fn start(self) -> Daemon {
        let expected = self.listeners.len().max(1);
        self.start_with(expected)
    }

    /// The same when the number of listeners is not the number of `--listen` flags.
    #[track_caller]
    pub(crate) fn start_with(mut self, expected: usize) -> Daemon {
        if self.listeners.is_empty() && !self.env.iter().any(|(name, _)| is_listen(name)) {
            self.listeners.push("tcp://127.0.0.1:0".into());
        }
        let (mut child, scratch) = self.spawn();
        let pid = i32::try_from(child.id()).expect("pids are small");
        let stderr = collect(child.stderr.take().expect("it is piped"));
        let stdout = lines(child.stdout.take().expect("it is piped"));
        let mut daemon = Daemon {
            child,
            pid,
            addresses: Vec::new(),
            stdout,
            stderr,
            scratch,
        };
        daemon.addresses = (0..expected).map(|_| daemon.address()).collect();
        daemon
    }

    /// Starts the daemon and installs [`TOKEN`].
    #[track_caller]
    pub(crate) fn ready(self) -> Daemon {
        self.ready_with(&json!({}))
    }

    /// The same with a launch environment.
    #[track_caller]
    pub(crate) fn ready_with(self, env: &Value) -> Daemon {
        let daemon = self.start();
        daemon.bootstrap(TOKEN, env).is(200);
        daemon
    }

    /// Runs a daemon that is expected to refuse to start.
    #[track_caller]
    pub(crate) fn refused(mut self) -> Refusal {
        if self.listeners.is_empty() {
            self.listeners.push("tcp://127.0.0.1:0".into());
        }
        self.run_to_its_end()
    }

    /// Runs a command line that ends by itself.
    #[track_caller]
    pub(crate) fn run_to_its_end(self) -> Refusal {
        let (mut child, _scratch) = self.spawn();
        let stderr = collect(child.stderr.take().expect("it is piped"));
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let status = ended(&mut child);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it runs, where it should have refused: {:?}", all(&stderr));
        }
        let code = status.and_then(|status| status.code());
        // The pipes end with the process, and the collectors with the pipes.
        wait_until("all output is read", || {
            Arc::strong_count(&stderr) == 1 && Arc::strong_count(&stdout) == 1
        });
        Refusal {
            code,
            stdout: all(&stdout).join("\n"),
            stderr: all(&stderr).join("\n"),
        }
    }

    fn spawn(self) -> (Child, Scratch) {
        let mut words = self.wrapper;
        words.extend([env!("CARGO_BIN_EXE_ringd").to_owned(), "serve".to_owned()]);
        words.extend(self.flags);
        for listener in self.listeners {
            words.extend(["--listen".to_owned(), listener]);
        }
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("TMPDIR", self.scratch.path().join("tmp"))
            .envs(self.env)
            .current_dir(self.scratch.path().join("work"))
            .stdin(self.stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
        (child, self.scratch)
    }
}

impl Daemon {
    /// A daemon without flags and without a token.
    #[track_caller]
    pub(crate) fn start(driver: Driver) -> Self {
        Setup::new(driver).start()
    }

    /// A daemon without flags and with [`TOKEN`] installed.
    #[track_caller]
    pub(crate) fn ready(driver: Driver) -> Self {
        Setup::new(driver).ready()
    }

    /// Calls the run hook with this token and environment.
    #[track_caller]
    pub(crate) fn bootstrap(&self, token: &str, env: &Value) -> Reply {
        let payload = json!({"agent_token": token, "env": env}).to_string();
        let request = Request::post("/aws/lambda-microvms/runtime/v1/run");
        self.call(&request.json(&json!({"runHookPayload": payload})))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A path below the daemon's working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join("work").join(name)
    }

    /// The directory that the daemon has as TMPDIR.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.scratch.path().join("tmp")
    }

    /// Opens a connection to the first listener.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        self.connect_to(0)
    }

    #[track_caller]
    pub(crate) fn connect_to(&self, listener: usize) -> Connection {
        self.addresses[listener]
            .connect()
            .expect("the daemon accepts connections")
    }

    /// Sends one request on a connection of its own.
    #[track_caller]
    pub(crate) fn call(&self, request: &Request) -> Reply {
        self.connect().call(request)
    }

    /// GET with the token.
    #[track_caller]
    pub(crate) fn get(&self, target: impl Into<String>) -> Reply {
        self.call(&Request::get(target).bearer())
    }

    /// PUT with the token.
    #[track_caller]
    pub(crate) fn put(&self, target: impl Into<String>, body: impl Into<Vec<u8>>) -> Reply {
        self.call(&Request::put(target).bearer().body(body))
    }

    /// POST with the token and no body.
    #[track_caller]
    pub(crate) fn post(&self, target: impl Into<String>) -> Reply {
        self.call(&Request::post(target).bearer())
    }

    /// What the health route says.
    #[track_caller]
    pub(crate) fn health(&self) -> Value {
        self.call(&Request::get("/v1/health")).is(200).json()
    }

    /// The lines of standard error so far.
    pub(crate) fn stderr(&self) -> Vec<String> {
        all(&self.stderr)
    }

    /// Waits until the log has this many lines with `text`; answers them.
    #[track_caller]
    pub(crate) fn logged(&self, text: &str, count: usize) -> Vec<Value> {
        let lines = || {
            let lines = self.stderr().into_iter();
            lines.filter(|line| line.contains(text)).collect::<Vec<_>>()
        };
        wait_until(text, || lines().len() >= count);
        let lines = lines().into_iter();
        lines
            .map(|line| serde_json::from_str(&line).expect("every line is JSON"))
            .collect()
    }

    /// What the daemon has printed behind its listening lines; ends with the daemon.
    pub(crate) fn more_stdout(&self) -> Vec<String> {
        self.stdout.iter().collect()
    }

    /// How many descriptors the daemon has open.
    #[track_caller]
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid))
            .expect("the daemon runs")
            .count()
    }

    /// What the descriptors of the daemon point at.
    #[track_caller]
    pub(crate) fn descriptor_targets(&self) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("the daemon runs");
        entries
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .map(|target| target.to_string_lossy().into_owned())
            .collect()
    }

    /// How many descriptors the daemon has at rest, after one of each kind of work.
    ///
    /// What is made once, at first need, is made then.
    #[track_caller]
    pub(crate) fn at_rest(&self) -> usize {
        let name = self.path("at-rest");
        self.put(tar_at(&name), Vec::new()).is(204);
        self.put(file_at(name.join("f")), "x").is(204);
        self.get(file_at(name.join("f"))).is(200);
        self.get(tar_at(&name)).is(200);
        self.script("rm -r at-rest");
        // Enough that the daemon has to wait, and to give way to others.
        let mut connection = self.connect();
        connection.send(Request::get(file_at("/dev/zero")).bearer().bytes());
        connection.take(8 << 20).expect("zeroes without end");
        drop(connection);
        let mut last = (0, 0);
        wait_until("the daemon comes to rest", || {
            let now = self.descriptors();
            last = if now == last.0 {
                (now, last.1 + 1)
            } else {
                (now, 0)
            };
            last.1 == 20
        });
        last.0
    }

    /// Waits until the daemon holds no more descriptors than `before`.
    #[track_caller]
    pub(crate) fn holds_at_most(&self, before: usize) {
        let what = format!("the daemon is back at {before} descriptors");
        wait_until(&what, || self.descriptors() <= before);
    }

    /// Limits how many descriptors the daemon may have.
    #[track_caller]
    pub(crate) fn limit_descriptors(&self, limit: usize) {
        let limit = u64::try_from(limit).expect("64 bits");
        let pid = rustix::process::Pid::from_raw(self.pid);
        let both = Rlimit {
            current: Some(limit),
            maximum: Some(4096),
        };
        rustix::process::prlimit(pid, Resource::Nofile, both).expect("the daemon is ours");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.pid, signal);
    }

    /// Waits for the end of the daemon.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        match ended(&mut self.child) {
            Some(status) => status,
            None => panic!("the daemon does not end; it says {:?}", self.stderr()),
        }
    }

    #[track_caller]
    fn address(&mut self) -> Address {
        let Ok(line) = self.stdout.recv_timeout(PATIENCE) else {
            let status = self.child.try_wait();
            panic!(
                "the daemon does not listen: {status:?}, it says {:?}",
                self.stderr()
            );
        };
        let Some(address) = line.strip_prefix("listening ") else {
            panic!("not a listening line: {line:?}");
        };
        Address::parse(address)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            let lines = self.stderr();
            let last = lines.len().saturating_sub(30);
            eprintln!("the daemon's last words:\n{}", lines[last..].join("\n"));
        }
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let below = process::descendants(self.pid);
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in below {
            process::signal(pid, Signal::KILL);
        }
    }
}

impl Address {
    /// The port of a TCP address.
    #[track_caller]
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Tcp(address) => address.port(),
            other => panic!("no port: {other:?}"),
        }
    }

    pub(crate) fn connect(&self) -> std::io::Result<Connection> {
        match self {
            Self::Tcp(address) => TcpStream::connect(address).map(Connection::tcp),
            Self::Unix(path) => UnixStream::connect(path).map(Connection::unix),
            Self::Other(name) => panic!("no way to connect to {name}"),
        }
    }

    /// Reads an address as it is told on standard output.
    pub(crate) fn parse(text: &str) -> Self {
        if let Some(path) = text.strip_prefix("unix://") {
            return Self::Unix(Path::new(path).to_owned());
        }
        match text
            .strip_prefix("tcp://")
            .and_then(|address| address.parse().ok())
        {
            Some(address) => Self::Tcp(address),
            None => Self::Other(text.to_owned()),
        }
    }
}

fn is_listen(name: &str) -> bool {
    ["RINGD_LISTEN", "AGENTD_PORT", "LISTEN_FDS"].contains(&name)
}

/// Waits for the end of a process; `None` when it takes longer than a test waits.
pub(crate) fn ended(child: &mut Child) -> Option<ExitStatus> {
    let mut status = None;
    comes_true(|| {
        status = child.try_wait().expect("the child is ours");
        status.is_some()
    });
    status
}

/// Gathers the lines of a pipe while it is open.
pub(crate) fn collect(pipe: impl Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let gathered = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&gathered);
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        }
    });
    gathered
}

pub(crate) fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

pub(crate) fn all(lines: &Arc<Mutex<Vec<String>>>) -> Vec<String> {
    lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
