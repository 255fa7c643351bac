//! The receiving half of a connection: bytes not yet parsed, and request bodies cut out of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::respond;
use crate::app::traffic::Traffic;
use crate::error::{Kind, Result};
use crate::ring::buffers::LEASE;
use crate::ring::clock::within;
use crate::ring::socket::Socket;
use crate::ring::{Inflow, Step};
use crate::wire::http::chunked::{Broken, Decoder};
use crate::wire::http::head::{Framing, Head};

/// A connection's socket and the bytes received ahead of what was asked for.
pub(super) struct Wire {
    pub(super) socket: Socket,
    pub(super) unread: RefCell<Vec<u8>>,
    pub(super) traffic: Rc<Traffic>,
}

/// How far the body of the current request has been read; shared by the body and the connection.
pub(super) struct Progress {
    framing: RefCell<Framed>,
    /// Data bytes that may still come before the limit is passed.
    allowed: Cell<u64>,
    /// True until the client has been told to send (`expect: 100-continue`).
    awaits_continue: Cell<bool>,
    /// True once the framing is violated or the peer is gone: nothing can follow on this connection.
    is_broken: Cell<bool>,
    /// True when the client takes interim responses (HTTP/1.1).
    takes_interim: bool,
    /// The low-water mark in force on the socket.
    mark: Cell<usize>,
}

enum Framed {
    Length(u64),
    Chunked(Decoder),
}

/// The body of one request.
pub(super) struct Body {
    wire: Rc<Wire>,
    progress: Rc<Progress>,
}

impl Progress {
    pub(super) fn new(head: &Head, limit: u64) -> Self {
        let framing = match head.framing {
            Framing::Length(length) => Framed::Length(length),
            Framing::Chunked => Framed::Chunked(Decoder::default()),
        };
        Self {
            framing: RefCell::new(framing),
            allowed: Cell::new(limit),
            awaits_continue: Cell::new(head.expects_continue),
            takes_interim: head.is_11,
            is_broken: Cell::new(false),
            mark: Cell::new(1),
        }
    }

