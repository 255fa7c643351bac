//! Where a tunnel leads: a port of the guest's own loopback address, or a Unix socket that the operator allows.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};

use super::ending::Ending;
use crate::error::{Kind, Result};
use crate::ring::clock::within;
use crate::ring::socket::Socket;
use crate::ring::{connect, pool};

/// Where a tunnel leads. No other host can be named.
pub enum Target {
    /// This port of 127.0.0.1.
    Port(u16),
    /// A Unix socket.
    Unix(Place),
}

/// A Unix socket that may be dialled.
pub struct Place {
    path: PathBuf,
    /// What the path stood for when it was allowed, so that nobody can exchange it; `None` when it stood for nothing.
    held: Option<OwnedFd>,
}

impl Target {
    /// The port that a verified tunnel is bound to; 0 for a Unix socket.
    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Port(port) => *port,
            Self::Unix(_) => 0,
        }
    }
}

impl Place {
    /// Decides whether `path` may be dialled: it, or a directory above it, must be in `allowed`.
    ///
    /// Links are followed first, those in `allowed` too: what counts is where the socket is.
    ///
    /// # Errors
    /// `Malformed` when the path is not absolute or has a `..` in it, `Denied`.
    pub async fn find(path: PathBuf, allowed: &[PathBuf]) -> Result<Self> {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if !path.is_absolute() || climbs {
            let sentence = format!(
                "unix is not an absolute path without ..: {}",
                path.display()
            );
            return Err(Kind::Malformed.told(sentence));
        }
        if allowed.is_empty() {
            return Err(
                Kind::Denied.told("tunnels to Unix sockets are off: --tunnel-unix names none")
            );
        }
        let allowed = allowed.to_vec();
        // A path may lead to a filesystem that does not answer.
        pool::run(move || Self::look(path, &allowed)).await?
    }

    fn look(path: PathBuf, allowed: &[PathBuf]) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held = rustix::fs::openat(CWD, &path, flags, Mode::empty()).ok();
        let real = match &held {
            Some(fd) => std::fs::read_link(entry(fd)).map_err(|error| {
                let told = Kind::Internal.told("the path of a socket cannot be looked up");
                told.because(error)
            })?,
            None => path.clone(),
        };
        let above = |allowed: &PathBuf| match std::fs::canonicalize(allowed) {
            Ok(place) if real.starts_with(&place) => true,
            // What is not there leads nowhere, so it may go by its name.
            _ => held.is_none() && real.starts_with(allowed),
        };
        match allowed.iter().any(above) {
            true => Ok(Self { path, held }),
            false => {
                let sentence = format!("--tunnel-unix does not allow {}", path.display());
                Err(Kind::Denied.told(sentence))
            }
        }
    }

    async fn connect(&self, patience: Duration) -> Result<Socket> {
        match &self.held {
            Some(fd) => connect::unix(&entry(fd), patience).await,
            None => Err(Kind::NotFound.told("there is no such socket")),
        }
    }
}

/// The name that stands for what a descriptor holds (proc(5)).
fn entry(fd: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

/// Connects to the guest's service; `patience` is that of the socket.
///
/// # Errors
/// What the client is told.
pub(super) async fn dial(
    target: &Target,
    patience: Duration,
) -> std::result::Result<Socket, Ending> {
    let (place, dialled) = match target {
        Target::Port(port) => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            let dialled = within(DIAL, connect::tcp(address, patience)).await;
            (address.to_string(), dialled)
        }
        Target::Unix(place) => {
            let dialled = within(DIAL, place.connect(patience)).await;
            (place.path.display().to_string(), dialled)
        }
    };
    match dialled {
        Some(Ok(socket)) => Ok(socket),
        Some(Err(error)) if error.kind() == Kind::Internal => {
            tracing::warn!(%error, "a tunnel cannot dial");
            Err(Ending::failed())
        }
        Some(Err(error)) if error.kind() == Kind::ClientGone => Err(Ending::failed()),
        Some(Err(_)) | None => Err(Ending::nobody(&place)),
    }
}

/// How long the guest's service may take to accept.
const DIAL: Duration = Duration::from_secs(2);
