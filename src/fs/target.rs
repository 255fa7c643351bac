//! Where an upload goes: the directory and name behind a path, links followed, and what is there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// A name in a directory that is held open.
pub(super) struct Target {
    pub(super) dir: OwnedFd,
    pub(super) leaf: Vec<u8>,
    /// What has the name; `None` when nothing has.
    pub(super) there: Option<Stat>,
}

impl Target {
    /// Follows `path`, and the links at its end, to where a file of that name is or would be.
    pub(super) fn find(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut base: Option<OwnedFd> = None;
        let mut path = path.as_os_str().as_bytes().to_vec();
        for _ in 0..MOST_LINKS {
            let (parent, leaf) = split(&path).ok_or(Errno::ISDIR)?;
            let parent = OsStr::from_bytes(parent);
            let dir = match &base {
                Some(base) => rustix::fs::openat(base, parent, flags, Mode::empty())?,
                None => rustix::fs::openat(CWD, parent, flags, Mode::empty())?,
            };
            let there = match rustix::fs::statat(&dir, leaf, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            };
            let linked = there
                .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
            if !linked {
                return Ok(Self {
                    leaf: leaf.to_vec(),
                    dir,
                    there,
                });
            }
            let next = rustix::fs::readlinkat(&dir, leaf, Vec::new())?.into_bytes();
            base = Some(dir);
            path = next;
        }
        Err(Errno::LOOP)
    }
}

/// A name that nothing has, for a file that is about to be renamed.
pub(super) fn temporary_name() -> std::ffi::OsString {
    let mut random = [0u8; 8];
    // Names that repeat are refused by O_EXCL, so poor randomness costs an error, not a file.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK);
    let name = format!(".ringd-{:016x}", u64::from_ne_bytes(random));
    std::ffi::OsString::from_vec(name.into_bytes())
}

/// The directory and the last component; `None` when the path can only be a directory.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (parent, leaf) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&path[..1], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".".as_slice(), path),
    };
    let is_name = !matches!(leaf, b"" | b"." | b"..");
    is_name.then_some((parent, leaf))
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;
