//! The relay of a verified tunnel: what the client sends is opened, what the guest says is sealed.

use std::cell::RefCell;
use std::io::IoSlice;

use super::ending::Ending;
use super::near::{Inbox, RECEIVE};
use super::relay::{Heard, Inward, Line, Passed};
use super::secure::{MOST_MESSAGE, MOST_PLAIN, Session, TAG};
use crate::error::Result;
use crate::ring::buffers::{self, LEASE, Lease};
use crate::ring::socket::Socket;
use crate::wire::websocket::{Data, Head, Piece};

impl Line<'_> {
    /// Relays what the client sends, message by message: nothing of one that does not authenticate.
    pub(super) async fn inward_sealed(
        &self,
        inbox: &mut Inbox<'_>,
        session: &RefCell<Session>,
    ) -> Inward {
        let mut opener = Opener {
            session,
            plain: Lease::none(),
            filled: 0,
            partial: Vec::new(),
            is_ended: false,
        };
        let mut is_refused = false;
        loop {
            opener.filled = 0;
            let end = self.open(inbox, &mut opener);
            let is_more = opener.is_ended || opener.is_full() || inbox.has_enough();
            if !is_refused && opener.filled > 0 {
                let mut slices = [IoSlice::new(&opener.plain[..opener.filled])];
                match self.pass(&mut slices).await {
                    Passed::All => {}
                    Passed::Refused => is_refused = true,
                    Passed::Stalled => return Inward::Ends(Ending::failed()),
                    Passed::Gone => return Inward::Gone,
                }
            }
            if std::mem::take(&mut opener.is_ended) {
                self.is_cut.set(false);
                self.guest.finish_sending();
            }
            match end {
                // An end without the promised end of the stream is no end to tell the guest of.
                Some(Inward::Done) if self.is_cut.get() => return Inward::Ends(Ending::clean()),
                Some(Inward::Done) => {
                    self.guest_has_all();
                    return Inward::Done;
                }
                Some(end) => return end,
                None if is_more => {
                    if inbox.has_enough() {
                        inbox.give_way().await;
                    }
                }
                None => {
                    opener.plain = Lease::none();
                    match inbox.fill().await {
                        Ok(1..) => {}
                        Ok(0) => return Inward::Left,
                        Err(_) => return Inward::Gone,
                    }
                }
            }
        }
    }

    /// Opens the messages that are here, as many as there is room for, up to the end of the stream.
    fn open(&self, inbox: &mut Inbox<'_>, opener: &mut Opener<'_>) -> Option<Inward> {
        while !opener.is_ended && !opener.is_full() && !inbox.has_enough() {
            match inbox.next() {
                Ok(Some(Piece::Data(data))) => {
                    if let Err(ending) = opener.take(&data, &inbox.bytes) {
                        // Somebody has touched the stream: the guest must not take what it has for the whole.
                        self.is_cut.set(true);
                        return Some(Inward::Ends(ending));
                    }
                }
                Ok(Some(Piece::Ping(at))) => self.owed.pong(&inbox.bytes[at]),
                Ok(Some(Piece::Close(_))) => return Some(Inward::Done),
                Ok(None) => return None,
                Err(violation) => {
                    self.is_cut.set(true);
                    return Some(Inward::Ends(violation.into()));
                }
            }
        }
        None
    }
}

/// Makes plain bytes of the client's messages.
struct Opener<'a> {
    session: &'a RefCell<Session>,
    /// Opened and not passed on yet: the first `filled` bytes.
    plain: Lease,
    filled: usize,
    /// The beginning of a message that comes in several frames.
    partial: Vec<u8>,
    /// True when the last message was the end of the stream.
    is_ended: bool,
}

impl Opener<'_> {
    /// True when the next message may not fit.
    fn is_full(&self) -> bool {
        self.filled + MOST_MESSAGE > RECEIVE
    }

    /// Takes a frame of a message, and opens the message when it is whole.
    fn take(&mut self, data: &Data, bytes: &[u8]) -> std::result::Result<(), Ending> {
        if data.is_text {
            return Err(Ending::text());
        }
        let frame = &bytes[data.at.clone()];
        if data.is_first && data.is_last {
            return self.open(frame);
        }
        if self.partial.len() + frame.len() > MOST_MESSAGE {
            return Err(Ending::too_long());
        }
        self.partial.extend_from_slice(frame);
        if !data.is_last {
            return Ok(());
        }
        let message = std::mem::take(&mut self.partial);
        self.open(&message)
    }

    fn open(&mut self, message: &[u8]) -> std::result::Result<(), Ending> {
        // With room for the whole message there is one copy less.
        let end = self.filled + message.len();
        grow(&mut self.plain, end);
        let mut session = self.session.borrow_mut();
        let opened = session.open(message, &mut self.plain[self.filled..end]);
        let count = opened.map_err(|_| Ending::forged())?;
        self.filled += count;
        self.is_ended = count == 0 && session.peer_promises_end();
        Ok(())
    }
}

/// Makes messages of what the guest says.
pub(super) struct Sealer<'a> {
    session: &'a RefCell<Session>,
    sealed: Lease,
}

impl<'a> Sealer<'a> {
    pub(super) fn new(session: &'a RefCell<Session>) -> Self {
        Self {
            session,
            sealed: Lease::none(),
        }
    }

    /// Relays what the guest has said by now, and the end of what it says.
    ///
    /// # Errors
    /// The client is gone, or has taken nothing for too long; `Internal`, after which nothing can be sealed.
    pub(super) async fn relay(&mut self, near: &Socket, guest: &Socket) -> Result<Heard> {
        let mut plain = buffers::lease();
        let count = match guest.try_recv_at_most(&mut plain, RECEIVE) {
            Ok(None) => return Ok(Heard::Nothing),
            Err(_) => return Ok(Heard::Failure),
            Ok(Some(count)) => count,
        };
        let mut end = 0;
        for chunk in plain.chunks(MOST_PLAIN) {
            end = self.message(chunk, end)?;
        }
        if count == 0 {
            end = self.message(&[], end)?;
        }
        near.send_all(&self.sealed[..end], false).await?;
        if count < RECEIVE {
            self.sealed = Lease::none();
        }
        match count {
            0 => Ok(Heard::End),
            count => Ok(Heard::Bytes(count)),
        }
    }

    /// Seals one message behind the first `at` bytes, with its head; answers where it ends.
    fn message(&mut self, plain: &[u8], at: usize) -> Result<usize> {
        let length = plain.len() + TAG;
        let head = Head::of(length);
        let start = at + head.bytes().len();
        grow(&mut self.sealed, start + length);
        self.sealed[at..start].copy_from_slice(head.bytes());
        let mut session = self.session.borrow_mut();
        let count = session.seal(plain, &mut self.sealed[start..start + length])?;
        Ok(start + count)
    }
}

/// Gives a buffer at least this length; it never shrinks, so that what was written once is not written again.
fn grow(bytes: &mut Lease, length: usize) {
    if bytes.capacity() == 0 {
        *bytes = buffers::lease();
    }
    if bytes.len() < length {
        bytes.resize(length, 0);
    }
}

// What one receive brings is sealed into one buffer.
const _: () = assert!(RECEIVE + (RECEIVE / MOST_PLAIN + 1) * (TAG + Head::MOST) <= LEASE);
