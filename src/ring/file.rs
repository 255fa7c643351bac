//! Regular files without stalling the thread: through the ring, or on the blocking pool where there is no ring.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

use rustix::io::ReadWriteFlags;

use super::{buffers, driver, pool};
use crate::error::{Kind, Result};

/// Appends to a file from its start, through the ring or on the blocking pool.
pub struct Writer {
    lent: Lent,
    /// Where the next byte goes.
    pub offset: u64,
}

/// A file of its own for the driver that runs.
enum Lent {
    /// Handed to the ring.
    Ring(monoio::fs::File),
    /// Kept for jobs of the pool.
    Pool(File),
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
            Lent::Pool(file)
        };
        Ok(Self { lent, offset: 0 })
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

/// Reads from `offset` into the spare capacity of `into`; 0 at the end of the file.
///
/// # Errors
/// What the kernel says.
pub async fn read_at(file: &File, mut into: Vec<u8>, offset: u64) -> (io::Result<usize>, Vec<u8>) {
    if let Some(count) = try_read_at(file, &mut into, offset) {
        return (Ok(count), into);
    }
    let file = match file.try_clone() {
        Ok(file) => file,
        Err(error) => return (Err(error), into),
    };
    // A job that panics drops the buffer; its loss is an error, not a hang.
    let outcome = pool::run(move || {
        let before = into.len();
        let outcome = rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut into), offset);
        (outcome.map(|_| into.len() - before), into)
    })
    .await;
    match outcome {
        Ok((outcome, into)) => (outcome.map_err(io::Error::from), into),
        Err(error) => (Err(io::Error::other(error)), Vec::new()),
    }
}

/// Reads what the page cache holds, without waiting; `None` when the disk would have to be asked.
pub fn try_read_at(file: &File, into: &mut Vec<u8>, offset: u64) -> Option<usize> {
    let before = into.len();
    let room = into.capacity() - before;
    into.resize(before + room, 0);
    let mut slices = [IoSliceMut::new(&mut into[before..])];
    let outcome = rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT);
    let count = outcome.as_ref().copied().unwrap_or(0);
    into.truncate(before + count);
    outcome.ok()
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
pub(super) async fn warm(file: &File, offset: u64, length: u64) {
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

async fn write_on_pool(file: &File, bytes: Vec<u8>, offset: u64) -> (Result<()>, Vec<u8>) {
    let file = match file.try_clone() {
        Ok(file) => file,
        Err(error) => return (Err(failed(error)), bytes),
    };
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
