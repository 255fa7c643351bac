//! A timer that is finer than tokio's, which counts milliseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use rustix::time::{timerfd_create, timerfd_settime};
use tokio::io::Ready;
use tokio::io::unix::AsyncFd;

use super::connection::watch;

/// A timerfd_create(2) timer; one waits on it at a time.
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    pub(super) fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).context("cannot make a timer")?;
        Ok(Self(watch(timer)?))
    }

    /// Waits until `due` has come; at once when it is past.
    pub(super) async fn reach(&self, due: Instant) -> Result<()> {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: left.try_into().context("that is too far away")?,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut guard = self.0.readable().await?;
            match rustix::io::read(self.0.get_ref(), &mut [0u8; 8]).map_err(io::Error::from) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    guard.clear_ready_matching(Ready::READABLE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
