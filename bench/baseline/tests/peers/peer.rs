//! A peer that a test has started.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;

pub(crate) const TOKEN: &str = "a-token";

/// Ended when dropped.
pub(crate) struct Peer {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Peer {
    /// `baseline` with these words, once it can be reached.
    pub(crate) fn baseline(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_baseline"));
        command.args(words);
        Self::start(command)
    }

    pub(crate) fn axum() -> Self {
        Self::baseline(&["axum", "--token", TOKEN])
    }

    pub(crate) fn bare() -> Self {
        Self::baseline(&["bare"])
    }

    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("its output");
        let address = line.trim().strip_prefix("listening tcp://");
        let address = address.and_then(|address| address.parse().ok());
        Self {
            address: address.unwrap_or_else(|| panic!("its first line is {line:?}")),
            child,
            stdout,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// SIGTERM, and what it says and how it ends.
    pub(crate) fn end(mut self) -> (String, ExitStatus) {
        self.terminate();
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).expect("its output");
        (said, self.child.wait().expect("its end"))
    }

    fn terminate(&self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
            let _ = self.child.wait();
        }
    }
}
