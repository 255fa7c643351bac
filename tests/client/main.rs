//! Foreign clients drive our daemon: on both drivers the published Python client of the reference, curl, requests, and
//! the WebSocket clients of Python and Node; and a fuzzer.
//!
//! `tests/run.sh` makes the virtual environment that holds those in Python.

mod files;
mod fuzzed;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(driver: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringd"))
            .args(["serve", "--listen", "127.0.0.1:0", "--driver", driver])
            .args(["--disk-reserve-bytes", "0", "--kill-grace", "2"])
            // What can be replayed is the default window, and nothing on disk.
            .env("RINGD_STREAM_SPILL_BYTES", "0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        let out = child.stdout.take().expect("its output is piped");
        let mut line = String::new();
        BufReader::new(out)
            .read_line(&mut line)
            .expect("the daemon says where it listens");
        let address = line
            .trim()
            .trim_start_matches("listening tcp://")
            .to_owned();
        Self { child, address }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Installs the token `tok-1` and the keys of verified tunnels.
    fn bootstrap(&self) {
        let payload = json!({
            "agent_token": "tok-1",
            "identity_seed": GUEST[0],
            "identity_host_public_key": HOST[1],
        });
        let envelope = json!({"runHookPayload": payload.to_string()}).to_string();
        let booted = Command::new("curl")
            .args(["-sf", "-XPOST", "-H", "content-type: application/json"])
            .args(["-d", &envelope])
            .arg(format!("{}/aws/lambda-microvms/runtime/v1/run", self.url()))
            .status()
            .expect("curl runs");
        assert!(booted.success(), "the bootstrap is accepted");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The published clients, each with its virtual environment below `target/` and the variable that names another.
const OLD: (&str, &str) = ("venv", "RINGD_TEST_PYTHON");
const NEW: (&str, &str) = ("venv-1.3", "RINGD_TEST_PYTHON_NEW");

/// The guest's and the host's private keys, each with its public half.
const GUEST: [&str; 2] = [
    "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
    "E75P6uryBMf9M1j8nAByGIHRdCeBKCJ+xnTzf3/pe20=",
];
const HOST: [&str; 2] = [
    "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=",
    "V9tLNZ8jrl4Ubk4lEgVnBHIlBjSMFQwUdT0Mkz0E1CE=",
];

fn python((venv, variable): (&str, &str)) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let default = root.join("target").join(venv).join("bin/python");
    let python = std::env::var_os(variable).map_or(default, PathBuf::from);
    assert!(
        python.exists(),
        "{} is missing: tests/run.sh makes it",
        python.display()
    );
    python
}

fn check(driver: &str, script: &str) {
    check_with(driver, Command::new(python(OLD)), script);
}

/// Runs a script that takes the daemon's address, the token and a directory.
fn check_with(driver: &str, mut interpreter: Command, script: &str) {
    let daemon = Daemon::start(driver);
    daemon.bootstrap();
    let directory = std::env::temp_dir().join(format!("ringd-client-{}", daemon.child.id()));
    std::fs::create_dir(&directory).expect("a fresh directory");
    let checked = interpreter
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .args([&daemon.url(), "tok-1"])
        .arg(&directory)
        .output()
        .expect("the interpreter runs");
    let _ = std::fs::remove_dir_all(&directory);
    assert!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
}

#[test]
fn the_published_client_works_on_io_uring() {
    check("uring", "tests/client/check.py");
}

#[test]
fn the_published_client_works_on_epoll() {
    check("epoll", "tests/client/check.py");
}

fn check_tunnels(driver: &str, client: (&str, &str)) {
    let daemon = Daemon::start(driver);
    daemon.bootstrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/tunnel_check.py");
    let checked = Command::new(python(client))
        .arg(script)
        .args([&daemon.url(), "tok-1", HOST[0], GUEST[1]])
        .output()
        .expect("python runs");
    assert!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
}

#[test]
fn tunnels_of_the_first_handshake_are_opened_on_io_uring() {
    check_tunnels("uring", OLD);
}

#[test]
fn tunnels_of_the_first_handshake_are_opened_on_epoll() {
    check_tunnels("epoll", OLD);
}

#[test]
fn tunnels_of_the_second_handshake_are_opened_on_io_uring() {
    check_tunnels("uring", NEW);
}

#[test]
fn tunnels_of_the_second_handshake_are_opened_on_epoll() {
    check_tunnels("epoll", NEW);
}

#[test]
fn requests_streams_and_resumes_on_io_uring() {
    check("uring", "tests/client/requests_check.py");
}

#[test]
fn requests_streams_and_resumes_on_epoll() {
    check("epoll", "tests/client/requests_check.py");
}

#[test]
fn the_websockets_of_python_pass_a_tunnel_on_io_uring() {
    check("uring", "tests/client/websockets_check.py");
}

#[test]
fn the_websockets_of_python_pass_a_tunnel_on_epoll() {
    check("epoll", "tests/client/websockets_check.py");
}

/// Node, with the packages of the distribution: that of `nodejs` finds them by itself, others do not.
fn node() -> Command {
    let mut node = Command::new("node");
    node.env("NODE_PATH", "/usr/share/nodejs");
    node
}

#[test]
fn the_websockets_of_node_pass_a_tunnel_on_io_uring() {
    check_with("uring", node(), "tests/client/ws_check.js");
}

#[test]
fn the_websockets_of_node_pass_a_tunnel_on_epoll() {
    check_with("epoll", node(), "tests/client/ws_check.js");
}
