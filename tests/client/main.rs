//! Foreign clients drive our daemon: the published Python client of the reference, curl and requests on both drivers,
//! and a fuzzer.
//!
//! `tests/run.sh` makes the virtual environment that holds those in Python.

mod files;
mod fuzzed;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

    /// Installs the token `tok-1`.
    fn bootstrap(&self) {
        let envelope = r#"{"runHookPayload":"{\"agent_token\":\"tok-1\"}"}"#;
        let booted = Command::new("curl")
            .args(["-sf", "-XPOST", "-H", "content-type: application/json"])
            .args(["-d", envelope])
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

fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let default = root.join("target/venv/bin/python");
    let python = std::env::var_os("RINGD_TEST_PYTHON").map_or(default, PathBuf::from);
    assert!(
        python.exists(),
        "{} is missing: tests/run.sh makes it",
        python.display()
    );
    python
}

fn check(driver: &str, script: &str) {
    let daemon = Daemon::start(driver);
    daemon.bootstrap();
    let directory = std::env::temp_dir().join(format!("ringd-client-{}", daemon.child.id()));
    std::fs::create_dir(&directory).expect("a fresh directory");
    let checked = Command::new(python())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .args([&daemon.url(), "tok-1"])
        .arg(&directory)
        .output()
        .expect("python runs");
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

#[test]
fn requests_streams_and_resumes_on_io_uring() {
    check("uring", "tests/client/requests_check.py");
}

#[test]
fn requests_streams_and_resumes_on_epoll() {
    check("epoll", "tests/client/requests_check.py");
}
