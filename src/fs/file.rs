//! One file read: opened without ever blocking, sent whole, in part, or as a window of lines.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::lent::{Lent, unreadable};
use super::lines::{self, Window};
use super::mount;
use super::range::Range;
use super::stat::Time;
use crate::error::{Error, Kind, Result};
use crate::ring::{Fd, Outflow, buffers, clock, local, pool, turn};
use crate::wire::tar::Segment;

/// A file that is open for reading.
pub struct Opened {
    file: Lent,
    /// `None` for what has no size beforehand: devices, and files that the kernel makes up.
    size: Option<u64>,
    /// True when it can be read at an offset.
    positioned: bool,
    stat: Stat,
}

/// Opens `path`, following links; relative to the working directory when it is relative.
///
/// # Errors
/// `NotFound` when it does not exist, `Malformed` for directories and FIFOs, else `Internal`.
pub async fn open(path: &Path) -> Result<Opened> {
    if let Some(opened) = open_cached(path) {
        return opened;
    }
    let path = path.to_owned();
    pool::run(move || open_now(&path)).await?
}

impl Opened {
    /// Bytes of the file; `None` when it ends where it ends.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// A strong validator, quotes included: it changes with every change of the file that the kernel can tell.
    pub fn etag(&self) -> Option<String> {
        let stat = &self.stat;
        let time = |seconds, nanos| Time {
            seconds,
            // Less than a second, so it fits.
            nanos: u32::try_from(nanos).unwrap_or(0),
        };
        let modified = time(stat.st_mtime, stat.st_mtime_nsec);
        let changed = time(stat.st_ctime, stat.st_ctime_nsec);
        Some(validator(stat.st_ino, self.size?, modified, changed))
    }

    /// The time of last modification, seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.stat.st_mtime
    }

    /// Sends the file, or a part of it.
    ///
    /// # Errors
    /// Those of the sink; `Internal` when the file cannot be read or is shorter than it was.
    pub async fn send(self, part: Option<Range>, sink: &mut dyn Outflow) -> Result<()> {
        if let Some(size) = self.size {
            let (offset, length) = part.map_or((0, size), |part| (part.first, part.length()));
            return self.file.send(Segment { offset, length }, sink).await;
        }
        let mut reader = self.reader();
        let mut buffer = buffers::lease();
        while reader.read(&mut buffer).await? > 0 {
            sink.write(&buffer).await?;
            sink.flush().await?;
            buffer.clear();
        }
        Ok(())
    }

    /// Sends a window of its lines.
    ///
    /// # Errors
    /// As [`Opened::send`].
    pub async fn send_lines(self, window: Window, sink: &mut dyn Outflow) -> Result<()> {
        lines::send(window, self.reader(), sink).await
    }

    fn reader(self) -> Reader {
        Reader {
            file: self.file,
            positioned: self.positioned,
            offset: 0,
            spent: 0,
        }
    }
}

/// The strong validator of a regular file, quotes included.
pub(super) fn validator(inode: u64, size: u64, modified: Time, changed: Time) -> String {
    let time = |Time { seconds, nanos }| format!("{seconds:x}.{nanos:x}");
    let (modified, changed) = (time(modified), time(changed));
    format!("\"{inode:x}-{size:x}-{modified}-{changed}\"")
}

/// Reads a file from its start to its end.
pub(super) struct Reader {
    file: Lent,
    positioned: bool,
    offset: u64,
    /// Bytes read since the others had their turn.
    spent: u64,
}

impl Reader {
    /// Reads into the spare capacity of `into`, which is empty; 0 at the end.
    ///
    /// # Errors
    /// `Internal`.
    pub(super) async fn read(&mut self, into: &mut Vec<u8>) -> Result<usize> {
        if !self.positioned {
            return self.read_stream(into).await;
        }
        // A file that is all cached never makes us wait, so now and then the others get their turn.
        if self.spent >= BURST {
            self.spent = 0;
            turn().await;
        }
        let count = self.file.read_at(into, self.offset).await?;
        self.offset += count as u64;
        self.spent += count as u64;
        Ok(count)
    }

    /// A device: what is there, or wait for it.
    async fn read_stream(&mut self, into: &mut Vec<u8>) -> Result<usize> {
        loop {
            let read = |file: &File, buffer: &mut Vec<u8>| {
                let count = rustix::io::read(file, rustix::buffer::spare_capacity(buffer));
                count.map(|_| buffer.len()).map_err(std::io::Error::from)
            };
            match self.file.on_helper(into, read).await? {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let fd = self.file.try_clone().and_then(|file| Fd::new(file.into()));
                    let ready = clock::within(PATIENCE, fd.map_err(unreadable)?.readable()).await;
                    ready
                        .ok_or_else(|| Kind::Internal.told("cannot read file: nothing comes"))?
                        .map_err(unreadable)?;
                }
                outcome => return outcome.map_err(unreadable),
            }
        }
    }
}

/// Opens a regular file of a local filesystem whose path is cached, so that nothing can block; `None` for all else.
fn open_cached(path: &Path) -> Option<Result<Opened>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let probe = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).ok()?;
    let mode = local::mode_if_local(&probe)?;
    let regular = FileType::from_raw_mode(mode) == FileType::RegularFile;
    regular.then(|| open_known(path, |_| true))
}

fn open_now(path: &Path) -> Result<Opened> {
    // Opening a FIFO, if only for an instant, is seen by whoever waits at its other end.
    let stat = rustix::fs::stat(path).map_err(unopened)?;
    judge(&stat)?;
    open_known(path, |file| mount::is_local(file))
}

fn open_known(path: &Path, is_local: impl FnOnce(&File) -> bool) -> Result<Opened> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(unopened)?;
    let file = File::from(file);
    let stat = rustix::fs::fstat(&file).map_err(unopened)?;
    judge(&stat)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let regular = kind == FileType::RegularFile;
    let is_local = is_local(&file);
    let sized = regular && (is_local || !mount::is_pseudo(&file));
    let size = sized.then(|| u64::try_from(stat.st_size).unwrap_or(0));
    let positioned = regular || kind == FileType::BlockDevice;
    Ok(Opened {
        file: Lent::to_read(file, size.unwrap_or(0), is_local),
        size,
        positioned,
        stat,
    })
}

fn judge(stat: &Stat) -> Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Err(Kind::Malformed.told("path is a directory; use /v1/fs/tar")),
        FileType::Fifo => Err(Kind::Malformed.told("path is a FIFO; it cannot be read as a file")),
        _ => Ok(()),
    }
}

fn unopened(errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Kind::NotFound.told("no such file"),
        _ => unreadable(errno.into()),
    }
}

/// Bytes read before others get their turn.
const BURST: u64 = 512 * 1024;
/// How long a device may have nothing to say.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
