//! Verified tunnels: the handshake of two pinned keys (Noise KK) and the messages behind it, without any I/O.
//!
//! ```text
//!   host (initiator)                       guest (responder)
//!     e, es, ss, [flags]      ────────▶
//!                             ◀────────      e, ee, se, [flags]
//!     READY (protocol 2 only) ────────▶
//!     data, …, an empty one   ◀───────▶      data, …, an empty one
//! ```
//!
//! Every arrow is one message of at most [`MOST_MESSAGE`] bytes. An empty plaintext is the end of the stream, for those
//! who know it; the others ignore it. The handshake is Noise revision 34, sections 5 and 7.5.

#[cfg(test)]
mod tests;

use std::fmt;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState, TransportState};
use zeroize::Zeroize;

use crate::error::{Kind, Result};

/// Key material of one guest: who it is, and whom it lets in.
pub struct Keys {
    /// The guest's static private key (X25519), as it was delivered.
    pub seed: [u8; 32],
    /// The static public key of the host that may connect.
    pub host_public_key: [u8; 32],
}

/// Key material of a host that connects to one guest.
pub struct HostKeys {
    /// The host's static private key (X25519).
    pub private_key: [u8; 32],
    /// The static public key of the guest that must answer.
    pub guest_public_key: [u8; 32],
}

/// The generations of the handshake; they refuse each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// An empty prologue; the responder dials when the handshake is over.
    First,
    /// A prologue that names protocol and port; the responder dials when it has seen [`READY`], so that a recorded
    /// handshake does not make it dial.
    Second,
}

/// The guest's half of a handshake. It serves both generations: the first message tells which it is.
pub struct Responder {
    second: HandshakeState,
    first: HandshakeState,
}

impl Responder {
    /// Prepares the handshake of one tunnel to `port`.
    ///
    /// # Errors
    /// `Internal` when it cannot be built.
    pub fn new(keys: &Keys, port: u16) -> Result<Self> {
        let build = |protocol: Protocol| {
            let prologue = protocol.prologue(port);
            builder(&keys.seed, &keys.host_public_key, &prologue)
                .and_then(Builder::build_responder)
                .map_err(unbuilt)
        };
        Ok(Self {
            second: build(Protocol::Second)?,
            first: build(Protocol::First)?,
        })
    }

    /// Takes the caller's message; answers ours, and what both speak from then on.
    ///
    /// # Errors
    /// `Unauthorized` when it was not made by the pinned host for this guest, or is no such message at all.
    pub fn answer(self, first: &[u8]) -> Result<(Vec<u8>, Session)> {
        // The state that fails reads nothing, so that the other may try the same bytes.
        let mut flags = vec![0; first.len().min(MOST_MESSAGE)];
        let candidates = [
            (Protocol::Second, self.second),
            (Protocol::First, self.first),
        ];
        for (protocol, mut state) in candidates {
            let Ok(count) = state.read_message(first, &mut flags) else {
                continue;
            };
            let mut answer = vec![0; HANDSHAKE + 1];
            let length = state
                .write_message(&[SENDS_END], &mut answer)
                .map_err(unbuilt)?;
            answer.truncate(length);
            let session = Session::of(state, protocol, &flags[..count])?;
            return Ok((answer, session));
        }
        Err(refused())
    }
}

/// The host's half of a handshake.
pub struct Initiator {
    state: HandshakeState,
    protocol: Protocol,
}

impl Initiator {
    /// Begins a handshake for one tunnel to `port`; the second value is the message to send.
    ///
    /// # Errors
    /// `Internal` when it cannot be built.
    pub fn new(keys: &HostKeys, protocol: Protocol, port: u16) -> Result<(Self, Vec<u8>)> {
        let prologue = protocol.prologue(port);
        let mut state = builder(&keys.private_key, &keys.guest_public_key, &prologue)
            .and_then(Builder::build_initiator)
            .map_err(unbuilt)?;
        let mut message = vec![0; HANDSHAKE + 1];
        let length = state
            .write_message(&[SENDS_END], &mut message)
            .map_err(unbuilt)?;
        message.truncate(length);
        Ok((Self { state, protocol }, message))
    }

    /// Takes the guest's answer. Where [`Session::expects_ready`] is true, [`READY`] must be the first message.
    ///
    /// # Errors
    /// `Unauthorized` when it was not made by the pinned guest, or is no such message at all.
    pub fn finish(mut self, answer: &[u8]) -> Result<Session> {
        let mut flags = vec![0; answer.len().min(MOST_MESSAGE)];
        let count = self
            .state
            .read_message(answer, &mut flags)
            .map_err(|_| refused())?;
        Session::of(self.state, self.protocol, &flags[..count])
    }
}

/// What both sides speak once they know each other: a key and a count of messages for each direction.
pub struct Session {
    state: TransportState,
    protocol: Protocol,
    peer_promises_end: bool,
    /// A message did not open: from then on none does.
    has_failed: bool,
}

