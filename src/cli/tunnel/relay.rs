//! One open tunnel: bytes both ways until both sides have ended, or one of them fails.
//!
//! ```text
//!   local ──read──▶ [seal] ──frames──▶ daemon      one task; it alone sends, also what the other way owes
//!   local ◀──write── [open] ◀──frames── daemon     the other; it decides how the tunnel ends
//! ```

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::time::Duration;

use rustix::net::{AddressFamily, sockopt};

use super::ending::{BROKEN, Ending, LEAVING, NORMAL, closed};
use super::frames::{Masks, Outgoing, close_frame, frame, sealed_frame};
use super::incoming::{Event, Fault, Incoming, append};
use crate::error::Result;
use crate::ring::clock::{sleep, within};
use crate::ring::notify;
use crate::ring::socket::Socket;
use crate::tunnel::secure::Session;
use crate::wire::websocket::client::Opcode;

/// What both directions of one tunnel share.
pub(super) struct Relay {
    local: Socket,
    remote: Socket,
    session: Option<RefCell<Session>>,
    masks: RefCell<Masks>,
    /// What is to be sent beside data.
    owed: RefCell<Owed>,
    owes: notify::Event,
    /// A frame is out in part: another one would land inside it.
    is_sending: Cell<bool>,
    /// Our stream has ended, and the daemon was told.
    has_ended: Cell<bool>,
    /// The guest's stream has ended, and we were told.
    guest_has_ended: Cell<bool>,
    /// Our close frame is out: nothing may follow it.
    has_closed: Cell<bool>,
}

#[derive(Default)]
struct Owed {
    /// The payload of the last ping; older ones need no answer (RFC 6455, section 5.5.3).
    pong: Option<Vec<u8>>,
    close: bool,
}

impl Relay {
    pub(super) fn new(local: Socket, remote: Socket, session: Option<Session>) -> Self {
        Self {
            local,
            remote,
            session: session.map(RefCell::new),
            masks: RefCell::new(Masks::new()),
            owed: RefCell::default(),
            owes: notify::Event::default(),
            is_sending: Cell::new(false),
            has_ended: Cell::new(false),
            guest_has_ended: Cell::new(false),
            has_closed: Cell::new(false),
        }
    }

    /// Carries bytes until the tunnel ends, and ends both connections as that asks for.
    pub(super) async fn run(&self, incoming: Incoming) -> Ending {
        let (ending, code) = monoio::select! {
            ended = self.outward(incoming) => ended,
            () = self.inward() => (Ending::Abandoned, None),
        };
        if let Some(code) = code {
            self.say_farewell(code).await;
        }
        self.remote.finish_sending();
        match ending {
            Ending::Whole => self.let_go().await,
            // Whoever reads must not take what came for the whole.
            Ending::Broken(_) => self.local.reset_on_close(),
            Ending::Abandoned => {}
        }
        ending
    }

    /// Ends the tunnel because this side is told to leave.
    pub(super) async fn leave(&self) {
        self.say_farewell(LEAVING).await;
        self.remote.finish_sending();
        self.local.reset_on_close();
    }

