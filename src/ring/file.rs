//! Regular files without stalling the thread: through the ring, or on the blocking pool where there is no ring.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use monoio::buf::IoBuf;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::ReadWriteFlags;

use super::{buffers, driver, pool};
use crate::error::{Kind, Result};

/// Writes to a file, through the ring or on the blocking pool: at any place, or one piece after the other.
pub struct Writer {
    lent: Lent,
    /// Where the next piece is appended.
    pub offset: u64,
}

/// A file of its own for the driver that runs.
enum Lent {
    /// Handed to the ring.
    Ring(monoio::fs::File),
    /// Kept for jobs of the pool.
    Pool(Arc<File>),
}

impl Writer {
    /// A writer from the start of `file`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let lent = if driver::has_uring() {
            Lent::Ring(monoio::fs::File::from_std(file)?)
        } else {
            Lent::Pool(Arc::new(file))
        };
        Ok(Self { lent, offset: 0 })
    }

    /// Writes the part `range` of `bytes`, which others may read meanwhile, to the place `at` of the file.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn put(&self, bytes: Arc<Vec<u8>>, range: Range<usize>, at: u64) -> Result<()> {
        match &self.lent {
            Lent::Ring(file) => {
                let (outcome, _) = file.write_all_at(bytes.slice(range), at).await;
                outcome.map_err(failed)
            }
            Lent::Pool(file) => {
                let file = Arc::clone(file);
                let written = pool::run(move || file.write_all_at(&bytes[range], at));
                written.await?.map_err(failed)
            }
        }
    }

    /// Appends all of `bytes`, and gives the buffer back, empty.
    ///
    /// # Errors
    /// `DiskFull` for ENOSPC and EDQUOT, else `Internal`; the offset then stays where it was.
    pub async fn append(&mut self, bytes: Vec<u8>) -> (Result<()>, Vec<u8>) {
        let length = bytes.len() as u64;
        let (outcome, mut bytes) = match &self.lent {
            Lent::Ring(file) => {
                let (outcome, bytes) = file.write_all_at(bytes, self.offset).await;
                (outcome.map_err(failed), bytes)
            }
            Lent::Pool(file) => write_on_pool(file, bytes, self.offset).await,
        };
        if outcome.is_ok() {
            self.offset += length;
        }
        bytes.clear();
        (outcome, bytes)
    }
}

/// Reads from `offset` into the spare capacity of `into`, at most `most` bytes; 0 at the end of the file.
///
/// # Errors
/// What the kernel says.
pub async fn read_at(
    file: &File,
    mut into: Vec<u8>,
    offset: u64,
    most: usize,
) -> (io::Result<usize>, Vec<u8>) {
    if let Some(count) = try_read_at(file, &mut into, offset, most) {
        return (Ok(count), into);
    }
    match file.try_clone() {
        Ok(file) => read_on_pool(Arc::new(file), into, offset, most).await,
        Err(error) => (Err(error), into),
    }
}

/// As [`read_at`], for a file that is shared anyway: it takes no descriptor.
///
/// # Errors
/// What the kernel says.
pub async fn read_shared_at(
    file: &Arc<File>,
    mut into: Vec<u8>,
    offset: u64,
    most: usize,
) -> (io::Result<usize>, Vec<u8>) {
    match try_read_at(file, &mut into, offset, most) {
        Some(count) => (Ok(count), into),
        None => read_on_pool(Arc::clone(file), into, offset, most).await,
    }
}

async fn read_on_pool(
    file: Arc<File>,
    mut into: Vec<u8>,
    offset: u64,
    most: usize,
) -> (io::Result<usize>, Vec<u8>) {
    // A job that panics drops the buffer; its loss is an error, not a hang.
    let outcome = pool::run(move || {
        let before = into.len();
        into.resize(before + most.min(into.capacity() - before), 0);
        let outcome = rustix::io::pread(&file, &mut into[before..], offset);
        into.truncate(before + outcome.as_ref().copied().unwrap_or(0));
        (outcome, into)
    })
    .await;
    match outcome {
        Ok((outcome, into)) => (outcome.map_err(io::Error::from), into),
        Err(error) => (Err(io::Error::other(error)), Vec::new()),
    }
}

