//! Free space against the reserve: asked before a write begins and again while it goes on.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{StatFs, StatVfs};

use crate::error::{Error, Kind, Result};
use crate::ring::pool;

/// Asks, on the calling thread, whether a write to `path` may begin; for helper threads.
///
/// What counts is the filesystem of the nearest ancestor that exists. A reserve of 0 asks nothing.
///
/// # Errors
/// `DiskFull` when less than `reserve` bytes are free. A question that cannot be answered is no pressure.
pub(super) fn check(path: &Path, reserve: u64) -> Result<()> {
    if reserve == 0 {
        return Ok(());
    }
    match ask(path) {
        Some(space) => judge(available(&space), path, reserve),
        None => Ok(()),
    }
}

/// The space where `path` is or would be: that of the nearest ancestor that exists.
fn ask(path: &Path) -> Option<StatVfs> {
    for ancestor in path.ancestors() {
        let ancestor = if ancestor.as_os_str().is_empty() {
            Path::new(".")
        } else {
            ancestor
        };
        match rustix::fs::statvfs(ancestor) {
            Ok(space) => return Some(space),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Bytes that the filesystem where `path` is or would be takes for a file at a time; for helper threads.
pub(super) fn unit(path: &Path) -> u64 {
    let told = ask(path).map(|space| space.f_frsize);
    told.filter(|unit| *unit > 0).unwrap_or(4096)
}

/// What must be free for `ahead` bytes to come; a reserve of 0 asks nothing.
pub(super) fn wanted(reserve: u64, ahead: u64) -> u64 {
    match reserve {
        0 => 0,
        reserve => reserve.saturating_add(ahead),
    }
}

/// As [`check`], for a filesystem that has told already.
pub(super) fn check_told(told: &StatFs, path: &Path, reserve: u64) -> Result<()> {
    let unit = match told.f_frsize {
        0 => told.f_bsize,
        unit => unit,
    };
    let unit = u64::try_from(unit).unwrap_or(0);
    judge(told.f_bavail.saturating_mul(unit), path, reserve)
}

/// As [`check`], for the filesystem that holds an open file.
pub(super) fn check_file(file: &File, path: &Path, reserve: u64) -> Result<()> {
    match rustix::fs::fstatvfs(file) {
        Ok(space) => judge(available(&space), path, reserve),
        Err(_) => Ok(()),
    }
}

/// As [`check_file`], from the main thread: `statvfs` can hang on a dead mount, so a helper asks.
pub(super) async fn recheck(file: &File, path: &Path, reserve: u64) -> Result<()> {
    if reserve == 0 {
        return Ok(());
    }
    let Ok(file) = file.try_clone() else {
        return Ok(());
    };
    let path: PathBuf = path.into();
    pool::run(move || check_file(&file, &path, reserve)).await?
}

/// The error of a write that failed: a full disk, and a file that its filesystem cannot hold, are told from all else.
pub(super) fn failed(error: impl Into<std::io::Error>, sentence: &'static str) -> Error {
    let error = error.into();
    let kind = match error.kind() {
        _ if is_full(&error) => Kind::DiskFull,
        std::io::ErrorKind::FileTooLarge => Kind::TooLarge,
        _ => Kind::Internal,
    };
    kind.told(sentence).because(error)
}

/// Tells, for a disk that is full, how much room there is where `path` is; other errors stay as they are.
pub(super) async fn explained(error: Error, path: &Path) -> Error {
    if !is_unexplained(&error) {
        return error;
    }
    let asked: PathBuf = path.into();
    match pool::run(move || ask(&asked)).await {
        Ok(Some(space)) => told(error, path, &space),
        _ => error,
    }
}

/// As [`explained`], on the calling thread; for helper threads.
pub(super) fn explained_here(error: Error, path: &Path) -> Error {
    if !is_unexplained(&error) {
        return error;
    }
    match ask(path) {
        Some(space) => told(error, path, &space),
        None => error,
    }
}

fn is_unexplained(error: &Error) -> bool {
    error.kind() == Kind::DiskFull && !error.sentence().contains(AVAILABLE)
}

fn told(error: Error, path: &Path, space: &StatVfs) -> Error {
    let bytes = available(space);
    let total = space.f_blocks.saturating_mul(space.f_frsize);
    let inodes = match space.f_files > 0 && space.f_favail == 0 {
        true => ", and no inode",
        false => "",
    };
    Kind::DiskFull
        .told(format!(
            "cannot write {}: it does not fit; {bytes}{AVAILABLE} of {total}{inodes}",
            path.display()
        ))
        .because(error)
}

/// True for ENOSPC and EDQUOT.
pub(super) fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn available(space: &StatVfs) -> u64 {
    space.f_bavail.saturating_mul(space.f_frsize)
}

fn judge(available: u64, path: &Path, reserve: u64) -> Result<()> {
    if reserve == 0 || available >= reserve {
        return Ok(());
    }
    Err(Kind::DiskFull.told(format!(
        "refusing to write {}: {available}{AVAILABLE}, below the {reserve} byte reserve",
        path.display()
    )))
}

/// What follows the number of bytes.
const AVAILABLE: &str = " bytes available on the target filesystem";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_ancestor_that_exists_is_asked() {
        let error =
            check(Path::new("/tmp/no/such/place"), u64::MAX).expect_err("nothing has so much");
        assert_eq!(error.kind(), Kind::DiskFull);
        let text = error.sentence();
        assert!(
            text.starts_with("refusing to write /tmp/no/such/place: "),
            "{text}"
        );
        assert!(
            text.ends_with("below the 18446744073709551615 byte reserve"),
            "{text}"
        );
    }

    #[test]
    fn a_reserve_of_nothing_asks_nothing() {
        assert!(check(Path::new("/proc/x"), 0).is_ok());
    }

    #[test]
    fn a_filesystem_without_space_is_under_pressure() {
        assert!(check(Path::new("/proc/x"), 1).is_err());
        assert!(check(Path::new("relative/x"), 1).is_ok());
    }
}
