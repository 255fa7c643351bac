//! The client's end of a tunnel: what it sends, piece by piece, and messages to it outside of the relay.

use std::io::IoSlice;
use std::time::Duration;

use super::Stop;
use super::ending::Ending;
use super::secure::MOST_MESSAGE;
use crate::error::{Kind, Result};
use crate::ring::buffers::{self, LEASE, Lease};
use crate::ring::clock::within;
use crate::ring::socket::Socket;
use crate::wire::websocket::{self, Decoder, Grain, Head, Piece, Violation};

/// Bytes of the client that are not understood yet, and the understanding.
pub(super) struct Inbox<'a> {
    socket: &'a Socket,
    decoder: Decoder,
    /// Received before the tunnel began; they come first.
    ahead: Vec<u8>,
    /// What was received; pieces are places in it.
    pub(super) bytes: Lease,
    /// How far it is understood.
    at: usize,
    /// True when the last receive has left nothing.
    is_drained: bool,
    /// Pieces looked for since the other tasks last had their turn.
    pieces: usize,
}

impl<'a> Inbox<'a> {
    pub(super) fn new(socket: &'a Socket, ahead: Vec<u8>, grain: Grain) -> Self {
        Self {
            socket,
            decoder: Decoder::new(grain),
            // The room of the head that it stood behind is not kept.
            ahead: ahead.into_boxed_slice().into_vec(),
            bytes: Lease::none(),
            at: 0,
            is_drained: true,
            pieces: 0,
        }
    }

    /// The next piece of what is here.
    pub(super) fn next(&mut self) -> std::result::Result<Option<Piece>, Violation> {
        self.pieces += 1;
        self.decoder.next(&mut self.bytes, &mut self.at)
    }

    /// True when so many pieces were looked for that the others should have a turn.
    pub(super) fn has_enough(&self) -> bool {
        self.pieces >= PIECES
    }

    /// Counts the pieces against this connection's share: small ones cost much more than their bytes.
    pub(super) async fn give_way(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        self.socket.spend(pieces as u64 * PIECE).await;
    }

    /// Receives more, once all that is here is understood as far as it goes; 0 at the end of the stream.
    ///
    /// Places of earlier pieces mean nothing after it. While nothing is kept no buffer is held.
    pub(super) async fn fill(&mut self) -> Result<usize> {
        if self.at == self.bytes.len() {
            self.bytes = Lease::none();
        } else {
            self.bytes.drain(..self.at);
        }
        self.at = 0;
        if !self.ahead.is_empty() {
            self.lend();
            let count = self.ahead.len().min(RECEIVE);
            self.bytes.extend(self.ahead.drain(..count));
            if self.ahead.is_empty() {
                self.ahead = Vec::new();
            }
            return Ok(count);
        }
        loop {
            if self.is_drained {
                let ready = self.socket.readable().await;
                ready
                    .map_err(|error| Kind::ClientGone.told("the client is gone").because(error))?;
            }
            self.lend();
            let received = self.socket.try_recv_at_most(&mut self.bytes, RECEIVE)?;
            self.is_drained = received != Some(RECEIVE);
            if let Some(count) = received {
                self.socket.spend(count as u64).await;
                return Ok(count);
            }
            if self.bytes.is_empty() {
                self.bytes = Lease::none();
            }
        }
    }

    /// Reads one binary message to its end, and answers pings meanwhile.
    pub(super) async fn whole(&mut self, into: &mut Vec<u8>) -> std::result::Result<(), Stop> {
        into.clear();
        loop {
            if self.has_enough() {
                self.give_way().await;
            }
            let piece = self
                .next()
                .map_err(|violation| Stop::Because(violation.into()))?;
            match piece {
                Some(Piece::Data(data)) => {
                    let is_more = into.len() + data.at.len() > MOST_MESSAGE;
                    if data.is_text || is_more {
                        return Err(Stop::Because(Ending::refused()));
                    }
                    into.extend_from_slice(&self.bytes[data.at]);
                    if data.is_last {
                        return Ok(());
                    }
                }
                Some(Piece::Ping(at)) => {
                    let pong = websocket::pong(&self.bytes[at]);
                    let sent = self.socket.send_all(&pong, false).await;
                    sent.map_err(|_| Stop::Gone)?;
                }
                Some(Piece::Close(_)) => return Err(Stop::Because(Ending::refused())),
                None => match self.fill().await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Err(Stop::Gone),
                },
            }
        }
    }

    /// Reads away what still comes before the client's close frame, or the end.
    async fn closes(&mut self) {
        loop {
            if self.has_enough() {
                self.give_way().await;
            }
            match self.next() {
                Ok(Some(Piece::Close(_))) | Err(_) => return,
                Ok(Some(_)) => {}
                Ok(None) => match self.fill().await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return,
                },
            }
        }
    }

    fn lend(&mut self) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffers::lease();
        }
    }
}

/// Sends one binary message.
pub(super) async fn send(socket: &Socket, payload: &[u8]) -> Result<()> {
    let head = Head::of(payload.len());
    let mut slices = [IoSlice::new(head.bytes()), IoSlice::new(payload)];
    socket.send_slices(&mut slices).await
}

/// Says why there is no tunnel, and gives the client the time to say that it has heard.
pub(super) async fn part(socket: &Socket, inbox: &mut Inbox<'_>, ending: &Ending) {
    if socket.send_all(&ending.frame(), false).await.is_ok() {
        within(PARTING, inbox.closes()).await;
    }
}

/// How long a client may take to answer a close frame.
pub(super) const PARTING: Duration = Duration::from_secs(5);
/// Pieces after which somebody asks whose turn it is.
pub(super) const PIECES: usize = 64;
/// What a piece counts, in bytes.
const PIECE: u64 = 2048;
/// Bytes of one receive, on either side: more of them leave the processor's cache before they are sent.
pub(super) const RECEIVE: usize = 256 * 1024;

// What is kept of a receive is at most a message and its head, and the next receive needs room behind it.
const _: () = assert!(RECEIVE + MOST_MESSAGE + 14 <= LEASE);
