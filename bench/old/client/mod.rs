//! The load side: keep-alive HTTP/1.1 connections that either spin or sleep while they wait.

mod account;
mod connection;
mod crowd;
mod events;
mod follower;
mod frames;
mod head;
mod incoming;
mod many;
mod script;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::RecvFlags;

pub(crate) use connection::Connection;
pub(crate) use crowd::{Crowd, Member};
pub(crate) use follower::{Follower, Form};
pub(crate) use head::Reply;
pub(crate) use many::drive;
pub(crate) use script::Script;

use head::{Head, parse_head};

const PATIENCE: Duration = Duration::from_secs(120);
const MAX_HEAD_BYTES: usize = 64 << 10;
/// One receive or send of the bulk paths.
const STEP_BYTES: usize = 256 << 10;
/// One discarding receive: no memory is touched, so it may be large.
const DISCARD_BYTES: usize = 4 << 20;

/// How a connection waits for the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Never sleeps, so the server never pays for waking it; bodies are dropped uncopied. Shows the server's own cost.
    Spin,
    /// An ordinary blocking client that copies what it receives. Shows what a user sees.
    Sleep,
}

pub(crate) struct Client {
    stream: TcpStream,
    manner: Manner,
    token: String,
    inbox: Vec<u8>,
    scratch: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, token: &str, manner: Manner) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nonblocking(manner == Manner::Spin)?;
        let scratch = match manner {
            Manner::Spin => vec![0; DISCARD_BYTES],
            Manner::Sleep => vec![0; STEP_BYTES],
        };
        Ok(Self {
            stream,
            manner,
            token: token.to_owned(),
            inbox: Vec::new(),
            scratch,
        })
    }

    /// Sends a whole request and reads the whole answer. For small bodies.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> Result<(u16, Vec<u8>)> {
        self.send_head(method, target, body.len() as u64)?;
        self.send(body)?;
        let reply = self.reply()?;
        let mut answer = Vec::new();
        self.body(reply, |bytes| answer.extend_from_slice(bytes))?;
        Ok((reply.status, answer))
    }

    /// Sends a request head. A GET has no length field; everything else announces `length` bytes.
    pub(crate) fn send_head(&mut self, method: &str, target: &str, length: u64) -> Result<()> {
        self.send_head_with(method, target, length, "")
    }

    /// The same with further fields, each with its line end.
    pub(crate) fn send_head_with(
        &mut self,
        method: &str,
        target: &str,
        length: u64,
        fields: &str,
    ) -> Result<()> {
        let mut head = request_head(method, target, &self.token, length);
        head.insert_str(head.len() - 2, fields);
        self.send(head.as_bytes())
    }

    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut wait = Wait::new();
        while !bytes.is_empty() {
            let step = bytes.len().min(STEP_BYTES);
            match self.stream.write(&bytes[..step]) {
                Ok(0) => bail!("the server stopped reading"),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => wait.again(self.manner, error).context("cannot send")?,
            }
        }
        Ok(())
    }

    /// Sends `length` bytes out of one hot buffer, again and again.
    pub(crate) fn send_repeated(&mut self, buffer: &[u8], length: u64) -> Result<()> {
        let mut left = length;
        while left > 0 {
            let step = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            self.send(&buffer[..step])?;
            left -= step as u64;
        }
        Ok(())
    }

    /// Reads a response head. Only bodies with a content-length, or none, are understood.
    pub(crate) fn reply(&mut self) -> Result<Reply> {
        let mut wait = Wait::new();
        loop {
            if let Some((head, used)) = parse_head(&self.inbox)? {
                self.inbox.drain(..used);
                return head.reply();
            }
            if self.inbox.len() > MAX_HEAD_BYTES {
                bail!("a response head is over {MAX_HEAD_BYTES} bytes");
            }
            self.fill(&mut wait)?;
        }
    }

    /// Reads the body and shows every byte of it to `sink`.
    pub(crate) fn body(&mut self, reply: Reply, mut sink: impl FnMut(&[u8])) -> Result<()> {
        let mut left = self.take_early(reply, &mut sink);
        let mut wait = Wait::new();
        while left > 0 {
            let step = self
                .scratch
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.stream.read(&mut self.scratch[..step]) {
                Ok(0) => bail!("the body ended {left} bytes early"),
                Ok(count) => {
                    sink(&self.scratch[..count]);
                    left -= count as u64;
                }
                Err(error) => wait.again(self.manner, error).context("cannot receive")?,
            }
        }
        Ok(())
    }

    /// Reads the body and drops it: uncopied when spinning, through a buffer when sleeping.
    pub(crate) fn drop_body(&mut self, reply: Reply) -> Result<()> {
        let mut body = Discard {
            left: self.take_early(reply, &mut |_| ()),
            wait: Wait::new(),
        };
        while body.left > 0 {
            body.step(self)?;
        }
        Ok(())
    }

    /// Begins a body that the caller drops step by step.
    pub(crate) fn discard(&mut self, reply: Reply) -> Discard {
        Discard {
            left: self.take_early(reply, &mut |_| ()),
            wait: Wait::new(),
        }
    }

    /// Looks once for an answer without waiting. Only for a spinning connection.
    pub(crate) fn try_reply(&mut self) -> Result<Option<Reply>> {
        let Some((head, used)) = self.try_head()? else {
            return Ok(None);
        };
        let reply = head.reply()?;
        let whole = used + usize::try_from(reply.length)?;
        if self.inbox.len() < whole {
            return Ok(None);
        }
        self.inbox.drain(..whole);
        Ok(Some(reply))
    }

    fn try_head(&mut self) -> Result<Option<(Head, usize)>> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => self.inbox.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        parse_head(&self.inbox)
    }

    /// Body bytes that came with the head. Returns how many are still to come.
    fn take_early(&mut self, reply: Reply, sink: &mut impl FnMut(&[u8])) -> u64 {
        let early = self
            .inbox
            .len()
            .min(usize::try_from(reply.length).unwrap_or(usize::MAX));
        sink(&self.inbox[..early]);
        self.inbox.drain(..early);
        reply.length - early as u64
    }

    fn fill(&mut self, wait: &mut Wait) -> Result<()> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => bail!("the server closed the connection before its answer"),
            Ok(count) => self.inbox.extend_from_slice(&chunk[..count]),
            Err(error) => wait.again(self.manner, error).context("cannot receive")?,
        }
        Ok(())
    }
}

