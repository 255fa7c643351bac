//! Signals as data: SIGTERM, SIGINT and SIGCHLD are blocked and read from a descriptor.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::Fd;

/// A signal that the daemon acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: drain and leave.
    Stop,
    /// SIGCHLD: somebody may have to be reaped.
    Child,
}

/// The stream of signals.
pub struct Signals(Fd);

impl Signals {
    /// Blocks the signals for this thread and all that it starts later, and opens the descriptor.
    ///
    /// # Errors
    /// What the kernel says (no descriptor left).
    #[expect(unsafe_code, reason = "signalfd has no safe wrapper")]
    pub fn open() -> io::Result<Self> {
        // SAFETY: the set is initialised by sigemptyset before use, and every pointer is to a local that outlives
        // its call; the descriptor that signalfd answers is new and owned by nobody else.
        let fd = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self(Fd::new(fd)?))
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// The descriptor failed, which does not happen while it is open.
    pub async fn next(&self) -> io::Result<Signal> {
        loop {
            let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
            match rustix::io::read(&self.0, &mut info) {
                Ok(_) => {
                    let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
                    let child = i32::try_from(number) == Ok(libc::SIGCHLD);
                    return Ok(if child { Signal::Child } else { Signal::Stop });
                }
                Err(rustix::io::Errno::AGAIN) => self.0.readable().await?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
