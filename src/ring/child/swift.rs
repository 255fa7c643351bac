//! Whether a child can be started without keeping the thread waiting for somebody else.
//!
//! Only what is cached is looked at, so the look itself never waits. In doubt the answer is no.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Image;
use crate::ring::local;

/// True when directory and program are cached, on filesystems of this machine, and the program is not leased.
pub(super) fn is_swift(image: &Image) -> bool {
    let Some(directory) = directory(image) else {
        return false;
    };
    let base = directory.as_ref().map_or(CWD, AsFd::as_fd);
    for candidate in &image.candidates {
        match cached(base, candidate, LOOK) {
            Ok(program) => return is_ready(&program, candidate, base),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
            Err(_) => return false,
        }
    }
    // Nothing can be run: exec will say so at once.
    true
}

/// Learns about the filesystems that a start depends on. For helper threads: it may wait.
pub(super) fn learn(image: &Image) {
    let paths = image.cwd.iter().chain(&image.candidates);
    for path in paths {
        if let Ok(found) = rustix::fs::openat(CWD, path, LOOK, Mode::empty()) {
            local::learn(&found);
        }
    }
}

/// The working directory of the child: `Some(None)` for ours, `None` when it may keep us waiting.
fn directory(image: &Image) -> Option<Option<OwnedFd>> {
    let Some(path) = &image.cwd else {
        return Some(None);
    };
    let opened = cached(CWD, path, LOOK).ok()?;
    local::mode_if_local(&opened)?;
    Some(Some(opened))
}

fn is_ready(program: &OwnedFd, path: &CStr, base: BorrowedFd<'_>) -> bool {
    let Some(mode) = local::mode_if_local(program) else {
        return false;
    };
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return true;
    }
    // A lease that somebody holds would keep exec waiting; this open says so instead (fcntl(2), F_SETLEASE).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    !matches!(cached(base, path, flags), Err(Errno::AGAIN))
}

fn cached(base: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(base, path, flags, Mode::empty(), ResolveFlags::CACHED)
}

const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
