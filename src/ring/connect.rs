//! Connecting: to a TCP address or a Unix socket, without blocking.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::clock::sleep;
use super::socket::Socket;
use crate::error::{Error, Kind, Result};

/// Connects to a TCP address; `patience` is that of the socket, see [`Socket::new`].
///
/// # Errors
/// `NotFound` when nobody answers there, `ClientGone` when the connection was reset at once, `Internal` when this process
/// has no socket left.
pub async fn tcp(address: SocketAddr, patience: Duration) -> Result<Socket> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = open(family)?;
    let begun = rustix::net::connect(&fd, &address);
    let socket = wrap(fd, patience)?;
    match begun {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if let Err(error) = socket.room().await
                && error.kind() == Kind::ClientStalled
            {
                return Err(unreachable(Errno::TIMEDOUT));
            }
            sockopt::socket_error(&socket)
                .map_err(unreachable)?
                .map_err(unreachable)?;
        }
        Err(error) => return Err(unreachable(error)),
    }
    let ours = rustix::net::getsockname(&socket).map_err(unreachable)?;
    let theirs = rustix::net::getpeername(&socket).map_err(unreachable)?;
    // A free port may be chosen for our end, and then be the one that we call: nobody listens, yet we are connected.
    if theirs == Some(ours) {
        return Err(unreachable(Errno::CONNREFUSED));
    }
    Ok(socket)
}

/// Connects to the Unix socket at `path`; while its backlog is full, it is tried again until the caller gives up.
///
/// # Errors
/// As [`tcp`].
pub async fn unix(path: &Path, patience: Duration) -> Result<Socket> {
    let address = SocketAddrUnix::new(path).map_err(unreachable)?;
    let fd = open(AddressFamily::UNIX)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return wrap(fd, patience),
            Err(Errno::AGAIN) => sleep(AGAIN).await,
            Err(Errno::INTR) => {}
            Err(error) => return Err(unreachable(error)),
        }
    }
}

fn open(family: AddressFamily) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(exhausted)
}

fn wrap(fd: OwnedFd, patience: Duration) -> Result<Socket> {
    Socket::new(fd, patience).map_err(exhausted)
}

fn unreachable(error: Errno) -> Error {
    match error {
        Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL => exhausted(error),
        // Who does not listen refuses: whoever resets, or is not connected any more, has accepted before.
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => {
            Kind::ClientGone.told("it was reset at once").because(error)
        }
        _ => Kind::NotFound.told("nobody answers there").because(error),
    }
}

fn exhausted(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Kind::Internal.told("no socket is left").because(error)
}

/// How long a full backlog is left alone.
const AGAIN: Duration = Duration::from_millis(10);
