//! Blocks of zeros that become holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{Kind, Result};
use crate::ring::copy::{CHECK_EVERY, fill};
use crate::ring::{Inflow, buffers, file};

/// Copies `source` to the start of the empty `file`, its blocks of zeros as holes, and answers how many bytes there were.
///
/// Where they end in a hole, the file is shorter than that: the caller sets its length. `may_go_on` is asked as by
/// [`crate::ring::copy::to_file`].
///
/// # Errors
/// Those of the source, of the file and of `may_go_on`.
pub(super) async fn to_file(
    source: &mut dyn Inflow,
    file: &File,
    mut may_go_on: impl AsyncFnMut() -> Result<()>,
) -> Result<u64> {
    let writer = file::Writer::new(file)
        .map_err(|error| Kind::Internal.told("cannot write file").because(error))?;
    let mut buffer = buffers::lease();
    let (mut at, mut checked) = (0, 0);
    loop {
        let ended = fill(source, &mut buffer).await?;
        let length = buffer.len() as u64;
        let bytes = Arc::new(buffer.take());
        for run in runs(&bytes) {
            let place = at + run.start as u64;
            writer.put(Arc::clone(&bytes), run, place).await?;
        }
        at += length;
        // Whoever wrote has let go of the bytes.
        buffer.restore(Arc::into_inner(bytes).unwrap_or_else(buffers::take));
        buffer.clear();
        if ended {
            return Ok(at);
        }
        if at - checked >= CHECK_EVERY {
            checked = at;
            may_go_on().await?;
        }
    }
}

/// Writes `bytes` to the place `at`, a multiple of [`BLOCK`], without its blocks of zeros; for helper threads.
pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    for run in runs(bytes) {
        file.write_all_at(&bytes[run.clone()], at + run.start as u64)?;
    }
    Ok(())
}

/// Copies the start of `from`, `length` bytes, to the start of the empty `to`, holes as holes; for helper threads.
pub(super) fn copy(from: &File, to: &File, length: u64) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(buffers::LEASE);
    let mut at = 0;
    while at < length {
        fill_from(from, &mut buffer, at)?;
        if buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_at(to, &buffer, at)?;
        at += buffer.len() as u64;
    }
    to.set_len(length)
}

/// Fills the buffer with what stands at `at`, as far as the file goes: whole blocks keep the places of what follows, so
/// only the last piece may be short.
fn fill_from(file: &File, buffer: &mut Vec<u8>, at: u64) -> io::Result<()> {
    buffer.clear();
    while buffer.len() < buffer.capacity() {
        let place = at + buffer.len() as u64;
        if rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), place)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Makes holes of the blocks of zeros of a file of `length` bytes, where its filesystem can; for helper threads.
pub(super) fn dig(file: &File, length: u64) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(buffers::LEASE);
    let mut at = 0;
    while at < length {
        fill_from(file, &mut buffer, at)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = at + buffer.len() as u64;
        let mut zeros = at;
        for run in runs(&buffer) {
            if !punch(file, zeros..at + run.start as u64)? {
                return Ok(());
            }
            zeros = at + run.end as u64;
        }
        if !punch(file, zeros..end)? {
            return Ok(());
        }
        at = end;
    }
    Ok(())
}

/// Frees the disk of a range of zeros; false where the filesystem cannot.
fn punch(file: &File, range: Range<u64>) -> io::Result<bool> {
    if range.is_empty() {
        return Ok(true);
    }
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, how, range.start, range.end - range.start) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The parts of `bytes` that are written: runs of blocks that are not all zero.
fn runs(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(block(bytes, at)) {
            at += BLOCK;
        }
        let start = at;
        while at < bytes.len() && !is_zero(block(bytes, at)) {
            at += BLOCK;
        }
        (start < bytes.len()).then(|| start..at.min(bytes.len()))
    })
}

fn block(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + BLOCK)]
}

/// Compares with a page of zeros: data differs in its first bytes, and the comparison ends there.
fn is_zero(block: &[u8]) -> bool {
    block == &ZEROS[..block.len()]
}

/// Holes are made of whole blocks of this size, in bytes.
const BLOCK: usize = 4096;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: &[(u8, usize)], expected: &[(usize, usize)]) {
        let bytes: Vec<u8> = blocks
            .iter()
            .flat_map(|(byte, count)| std::iter::repeat_n(*byte, *count))
            .collect();
        let found: Vec<_> = runs(&bytes).map(|run| (run.start, run.end)).collect();
        assert_eq!(found, expected, "{blocks:?}");
    }

    #[test]
    fn whole_blocks_of_zeros_are_left_out() {
        check(&[], &[]);
        check(&[(1, 1)], &[(0, 1)]);
        check(&[(1, 10_000)], &[(0, 10_000)]);
        check(&[(0, 1)], &[]);
        check(&[(0, 4096)], &[]);
        check(&[(0, 4096), (1, 1)], &[(4096, 4097)]);
        check(&[(0, 4095), (1, 1)], &[(0, 4096)]);
        check(
            &[(1, 4096), (0, 4096), (1, 4096)],
            &[(0, 4096), (8192, 12_288)],
        );
        check(&[(1, 4097), (0, 8190), (1, 1)], &[(0, 12_288)]);
        check(&[(1, 1), (0, 20_000)], &[(0, 4096)]);
        check(&[(0, 8192), (1, 5000), (0, 5000)], &[(8192, 16_384)]);
    }
}
