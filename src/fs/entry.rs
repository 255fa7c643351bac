//! An entry of a directory that is held open: what a path names itself, its last link not followed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// A name in a directory that is held open.
pub(super) struct Entry {
    pub(super) dir: OwnedFd,
    pub(super) leaf: Vec<u8>,
}

impl Entry {
    /// Opens the directory above `path`; links in its path are followed, the last name is left alone.
    ///
    /// # Errors
    /// `Malformed` for a path whose last component is no name (`/`, `.`, `..`), else those of [`refused`].
    pub(super) fn of(path: &Path, doing: &str) -> Result<Self> {
        let (parent, leaf) = split(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, parent, flags, Mode::empty());
        Ok(Self {
            dir: dir.map_err(|errno| refused(errno, doing, path))?,
            leaf: leaf.to_vec(),
        })
    }

    /// What has the name now.
    pub(super) fn look(&self) -> std::result::Result<Statx, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(&self.dir, self.leaf.as_slice(), flags, WANTED)
    }

    pub(super) fn remove(&self, flags: AtFlags) -> std::result::Result<(), Errno> {
        rustix::fs::unlinkat(&self.dir, self.leaf.as_slice(), flags)
    }
}

/// The directory and the last name of a path; slashes at its end do not count.
///
/// # Errors
/// `Malformed` when the last component is no name.
pub(super) fn split(path: &Path) -> Result<(&Path, &[u8])> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/');
    let bytes = &bytes[..end.map_or(0, |end| end + 1)];
    let (parent, leaf) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&bytes[..1], &bytes[1..]),
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None => (b".".as_slice(), bytes),
    };
    if matches!(leaf, b"" | b"." | b"..") {
        let told = format!("{} does not name an entry of a directory", path.display());
        return Err(Kind::Malformed.told(told));
    }
    Ok((Path::new(OsStr::from_bytes(parent)), leaf))
}

/// The error of a system call that did something to `path`; `doing` is a verb.
pub(super) fn refused(errno: Errno, doing: &str, path: &Path) -> Error {
    let kind = match errno {
        Errno::NOENT => Kind::NotFound,
        Errno::EXIST | Errno::NOTDIR | Errno::ISDIR => Kind::Exists,
        Errno::NOTEMPTY => Kind::NotEmpty,
        Errno::BUSY | Errno::TXTBSY => Kind::InUse,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Kind::Denied,
        Errno::NAMETOOLONG | Errno::LOOP | Errno::INVAL => Kind::Malformed,
        Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS => Kind::Unsupported,
        Errno::NOSPC | Errno::DQUOT => Kind::DiskFull,
        _ => Kind::Internal,
    };
    kind.told(format!(
        "cannot {doing} {}: {}",
        path.display(),
        said(errno)
    ))
    .because(errno)
}

/// As [`refused`], for a look at what is there: below something that is no directory there is nothing.
pub(super) fn unseen(errno: Errno, path: &Path) -> Error {
    match errno {
        Errno::NOTDIR => Kind::NotFound
            .told(format!(
                "cannot look at {}: {}",
                path.display(),
                said(errno)
            ))
            .because(errno),
        _ => refused(errno, "look at", path),
    }
}

/// The system's text for an error, without its number.
pub(super) fn said(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// True when an error on the way to a directory says that it is not there, or not any more.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// The type of what was looked at.
pub(super) fn kind(found: &Statx) -> FileType {
    FileType::from_raw_mode(found.stx_mode.into())
}

/// True when both are the same thing.
pub(super) fn is_same(one: &Statx, other: &Statx) -> bool {
    let key = |found: &Statx| (found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
    key(one) == key(other)
}

/// True for the root of a mount; `None` where the kernel does not tell (before 5.8).
pub(super) fn is_mount_point(found: &Statx) -> Option<bool> {
    let mask = StatxAttributes::MOUNT_ROOT;
    let known = found.stx_attributes_mask.contains(mask);
    known.then(|| found.stx_attributes.contains(mask))
}

/// True when the directory `found` is `dir` or lies above it.
pub(super) fn is_at_or_above(found: &Statx, dir: impl AsFd) -> std::result::Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let look = |dir: &OwnedFd| rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, WANTED);
    let mut dir = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
    let mut here = look(&dir)?;
    loop {
        if is_same(found, &here) {
            return Ok(true);
        }
        let above = rustix::fs::openat(&dir, "..", flags, Mode::empty())?;
        let next = look(&above)?;
        // The root is its own parent.
        if is_same(&next, &here) {
            return Ok(false);
        }
        (dir, here) = (above, next);
    }
}

/// What is asked of the kernel at each look.
pub(super) const WANTED: StatxFlags = StatxFlags::BASIC_STATS
    .union(StatxFlags::BTIME)
    .union(StatxFlags::MNT_ID);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<(&str, &str)>) {
        let found = split(Path::new(path)).ok();
        let found = found.map(|(parent, leaf)| {
            let leaf = std::str::from_utf8(leaf).expect("text");
            (parent.to_str().expect("text"), leaf)
        });
        assert_eq!(found, expected, "{path:?}");
    }

    #[test]
    fn a_path_is_a_directory_and_a_name() {
        check("/a/b", Some(("/a", "b")));
        check("/a", Some(("/", "a")));
        check("a", Some((".", "a")));
        check("a/b//", Some(("a", "b")));
        check("a//b", Some(("a/", "b")));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for path in ["", "/", "//", ".", "..", "a/.", "a/..", "a/../"] {
            check(path, None);
        }
    }
}
