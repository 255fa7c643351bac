//! Reports to the supervisor that has started us (sd_notify(3)): ready, stopping, still alive.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::config::Socket;
use crate::ring::clock::sleep;

/// The way to the supervisor; without one, nothing is told to nobody.
pub(super) struct Reports(Option<(UnixDatagram, SocketAddr)>);

impl Reports {
    /// Opens the way to `socket`.
    pub(super) fn to(socket: Option<&Socket>) -> Self {
        let opened = socket.map(|socket| open(socket).map_err(|error| (socket, error)));
        match opened.transpose() {
            Ok(way) => Self(way),
            Err((socket, error)) => {
                tracing::warn!(?socket, %error, "nothing can be reported to the supervisor");
                Self(None)
            }
        }
    }

    /// Sends one report, and tries again for a while when the supervisor is behind with reading.
    pub(super) async fn send(&self, report: &str) {
        let Some((socket, address)) = &self.0 else {
            return;
        };
        for _ in 0..ATTEMPTS {
            match socket.send_to_addr(report.as_bytes(), address) {
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
                Err(error) => {
                    tracing::debug!(%error, "a report did not reach the supervisor");
                    return;
                }
            }
        }
        tracing::warn!("the supervisor does not read its reports");
    }

    /// Gives a sign of life twice in every `span`. It comes from the thread that serves, so a stuck one gives none.
    pub(super) async fn live(&self, span: Duration) {
        loop {
            self.send("WATCHDOG=1").await;
            sleep((span / 2).max(SHORTEST)).await;
        }
    }
}

/// The shortest time between two signs of life.
const SHORTEST: Duration = Duration::from_millis(10);

fn open(socket: &Socket) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match socket {
        Socket::Path(path) => SocketAddr::from_pathname(path)?,
        Socket::Abstract(name) => SocketAddr::from_abstract_name(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// How often a report is tried.
const ATTEMPTS: usize = 20;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
