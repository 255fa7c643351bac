//! Reading what a child writes: both pipes, to their ends or until told to stop.

use std::pin::pin;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;

use super::Stream;
use super::entry::Exec;
use super::spill;
use super::together::{First, both, first};
use crate::ring::{self, Fd, buffers};

/// The ends that output is read from: standard output and standard error; a terminal has only the first.
pub(super) type Pipes = [Option<Rc<Fd>>; 2];

/// Reads `pipes` to their ends, or until `stop`; true when somebody may still write.
///
/// If dropped, what was not read stays in the pipes.
pub(super) async fn drain(exec: &Rc<Exec>, pipes: Pipes, stop: impl Future<Output = ()>) -> bool {
    let [stdout, stderr] = &pipes;
    let of_stdout = pin!(read(exec, Stream::Stdout, stdout.as_deref()));
    let of_stderr = pin!(read(exec, Stream::Stderr, stderr.as_deref()));
    let reading = pin!(both(of_stdout, of_stderr));
    match first(reading, stop).await {
        First::Left(_) => false,
        First::Right(()) => {
            // What was written before the stop counts, even if we were not told of it yet.
            let at_end = [
                read_rest(exec, Stream::Stdout, stdout.as_deref()),
                read_rest(exec, Stream::Stderr, stderr.as_deref()),
            ];
            at_end != [true; 2]
        }
    }
}

/// What a round of reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    /// All that was there: how much.
    All(usize),
    /// A burst; there may be more.
    Burst,
    /// The end of the stream.
    End,
}

impl Got {
    /// True when a pipe of the usual size was half full at least.
    fn is_much(self) -> bool {
        match self {
            Self::All(bytes) => bytes >= 32 * 1024,
            Self::Burst => true,
            Self::End => false,
        }
    }
}

/// Reads `pipe` to its end. If dropped, what was not read stays in the pipe.
async fn read(exec: &Rc<Exec>, stream: Stream, pipe: Option<&Fd>) {
    let Some(end) = pipe else { return };
    let mut is_small = true;
    loop {
        spill::keep_pace(exec).await;
        let got = read_waiting(exec, stream, pipe);
        if is_small && got.is_much() {
            is_small = false;
            // A user over the kernel's pipe budget keeps the small pipe, which is only slower.
            let _ = fcntl_setpipe_size(end, PIPE_BYTES);
        }
        match got {
            Got::End => return,
            Got::Burst => ring::turn().await,
            Got::All(_) if end.readable().await.is_err() => return,
            Got::All(_) => {}
        }
    }
}

/// Reads what a full pipe holds, without waiting; true when that is its end.
fn read_rest(exec: &Rc<Exec>, stream: Stream, pipe: Option<&Fd>) -> bool {
    for _ in 0..PIPE_BYTES.div_ceil(FOLLOWED) + 1 {
        match read_waiting(exec, stream, pipe) {
            Got::End => return true,
            Got::All(_) => return false,
            Got::Burst => {}
        }
    }
    false
}

/// Reads what is there, up to a burst, without waiting.
fn read_waiting(exec: &Rc<Exec>, stream: Stream, pipe: Option<&Fd>) -> Got {
    let Some(pipe) = pipe else { return Got::End };
    // Followers that get their turn after each of their offers keep up from memory, not from disk.
    let burst = match exec.is_followed() {
        true => FOLLOWED,
        false => BURST,
    };
    let mut taken = 0;
    while taken < burst {
        let mut buffer = buffers::lease();
        match buffer.read_from(pipe, burst) {
            Ok(0) => return Got::End,
            Ok(count) => {
                taken += count;
                exec.publish(stream, &mut buffer);
                spill::start_moving(exec);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Got::All(taken),
            // The end of a terminal: nobody has it open.
            Err(Errno::IO) => return Got::End,
            Err(error) => {
                tracing::warn!(exec = exec.serial, %error, "a pipe could not be read");
                return Got::End;
            }
        }
    }
    Got::Burst
}

/// Room of a pipe with much output (`bench`: three times the throughput of the default).
const PIPE_BYTES: usize = 1024 * 1024;
/// Bytes read in one go before others have their turn.
const BURST: usize = buffers::LEASE;
/// The same while somebody follows: what a follower is offered at once.
const FOLLOWED: usize = 128 * 1024;
