//! What the daemon sends, as events: payloads as they arrive or in whole frames, control frames whole.

use std::ops::Range;

use super::ending::{Ending, closed};
use crate::ring::buffers::{self, Lease};
use crate::ring::socket::Socket;
use crate::tunnel::secure::MOST_MESSAGE;
use crate::wire::websocket::{Decoder, Grain, Piece, Violation};

/// What has arrived and was not looked at.
pub(super) struct Incoming {
    decoder: Decoder,
    bytes: Lease,
    /// Bytes of it that were looked at.
    seen: usize,
}

/// One step of a tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// The next bytes of a message, perhaps none, and whether they are its last.
    Data(&'a [u8], bool),
    /// A ping with its payload; it wants a pong.
    Ping(&'a [u8]),
    /// The daemon sends no more; its code if it gave one, and its reason.
    Close(Option<u16>, String),
}

/// Why the daemon's bytes end the tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection ended without a close frame.
    Gone,
    /// They are no frames that a daemon may send: the code to close with, and why.
    Garbled(u16, &'static str),
}

impl Incoming {
    /// Goes on behind the answer to the upgrade, of which these bytes have arrived too.
    pub(super) fn behind(ahead: &[u8], is_verified: bool) -> Self {
        let mut bytes = Lease::none();
        if !ahead.is_empty() {
            bytes = buffers::lease();
            bytes.extend_from_slice(ahead);
        }
        let grain = match is_verified {
            true => Grain::Frames(MOST_MESSAGE),
            false => Grain::Bytes,
        };
        Self {
            decoder: Decoder::of_server(grain),
            bytes,
            seen: 0,
        }
    }

    /// Waits for the next event. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// The [`Fault`] that ends the tunnel.
    pub(super) async fn next(&mut self, remote: &Socket) -> Result<Event<'_>, Fault> {
        loop {
            match self.decoder.next(&mut self.bytes, &mut self.seen)? {
                Some(piece) => return Ok(self.event(piece)),
                None => self.receive(remote).await?,
            }
        }
    }

    /// Waits for one whole message; the inner error is how the daemon ended the tunnel instead.
    ///
    /// # Errors
    /// The [`Fault`] that ends the tunnel.
    pub(super) async fn message(
        &mut self,
        remote: &Socket,
    ) -> Result<Result<Vec<u8>, Ending>, Fault> {
        let mut message = Vec::new();
        loop {
            match self.next(remote).await? {
                Event::Data(piece, is_last) => {
                    append(&mut message, piece)?;
                    if is_last {
                        return Ok(Ok(message));
                    }
                }
                Event::Close(code, reason) => return Ok(Err(closed(code, &reason))),
                // Who shakes hands is alive: the answer shows it.
                Event::Ping(_) => {}
            }
        }
    }

    fn event(&self, piece: Piece) -> Event<'_> {
        let at = |range: Range<usize>| &self.bytes[range];
        match piece {
            Piece::Data(data) => Event::Data(at(data.at), data.is_last),
            Piece::Ping(payload) => Event::Ping(at(payload)),
            Piece::Close(code) => {
                let reason = at(self.decoder.reason());
                Event::Close(code, String::from_utf8_lossy(reason).into_owned())
            }
        }
    }

    async fn receive(&mut self, remote: &Socket) -> Result<(), Fault> {
        self.bytes.drain(..self.seen);
        self.seen = 0;
        if self.bytes.is_empty() {
            // An idle tunnel holds no buffer.
            self.bytes = Lease::none();
            remote.readable().await.map_err(|_| Fault::Gone)?;
            self.bytes = buffers::lease();
        }
        match remote.recv(&mut self.bytes).await {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(Fault::Gone),
        }
    }
}

/// Adds to a message whose frames come one by one.
///
/// # Errors
/// It is longer than a message can be.
pub(super) fn append(message: &mut Vec<u8>, piece: &[u8]) -> Result<(), Fault> {
    if message.len() + piece.len() > MOST_MESSAGE {
        return Err(Fault::Garbled(TOO_BIG, "a message is too long"));
    }
    message.extend_from_slice(piece);
    Ok(())
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Garbled(violation.code, violation.why)
    }
}

/// The code for a message that is too long (RFC 6455, section 7.4.1).
const TOO_BIG: u16 = 1009;
