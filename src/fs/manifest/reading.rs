//! The digest of one file: of one version of it, or none.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use crate::error::{Kind, Result};
use crate::fs::entry::said;
use crate::fs::lent::Lent;
use crate::ring::{clock, file, pool};
use crate::wire::digest::Sum;

/// A file that is to be read to its end.
pub(super) struct Reading {
    file: Lent,
    /// What it was when its entry was made.
    stat: Stat,
    /// True when what is cached of it answers at once.
    is_local: bool,
    sum: Sum,
    offset: u64,
    buffer: Vec<u8>,
}

/// What a reading has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The digest of the file as its entry tells it.
    Is([u8; 32]),
    /// It is not what it was.
    Changed,
    /// It cannot be read, and why.
    Unreadable(String),
}

/// Where a helper stopped.
enum Stop {
    Over(Verdict),
    /// The next bytes are not cached.
    Cold,
    /// It has done its share.
    Turn,
}

impl Reading {
    pub(super) fn new(file: File, stat: Stat, is_local: bool, sum: Sum) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self {
            file: Lent::to_read(file, size, is_local),
            stat,
            is_local,
            sum,
            offset: 0,
            buffer: Vec::new(),
        }
    }

    /// Hashes a small file that is cached here and now; gives it back when it is another one. For helper threads.
    pub(super) fn at_once(mut self: Box<Self>) -> std::result::Result<Verdict, Box<Self>> {
        if self.size() > SMALL || !self.is_local || self.is_fresh() {
            return Err(self);
        }
        match self.advance(0) {
            Stop::Over(verdict) => Ok(verdict),
            Stop::Cold | Stop::Turn => Err(self),
        }
    }

    fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// True when another change right now could leave the times as they are: they move on with the kernel's clock.
    fn is_fresh(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis();
        let ctime =
            i128::from(self.stat.st_ctime) * 1000 + i128::from(self.stat.st_ctime_nsec) / 1_000_000;
        let age = i128::try_from(now).unwrap_or(i128::MAX) - ctime;
        age.unsigned_abs() < TICK.as_millis()
    }

    /// Reads and hashes until something stops it; below `brought` it may wait for the disk. For helper threads.
    fn advance(&mut self, brought: u64) -> Stop {
        let end = self.offset.saturating_add(SHARE);
        if self.buffer.capacity() == 0 {
            // One byte more than there should be shows a file that grew.
            let most = self.size().saturating_add(1).min(PIECE as u64);
            self.buffer = Vec::with_capacity(usize::try_from(most).unwrap_or(PIECE));
        }
        while self.offset < end {
            self.buffer.clear();
            let room = self.buffer.capacity();
            let read = if self.offset < brought || !self.is_local {
                let into = rustix::buffer::spare_capacity(&mut self.buffer);
                rustix::io::pread(self.file.as_fd(), into, self.offset).map(|_| self.buffer.len())
            } else {
                match file::try_read_at(&self.file, &mut self.buffer, self.offset, room) {
                    Some(count) => Ok(count),
                    None => return Stop::Cold,
                }
            };
            match read {
                Ok(0) => return Stop::Over(self.conclude()),
                Ok(count) => {
                    self.sum.update(&self.buffer);
                    self.offset += count as u64;
                }
                Err(errno) => return Stop::Over(Verdict::Unreadable(unreadable(errno))),
            }
            if self.offset > self.size() {
                return Stop::Over(Verdict::Changed);
            }
        }
        Stop::Turn
    }

    fn conclude(&self) -> Verdict {
        let version = |stat: &Stat| {
            (
                stat.st_size,
                (stat.st_mtime, stat.st_mtime_nsec),
                (stat.st_ctime, stat.st_ctime_nsec),
            )
        };
        let is_same = rustix::fs::fstat(self.file.as_fd())
            .is_ok_and(|now| version(&now) == version(&self.stat));
        if !is_same || self.offset != self.size() {
            return Verdict::Changed;
        }
        Verdict::Is(self.sum.clone().finish())
    }
}

/// Reads a file to its end, in shares, so that others have their turn on the helper threads.
///
/// # Errors
/// `Busy`, `Internal` when no helper can be had; `ClientGone` when `is_given_up`.
pub(super) async fn run(
    mut reading: Box<Reading>,
    is_given_up: Arc<AtomicBool>,
) -> Result<Verdict> {
    if reading.is_fresh() {
        clock::sleep(TICK).await;
    }
    let mut brought = 0;
    loop {
        if is_given_up.load(Ordering::Relaxed) {
            return Err(Kind::ClientGone.told("nobody wants the digest any more"));
        }
        let (stop, back) = pool::run(move || {
            let stop = reading.advance(brought);
            (stop, reading)
        })
        .await?;
        reading = back;
        match stop {
            Stop::Over(verdict) => return Ok(verdict),
            Stop::Turn => {}
            Stop::Cold => {
                brought = reading.offset.saturating_add(AHEAD).min(reading.size() + 1);
                let length = brought - reading.offset;
                file::warm(&reading.file, reading.offset, length).await;
            }
        }
    }
}

pub(super) fn unreadable(errno: rustix::io::Errno) -> String {
    format!("cannot read file: {}", said(errno))
}

/// Bytes read at once.
const PIECE: usize = 128 * 1024;
/// Bytes that a helper hashes before others have their turn.
const SHARE: u64 = 8 * 1024 * 1024;
/// Cold bytes that are brought in at once.
const AHEAD: u64 = 2 * 1024 * 1024;
/// Files up to this size are hashed by who finds them, when they are cached.
const SMALL: u64 = 32 * 1024;
/// Longer than the kernel's clock for file times stands still.
const TICK: Duration = Duration::from_millis(20);
