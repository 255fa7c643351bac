//! One file read: opened without ever blocking, sent whole, in part, or as a window of lines.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::lent::{Lent, unreadable};
use super::lines::{self, Span};
use super::mount;
use super::version::Version;
use crate::error::{Error, Kind, Result};
use crate::ring::{Fd, Outflow, buffers, clock, local, pool, turn};
use crate::wire::tar::Segment;

/// A file that is open for reading.
pub struct Opened {
    pub(super) file: Lent,
    /// `None` for what has no size beforehand: devices, and files that the kernel makes up.
    version: Option<Version>,
    /// True when it can be read at an offset.
    positioned: bool,
    /// True when what is learned of the file holds as long as its version does.
    is_lasting: bool,
    /// True when the version must still be there at the end.
    is_guarded: bool,
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
    /// What the file was when it was opened; `None` when it has no size beforehand.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Bytes of the file; `None` when it ends where it ends.
    pub fn size(&self) -> Option<u64> {
        self.version.as_ref().map(Version::size)
    }

    /// Makes it an error if the file changes before the last byte of what is asked for goes out.
    ///
    /// Without it a file that grows, such as a log, is sent as long as it was.
    pub fn guard(&mut self) {
        self.is_guarded = true;
    }

    /// Sends a file that has no size, to its end.
    ///
    /// # Errors
    /// Those of the sink; `Internal` when the file cannot be read.
    pub async fn send_all(self, sink: &mut dyn Outflow) -> Result<()> {
        let mut reader = self.reader(0);
        let mut buffer = buffers::lease();
        while reader.read(&mut buffer).await? > 0 {
            sink.write(&buffer).await?;
            sink.flush().await?;
            buffer.clear();
        }
        Ok(())
    }

    /// Sends `length` bytes from `offset`.
    ///
    /// # Errors
    /// Those of the sink; `Internal` when the file cannot be read, is shorter than it was, or changed under a guard.
    pub async fn send(self, offset: u64, length: u64, sink: &mut dyn Outflow) -> Result<()> {
        if !self.is_guarded {
            return self.file.send(Segment { offset, length }, sink).await;
        }
        // Pages of the file that wait in a socket would change with it behind the last look.
        let last = length.min(LAST);
        let whole = Segment {
            offset,
            length: length - last,
        };
        self.file.send_copied(whole, sink).await?;
        let mut bytes = Vec::new();
        self.fill(&mut bytes, offset + whole.length, last).await?;
        self.check_unchanged().await?;
        sink.write(&bytes).await
    }

    /// Sends a window of its lines.
    ///
    /// # Errors
    /// As [`Opened::send`].
    pub async fn send_lines(self, window: Span, sink: &mut dyn Outflow) -> Result<()> {
        lines::send(window, &self, sink).await?;
        match self.is_guarded {
            true => self.check_unchanged().await,
            false => Ok(()),
        }
    }

    /// Reads exactly `length` bytes from `offset` behind what `into` holds.
    ///
    /// # Errors
    /// `Internal` when it cannot be read or is shorter than that.
    pub(super) async fn fill(&self, into: &mut Vec<u8>, offset: u64, length: u64) -> Result<()> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        into.reserve_exact(length);
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            match self.file.read_at(into, at, length - done).await? {
                0 => return Err(Kind::Internal.told("the file became shorter while it was read")),
                count => done += count,
            }
        }
        Ok(())
    }

    /// True while the file is the version that it was when it was opened.
    ///
    /// # Errors
    /// `Internal` when it is not and that is guarded against, or when it cannot be asked.
    pub(super) async fn still_is(&self) -> Result<bool> {
        if self.is_guarded {
            return self.check_unchanged().await.map(|()| true);
        }
        self.is_version_at_open().await
    }

    /// Makes sure that the file is the version that it was when it was opened.
    ///
    /// # Errors
    /// `Internal` when it is not, or cannot be asked.
    pub(super) async fn check_unchanged(&self) -> Result<()> {
        match self.is_version_at_open().await? {
            true => Ok(()),
            false => Err(Kind::Internal.told("the file changed while it was read")),
        }
    }

    async fn is_version_at_open(&self) -> Result<bool> {
        let now = self.file.stat().await?;
        Ok(self
            .version
            .is_none_or(|version| Version::of(&now) == version))
    }

    /// The version under which what is learned of the file may be kept; `None` when a change may not show.
    pub(super) fn lasting(&self) -> Option<&Version> {
        self.version.as_ref().filter(|_| self.is_lasting)
    }

    pub(super) fn reader(&self, offset: u64) -> Reader<'_> {
        Reader {
            file: &self.file,
            positioned: self.positioned,
            offset,
            spent: 0,
        }
    }
}

/// Reads a file from a place, or as a stream from where it is, to its end.
pub(super) struct Reader<'a> {
    file: &'a Lent,
    positioned: bool,
    offset: u64,
    /// Bytes read since the others had their turn.
    spent: u64,
}

impl Reader<'_> {
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
        let count = self.file.read_at(into, self.offset, usize::MAX).await?;
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
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return None;
    }
    // Another file may have the name by now. What fails is left to a helper, who may wait.
    let file = rustix::fs::openat2(CWD, path, OPEN, Mode::empty(), ResolveFlags::CACHED).ok()?;
    Some(describe(file.into(), |_| true))
}

fn open_now(path: &Path) -> Result<Opened> {
    // Opening a FIFO, if only for an instant, is seen by whoever waits at its other end.
    let stat = rustix::fs::stat(path).map_err(unopened)?;
    judge(&stat)?;
    let file = rustix::fs::openat(CWD, path, OPEN, Mode::empty()).map_err(unopened)?;
    describe(file.into(), |file| mount::is_local(file))
}

fn describe(file: File, is_local: impl FnOnce(&File) -> bool) -> Result<Opened> {
    let stat = rustix::fs::fstat(&file).map_err(unopened)?;
    judge(&stat)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let regular = kind == FileType::RegularFile;
    let is_local = is_local(&file);
    let sized = regular && (is_local || !mount::is_pseudo(&file));
    let version = sized.then(|| Version::of(&stat));
    let size = version.as_ref().map_or(0, Version::size);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
    Ok(Opened {
        file: Lent::to_read(file, size, is_local),
        is_lasting: is_local && version.is_some_and(|version| version.has_rested(now)),
        version,
        positioned: regular || kind == FileType::BlockDevice,
        is_guarded: false,
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

/// How a file is opened.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Bytes read before others get their turn.
const BURST: u64 = 512 * 1024;
/// Bytes at the end of a guarded part that are read before the file is looked at again.
const LAST: u64 = 64 * 1024;
/// How long a device may have nothing to say.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
