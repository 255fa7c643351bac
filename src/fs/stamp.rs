//! Owners, modes, extended attributes and times of what was extracted.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::member::{Attributes, Place};
use crate::error::Result;
use crate::wire::tar::Moment;

/// What becomes of the mode that a file is made with: the umask and access lists of directories take bits away.
///
/// Within one directory the same mode always fares alike, so the kernel is asked once.
#[derive(Default)]
pub(super) struct Modes {
    dir: Option<Arc<OwnedFd>>,
    /// Modes, and whether they are kept.
    known: Vec<(u32, bool)>,
}

impl Modes {
    /// True when `file`, just made with `mode` in `dir`, has it.
    pub(super) fn are_kept(&mut self, dir: &Arc<OwnedFd>, file: &File, mode: u32) -> bool {
        if !self.dir.as_ref().is_some_and(|last| Arc::ptr_eq(last, dir)) {
            self.dir = Some(Arc::clone(dir));
            self.known.clear();
        }
        if let Some((_, kept)) = self.known.iter().find(|(known, _)| *known == mode) {
            return *kept;
        }
        let stat = rustix::fs::fstat(file);
        let kept = stat.is_ok_and(|stat| stat.st_mode & 0o7777 == mode);
        self.known.push((mode, kept));
        kept
    }
}

/// Sets all of them on a file; its mode only where it is not `right` already.
///
/// # Errors
/// Owners and extended attributes that cannot be set, since they were asked for; modes and times are left as they are.
pub(super) fn set(file: &File, place: &Place, wanted: &Attributes, right: bool) -> Result<()> {
    let failed = |errno| place.failed(errno);
    if let Some((uid, gid)) = wanted.owner {
        let owned = rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        owned.map_err(failed)?;
    }
    set_xattrs(file, place, &wanted.xattrs)?;
    if !right {
        let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode));
    }
    let _ = rustix::fs::futimens(file, &times(wanted.mtime));
    Ok(())
}

/// Sets extended attributes.
///
/// # Errors
/// One that cannot be set.
pub(super) fn set_xattrs(file: &File, place: &Place, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    for (name, value) in xattrs {
        let set = rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty());
        set.map_err(|errno| {
            let name = String::from_utf8_lossy(name);
            place
                .impossible(&format!("the extended attribute {name:?} cannot be set"))
                .because(errno)
        })?;
    }
    Ok(())
}

/// Sets owner and time of a symbolic link.
///
/// # Errors
/// An owner that cannot be set.
pub(super) fn set_link(
    dir: &OwnedFd,
    leaf: &[u8],
    place: &Place,
    wanted: &Attributes,
) -> Result<()> {
    if let Some((uid, gid)) = wanted.owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let owned = rustix::fs::chownat(dir, leaf, Some(uid), Some(gid), flags);
        owned.map_err(|errno| place.failed(errno))?;
    }
    let times = times(wanted.mtime);
    let _ = rustix::fs::utimensat(dir, leaf, &times, AtFlags::SYMLINK_NOFOLLOW);
    Ok(())
}

/// Sets mode and time of what was extracted before, as far as they can be set.
pub(super) fn set_late(file: &File, mode: u32, mtime: Moment) {
    if rustix::fs::fstat(file).is_ok_and(|stat| stat.st_mode & 0o7777 != mode) {
        let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    }
    let _ = rustix::fs::futimens(file, &times(mtime));
}

/// Sets owner, mode and time of a directory that is open as a path, as far as they can be set; it is opened only where
/// that needs it.
pub(super) fn set_directory(dir: &OwnedFd, owner: Option<(u32, u32)>, mode: u32, mtime: Moment) {
    if let Some((uid, gid)) = owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let _ = rustix::fs::chownat(dir, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH);
    }
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, ".", flags, Mode::empty())
    };
    if rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_mode & 0o7777 != mode)
        && let Ok(open) = open()
    {
        return set_late(&open.into(), mode, mtime);
    }
    // Before Linux 5.8 a time cannot be set by a path descriptor.
    let times = times(mtime);
    if let Err(Errno::INVAL | Errno::BADF) =
        rustix::fs::utimensat(dir, "", &times, AtFlags::EMPTY_PATH)
        && let Ok(open) = open()
    {
        let _ = rustix::fs::futimens(&open, &times);
    }
}

fn times(mtime: Moment) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime.secs,
            tv_nsec: mtime.nanos.into(),
        },
    }
}
