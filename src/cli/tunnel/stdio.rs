//! Standard input and output as one socket, whatever they are: files, pipes, terminals.
//!
//! Two helpers of the pool copy between them and a pair of sockets. So nothing of ours waits for a terminal, and no
//! descriptor that we share with others becomes non-blocking.

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::ring::{detached, pool};

/// The near end of standard input and output; the second value waits until all that was sent there is written.
///
/// # Errors
/// No descriptor is left.
pub(super) fn joined() -> io::Result<(OwnedFd, impl Future<Output = bool>)> {
    let (near, far) = UnixStream::pair()?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let sink = far.try_clone()?;
    let reading = pool::run(move || read(input, sink));
    let writing = pool::run(move || write(far, output));
    // It may wait for a terminal for ever: nobody waits for it.
    drop(detached("standard input", reading));
    let written = detached("standard output", writing);
    let written = async move { matches!(written.await, Some(Ok(true))) };
    Ok((near.into(), written))
}

fn read(mut input: File, mut sink: UnixStream) {
    // An input that fails has ended: what was read is sent.
    let _ = io::copy(&mut input, &mut sink);
    let _ = sink.shutdown(Shutdown::Write);
}

/// True when the output took everything.
fn write(mut source: UnixStream, mut output: File) -> bool {
    let copied = io::copy(&mut source, &mut output);
    if copied.is_err() {
        // Whoever sends into it must learn that nobody takes it.
        let _ = source.shutdown(Shutdown::Both);
    }
    copied.is_ok()
}
