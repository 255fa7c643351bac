//! Frames that we send: masked with fresh keys, built where they lie (RFC 6455, sections 5.2 and 5.3).

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::Result;
use crate::ring::buffers::{self, Lease};
use crate::ring::socket::Socket;
use crate::tunnel::secure::{MOST_PLAIN, Session, TAG};
use crate::wire::websocket::client::{MaskedHead, Opcode, mask};

/// Keys for frames, each used once.
pub(super) struct Masks {
    random: [u8; 256],
    used: usize,
}

impl Masks {
    pub(super) fn new() -> Self {
        Self {
            random: [0; 256],
            used: 256,
        }
    }

    fn next(&mut self) -> [u8; 4] {
        if self.used == self.random.len() {
            // Without randomness the keys are known, which opens nothing that TLS or Noise would keep shut.
            let _ = getrandom(&mut self.random, GetRandomFlags::NONBLOCK);
            self.used = 0;
        }
        let key = &self.random[self.used..self.used + 4];
        self.used += 4;
        [key[0], key[1], key[2], key[3]]
    }
}

/// A whole frame of its own.
pub(super) fn frame(opcode: Opcode, payload: &[u8], masks: &mut Masks) -> Vec<u8> {
    let key = masks.next();
    let head = MaskedHead::of(opcode, payload.len(), key);
    let mut frame = [head.bytes(), payload].concat();
    mask(&mut frame[head.bytes().len()..], key);
    frame
}

/// A close frame.
pub(super) fn close_frame(code: u16, masks: &mut Masks) -> Vec<u8> {
    frame(Opcode::Close, &code.to_be_bytes(), masks)
}

/// Bytes of the local side on their way to the daemon: received where their frames are made.
pub(super) struct Outgoing {
    /// For a plain tunnel it begins with room for the head of a frame.
    received: Lease,
    /// The encrypted messages in their frames; unused by a plain tunnel.
    sealed: Lease,
    is_verified: bool,
}

impl Outgoing {
    pub(super) fn new(is_verified: bool) -> Self {
        Self {
            received: buffers::lease(),
            sealed: match is_verified {
                true => buffers::lease(),
                false => Lease::none(),
            },
            is_verified,
        }
    }

    /// Receives what is there, without waiting; `None` when there is nothing, 0 at the end.
    ///
    /// # Errors
    /// `ClientGone` when the connection failed.
    pub(super) fn receive(&mut self, local: &Socket) -> Result<Option<usize>> {
        self.received.clear();
        if !self.is_verified {
            self.received.resize(MaskedHead::MOST, 0);
        }
        local.try_recv_at_most(&mut self.received, MOST_RECEIVED)
    }

    /// What was received, as one frame of a plain tunnel.
    pub(super) fn plain(&mut self, masks: &mut Masks) -> &[u8] {
        let key = masks.next();
        let (room, payload) = self.received.split_at_mut(MaskedHead::MOST);
        let head = MaskedHead::of(Opcode::Binary, payload.len(), key);
        let from = room.len() - head.bytes().len();
        room[from..].copy_from_slice(head.bytes());
        mask(payload, key);
        &self.received[from..]
    }

    /// What was received, encrypted, a frame for each message.
    ///
    /// # Errors
    /// It cannot be encrypted any more.
    pub(super) fn sealed(&mut self, session: &mut Session, masks: &mut Masks) -> Result<&[u8]> {
        let messages = self.received.len().div_ceil(MOST_PLAIN);
        let most = self.received.len() + messages * (MaskedHead::MOST + TAG);
        self.sealed.resize(most, 0);
        let mut used = 0;
        for plain in self.received.chunks(MOST_PLAIN) {
            used += seal(session, plain, &mut self.sealed[used..], masks)?;
        }
        Ok(&self.sealed[..used])
    }
}

/// One encrypted message in a frame; an empty one is the end of our stream.
///
/// # Errors
/// It cannot be encrypted any more.
pub(super) fn sealed_frame(
    session: &mut Session,
    plain: &[u8],
    masks: &mut Masks,
) -> Result<Vec<u8>> {
    let mut frame = vec![0; MaskedHead::MOST + plain.len() + TAG];
    let length = seal(session, plain, &mut frame, masks)?;
    frame.truncate(length);
    Ok(frame)
}

/// Puts a frame with the encrypted `plain` to the start of `into`; answers its length.
fn seal(session: &mut Session, plain: &[u8], into: &mut [u8], masks: &mut Masks) -> Result<usize> {
    let key = masks.next();
    let head = MaskedHead::of(Opcode::Binary, plain.len() + TAG, key);
    let (start, rest) = into.split_at_mut(head.bytes().len());
    start.copy_from_slice(head.bytes());
    let length = session.seal(plain, rest)?;
    mask(&mut rest[..length], key);
    Ok(head.bytes().len() + length)
}

/// Bytes of the local side that one receive takes. With heads and tags they fit a leased buffer.
const MOST_RECEIVED: usize = 128 * 1024;