    /// True when every byte of the body was read.
    pub(super) fn is_done(&self) -> bool {
        match &*self.framing.borrow() {
            Framed::Length(left) => *left == 0,
            Framed::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// True when the client was never invited to send the body that it announced.
    pub(super) fn was_not_invited(&self) -> bool {
        self.awaits_continue.get()
    }

    /// Lifts the limit, to read the rest away.
    pub(super) fn allow(&self, bytes: u64) {
        self.allowed.set(bytes);
        self.awaits_continue.set(false);
    }

    /// True when what is left of the body is known to be at most `limit` bytes, or is here already.
    pub(super) fn unread_within(&self, wire: &Wire, limit: u64) -> bool {
        if self.is_broken.get() {
            return false;
        }
        match &mut *self.framing.borrow_mut() {
            Framed::Length(left) => *left <= limit,
            Framed::Chunked(decoder) => {
                let mut unread = wire.unread.borrow_mut();
                unread.reserve(CHUNKED_READ);
                // What has arrived counts as here, without waiting for more.
                let _ = wire.socket.try_recv(&mut unread);
                let mut scratch = Vec::new();
                let room = usize::try_from(limit).unwrap_or(usize::MAX);
                let used = decoder.feed(&unread, &mut scratch, room);
                if let Ok(used) = used {
                    unread.drain(..used);
                }
                wire.traffic.bodies.receive(scratch.len() as u64);
                used.is_ok() && decoder.is_done()
            }
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    fn left(&self) -> Option<u64> {
        match &*self.framing.borrow() {
            Framed::Length(left) => Some(*left),
            Framed::Chunked(decoder) => decoder.is_done().then_some(0),
        }
    }
}

impl Body {
    pub(super) fn new(wire: Rc<Wire>, progress: Rc<Progress>) -> Self {
        Self { wire, progress }
    }

    async fn next(&mut self, into: &mut Vec<u8>) -> Result<usize> {
        if self.progress.is_done() || into.len() == into.capacity() {
            return Ok(0);
        }
        if self.progress.awaits_continue.replace(false) && self.wire.unread.borrow().is_empty() {
            self.wire
                .socket
                .send_all(&respond::invitation(), false)
                .await?;
        }
        let before = into.len();
        // A read that fails, or is dropped half way, leaves nobody knowing where the next request begins.
        self.progress.is_broken.set(true);
        match self.progress.left() {
            Some(left) => self.next_of_length(into, left).await,
            None => self.next_of_chunks(into).await,
        }?;
        self.progress.is_broken.set(false);
        let count = into.len() - before;
        self.wire.traffic.bodies.receive(count as u64);
        match self.progress.allowed.get().checked_sub(count as u64) {
            Some(allowed) => self.progress.allowed.set(allowed),
            None => return Err(respond::too_long()),
        }
        Ok(count)
    }

    async fn next_of_length(&mut self, into: &mut Vec<u8>, left: u64) -> Result<()> {
        let before = into.len();
        let room = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(into.capacity() - before);
        let buffered = take_front(&mut self.wire.unread.borrow_mut(), room, into);
        if buffered == 0 {
            self.receive(into, left, before + room).await?;
        }
        let count = (into.len() - before) as u64;
        *self.progress.framing.borrow_mut() = Framed::Length(left - count);
        if left == count {
            self.set_mark(1);
        }
        Ok(())
    }

    /// Puts what belongs to the next request, and was received with the rest, back: all behind `end`.
    fn give_back(&self, into: &mut Vec<u8>, end: usize) {
        if let Some(excess) = into.get(end..) {
            self.wire.unread.borrow_mut().extend_from_slice(excess);
            into.truncate(end);
        }
    }

    /// Takes what is here of a body of known length; true when there may be more.
    fn take_arrived(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let Framed::Length(left) = *self.progress.framing.borrow() else {
            return Ok(false);
        };
        let before = into.len();
        let room = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(into.capacity() - before);
        let is_invited = !self.progress.awaits_continue.get();
        if room == 0 || !is_invited && self.wire.unread.borrow().is_empty() {
            return Ok(false);
        }
        self.progress.awaits_continue.set(false);
        if take_front(&mut self.wire.unread.borrow_mut(), room, into) == 0 {
            match self.wire.socket.try_recv(into)? {
                None => return Ok(false),
                Some(0) => return Err(cut_short()),
                Some(_) => self.give_back(into, before + room),
            }
        }
        let count = (into.len() - before) as u64;
        *self.progress.framing.borrow_mut() = Framed::Length(left - count);
        self.wire.traffic.bodies.receive(count);
        let allowed = self.progress.allowed.get().checked_sub(count);
        self.progress
            .allowed
            .set(allowed.ok_or_else(respond::too_long)?);
        Ok(left > count)
    }

    async fn next_of_chunks(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let before = into.len();
        loop {
            self.decode(into)?;
            if into.len() > before || self.progress.is_done() {
                return Ok(());
            }
            let mut fresh = self.wire.unread.take();
            fresh.reserve(CHUNKED_READ);
            let received = self.wire.socket.recv(&mut fresh).await;
            *self.wire.unread.borrow_mut() = fresh;
            if received? == 0 {
                return Err(cut_short());
            }
        }
    }

    fn decode(&self, into: &mut Vec<u8>) -> Result<()> {
        let mut framing = self.progress.framing.borrow_mut();
        let Framed::Chunked(decoder) = &mut *framing else {
            return Ok(());
        };
        let mut unread = self.wire.unread.borrow_mut();
        let room = into.capacity() - into.len();
        let used = decoder
            .feed(&unread, into, room)
            .map_err(|Broken(what)| Kind::Malformed.told(what))?;
        unread.drain(..used);
        Ok(())
    }

    /// Receives for a body of known length, up to `end` of the buffer, waking once per [`LEASE`] where that much is still
    /// to come.
    async fn receive(&self, into: &mut Vec<u8>, left: u64, end: usize) -> Result<()> {
        let socket = &self.wire.socket;
        if left < FAST_PATH || into.capacity() - into.len() < LEASE {
            self.set_mark(1);
        } else if self.progress.mark.get() == 1 {
            self.set_mark(LEASE);
        }
        if self.progress.mark.get() > 1 {
            // A client that sends less than the mark in this time is slow: it is served byte by byte.
            if within(SLOW, socket.readable()).await.is_none() {
                self.set_mark(1);
                self.progress.mark.set(0);
            }
        }
        // Whoever drops us while others have their turn finds no byte of the next request.
        let received = socket.recv_then(into, |into| self.give_back(into, end));
        match received.await? {
            0 => Err(cut_short()),
            _ => Ok(()),
        }
    }

    fn set_mark(&self, mark: usize) {
        if self.progress.mark.get() > 1 || mark > 1 {
            self.wire.socket.set_low_water(mark);
            self.progress.mark.set(mark);
        }
    }
}

impl Inflow for Body {
    fn remaining(&self) -> Option<u64> {
        self.progress.left()
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize> {
        Box::pin(self.next(into))
    }

    fn announce<'a>(&'a mut self, fields: &'a [(&'static str, String)]) -> Step<'a, bool> {
        Box::pin(async move {
            if self.progress.takes_interim {
                let news = respond::news(fields);
                self.wire.socket.send_all(&news, false).await?;
            }
            Ok(self.progress.takes_interim)
        })
    }

    fn gather(&mut self, into: &mut Vec<u8>) -> Result<()> {
        loop {
            match self.take_arrived(into) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.progress.is_broken.set(true);
                    return Err(error);
                }
            }
        }
    }
}

