//! Following an exec as binary frames, read as they come and checked against the rules that all of them keep.

use serde_json::Value;

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::events::{Event, Events, Heard, Stream};
use crate::request::Request;

/// A follower of one exec that takes binary frames.
pub(crate) struct Frames {
    connection: Connection,
    /// What has come and is not a whole frame yet.
    held: Vec<u8>,
    cursor: u64,
}

impl Frames {
    /// Follows `id` from `offset` on, over a connection of its own.
    #[track_caller]
    pub(crate) fn follow(daemon: &Daemon, id: &str, offset: u64) -> Self {
        Self::over(daemon.connect(), id, offset)
    }

    /// The same over a connection that is there.
    #[track_caller]
    pub(crate) fn over(mut connection: Connection, id: &str, offset: u64) -> Self {
        connection.send(Self::request(id, offset).bytes());
        let Ok(head) = connection.head() else {
            panic!("no response");
        };
        let head = head.is(200);
        let media = head.field("content-type");
        assert_eq!(media, Some("application/octet-stream"), "{head:?}");
        Self {
            connection,
            held: Vec::new(),
            cursor: offset,
        }
    }

    /// The request that such a follower makes.
    pub(crate) fn request(id: &str, offset: u64) -> Request {
        Events::request(id, offset).field("accept", "application/octet-stream")
    }

    /// The next frame, as the event that says the same; a sign of life is a comment. `None` behind the exit.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Event> {
        let head = self.take(16)?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes"));
        let offset = number(&head[8..]);
        assert_eq!(head[2..4], [0, 0], "two bytes are zero");
        let payload = match length {
            0 => Vec::new(),
            length => {
                let payload = self.take(length as usize);
                payload.expect("a frame is whole")
            }
        };
        if head[0] == 3 {
            let exit: Value = serde_json::from_slice(&payload).expect("an exit event");
            assert_eq!(exit["offset"], offset);
            return Some(Event::Exit(exit));
        }
        assert_eq!(offset, self.cursor, "frames are contiguous");
        match head[0] {
            1 => {
                assert!(!payload.is_empty());
                self.cursor += u64::from(length);
                let stream = match head[1] {
                    1 => Stream::Stdout,
                    2 => Stream::Stderr,
                    other => panic!("not a stream: {other}"),
                };
                Some(Event::Output {
                    offset,
                    stream,
                    bytes: payload,
                })
            }
            2 => {
                self.cursor = number(&payload);
                assert!(self.cursor > offset, "a gap has a length");
                Some(Event::Gap {
                    from: offset,
                    to: self.cursor,
                })
            }
            4 => Some(Event::Comment(String::new())),
            other => panic!("a frame of the kind {other}"),
        }
    }

    /// Reads to the end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Heard {
        let mut heard = Heard::default();
        while let Some(event) = self.next() {
            heard.add(event);
        }
        heard
    }

    #[track_caller]
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.held.len() < count {
            match self.connection.chunk(0).expect("the stream goes on") {
                Some(chunk) => self.held.extend(chunk),
                None => {
                    assert!(self.held.is_empty(), "the stream ends inside a frame");
                    return None;
                }
            }
        }
        Some(self.held.drain(..count).collect())
    }
}
