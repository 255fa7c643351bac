//! A connected stream socket of any family: receive, send, send a file, close in order.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use super::clock::within;
use super::{Fd, driver, file, turn};
use crate::error::{Error, Kind, Result};

/// A connected socket with a bound on how long the peer may make us wait.
pub struct Socket {
    fd: Fd,
    patience: Duration,
    /// Bytes sent and received since the other tasks last had their turn.
    spent: Cell<u64>,
    /// Where what is moved counts besides.
    tally: Option<Rc<Tally>>,
}

/// Bytes moved, by direction.
#[derive(Default)]
pub struct Tally {
    received: Cell<u64>,
    sent: Cell<u64>,
}

impl Tally {
    /// Counts bytes that came in.
    pub fn receive(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }

    /// Counts bytes that went out.
    pub fn send(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// Bytes that came in.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// Bytes that went out.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}

impl Socket {
    /// Takes over a connected stream socket; `patience` bounds each wait for the peer while a message is under way.
    ///
    /// # Errors
    /// The descriptor cannot be registered with the driver.
    pub fn new(fd: OwnedFd, patience: Duration) -> io::Result<Self> {
        let fd = Fd::new(fd)?;
        // Not every family has it (Unix, vsock); TCP is the one that needs it.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        Ok(Self {
            fd,
            patience,
            spent: Cell::new(0),
            tally: None,
        })
    }

    /// The same socket, whose bytes count in `tally`.
    #[must_use]
    pub fn counted(mut self, tally: &Rc<Tally>) -> Self {
        self.tally = Some(Rc::clone(tally));
        self
    }

