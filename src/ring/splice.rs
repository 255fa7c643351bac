//! A pipe through which bytes go from one socket to another without passing through user space (splice(2)).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::socket::Socket;
use crate::error::{Error, Kind, Result};

/// A pipe between two sockets.
pub struct Channel {
    out: OwnedFd,
    into: OwnedFd,
}

impl Channel {
    /// Makes the pipe.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open() -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A small one does too: then less goes at once.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, SIZE);
        Ok(Self { out, into })
    }

    /// Takes at most `most` bytes that `from` has received into the empty pipe, without waiting; `None` when nothing is
    /// there, 0 at the end of the stream.
    ///
    /// # Errors
    /// `Unsupported` when this kind of socket cannot be spliced, `ClientGone` when the connection failed.
    pub fn take(&self, from: &Socket, most: usize) -> Result<Option<usize>> {
        loop {
            match splice(from, None, &self.into, None, most, FLAGS) {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
                    return Err(Kind::Unsupported
                        .told("it cannot be spliced")
                        .because(error));
                }
                Err(error) => return Err(gone(error)),
            }
        }
    }

    /// Gives `count` bytes of the pipe to `to`; it must hold as many.
    ///
    /// # Errors
    /// `ClientStalled`, `ClientGone`.
    pub async fn give(&self, to: &Socket, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            match splice(&self.out, None, to, None, left, FLAGS) {
                Ok(0) => return Err(Kind::Internal.told("the pipe holds less than was put in")),
                Ok(given) => {
                    left -= given;
                    to.has_sent(given as u64);
                    to.spend(given as u64).await;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => to.room().await?,
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(())
    }
}

fn gone(error: Errno) -> Error {
    Kind::ClientGone
        .told("the connection failed")
        .because(error)
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
/// Bytes of the pipe; what counts is the number of pages, each of which stands for a piece of a segment.
const SIZE: usize = 1024 * 1024;