    /// Sends what the local side says, and what is owed; returns when the local side is gone.
    async fn inward(&self) {
        loop {
            let seen = self.owes.count();
            if self.pay().await.is_err() {
                return;
            }
            let readable = async {
                match self.has_ended.get() {
                    true => self.lost().await,
                    false => self.local.readable().await.is_ok(),
                }
            };
            let is_there = monoio::select! {
                ready = readable => ready,
                () = self.owes.after(seen) => continue,
            };
            if !is_there || self.drain_local().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the local side, which has ended its stream, is gone altogether: then answers false.
    async fn lost(&self) -> bool {
        loop {
            sleep(ROUND).await;
            if self.is_gone() {
                return false;
            }
        }
    }

    /// True when the local side is gone. Once both streams have ended a live one looks the same.
    fn is_gone(&self) -> bool {
        !self.guest_has_ended.get() && self.local.check().is_err()
    }

    /// Sends all that the local side has to say now.
    async fn drain_local(&self) -> Result<()> {
        let mut outgoing = Outgoing::new(self.session.is_some());
        loop {
            match outgoing.receive(&self.local)? {
                None => return Ok(()),
                Some(0) => {
                    self.end().await?;
                    return Ok(());
                }
                Some(_) => {}
            }
            let frames = {
                let masks = &mut self.masks.borrow_mut();
                match &self.session {
                    None => outgoing.plain(masks),
                    Some(session) => outgoing.sealed(&mut session.borrow_mut(), masks)?,
                }
            };
            self.send(frames).await?;
            self.pay().await?;
        }
    }

    /// Says that nothing more comes from here: with an empty message to those who know it, else with a close frame,
    /// after which a daemon may go on sending until its side has ended.
    async fn end(&self) -> Result<()> {
        self.has_ended.set(true);
        let knows_ends = |session: &RefCell<Session>| session.borrow().peer_promises_end();
        let Some(session) = self.session.as_ref().filter(|session| knows_ends(session)) else {
            self.owed.borrow_mut().close = true;
            return Ok(());
        };
        let end = {
            let masks = &mut self.masks.borrow_mut();
            sealed_frame(&mut session.borrow_mut(), b"", masks)?
        };
        self.send(&end).await?;
        if self.guest_has_ended.get() {
            self.owed.borrow_mut().close = true;
        }
        Ok(())
    }

    /// Sends what is owed.
    ///
    /// # Errors
    /// As [`Relay::send`].
    async fn pay(&self) -> Result<()> {
        let owed = std::mem::take(&mut *self.owed.borrow_mut());
        if self.has_closed.get() {
            return Ok(());
        }
        if let Some(payload) = owed.pong {
            let pong = frame(Opcode::Pong, &payload, &mut self.masks.borrow_mut());
            self.send(&pong).await?;
        }
        if owed.close {
            let close = close_frame(NORMAL, &mut self.masks.borrow_mut());
            self.has_closed.set(true);
            self.send(&close).await?;
        }
        Ok(())
    }

    /// Sends whole frames. When the daemon takes them no more it waits for ever: the other direction learns why.
    ///
    /// # Errors
    /// The local side has gone meanwhile.
    async fn send(&self, frames: &[u8]) -> Result<()> {
        self.is_sending.set(true);
        let mut rest = frames;
        while !rest.is_empty() {
            match self.remote.try_send(&[IoSlice::new(rest)]) {
                Ok(0) => self.room().await?,
                Ok(sent) => {
                    rest = &rest[sent..];
                    self.remote.spend(sent as u64).await;
                }
                Err(_) => std::future::pending().await,
            }
        }
        self.is_sending.set(false);
        Ok(())
    }

    /// Waits until the daemon has room.
    ///
    /// # Errors
    /// The local side has gone meanwhile.
    async fn room(&self) -> Result<()> {
        // Who closes a Unix socket may have left words in it, which are still to be carried.
        let is_unix = sockopt::socket_domain(&self.local) == Ok(AddressFamily::UNIX);
        // What is wrong with the daemon shows when something is sent.
        while within(ROUND, self.remote.room()).await.is_none() {
            if !is_unix && !self.guest_has_ended.get() {
                self.local.check()?;
            }
        }
        Ok(())
    }

    /// Hands over what the guest says; answers how the tunnel ends, and the code that the daemon is told if any.
    async fn outward(&self, mut incoming: Incoming) -> (Ending, Option<u16>) {
        let mut message = Vec::new();
        let mut plain = Vec::new();
        loop {
            let event = match incoming.next(&self.remote).await {
                Ok(event) => event,
                Err(fault) => return broken(fault),
            };
            let bytes = match event {
                Event::Data(piece, is_last) => {
                    match self.opened(piece, is_last, &mut message, &mut plain) {
                        Ok(bytes) => bytes,
                        Err(fault) => return broken(fault),
                    }
                }
                Event::Ping(payload) => {
                    self.owed.borrow_mut().pong = Some(payload.to_vec());
                    self.owes.happen();
                    continue;
                }
                Event::Close(code, reason) => return self.closed(code, &reason),
            };
            if self.local.send_all(bytes, false).await.is_err() {
                return (Ending::Abandoned, None);
            }
        }
    }

    /// What a piece of the daemon's messages brings for the local side; nothing until an encrypted message is whole.
    fn opened<'a>(
        &self,
        piece: &'a [u8],
        is_last: bool,
        message: &mut Vec<u8>,
        plain: &'a mut Vec<u8>,
    ) -> std::result::Result<&'a [u8], Fault> {
        let Some(session) = &self.session else {
            return Ok(piece);
        };
        if is_last && message.is_empty() {
            return self.open(session, piece, plain);
        }
        append(message, piece)?;
        if !is_last {
            return Ok(&[]);
        }
        let message = std::mem::take(message);
        self.open(session, &message, plain)
    }