/// Moves up to `room` bytes from the front of `from`.
fn take_front(from: &mut Vec<u8>, room: usize, into: &mut Vec<u8>) -> usize {
    let count = room.min(from.len());
    into.extend_from_slice(&from[..count]);
    from.drain(..count);
    count
}

fn cut_short() -> crate::error::Error {
    Kind::ClientGone.told("the connection ended before the body did")
}

/// Bytes left from which the low-water mark is worth setting: the tail must be larger than the mark.
const FAST_PATH: u64 = 2 * LEASE as u64;
const SLOW: Duration = Duration::from_secs(1);
const CHUNKED_READ: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::task::Poll;

    use super::*;
    use crate::ring;
    use crate::wire::http::head::{Limits, Step, parse};

    fn put(length: usize) -> Head {
        let head = format!("PUT / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
        let limits = Limits {
            bytes: 4096,
            fields: 10,
            target: 100,
        };
        match parse(head.as_bytes(), &limits) {
            Ok(Step::Done(head, _)) => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_read_that_is_dropped_leaves_nothing_of_the_next_request() {
        // More than is received in one turn, so that the last read waits for its turn.
        const LENGTH: usize = 4 * 1024 * 1024;
        const TAIL: &[u8] = b"tailGET / HTTP/1.1\r\n";
        let outcome = ring::start(ring::Choice::Epoll, async {
            let (mut client, server) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let socket = Socket::new(server.into(), Duration::from_secs(60)).expect("it is open");
            let wire = Rc::new(Wire {
                socket,
                unread: RefCell::default(),
                traffic: Rc::default(),
            });
            let mut read = 0;
            let progress = Rc::new(Progress::new(&put(LENGTH), u64::MAX));
            let mut body = Body::new(wire, progress);
            while read < LENGTH - 4 {
                let piece = (LENGTH - 4 - read).min(64 * 1024);
                client.write_all(&vec![b'x'; piece]).expect("there is room");
                let mut bytes = Vec::with_capacity(piece);
                while bytes.len() < piece {
                    read += body.read(&mut bytes).await.expect("it is there");
                }
            }
            client.write_all(TAIL).expect("there is room");
            let mut bytes = Vec::with_capacity(1024);
            let mut last = body.read(&mut bytes);
            let is_ready = poll_fn(|context| Poll::Ready(last.as_mut().poll(context).is_ready()));
            assert!(!is_ready.await, "others have their turn first");
            drop(last);
            assert_eq!(bytes, b"tail");
            0
        });
        assert_eq!(outcome.expect("epoll is everywhere"), 0);
    }
}
