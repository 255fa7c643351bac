//! A follower of changes: its event stream, read as it comes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::request::{Request, with_path};

/// A follower of changes.
pub(crate) struct Watcher {
    pub(crate) connection: Connection,
    pub(crate) held: String,
}

/// Asks for a watch, with more of a query.
pub(crate) fn watch_at(path: impl AsRef<Path>, more: &str) -> Request {
    Request::get(with_path("/v1/fs/watch", path.as_ref()) + more).bearer()
}

impl Watcher {
    /// Watches `path` and reads the event that says so.
    #[track_caller]
    pub(crate) fn start(daemon: &Daemon, path: impl AsRef<Path>, more: &str) -> Self {
        Self::over(daemon.connect(), path, more)
    }

    /// The same over a connection that is there.
    #[track_caller]
    pub(crate) fn over(mut connection: Connection, path: impl AsRef<Path>, more: &str) -> Self {
        connection.send(watch_at(path, more).bytes());
        let head = connection.head().expect("a response").is(200);
        head.check("GET").expect("a head as all of ours");
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("transfer-encoding", "chunked"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(head.field(name), Some(value), "{head:?}");
        }
        let mut watcher = Self {
            connection,
            held: String::new(),
        };
        let (name, _) = watcher.next().expect("the first event");
        assert_eq!(name, "ready");
        watcher
    }

    /// The next event: its name and data; a comment has the name ":". `None` at the end.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.held.find("\n\n") {
                let rest = self.held.split_off(end + 2);
                let text = std::mem::replace(&mut self.held, rest);
                if text.starts_with(':') {
                    return Some((":".into(), json!(text.len())));
                }
                let text = text
                    .trim_end()
                    .strip_prefix("event: ")
                    .expect("a name")
                    .to_owned();
                let (name, data) = text.split_once("\ndata: ").expect("data");
                let data = serde_json::from_str(data).expect("JSON");
                return Some((name.to_owned(), data));
            }
            match self.connection.chunk(0).expect("the stream goes on") {
                Some(chunk) => self.held += &String::from_utf8(chunk).expect("whole characters"),
                None => {
                    assert_eq!(self.held, "", "the stream ends inside an event");
                    return None;
                }
            }
        }
    }

    /// The next change, as `kind path`, with a slash behind a directory.
    #[track_caller]
    pub(crate) fn change(&mut self) -> String {
        let (name, data) = self.next().expect("a change");
        assert_eq!(name, "change", "{data}");
        let slash = if data["is_dir"] == true { "/" } else { "" };
        let text = |key: &str| data[key].as_str().expect("text").to_owned();
        format!("{} {}{slash}", text("kind"), text("path"))
    }

    /// Checks that exactly these changes come next.
    #[track_caller]
    pub(crate) fn tells(&mut self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.change(), *expected);
        }
    }

    /// Checks that nothing has been told, by a change of `mark` that is.
    #[track_caller]
    pub(crate) fn is_silent(&mut self, mark: &Path) {
        fs::write(mark, "").expect("ours");
        let name = mark
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(
            self.change().ends_with(&name),
            "something else came before {name}"
        );
    }

    /// Reads until changes are missing.
    #[track_caller]
    pub(crate) fn overflows(&mut self) {
        loop {
            let (name, data) = self.next().expect("an event");
            if name != "change" {
                assert_eq!((name.as_str(), data), ("overflow", json!({})));
                break;
            }
        }
    }

    /// Checks that the watch ends for this reason.
    #[track_caller]
    pub(crate) fn is_gone(&mut self, reason: &str) {
        self.is_gone_for(reason);
        self.connection.is_usable();
    }

    /// The same where the daemon can no longer answer.
    #[track_caller]
    pub(crate) fn is_gone_for(&mut self, reason: &str) {
        loop {
            let (name, data) = self.next().expect("the last event");
            if name != "change" {
                assert_eq!((name.as_str(), data), ("gone", json!({"reason": reason})));
                break;
            }
        }
        assert_eq!(self.next(), None);
    }
}