/// A body on its way to nowhere.
pub(crate) struct Discard {
    left: u64,
    wait: Wait,
}

impl Discard {
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// One receive. A spinning client returns at once when nothing is there.
    pub(crate) fn step(&mut self, client: &mut Client) -> Result<()> {
        let most = client
            .scratch
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let room = &mut client.scratch[..most];
        let received = match client.manner {
            // On TCP, MSG_TRUNC drops the bytes instead of copying them (tcp(7)).
            Manner::Spin => rustix::net::recv(&client.stream, room, RecvFlags::TRUNC)
                .map_err(Into::into)
                .map(|(count, _)| count),
            Manner::Sleep => client.stream.read(room),
        };
        match received {
            Ok(0) => bail!("the body ended {} bytes early", self.left),
            Ok(count) => self.left -= count as u64,
            Err(error) => self
                .wait
                .again(client.manner, error)
                .context("cannot receive")?,
        }
        Ok(())
    }
}

/// Bounds the spinning: nothing is waited for longer than `PATIENCE`.
struct Wait {
    tries: u32,
    since: Instant,
}

impl Wait {
    fn new() -> Self {
        Self {
            tries: 0,
            since: Instant::now(),
        }
    }

    fn again(&mut self, manner: Manner, error: std::io::Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => return Ok(()),
            ErrorKind::WouldBlock if manner == Manner::Spin => {}
            ErrorKind::WouldBlock => bail!("the server was silent for {PATIENCE:?}"),
            _ => return Err(error.into()),
        }
        self.tries = self.tries.wrapping_add(1);
        if self.tries.is_multiple_of(4096) && self.since.elapsed() > PATIENCE {
            bail!("the server was not done after {PATIENCE:?}");
        }
        Ok(())
    }
}

fn request_head(method: &str, target: &str, token: &str, length: u64) -> String {
    let fields = match method {
        "GET" => String::new(),
        "PUT" => format!("content-type: application/octet-stream\r\ncontent-length: {length}\r\n"),
        _ => format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
    };
    format!(
        "{method} {target} HTTP/1.1\r\nhost: ringbench\r\nauthorization: Bearer {token}\r\n{fields}\r\n"
    )
}
