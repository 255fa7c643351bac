//! `ringd tunnel` as a process: started with nothing around it, connected to, gone at the end of the test.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;
use serde_json::json;

use crate::daemon::{Address, Daemon, all, collect, ended, lines};
use crate::driver::Driver;
use crate::process::{self, PATIENCE, comes_true};
use crate::request::{Request, TOKEN};
use crate::scratch::Scratch;
use crate::service::patient;

/// The guest's private key of the tests, and its public half.
pub(crate) const GUEST: [&str; 2] = [
    "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
    "E75P6uryBMf9M1j8nAByGIHRdCeBKCJ+xnTzf3/pe20=",
];
/// The host's private key of the tests, and its public half.
pub(crate) const HOST: [&str; 2] = [
    "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=",
    "V9tLNZ8jrl4Ubk4lEgVnBHIlBjSMFQwUdT0Mkz0E1CE=",
];

/// A command line of `ringd tunnel`.
#[derive(Clone)]
pub(crate) struct Plan {
    words: Vec<String>,
    scratch: Arc<Scratch>,
}

/// A running `ringd tunnel` that listens.
pub(crate) struct Carrier {
    child: Child,
    address: Address,
    _stdout: Receiver<String>,
    stderr: Arc<Mutex<Vec<String>>>,
    _scratch: Arc<Scratch>,
}

impl Plan {
    /// Nothing but the driver.
    pub(crate) fn blank(driver: Driver) -> Self {
        let words = ["tunnel", "--driver", driver.flag()];
        Self {
            words: words.map(str::to_owned).into(),
            scratch: Arc::new(Scratch::new()),
        }
    }

    /// To `port` behind this daemon, with the token of the tests.
    pub(crate) fn to(daemon: &Daemon, driver: Driver, port: u16) -> Self {
        Self::blank(driver)
            .option("--url", &url(daemon))
            .option("--token", TOKEN)
            .option("--port", &port.to_string())
    }

    pub(crate) fn option(mut self, name: &str, value: &str) -> Self {
        self.words.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Asks for verified tunnels with this private key, to the guest with this public one.
    pub(crate) fn verified(mut self, host: &str, guest: &str) -> Self {
        let path = self.path("host.key");
        private_file(&path, host);
        self.words.push("--verify".into());
        self.option("--host-key-file", &path.display().to_string())
            .option("--guest-key", guest)
    }

    /// A path in a directory of its own.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts it on a free port and waits until it listens.
    #[track_caller]
    pub(crate) fn start(self) -> Carrier {
        self.start_at("127.0.0.1:0")
    }

    #[track_caller]
    pub(crate) fn start_at(self, local: &str) -> Carrier {
        let plan = self.option("--local", local);
        let mut child = plan.command().spawn().expect("it starts");
        let stderr = collect(child.stderr.take().expect("it is piped"));
        let stdout = lines(child.stdout.take().expect("it is piped"));
        let Ok(line) = stdout.recv_timeout(PATIENCE) else {
            panic!("it does not listen: {:?}", all(&stderr));
        };
        let name = line.strip_prefix("listening ");
        let name = name.unwrap_or_else(|| panic!("not a listening line: {line:?}"));
        Carrier {
            child,
            address: Address::parse(name),
            _stdout: stdout,
            stderr,
            _scratch: plan.scratch,
        }
    }

    /// Runs it to its end with these bytes as its standard input.
    #[track_caller]
    pub(crate) fn run(self, input: &[u8]) -> Output {
        let mut command = self.command();
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = input.to_vec();
        let feeding = thread::spawn(move || {
            // It may end before it has read everything.
            let _ = stdin.write_all(&input);
        });
        let output = finished(child);
        feeding.join().expect("the feeder does not panic");
        output
    }

    /// The same between two files.
    #[track_caller]
    pub(crate) fn run_between(self, input: &Path, output: &Path) -> Output {
        let mut command = self.command();
        command
            .stdin(File::open(input).expect("the input is there"))
            .stdout(File::create(output).expect("the output can be made"));
        finished(command.spawn().expect("it starts"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringd"));
        command
            .args(&self.words)
            .env_clear()
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

impl Carrier {
    /// A connection to it.
    #[track_caller]
    pub(crate) fn connect(&self) -> TcpStream {
        let address = ("127.0.0.1", self.address.port());
        patient(TcpStream::connect(address).expect("it accepts connections"))
    }

    /// Waits until it has said this on standard error.
    #[track_caller]
    pub(crate) fn says(&self, what: &str) {
        let said = comes_true(|| all(&self.stderr).iter().any(|line| line.contains(what)));
        assert!(said, "it does not say {what:?} but {:?}", all(&self.stderr));
    }

    pub(crate) fn stderr(&self) -> Vec<String> {
        all(&self.stderr)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are small")
    }

    /// Tells it to stop and waits for its end.
    #[track_caller]
    pub(crate) fn stop(&mut self, signal: Signal) -> ExitStatus {
        process::signal(self.pid(), signal);
        match ended(&mut self.child) {
            Some(status) => status,
            None => panic!("it does not end: {:?}", all(&self.stderr)),
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the carrier's words:\n{}", all(&self.stderr).join("\n"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of a daemon as `--url` takes it.
pub(crate) fn url(daemon: &Daemon) -> String {
    match &daemon.addresses()[0] {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("unix://{}", path.display()),
        Address::Other(name) => panic!("no way to connect to {name}"),
    }
}

/// Installs the token and the keys of the tests.
#[track_caller]
pub(crate) fn bootstrap_with_keys(daemon: &Daemon) {
    let payload = json!({
        "agent_token": TOKEN,
        "identity_seed": GUEST[0],
        "identity_host_public_key": HOST[1],
    });
    let request = Request::post("/aws/lambda-microvms/runtime/v1/run");
    let body = json!({"runHookPayload": payload.to_string()});
    daemon.call(&request.json(&body)).is(200);
}

/// Writes a file that nobody else can read.
#[track_caller]
pub(crate) fn private_file(path: &Path, text: &str) {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    writeln!(file.expect("it is not there yet"), "{text}").expect("there is room");
}

/// Sends all of `bytes` and reads as many, both at once.
#[track_caller]
pub(crate) fn there_and_back(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut sender = stream.try_clone().expect("a socket can be duplicated");
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = sender.write_all(bytes);
            let _ = sender.shutdown(Shutdown::Write);
        });
        let mut back = Vec::with_capacity(bytes.len());
        stream.read_to_end(&mut back).expect("the tunnel holds");
        back
    })
}

/// What a process has said by its end.
#[track_caller]
pub(crate) fn finished(child: Child) -> Output {
    let pid = i32::try_from(child.id()).expect("pids are small");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("the child is ours"),
        Err(_) => {
            process::signal(pid, Signal::KILL);
            panic!("it does not end: {:?}", receiver.recv());
        }
    }
}