/// Reads what the page cache holds, without waiting; `None` when the disk would have to be asked.
#[expect(
    unsafe_code,
    reason = "the safe wrapper wants memory that was written to"
)]
pub fn try_read_at(file: &File, into: &mut Vec<u8>, offset: u64, most: usize) -> Option<usize> {
    let spare = into.spare_capacity_mut();
    let slice = libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: spare.len().min(most),
    };
    let offset = libc::off_t::try_from(offset).ok()?;
    // SAFETY: the one slice is the spare capacity of `into`, which is borrowed for the whole call.
    let count = unsafe {
        libc::preadv2(
            file.as_raw_fd(),
            &raw const slice,
            1,
            offset,
            libc::RWF_NOWAIT,
        )
    };
    let count = usize::try_from(count).ok()?;
    // SAFETY: the kernel has written `count` bytes behind the length, within the capacity.
    unsafe { into.set_len(into.len() + count) };
    Some(count)
}

/// Brings a file with all its attributes, or a directory with its names, to the disk: through the ring or on the pool.
///
/// # Errors
/// What the kernel says, of earlier writes too.
pub async fn sync(file: &File) -> io::Result<()> {
    let file = file.try_clone()?;
    if driver::has_uring() {
        return monoio::fs::File::from_std(file)?.sync_all().await;
    }
    let synced = pool::run(move || file.sync_all()).await;
    synced.map_err(io::Error::other)?
}

/// A file of `dir` that no name leads to; for helper threads. Where the filesystem needs one, `name` exists for an instant.
///
/// # Errors
/// What the kernel says.
pub fn unnamed(dir: &Path, name: &OsStr) -> io::Result<File> {
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(CWD, dir, flags | OFlags::TMPFILE, mode) {
        return Ok(file.into());
    }
    let path = dir.join(name);
    let fresh = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, &path, flags | fresh, mode)?;
    rustix::fs::unlinkat(CWD, &path, AtFlags::empty())?;
    Ok(file.into())
}

/// True when the first and the last byte of the span are known to be in the page cache.
///
/// A file system that cannot tell (EOPNOTSUPP) may have to ask somebody: its files count as not cached.
fn is_cached(file: &File, offset: u64, length: u64) -> bool {
    let mut byte = [0u8];
    let mut cached = |at| {
        let mut slices = [IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT).is_ok()
    };
    cached(offset) && (length < 2 || cached(offset + length - 1))
}

/// Brings a span into the page cache, off the thread, unless it is there; a failure shows when the span is read.
pub async fn warm(file: &File, offset: u64, length: u64) {
    if is_cached(file, offset, length) {
        return;
    }
    let Ok(file) = file.try_clone() else { return };
    let end = offset + length;
    if !driver::has_uring() {
        let _ = pool::run(move || {
            let mut scratch = vec![0; buffers::LEASE];
            let mut at = offset;
            while at < end {
                match file.read_at(&mut scratch, at) {
                    Ok(count @ 1..) => at += count as u64,
                    _ => return,
                }
            }
        })
        .await;
        return;
    }
    let Ok(lent) = monoio::fs::File::from_std(file) else {
        return;
    };
    let mut scratch = buffers::lease();
    let mut at = offset;
    while at < end {
        let (outcome, bytes) = lent.read_at(scratch.take(), at).await;
        scratch.restore(bytes);
        scratch.clear();
        match outcome {
            Ok(count @ 1..) => at += count as u64,
            _ => return,
        }
    }
}

async fn write_on_pool(file: &Arc<File>, bytes: Vec<u8>, offset: u64) -> (Result<()>, Vec<u8>) {
    let file = Arc::clone(file);
    match pool::run(move || (file.write_all_at(&bytes, offset), bytes)).await {
        Ok((outcome, bytes)) => (outcome.map_err(failed), bytes),
        Err(error) => (Err(error), Vec::new()),
    }
}

fn failed(error: io::Error) -> crate::error::Error {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            Kind::DiskFull.told("no space is left on the target filesystem")
        }
        _ => Kind::Internal.told("cannot write file"),
    }
    .because(error)
}
