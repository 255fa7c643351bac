//! Standard input and output as one socket, whatever they are: files, pipes, terminals.
//!
//! Two helpers of the pool copy between them and a pair of sockets. So nothing of ours waits for a terminal, and no
//! descriptor that we share with others becomes non-blocking.

use std::fs::File;
use std::future::{Future, pending};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};

use crate::ring::{detached, pool};

/// The near end of standard input and output. The second value waits until the input fails, the third until all that
/// was sent there is written.
///
/// # Errors
/// No descriptor is left.
pub(super) fn joined() -> io::Result<(
    OwnedFd,
    impl Future<Output = io::Error>,
    impl Future<Output = bool>,
)> {
    let (near, far) = UnixStream::pair()?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let sink = far.try_clone()?;
    let reading = pool::run(move || read(input, sink));
    let writing = pool::run(move || write(far, output));
    // It may wait for a terminal for ever: nobody waits for its end.
    let reading = detached("standard input", reading);
    let written = detached("standard output", writing);
    let failure = async move {
        match reading.await {
            Some(Ok(Ok(()))) => pending().await,
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => io::Error::other(error.sentence().to_owned()),
            None => io::Error::other("its reader failed"),
        }
    };
    let written = async move { matches!(written.await, Some(Ok(true))) };
    Ok((near.into(), failure, written))
}

/// Copies the input to its end, which it passes on.
///
/// # Errors
/// The input fails: then its end is not told.
fn read(mut input: File, mut sink: UnixStream) -> io::Result<()> {
    let mut bytes = vec![0; BLOCK];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => break,
            // The tunnel has ended: nobody needs the rest.
            Ok(count) if sink.write_all(&bytes[..count]).is_err() => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&input, PollFlags::IN)?,
            Err(error) => return Err(error),
        }
    }
    let _ = sink.shutdown(Shutdown::Write);
    Ok(())
}

/// True when the output took everything.
fn write(mut source: UnixStream, output: File) -> bool {
    let copied = copy(&mut source, output);
    if copied.is_err() {
        // Whoever sends into it must learn that nobody takes it.
        let _ = source.shutdown(Shutdown::Both);
    }
    copied.is_ok()
}

fn copy(source: &mut UnixStream, mut output: File) -> io::Result<()> {
    let mut bytes = vec![0; BLOCK];
    loop {
        let count = match source.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            match output.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&output, PollFlags::OUT)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Waits until a descriptor that others made non-blocking is ready.
fn wait(file: &File, ready: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(file, ready)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that are copied at once.
const BLOCK: usize = 64 * 1024;