    /// Decrypts a message into `plain`, and notes the end of the guest's stream.
    fn open<'a>(
        &self,
        session: &RefCell<Session>,
        message: &[u8],
        plain: &'a mut Vec<u8>,
    ) -> std::result::Result<&'a [u8], Fault> {
        if self.guest_has_ended.get() {
            return Err(Fault::Garbled(BROKEN, "the guest goes on behind its end"));
        }
        if plain.len() < message.len() {
            plain.resize(message.len(), 0);
        }
        let opened = session.borrow_mut().open(message, plain);
        let length = opened.map_err(|_| Fault::Garbled(BROKEN, FORGED))?;
        if length == 0 {
            self.guest_has_ended.set(true);
            self.local.finish_sending();
            if self.has_ended.get() {
                self.owed.borrow_mut().close = true;
                self.owes.happen();
            }
        }
        Ok(&plain[..length])
    }

    /// The end that a close frame brings.
    fn closed(&self, code: Option<u16>, reason: &str) -> (Ending, Option<u16>) {
        let promised = |session: &RefCell<Session>| session.borrow().peer_promises_end();
        let is_owed_an_end =
            self.session.as_ref().is_some_and(promised) && !self.guest_has_ended.get();
        let ending = match closed(code, reason) {
            Ending::Whole if is_owed_an_end => Ending::Broken(CUT.into()),
            ending => ending,
        };
        (ending, Some(code.unwrap_or(NORMAL)))
    }

    /// Sends a close frame, unless one is out or a frame is out in part.
    async fn say_farewell(&self, code: u16) {
        if self.is_sending.get() || self.has_closed.replace(true) {
            return;
        }
        let close = close_frame(code, &mut self.masks.borrow_mut());
        // A daemon that does not take it learns it from the end of the connection.
        let _ = within(PATIENCE, self.remote.send_all(&close, false)).await;
    }

    /// Ends the local connection in order: it may read what was sent, and what it still says is dropped.
    async fn let_go(&self) {
        self.local.finish_sending();
        if sockopt::socket_domain(&self.local) == Ok(AddressFamily::UNIX) {
            // Only of TCP a close takes away what the peer has not read yet.
            return;
        }
        let dropped = async {
            let mut bytes = Vec::with_capacity(16 * 1024);
            while !self.has_ended.get() {
                bytes.clear();
                if !matches!(self.local.recv(&mut bytes).await, Ok(1..)) {
                    return;
                }
            }
        };
        within(PATIENCE, dropped).await;
    }
}

fn broken(fault: Fault) -> (Ending, Option<u16>) {
    match fault {
        Fault::Gone => (Ending::Broken(GONE.into()), None),
        Fault::Garbled(code, why) => {
            let told = format!("the daemon breaks the protocol: {why}");
            (Ending::Broken(told), Some(code))
        }
    }
}

const FORGED: &str = "a message does not authenticate";
const GONE: &str = "the connection to the daemon ended before the tunnel did";
const CUT: &str =
    "the tunnel was closed before the guest's stream had ended: what came is not the whole";
/// How often somebody looks whether the local side is still there while nothing is heard of it.
const ROUND: Duration = Duration::from_secs(1);
/// How long a side that is let go may take for its last words.
const PATIENCE: Duration = Duration::from_secs(1);
