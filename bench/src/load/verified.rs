//! The client's side of a verified tunnel (guest HTTP contract, section 8.1): a WebSocket whose messages are encrypted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use snow::{Builder, TransportState};
use tokio::time::timeout;

use super::{Connection, Frame, Unsupported, WebSocket};

/// An open one.
pub(crate) struct Verified {
    socket: WebSocket,
    state: TransportState,
    /// What was encrypted last.
    sealed: Vec<u8>,
    /// A message that has not come to its end.
    gathered: Vec<u8>,
    opened: Vec<u8>,
    has_ended: bool,
}

impl Verified {
    /// Opens a verified tunnel to `port`, with the second generation of the handshake.
    pub(crate) async fn open(connection: Connection, port: u16) -> Result<Self> {
        let target = format!("/v1/tcp?port={port}&identity=true");
        let mut socket = WebSocket::open(connection, &target).await?;
        let guest = STANDARD.decode(GUEST_PUBLIC_KEY)?;
        let prologue = [
            b"microvms-tunnel\0Noise_KK_25519_ChaChaPoly_BLAKE2s\0\x32\0/v1/tcp\0".as_slice(),
            &port.to_be_bytes(),
        ]
        .concat();
        let mut state = Builder::new(PATTERN.parse()?)
            .local_private_key(&HOST_SEED)?
            .remote_public_key(&guest)?
            .prologue(&prologue)?
            .build_initiator()?;
        let mut message = vec![0; MOST_MESSAGE];
        let length = state.write_message(&[SENDS_END], &mut message)?;
        socket.send(&Frame::of(&message[..length])).await?;
        let answer = timeout(PATIENCE, first_message(&mut socket)).await;
        let Ok(answer) = answer else {
            let why = "it does not answer the identity handshake";
            return Err(Unsupported(why.to_owned()).into());
        };
        state.read_message(&answer?, &mut message)?;
        let mut verified = Self {
            socket,
            state: state.into_transport_mode()?,
            sealed: message,
            gathered: Vec::new(),
            opened: vec![0; MOST_MESSAGE],
            has_ended: false,
        };
        verified.send(READY).await?;
        Ok(verified)
    }

    /// Sends bytes in messages of at most [`MOST_PLAIN`].
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        for plain in bytes.chunks(MOST_PLAIN) {
            let length = self.state.write_message(plain, &mut self.sealed)?;
            self.socket.send(&Frame::of(&self.sealed[..length])).await?;
        }
        Ok(())
    }

    /// One receive; decrypts what it completes, and shows it to `sink`.
    pub(crate) async fn receive(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        ensure!(!self.has_ended, "the stream has ended early");
        let Self {
            socket,
            state,
            gathered,
            opened,
            has_ended,
            ..
        } = self;
        socket
            .receive_parts(|part, is_last| {
                gathered.extend_from_slice(part);
                if is_last {
                    let length = state
                        .read_message(gathered, opened)
                        .context("a message does not authenticate")?;
                    gathered.clear();
                    *has_ended |= length == 0;
                    sink(&opened[..length])?;
                }
                Ok(())
            })
            .await
    }

    /// Receives `bytes` bytes of plaintext and drops them undecrypted, so that the load is not what is measured.
    ///
    /// Nothing can be received after it.
    pub(crate) async fn discard(&mut self, bytes: u64) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let mut length = self.gathered.len() as u64;
            self.gathered.clear();
            self.socket
                .receive_parts(|part, is_last| {
                    length += part.len() as u64;
                    if is_last {
                        let plain = length.checked_sub(TAG).context("a short message")?;
                        left = left.checked_sub(plain).context("too much came")?;
                        length = 0;
                    }
                    Ok(())
                })
                .await?;
            // What is remembered of a message under way is its length.
            self.gathered.resize(usize::try_from(length)?, 0);
        }
        Ok(())
    }

    pub(crate) async fn close(mut self) -> Result<Option<u16>> {
        let length = self.state.write_message(b"", &mut self.sealed)?;
        self.socket.send(&Frame::of(&self.sealed[..length])).await?;
        self.socket.close().await
    }
}

async fn first_message(socket: &mut WebSocket) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    let mut is_whole = false;
    while !is_whole {
        socket
            .receive_parts(|part, is_last| {
                message.extend_from_slice(part);
                is_whole |= is_last;
                Ok(())
            })
            .await?;
    }
    Ok(message)
}

/// The guest's private key and the host's public one, as the run payload of daemons that we start has them.
pub(crate) const IDENTITY: [(&str, &str); 2] = [
    (
        "identity_seed",
        "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
    ),
    (
        "identity_host_public_key",
        "V9tLNZ8jrl4Ubk4lEgVnBHIlBjSMFQwUdT0Mkz0E1CE=",
    ),
];
const HOST_SEED: [u8; 32] = [9; 32];
const GUEST_PUBLIC_KEY: &str = "E75P6uryBMf9M1j8nAByGIHRdCeBKCJ+xnTzf3/pe20=";
const PATTERN: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";
const READY: &[u8] = b"microvms-tunnel-ready";
/// The flag of a handshake that promises an empty message at the end.
const SENDS_END: u8 = 1;
const MOST_MESSAGE: usize = 65_535;
/// Bytes of one message of ours, before they are encrypted.
pub(crate) const MOST_PLAIN: usize = 32 << 10;
const TAG: u64 = 16;
/// How long a daemon may take for its answer; one that does not know the handshake gives none.
const PATIENCE: Duration = Duration::from_secs(2);
