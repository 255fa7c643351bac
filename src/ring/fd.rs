//! A descriptor that can be waited for: socket, pipe, eventfd, signalfd, pidfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

/// A non-blocking, close-on-exec descriptor registered with the driver.
///
/// Waiting is a poll operation on the ring (or an epoll registration), so dropping a wait loses no data.
/// One task may wait for reading and one for writing at a time.
pub struct Fd {
    // The type is only a carrier: readiness works on any descriptor that can be polled.
    inner: monoio::net::UnixStream,
}

impl Fd {
    /// Takes over `fd`, and makes it non-blocking and close-on-exec.
    ///
    /// # Errors
    /// The descriptor cannot be polled (a regular file), or the driver is out of room.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        Self::register(fd)
    }

    /// As [`Fd::new`], for an end of a pipe that was just made close-on-exec: it has no other flags.
    ///
    /// # Errors
    /// The driver is out of room.
    pub fn of_fresh_pipe(fd: OwnedFd) -> io::Result<Self> {
        rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::NONBLOCK)?;
        Self::register(fd)
    }

    fn register(fd: OwnedFd) -> io::Result<Self> {
        let inner = monoio::net::UnixStream::from_std(StdStream::from(fd))?;
        Ok(Self { inner })
    }

    /// Waits until a read would not block: data, end of stream or an error is there.
    pub async fn readable(&self) -> io::Result<()> {
        self.inner.readable(false).await
    }

    /// Waits until a write would not block, or would fail.
    pub async fn writable(&self) -> io::Result<()> {
        self.inner.writable(false).await
    }
}

impl AsFd for Fd {
    #[expect(unsafe_code, reason = "the runtime's stream lends only a raw number")]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `inner` owns the descriptor and keeps it open for as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.inner.as_raw_fd()) }
    }
}
