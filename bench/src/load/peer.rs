//! A TCP connection without a protocol: what a tunnel leads to, or the same without a tunnel.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::net::TcpListener;

use super::{Connection, Endpoint, Manner, Request};

/// One end of it.
pub(crate) struct Peer {
    connection: Connection,
    room: Vec<u8>,
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
        Ok(Self::of(connection))
    }

    pub(crate) fn connect(address: SocketAddr, manner: Manner) -> Result<Self> {
        let connection = Connection::open(&nobody(address), manner)?;
        Ok(Self::of(connection))
    }

    /// Asks a proxy to connect to `address` (RFC 9110, section 9.3.6).
    pub(crate) async fn through(mut proxy: Connection, address: SocketAddr) -> Result<Self> {
        let authority = address.to_string();
        proxy.send(Request::of("CONNECT", &authority, b"")).await?;
        let (head, early) = proxy.head().await?;
        ensure!(
            head.status == 200 && early.is_empty(),
            "CONNECT {authority} answered {}: {}",
            head.status,
            String::from_utf8_lossy(&early)
        );
        Ok(Self::of(proxy))
    }

    fn of(connection: Connection) -> Self {
        Self {
            connection,
            room: vec![0; ROOM_BYTES],
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.connection.send_bytes(bytes).await
    }

    /// Receives `bytes` bytes and shows them to `sink`.
    pub(crate) async fn receive(
        &mut self,
        bytes: u64,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(ROOM_BYTES);
            match self.connection.receive_raw(&mut self.room[..most]).await? {
                0 => bail!("the connection ended {left} bytes early"),
                count => {
                    sink(&self.room[..count])?;
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

    /// Waits for the other side to end the connection. Not for one that spins.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        let received = self.connection.receive_raw(&mut self.room);
        let Ok(received) = tokio::time::timeout(PATIENCE, received).await else {
            bail!("the connection did not end within {PATIENCE:?}");
        };
        ensure!(received? == 0, "something came instead of the end");
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
const ROOM_BYTES: usize = 64 << 10;
