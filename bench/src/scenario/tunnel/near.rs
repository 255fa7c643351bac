//! The near end of a tunnel, whichever kind it is.

use anyhow::{Context, Result};

use crate::load::{Frame, Peer, WebSocket};

/// Where messages go in and out.
pub(super) enum Near {
    Framed(WebSocket),
    /// A stream; what is sent are the payloads.
    Plain(Peer),
}

impl Near {
    pub(super) async fn send(&mut self, frame: &Frame) -> Result<()> {
        match self {
            Self::Framed(socket) => socket.send(frame).await,
            Self::Plain(peer) => peer.send(frame.payload()).await,
        }
    }

    /// Receives `bytes` bytes and shows them to `sink`.
    pub(super) async fn receive(
        &mut self,
        bytes: u64,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let socket = match self {
            Self::Framed(socket) => socket,
            Self::Plain(peer) => return peer.receive(bytes, sink).await,
        };
        let mut left = bytes;
        while left > 0 {
            socket
                .receive(|part| {
                    let rest = left.checked_sub(part.len() as u64);
                    left = rest.context("more came than was sent")?;
                    sink(part)
                })
                .await?;
        }
        Ok(())
    }

    /// Receives `bytes` bytes and drops them uncopied.
    pub(super) async fn discard(&mut self, bytes: u64) -> Result<()> {
        match self {
            Self::Framed(socket) => socket.discard(bytes).await,
            Self::Plain(peer) => peer.discard(bytes).await,
        }
    }

    pub(super) async fn close(self) -> Result<()> {
        match self {
            Self::Framed(socket) => socket.close().await.map(drop),
            Self::Plain(peer) => {
                drop(peer);
                Ok(())
            }
        }
    }
}
