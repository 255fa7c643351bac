//! A connection that follows the output of one exec and holds it against the script.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use anyhow::{Result, ensure};

use super::account::Account;
use super::connection::Connection;
use super::crowd::Member;
use super::events::Events;
use super::frames::Frames;
use super::script::Script;

/// How output is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Events,
    Frames,
}

impl Form {
    /// The media type, asked for and answered.
    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Frames => "application/octet-stream",
        }
    }
}

pub(crate) struct Follower {
    pub(crate) connection: Connection,
    pub(crate) account: Account,
    parser: Parser,
}

enum Parser {
    Events(Events),
    Frames(Frames),
}

impl Follower {
    pub(crate) fn new(connection: Connection, script: Rc<Script>) -> Self {
        Self {
            connection,
            account: Account::new(script),
            parser: Parser::Events(Events::new()),
        }
    }

    /// Asks for the output of an exec, from its beginning.
    pub(crate) fn follow(&mut self, id: &str, form: Form, script: Rc<Script>) -> Result<()> {
        self.account = Account::new(script);
        self.parser = match form {
            Form::Events => Parser::Events(Events::new()),
            Form::Frames => Parser::Frames(Frames::new()),
        };
        let target = format!("/v1/exec/{id}/stream?offset=0");
        self.connection.ask("GET", &target, form.media(), b"")
    }

    /// One receive.
    pub(crate) fn step(&mut self, scratch: &mut [u8]) -> Result<()> {
        let (account, parser) = (&mut self.account, &mut self.parser);
        self.connection.receive(scratch, |head, bytes| {
            let form = match parser {
                Parser::Events(_) => Form::Events,
                Parser::Frames(_) => Form::Frames,
            };
            ensure!(
                head.status == 200 && head.media.starts_with(form.media()),
                "the stream answered {} {}: {}",
                head.status,
                head.media,
                String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
            );
            match parser {
                Parser::Events(events) => events.take(bytes, account),
                Parser::Frames(frames) => frames.take(bytes, account),
            }
        })?;
        ensure!(
            !self.connection.is_whole() || self.account.has_ended,
            "the stream ended without an exit"
        );
        Ok(())
    }

    /// The response has begun: the follower is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.connection.head().is_some()
    }

    /// The exit was told and the response is whole.
    pub(crate) fn is_done(&self) -> bool {
        self.account.has_ended && self.connection.is_whole()
    }
}

impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Member for Follower {
    fn step(&mut self, scratch: &mut [u8]) -> Result<()> {
        Self::step(self, scratch)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::client::Manner;

    const FRAMES: &[u8] = b"\x01\x01\0\0\x05\0\0\0\0\0\0\0\0\0\0\0hello\
        \x03\0\0\0\x1a\0\0\0\x05\0\0\0\0\0\0\0{\"exit_code\":0,\"offset\":5}";
    const EVENTS: &[u8] =
        b"event: output\ndata: {\"offset\":0,\"stream\":\"stdout\",\"output\":\"aGVsbG8=\"}\n\n\
        event: exit\ndata: {\"exit_code\":0,\"offset\":5}\n\n";

    /// Follows a server that answers one request with `body`, and tells whether it was as expected.
    fn follow(form: Form, media: &str, framing: &str, body: &[u8]) -> Result<Follower> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let answer = [
            format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\n{framing}\r\n").as_bytes(),
            body,
        ]
        .concat();
        let server = std::thread::spawn(move || -> std::io::Result<()> {
            let mut stream = listener.accept()?.0;
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                request.push(byte[0]);
            }
            stream.write_all(&answer)
        });
        let connection = Connection::connect(address, "token", Manner::Sleep)?;
        let script = Rc::new(Script::of(b"hello".to_vec()));
        let mut follower = Follower::new(connection, Rc::clone(&script));
        follower.follow("e", form, script)?;
        let mut scratch = vec![0; 4096];
        while !follower.is_done() {
            follower.step(&mut scratch)?;
        }
        server.join().expect("the server does not panic")?;
        Ok(follower)
    }

    fn chunked(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in body.chunks(7) {
            out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }

    #[test]
    fn both_forms_are_followed_in_any_framing() {
        for (form, body) in [(Form::Events, EVENTS), (Form::Frames, FRAMES)] {
            let length = format!("content-length: {}\r\n", body.len());
            for (framing, body) in [
                ("transfer-encoding: chunked\r\n", chunked(body)),
                ("connection: close\r\n", body.to_vec()),
                (&length, body.to_vec()),
            ] {
                let follower =
                    follow(form, form.media(), framing, &body).expect("all is as expected");
                assert_eq!(follower.account.delivered, 5, "{form:?}, {framing}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_fails_the_follower() {
        for (form, body) in [(Form::Events, EVENTS), (Form::Frames, FRAMES)] {
            let position = if form == Form::Events { 65 } else { 18 };
            let mut body = body.to_vec();
            body[position] ^= 1;
            assert!(follow(form, form.media(), "connection: close\r\n", &body).is_err());
        }
    }

    #[test]
    fn an_answer_in_another_form_is_refused() {
        let close = "connection: close\r\n";
        assert!(follow(Form::Frames, "text/event-stream", close, EVENTS).is_err());
    }
}
