//! The near end of a tunnel, whichever kind it is.

use anyhow::{Context, Result};

use crate::load::{Frame, Peer, Verified, WebSocket};

/// Where messages go in and out.
pub(super) enum Near {
    Framed(WebSocket),
    /// Frames of encrypted messages; what is sent are the payloads.
    Verified(Box<Verified>),
    /// A stream; what is sent are the payloads.
    Plain(Peer),
}

impl Near {
    pub(super) async fn send(&mut self, frame: &Frame) -> Result<()> {
        match self {
            Self::Framed(socket) => socket.send(frame).await,
            Self::Verified(verified) => verified.send(frame.payload()).await,
            Self::Plain(peer) => peer.send(frame.payload()).await,
        }
    }

    /// Receives `bytes` bytes and shows them to `sink`.
    pub(super) async fn receive(
        &mut self,
        bytes: u64,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if let Self::Plain(peer) = self {
            return peer.receive(bytes, sink).await;
        }
        let mut left = bytes;
        while left > 0 {
            let note = |part: &[u8]| {
                let rest = left.checked_sub(part.len() as u64);
                left = rest.context("more came than was sent")?;
                sink(part)
            };
            match self {
                Self::Framed(socket) => socket.receive(note).await?,
                Self::Verified(verified) => verified.receive(note).await?,
                Self::Plain(_) => {}
            }
        }
        Ok(())
    }

    /// Receives `bytes` bytes and drops them uncopied.
    pub(super) async fn discard(&mut self, bytes: u64) -> Result<()> {
        match self {
            Self::Framed(socket) => socket.discard(bytes).await,
            Self::Verified(verified) => verified.discard(bytes).await,
            Self::Plain(peer) => peer.discard(bytes).await,
        }
    }

    pub(super) async fn close(self) -> Result<()> {
        match self {
            Self::Framed(socket) => socket.close().await.map(drop),
            Self::Verified(verified) => verified.close().await.map(drop),
            Self::Plain(peer) => {
                drop(peer);
                Ok(())
            }
        }
    }
}