    /// Waits, without a bound, until there is something to receive.
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await
    }

    /// Receives into the spare capacity of `into` without waiting; `None` when nothing is there, 0 at the end.
    ///
    /// # Errors
    /// `ClientGone` when the connection failed.
    pub fn try_recv(&self, into: &mut Vec<u8>) -> Result<Option<usize>> {
        let before = into.len();
        loop {
            let spare = rustix::buffer::spare_capacity(into);
            match rustix::net::recv(&self.fd, spare, RecvFlags::DONTWAIT) {
                Ok(_) => {
                    let count = into.len() - before;
                    if let Some(tally) = &self.tally {
                        tally.receive(count as u64);
                    }
                    return Ok(Some(count));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(gone(error)),
            }
        }
    }

    /// The same, `most` bytes at most; `into` must have room for them.
    ///
    /// # Errors
    /// `ClientGone` when the connection failed.
    #[expect(
        unsafe_code,
        reason = "the length is set to what the kernel has written"
    )]
    pub fn try_recv_at_most(&self, into: &mut Vec<u8>, most: usize) -> Result<Option<usize>> {
        let before = into.len();
        let room = &mut into.spare_capacity_mut()[..most];
        let count = loop {
            match rustix::net::recv(&self.fd, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, count)) => break count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(gone(error)),
            }
        };
        // SAFETY: the kernel has written `count` bytes behind the length, within the capacity.
        unsafe { into.set_len(before + count) };
        if let Some(tally) = &self.tally {
            tally.receive(count as u64);
        }
        Ok(Some(count))
    }

    /// Receives into the spare capacity of `into`; 0 at the end of the stream.
    ///
    /// # Errors
    /// `ClientStalled` when nothing arrives in time, `ClientGone` when the connection failed.
    pub async fn recv(&self, into: &mut Vec<u8>) -> Result<usize> {
        self.recv_then(into, |_| ()).await
    }

    /// The same; `arrived` sees what was received before anybody else has a turn, also where we are dropped in ours.
    ///
    /// # Errors
    /// As [`Socket::recv`].
    pub async fn recv_then(
        &self,
        into: &mut Vec<u8>,
        arrived: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize> {
        debug_assert!(into.len() < into.capacity(), "a receive needs room");
        loop {
            if let Some(count) = self.try_recv(into)? {
                arrived(into);
                self.spend(count as u64).await;
                return Ok(count);
            }
            self.wait_readable().await?;
        }
    }

    /// Sends all of `bytes`; with `more` the kernel may hold back a partial segment for what follows.
    ///
    /// # Errors
    /// `ClientStalled`, `ClientGone`.
    pub async fn send_all(&self, bytes: &[u8], more: bool) -> Result<()> {
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if more {
            flags |= SendFlags::MORE;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::net::send(&self.fd, rest, flags) {
                Ok(sent) => {
                    self.has_sent(sent as u64);
                    rest = &rest[sent..];
                    self.spend(sent as u64).await;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_writable().await?,
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(())
    }

    /// Sends, without waiting, as much of `slices` as there is room for; 0 when there is none.
    ///
    /// # Errors
    /// `ClientGone`.
    pub fn try_send(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            let mut ancillary = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.fd, slices, &mut ancillary, flags) {
                Ok(sent) => {
                    self.has_sent(sent as u64);
                    return Ok(sent);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(error) => return Err(gone(error)),
            }
        }
    }

    /// Sends all of `slices`, one behind the other; what was sent is taken off them.
    ///
    /// # Errors
    /// `ClientStalled`, `ClientGone`.
    pub async fn send_slices(&self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        // Without a byte left there is nothing to send, and a send of nothing would wait for room.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match self.try_send(slices)? {
                0 => self.wait_writable().await?,
                sent => {
                    IoSlice::advance_slices(&mut slices, sent);
                    self.spend(sent as u64).await;
                }
            }
        }
        Ok(())
    }

    /// Waits until there is room to send.
    ///
    /// # Errors
    /// `ClientStalled`, `ClientGone`.
    pub async fn room(&self) -> Result<()> {
        self.wait_writable().await
    }

    /// Sends `length` bytes of `file` from `offset` straight from the page cache; `sent` hears of each piece.
    ///
    /// Chunks that are not cached are read through the ring first, so that the thread never waits for the disk.
    ///
    /// # Errors
    /// `ClientStalled`, `ClientGone`; `Internal` when the file ends early or cannot be read.
    pub async fn send_file(
        &self,
        file: &File,
        offset: u64,
        length: u64,
        sent: impl Fn(u64),
    ) -> Result<()> {
        let mut at = offset;
        let end = offset + length;
        let mut ready = at;
        while at < end {
            if at >= ready {
                ready = at + (end - at).min(SPAN);
                file::warm(file, at, ready - at).await;
            }
            let want = (ready - at).min(CHUNK);
            let mut position = at;
            // The bound of CHUNK makes the conversion exact.
            let count = usize::try_from(want).unwrap_or(usize::MAX);
            match rustix::fs::sendfile(&self.fd, file, Some(&mut position), count) {
                Ok(0) => {
                    return Err(Kind::Internal.told("the file became shorter while it was sent"));
                }
                Ok(_) => {
                    self.has_sent(position - at);
                    sent(position - at);
                    // On the ring the wait below is the turn of the others; under epoll it answers at once.
                    if !driver::has_uring() {
                        self.spend(position - at).await;
                    }
                    at = position;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(error @ (Errno::PIPE | Errno::CONNRESET | Errno::TIMEDOUT)) => {
                    return Err(gone(error));
                }
                Err(error) => return Err(Kind::Internal.told("cannot read file").because(error)),
            }
            if at < end {
                self.wait_writable().await?;
            }
        }
        Ok(())
    }

    /// Receives only once `bytes` are there (or the stream ends); 1 is the ordinary behaviour.
    ///
    /// A mark above what is still to come would wait for ever: callers lower it for the tail.
    pub fn set_low_water(&self, bytes: usize) {
        let mark = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        set_int_option(self.fd.as_fd(), libc::SO_RCVLOWAT, mark);
    }

    /// Asks, without waiting, whether the connection still stands. A peer that only finished sending counts as there.
    ///
    /// # Errors
    /// `ClientGone`.
    pub fn check(&self) -> Result<()> {
        let seen = self.look(PollFlags::empty());
        if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(gone(Errno::PIPE));
        }
        Ok(())
    }

    /// True when the peer has said that it sends nothing more: it may still read, or be gone.
    pub fn has_finished(&self) -> bool {
        self.look(PollFlags::RDHUP).contains(PollFlags::RDHUP)
    }

    fn look(&self, flags: PollFlags) -> PollFlags {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut polled = [PollFd::new(&self.fd, flags)];
        match poll(&mut polled, Some(&now)) {
            Ok(1..) => polled[0].revents(),
            _ => PollFlags::empty(),
        }
    }

    /// Makes the close that follows a reset, so that the peer does not take what it has for the whole.
    pub fn reset_on_close(&self) {
        // Where it cannot be set, the peer sees an ordinary end.
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Says that nothing more will be sent; the peer can still read what is under way.
    pub fn finish_sending(&self) {
        // The peer may be gone already: then there is nobody to tell.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    pub(super) fn has_sent(&self, bytes: u64) {
        if let Some(tally) = &self.tally {
            tally.send(bytes);
        }
    }

    /// Counts what was moved without a wait, and gives way after each [`BURST`].
    pub async fn spend(&self, bytes: u64) {
        let spent = self.spent.get() + bytes;
        self.spent.set(spent % BURST);
        if spent >= BURST {
            turn().await;
        }
    }

    async fn wait_readable(&self) -> Result<()> {
        bounded(self.patience, self.fd.readable()).await
    }

    async fn wait_writable(&self) -> Result<()> {
        bounded(self.patience, self.fd.writable()).await
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Bytes of a file that are seen to be cached, or read, before they are sent.
const SPAN: u64 = 1024 * 1024;
/// Bytes of a file sent per call.
const CHUNK: u64 = 512 * 1024;

/// Bytes that one connection may move while others wait.
const BURST: u64 = 1024 * 1024;

async fn bounded(patience: Duration, wait: impl Future<Output = io::Result<()>>) -> Result<()> {
    match within(patience, wait).await {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Kind::ClientGone
            .told("the connection failed")
            .because(error)),
        None => Err(Kind::ClientStalled.told("the client was silent for too long")),
    }
}

fn gone(error: Errno) -> Error {
    Kind::ClientGone
        .told("the connection failed")
        .because(error)
}

#[expect(unsafe_code, reason = "the option has no safe wrapper")]
fn set_int_option(fd: std::os::fd::BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) {
    // SAFETY: the descriptor is open, and the pointer and length describe one c_int that outlives the call.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&value).cast(),
            libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4),
        );
    }
}