impl Session {
    fn of(state: HandshakeState, protocol: Protocol, flags: &[u8]) -> Result<Self> {
        let promises = flags.first().is_some_and(|byte| byte & SENDS_END != 0);
        Ok(Self {
            state: state.into_transport_mode().map_err(unbuilt)?,
            protocol,
            peer_promises_end: promises,
            has_failed: false,
        })
    }

    /// True when the host's first message must be [`READY`], which nobody relays.
    pub fn expects_ready(&self) -> bool {
        self.protocol == Protocol::Second
    }

    /// True when the peer has said that it ends its stream with an empty message.
    pub fn peer_promises_end(&self) -> bool {
        self.peer_promises_end
    }

    /// Decrypts the peer's next message into `into` and answers the length; 0 is the end of the stream.
    ///
    /// `into` needs room for the plaintext; with room for all of `message` there is one copy less. After an error it
    /// holds nothing to use, and every later call fails too: what was replayed, left out or changed ends a session.
    ///
    /// # Errors
    /// `Malformed` when it does not authenticate as the next message, `Internal` when `into` is too short.
    pub fn open(&mut self, message: &[u8], into: &mut [u8]) -> Result<usize> {
        if self.has_failed {
            return Err(Kind::Malformed.told("an earlier message did not authenticate"));
        }
        let opened = match message.len() {
            TAG..=MOST_MESSAGE if into.len() < message.len() - TAG => {
                Err(Kind::Internal.told("the buffer is shorter than the message"))
            }
            TAG..=MOST_MESSAGE => self
                .state
                .read_message(message, into)
                .map_err(|error| Kind::Malformed.told(FORGED).because(error)),
            length => Err(Kind::Malformed.told(format!(
                "a message of {length} bytes, where {TAG} to {MOST_MESSAGE} are possible"
            ))),
        };
        self.has_failed = opened.is_err();
        opened
    }

    /// Encrypts `plain` as our next message into `into` and answers the length, which is [`TAG`] more.
    ///
    /// Nothing may be left out or sent twice: the peer counts. An empty `plain` is the end of the stream.
    ///
    /// # Errors
    /// `Internal` when `plain` does not fit a message, `into` is too short or 2^64 messages were sent.
    pub fn seal(&mut self, plain: &[u8], into: &mut [u8]) -> Result<usize> {
        self.state.write_message(plain, into).map_err(|error| {
            Kind::Internal
                .told("a message cannot be encrypted")
                .because(error)
        })
    }
}

impl Protocol {
    /// What both sides mix into the handshake beforehand.
    fn prologue(self, port: u16) -> Vec<u8> {
        match self {
            Self::First => Vec::new(),
            Self::Second => {
                let parts = ["microvms-tunnel", PATTERN, "2", "/v1/tcp"];
                let mut prologue = Vec::new();
                for part in parts {
                    prologue.extend_from_slice(part.as_bytes());
                    prologue.push(0);
                }
                prologue.extend_from_slice(&port.to_be_bytes());
                prologue
            }
        }
    }
}

/// The public half of a private key (X25519; RFC 7748, section 6.1).
///
/// # Errors
/// `Internal` when the algorithm is not there.
pub fn public_key(private_key: &[u8; 32]) -> Result<[u8; 32]> {
    let absent = || Kind::Internal.told("there is no X25519");
    let mut pair = DefaultResolver
        .resolve_dh(&DHChoice::Curve25519)
        .ok_or_else(absent)?;
    pair.set(private_key);
    pair.pubkey().try_into().map_err(|_| absent())
}

fn builder<'a>(
    private: &'a [u8; 32],
    peer: &'a [u8; 32],
    prologue: &'a [u8],
) -> std::result::Result<Builder<'a>, snow::Error> {
    Builder::new(PATTERN.parse()?)
        .local_private_key(private)?
        .remote_public_key(peer)?
        .prologue(prologue)
}

fn unbuilt(error: snow::Error) -> crate::error::Error {
    Kind::Internal
        .told("the handshake cannot be made")
        .because(error)
}

fn refused() -> crate::error::Error {
    Kind::Unauthorized.told("identity handshake refused: wrong pin or wrong caller")
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

impl Drop for HostKeys {
    fn drop(&mut self) {
        self.private_key.zeroize();
    }
}

/// Shows the name of the type and nothing of the secrets in it.
macro_rules! say_only_the_name {
    ($($name:ident),+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}
say_only_the_name!(Keys, HostKeys, Responder, Initiator, Session);

/// The host's first message in protocol 2.
pub const READY: &[u8] = b"microvms-tunnel-ready";
/// Bytes that a message is longer than its plaintext.
pub const TAG: usize = 16;
/// Plaintext of one message that the daemon makes, at most.
pub const MOST_PLAIN: usize = 32768;
/// Bytes of a message, at most (Noise, section 3).
pub const MOST_MESSAGE: usize = 65535;

const PATTERN: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";
/// Bytes of a handshake message without payload: a public key and a tag.
const HANDSHAKE: usize = 32 + TAG;
/// The flag of a handshake's payload: who sets it ends its stream with an empty message.
const SENDS_END: u8 = 1;
const FORGED: &str = "a message does not authenticate";
