//! Accepting connections: close-on-exec from the first moment, no accept in flight that could be lost.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::Fd;

/// A listening socket of any family.
pub struct Listener(Fd);

impl Listener {
    /// Takes over a socket that listens.
    ///
    /// # Errors
    /// The descriptor cannot be registered with the driver.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(Fd::new(fd)?))
    }

    /// Waits for the next connection. Dropping the wait loses none.
    ///
    /// # Errors
    /// What accept(2) says when it is about us, not the peer: EMFILE, ENFILE, ENOBUFS, ENOMEM.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.0, flags) {
                Ok(fd) => return Ok(fd),
                Err(Errno::AGAIN) => self.0.readable().await?,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Err(error.into());
                }
                // The peer gave up before we got to it; BADF and INVAL would be our own defect.
                Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK)) => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
    }
}
