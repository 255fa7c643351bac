//! Following an exec: its event stream, read as it comes and checked against the rules that all of them keep.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::client::{Broken, Connection};
use crate::daemon::Daemon;
use crate::execs::exec_at;
use crate::request::Request;

/// One event, or a comment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Output {
        offset: u64,
        stream: Stream,
        bytes: Vec<u8>,
    },
    Gap {
        from: u64,
        to: u64,
    },
    Exit(Value),
    /// A comment with what stands behind its colon.
    Comment(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// A follower of one exec. It fails where events are not contiguous, or something follows the exit.
pub(crate) struct Events {
    connection: Connection,
    /// What has come and is not a whole event yet.
    held: String,
    cursor: u64,
    has_exited: bool,
    has_ended: bool,
}

/// All that a follower was told, however it was cut into events.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heard {
    pub(crate) bytes: Vec<u8>,
    /// Where the bytes change over to the other stream, by their place in `bytes`.
    pub(crate) changes: Vec<(usize, Stream)>,
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) exit: Option<Value>,
}

impl Events {
    /// Follows `id` from `offset` on, over a connection of its own.
    #[track_caller]
    pub(crate) fn follow(daemon: &Daemon, id: &str, offset: u64) -> Self {
        Self::over(daemon.connect(), id, offset)
    }

    /// The same over a connection that is there.
    #[track_caller]
    pub(crate) fn over(mut connection: Connection, id: &str, offset: u64) -> Self {
        connection.send(Self::request(id, offset).bytes());
        Self::answered(connection, offset)
    }

    /// The request that a follower makes.
    pub(crate) fn request(id: &str, offset: u64) -> Request {
        Request::get(format!("{}/stream?offset={offset}", exec_at(id))).bearer()
    }

    /// The follower behind a request that was sent.
    #[track_caller]
    pub(crate) fn answered(mut connection: Connection, offset: u64) -> Self {
        let head = match connection.head() {
            Ok(head) => head.is(200),
            Err(broken) => panic!("no response: {broken:?}"),
        };
        head.check("GET").expect("a head as all of ours");
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("transfer-encoding", "chunked"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(head.field(name), Some(value), "{head:?}");
        }
        Self {
            connection,
            held: String::new(),
            cursor: offset,
            has_exited: false,
            has_ended: false,
        }
    }

    /// The offset of the next byte: where to resume.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next event or comment; `None` once the body has ended, which it does right behind the exit.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Event> {
        match self.try_next() {
            Ok(event) => event,
            Err(broken) => panic!("the stream is broken at {}: {broken:?}", self.cursor),
        }
    }

    /// The same where the connection may break.
    #[track_caller]
    pub(crate) fn try_next(&mut self) -> Result<Option<Event>, Broken> {
        loop {
            if let Some(end) = self.held.find("\n\n") {
                let rest = self.held.split_off(end + 2);
                let text = std::mem::replace(&mut self.held, rest);
                let event = Event::parse(&text[..end]);
                self.note(&event);
                return Ok(Some(event));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.connection.chunk(0)? {
                Some(chunk) => {
                    let text = String::from_utf8(chunk);
                    self.held += &text.expect("events are cut at whole characters");
                }
                None => {
                    assert_eq!(self.held, "", "the stream ends inside an event");
                    assert!(self.has_exited, "the stream ends without an exit");
                    self.has_ended = true;
                }
            }
        }
    }

    /// Reads on until `enough` says so, or to the end.
    #[track_caller]
    pub(crate) fn hear_until(&mut self, heard: &mut Heard, enough: impl Fn(&Heard) -> bool) {
        while !enough(heard) {
            let Some(event) = self.next() else { return };
            heard.add(event);
        }
    }

    /// Reads to the end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Heard {
        let mut heard = Heard::default();
        self.hear_until(&mut heard, |_| false);
        heard
    }

    /// The connection, once the body has ended.
    #[track_caller]
    pub(crate) fn connection(self) -> Connection {
        assert!(self.has_ended, "there is more to come");
        self.connection
    }

    #[track_caller]
    fn note(&mut self, event: &Event) {
        assert!(!self.has_exited, "something follows the exit: {event:?}");
        match event {
            Event::Output { offset, bytes, .. } => {
                assert_eq!(*offset, self.cursor, "output is contiguous");
                assert!(!bytes.is_empty(), "an output event has output");
                self.cursor += bytes.len() as u64;
            }
            Event::Gap { from, to } => {
                assert_eq!(*from, self.cursor, "a gap begins where the follower is");
                assert!(to > from, "a gap has a length");
                self.cursor = *to;
            }
            Event::Exit(exit) => {
                let total = exit["offset"].as_u64().expect("a number");
                assert!(total <= self.cursor, "the exit comes after the last byte");
                self.has_exited = true;
            }
            Event::Comment(_) => {}
        }
    }
}

impl Event {
    /// Parses an event less the empty line at its end.
    #[track_caller]
    fn parse(text: &str) -> Self {
        if let Some(comment) = text.strip_prefix(':') {
            return Self::Comment(comment.to_owned());
        }
        let fields = text.strip_prefix("event: ").and_then(|rest| {
            let (name, data) = rest.split_once("\ndata: ")?;
            Some((name, serde_json::from_str::<Value>(data).ok()?))
        });
        let Some((name, data)) = fields else {
            panic!("not an event: {text:?}");
        };
        let number = |name: &str| data[name].as_u64().expect("a number");
        match name {
            "output" => Self::Output {
                offset: number("offset"),
                stream: match data["stream"].as_str() {
                    Some("stdout") => Stream::Stdout,
                    Some("stderr") => Stream::Stderr,
                    other => panic!("not a stream: {other:?}"),
                },
                bytes: STANDARD
                    .decode(data["output"].as_str().expect("a string"))
                    .expect("canonical base64"),
            },
            "gap" => Self::Gap {
                from: number("from"),
                to: number("to"),
            },
            "exit" => Self::Exit(data),
            other => panic!("an event of the name {other:?}"),
        }
    }
}

impl Heard {
    /// Adds what an event tells; comments tell nothing.
    pub(crate) fn add(&mut self, event: Event) {
        match event {
            Event::Output { stream, bytes, .. } => {
                if self.changes.last().is_none_or(|(_, last)| *last != stream) {
                    self.changes.push((self.bytes.len(), stream));
                }
                self.bytes.extend_from_slice(&bytes);
            }
            Event::Gap { from, to } => self.gaps.push((from, to)),
            Event::Exit(exit) => self.exit = Some(exit),
            Event::Comment(_) => {}
        }
    }

    /// The bytes of one stream.
    pub(crate) fn of(&self, stream: Stream) -> Vec<u8> {
        let ends = self.changes.iter().skip(1).map(|(at, _)| *at);
        let ends = ends.chain([self.bytes.len()]);
        let runs = self.changes.iter().zip(ends);
        let mut ours = Vec::new();
        for ((from, _), to) in runs.filter(|((_, whose), _)| *whose == stream) {
            ours.extend_from_slice(&self.bytes[*from..to]);
        }
        ours
    }

    /// Checks that this is all of an exec's output and its good end.
    #[track_caller]
    pub(crate) fn is_whole(&self) {
        assert_eq!(self.gaps, []);
        let exit = self.exit.as_ref().expect("the stream has ended");
        assert_eq!(exit["exit_code"], 0, "{exit}");
        assert_eq!(exit["offset"], self.bytes.len(), "{exit}");
    }
}
