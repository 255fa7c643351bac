//! Where the data of a sparse file lies.

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;

use crate::wire::tar::Segment;

/// True when a file takes so much less room than its size that it is worth asking for its holes.
pub(super) fn may_be(stat: &Stat) -> bool {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let held = u64::try_from(stat.st_blocks)
        .unwrap_or(u64::MAX)
        .saturating_mul(512);
    held < size && size >= SMALLEST
}

/// The runs of a file of `size` bytes with holes; `None` for one that is stored whole.
pub(super) fn runs(file: impl AsFd, size: u64) -> Option<Vec<Segment>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))
            .ok()?
            .min(size);
        if end <= start {
            return None;
        }
        runs.push(Segment {
            offset: start,
            length: end - start,
        });
        if runs.len() >= MOST {
            return None;
        }
        at = end;
    }
    let whole = runs
        .first()
        .is_some_and(|run| run.offset == 0 && run.length == size);
    if whole {
        return None;
    }
    // GNU tar ends a map with the end of the file, and old readers take the size from there.
    if at < size || runs.is_empty() {
        runs.push(Segment {
            offset: size,
            length: 0,
        });
    }
    Some(runs)
}

/// Below this the head of a sparse file costs as much as its holes.
const SMALLEST: u64 = 8 * 1024;
/// Runs of a sparse file at most; one with more is stored whole.
const MOST: usize = 32 * 1024;
