//! Where an upload goes: the directory and name behind a path, links followed, and what is there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, StatFs};
use rustix::io::Errno;

/// A name in a directory that is held open.
pub(super) struct Target {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) leaf: Vec<u8>,
    /// What has the name; `None` when nothing has.
    pub(super) there: Option<Stat>,
    /// Device and inode number of the directory.
    pub(super) home: (u64, u64),
    /// True when the path ends in a link.
    pub(super) is_linked: bool,
}

impl Target {
    /// Follows `path`, and the links at its end, to where a file of that name is or would be.
    pub(super) fn find(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut base: Option<OwnedFd> = None;
        let mut path = path.as_os_str().as_bytes().to_vec();
        for links in 0..MOST_LINKS {
            let (parent, leaf) = split(&path).ok_or(Errno::ISDIR)?;
            let parent = OsStr::from_bytes(parent);
            let dir = match &base {
                Some(base) => rustix::fs::openat(base, parent, flags, Mode::empty())?,
                None => rustix::fs::openat(CWD, parent, flags, Mode::empty())?,
            };
            let there = look(&dir, leaf)?;
            let linked = there
                .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
            if !linked {
                let home = rustix::fs::fstat(&dir)?;
                return Ok(Self {
                    leaf: leaf.to_vec(),
                    dir: Arc::new(dir),
                    there,
                    home: (home.st_dev, home.st_ino),
                    is_linked: links > 0,
                });
            }
            let next = rustix::fs::readlinkat(&dir, leaf, Vec::new())?.into_bytes();
            base = Some(dir);
            path = next;
        }
        Err(Errno::LOOP)
    }

    /// Looks again what has the name.
    pub(super) fn look_again(&mut self) -> Result<(), Errno> {
        self.there = look(&self.dir, &self.leaf)?;
        Ok(())
    }

    /// The filesystem of what has the name, or else of the directory; `None` when it does not tell.
    pub(super) fn filesystem(&self) -> Option<StatFs> {
        let is_elsewhere = self.there.is_some_and(|stat| stat.st_dev != self.home.0);
        if !is_elsewhere {
            return rustix::fs::fstatfs(&self.dir).ok();
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = rustix::fs::openat(&self.dir, self.leaf.as_slice(), flags, Mode::empty());
        rustix::fs::fstatfs(there.ok()?).ok()
    }

    /// The directory, opened so that it can be synced.
    pub(super) fn syncable(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, ".", flags, Mode::empty())
    }
}

fn look(dir: &OwnedFd, leaf: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, leaf, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
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
