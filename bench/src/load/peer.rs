//! A TCP connection without a protocol: what a tunnel leads to, or the same without a tunnel.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;

use super::{Connection, Endpoint, Manner};

/// One end of it.
pub(crate) struct Peer {
    connection: Connection,
}

impl Peer {
    /// Waits for someone to connect to `listener`.
    pub(crate) async fn accept(listener: &TcpListener, manner: Manner) -> Result<Self> {
        let accepted = tokio::time::timeout(PATIENCE, listener.accept()).await;
        let Ok(accepted) = accepted else {
            bail!("nobody connected within {PATIENCE:?}");
        };
        let (stream, address) = accepted.context("cannot accept")?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        let connection = Connection::over(stream, &nobody(address), manner)?;
        Ok(Self { connection })
    }

    pub(crate) fn connect(address: SocketAddr, manner: Manner) -> Result<Self> {
        let connection = Connection::open(&nobody(address), manner)?;
        Ok(Self { connection })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.connection.send_bytes(bytes).await
    }

    /// Receives what is there and shows it to `sink`, until `bytes` bytes came.
    pub(crate) async fn receive(
        &mut self,
        room: &mut [u8],
        bytes: u64,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
            match self.connection.receive_raw(&mut room[..most]).await? {
                0 => bail!("the connection ended {left} bytes early"),
                count => {
                    sink(&room[..count])?;
                    left -= count as u64;
                }
            }
        }
        Ok(())
    }

    /// Receives `bytes` bytes and drops them uncopied.
    pub(crate) async fn discard(&mut self, bytes: u64) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            left -= self.connection.drop_some(left).await?;
        }
        Ok(())
    }
}

fn nobody(address: SocketAddr) -> Endpoint {
    Endpoint {
        address,
        token: String::new(),
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
