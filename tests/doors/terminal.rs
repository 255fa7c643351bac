//! Terminals as their users have them: typing, resizing, and looking at the screen.

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::execs::exec_at;
use crate::process::PATIENCE;
use crate::reply::Reply;
use crate::request::Request;

/// A start request for this command in a terminal of the usual size.
pub(crate) fn in_terminal(command: &[&str]) -> Value {
    json!({"command": command, "tty": {"cols": 80, "rows": 24}})
}

/// The same for a script.
pub(crate) fn in_shell(script: &str) -> Value {
    json!({"command": [script], "shell": true, "tty": {"cols": 80, "rows": 24}})
}

/// Writes to the standard input of an exec.
pub(crate) fn stdin(daemon: &Daemon, id: &str, body: &Value) -> Reply {
    let target = format!("{}/stdin", exec_at(id));
    daemon.call(&Request::post(target).bearer().json(body))
}

/// Types at the terminal of an exec.
pub(crate) fn write(daemon: &Daemon, id: &str, bytes: impl AsRef<[u8]>) -> Reply {
    stdin(daemon, id, &json!({"data_b64": STANDARD.encode(bytes)}))
}

/// Says end of file.
pub(crate) fn end(daemon: &Daemon, id: &str) -> Reply {
    stdin(daemon, id, &json!({"signal": "eof"}))
}

/// Asks for another size.
pub(crate) fn resize(daemon: &Daemon, id: &str, body: &str) -> Reply {
    let target = format!("{}/resize", exec_at(id));
    daemon.call(&Request::post(target).bearer().json_text(body))
}

/// Somebody who looks at the output of an exec while it comes.
pub(crate) struct Viewer {
    connection: Connection,
    /// What was seen and not waited for.
    seen: Vec<u8>,
    exit: Option<Value>,
}

impl Viewer {
    /// Looks from the beginning on.
    #[track_caller]
    pub(crate) fn of(daemon: &Daemon, id: &str) -> Self {
        let mut connection = daemon.connect();
        let target = format!("{}/stream", exec_at(id));
        connection.send(Request::get(target).bearer().bytes());
        connection.head().expect("a head").is(200);
        Self {
            connection,
            seen: Vec::new(),
            exit: None,
        }
    }

    /// Waits until `text` is there, and forgets all up to its end.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut places = self.seen.windows(text.len());
            if let Some(place) = places.position(|window| window == text.as_bytes()) {
                self.seen.drain(..place + text.len());
                return;
            }
            let so_far = String::from_utf8_lossy(&self.seen);
            // Comments come while nothing else does.
            let is_late = Instant::now() > deadline;
            assert!(self.exit.is_none() && !is_late, "no {text:?} in {so_far:?}");
            self.look();
        }
    }

    /// All that is still to come, and the exit.
    #[track_caller]
    pub(crate) fn until_the_end(mut self) -> (Vec<u8>, Value) {
        loop {
            if let Some(exit) = self.exit {
                return (self.seen, exit);
            }
            self.look();
        }
    }

    /// Takes one chunk, which holds whole events.
    #[track_caller]
    fn look(&mut self) {
        let mut size = Vec::new();
        while !size.ends_with(b"\r\n") {
            size.extend(self.connection.take(1).expect("output comes"));
        }
        let size = std::str::from_utf8(&size).expect("hexadecimal");
        let size = usize::from_str_radix(size.trim_end(), 16).expect("hexadecimal");
        let chunk = self.connection.take(size + 2).expect("a chunk");
        let text = String::from_utf8_lossy(&chunk[..size]).into_owned();
        for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
            let event: Value = serde_json::from_str(data).expect("JSON");
            match event["output"].as_str() {
                Some(output) => {
                    assert_eq!(event["stream"], "stdout");
                    self.seen.extend(STANDARD.decode(output).expect("base64"));
                }
                None => self.exit = Some(event),
            }
        }
    }
}
