//! A connection that follows the output of one exec and holds it against the script.

use std::rc::Rc;

use anyhow::{Result, ensure};

use super::account::Account;
use super::events::Events;
use super::frames::Frames;
use super::script::Script;
use super::{Connection, Head, Request, Unsupported};

/// How output is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Events,
    Frames,
}

impl Form {
    /// The media type, asked for and answered.
    fn media(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Frames => "application/octet-stream",
        }
    }
}

/// One that follows an exec at a time.
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
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            account: Account::new(Rc::new(Script::zeros(0))),
            parser: Parser::Events(Events::new()),
        }
    }

    /// Asks for the output of an exec, from its beginning.
    pub(crate) async fn follow(&mut self, id: &str, form: Form, script: Rc<Script>) -> Result<()> {
        self.account = Account::new(script);
        self.parser = match form {
            Form::Events => Parser::Events(Events::new()),
            Form::Frames => Parser::Frames(Frames::new()),
        };
        let target = format!("/v1/exec/{id}/stream?offset=0");
        let accept = format!("accept: {}\r\n", form.media());
        let request = Request::get(&target).with(&accept);
        self.connection.send(request).await
    }

    /// Waits until the response has begun: from then on nothing is missed.
    pub(crate) async fn attached(&mut self) -> Result<()> {
        while self.connection.present_head().is_none() {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits until the exit was told.
    pub(crate) async fn exited(&mut self) -> Result<()> {
        while !self.account.has_ended {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits until the exit was told and the response is whole.
    pub(crate) async fn finished(&mut self) -> Result<()> {
        while !(self.account.has_ended && self.connection.is_whole()) {
            self.step().await?;
        }
        Ok(())
    }

    /// One receive.
    async fn step(&mut self) -> Result<()> {
        let (account, parser) = (&mut self.account, &mut self.parser);
        let take = |head: &Head, bytes: &[u8]| parser.take(head, bytes, account);
        self.connection.receive(take).await?;
        ensure!(
            !self.connection.is_whole() || self.account.has_ended,
            "the stream ended without an exit"
        );
        Ok(())
    }
}

impl Parser {
    fn take(&mut self, head: &Head, bytes: &[u8], account: &mut Account) -> Result<()> {
        let form = match self {
            Self::Events(_) => Form::Events,
            Self::Frames(_) => Form::Frames,
        };
        if form == Form::Frames && head.media.starts_with(Form::Events.media()) {
            let sentence = "it answers the request for binary frames with events";
            return Err(Unsupported(sentence.to_owned()).into());
        }
        ensure!(
            head.status == 200 && head.media.starts_with(form.media()),
            "the stream answered {} {}: {}",
            head.status,
            head.media,
            String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)])
        );
        match self {
            Self::Events(events) => events.take(bytes, account),
            Self::Frames(frames) => frames.take(bytes, account),
        }
    }
}

/// So much of a wrong answer is quoted.
const SHOWN_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::load::{Endpoint, Manner, start};

    const FRAMES: &[u8] = b"\x01\x01\0\0\x05\0\0\0\0\0\0\0\0\0\0\0hello\
        \x03\0\0\0\x1a\0\0\0\x05\0\0\0\0\0\0\0{\"exit_code\":0,\"offset\":5}";
    const EVENTS: &[u8] =
        b"event: output\ndata: {\"offset\":0,\"stream\":\"stdout\",\"output\":\"aGVsbG8=\"}\n\n\
        event: exit\ndata: {\"exit_code\":0,\"offset\":5}\n\n";

    /// Follows a server that answers one request with `body`. Tells how many bytes of output came.
    fn follow(form: Form, media: &str, framing: &str, body: &[u8]) -> Result<u64> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let endpoint = Endpoint {
            address: listener.local_addr()?,
            token: String::new(),
        };
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
        let delivered = start(async {
            let mut follower = Follower::new(Connection::open(&endpoint, Manner::Ready)?);
            let script = Rc::new(Script::of(b"hello".to_vec()));
            follower.follow("e", form, script).await?;
            follower.finished().await?;
            Ok(follower.account.delivered)
        });
        server.join().expect("the server does not panic")?;
        delivered
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
                let delivered =
                    follow(form, form.media(), framing, &body).expect("all is as expected");
                assert_eq!(delivered, 5, "{form:?}, {framing}");
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
    fn events_instead_of_frames_are_no_support() {
        let close = "connection: close\r\n";
        let error = follow(Form::Frames, "text/event-stream", close, EVENTS)
            .expect_err("these are no frames");
        assert!(error.is::<Unsupported>(), "{error:#}");
    }
}
