//! A tree on disk: what of it is wanted, and how its directories are reached.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::confine::{Descent, Way};
use super::filter::Filter;
use super::listed::Listed;
use crate::error::{Error, Kind, Result};
use crate::wire::tar::Moment;

/// What bounds a walk.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Members at most, the root not counted.
    pub members: u64,
    /// Bytes of all regular files together at most, holes included.
    pub bytes: u64,
}

/// What of a tree is packed, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What bounds it.
    pub limits: Limits,
    /// Which names are chosen.
    pub filter: Filter,
    /// When set, only these names are looked at.
    pub listed: Option<Listed>,
    /// Components that names lose at their front; what has no more is no member.
    pub strip: usize,
    /// Only what was modified after this time, and the directories above it.
    pub newer_than: Option<Moment>,
    /// True when mount points are packed as empty directories.
    pub one_file_system: bool,
    /// True when what symbolic links lead to is packed in their place, as long as that is below the root.
    pub follow: bool,
    /// True when extended attributes and ACLs are told.
    pub xattrs: bool,
    /// True when times are told to the nanosecond.
    pub precise: bool,
}

impl Options {
    /// The whole tree.
    pub fn whole(limits: Limits) -> Self {
        Self {
            limits,
            filter: Filter::default(),
            listed: None,
            strip: 0,
            newer_than: None,
            one_file_system: false,
            follow: false,
            xattrs: false,
            precise: false,
        }
    }
}

/// The directories of a tree, for those who walk it and those who read its files.
pub(super) struct Tree {
    pub(super) descent: Descent,
    /// The root, where symbolic links are followed below it.
    pub(super) follow: Option<Arc<OwnedFd>>,
}

impl Tree {
    /// The tree below `root`; links are followed when `follow` says so.
    pub(super) fn at(root: OwnedFd, follow: bool) -> Result<Self> {
        let again = |error| Kind::Internal.told("cannot read directory").because(error);
        let kept = follow.then(|| root.try_clone().map(Arc::new));
        Ok(Self {
            follow: kept.transpose().map_err(again)?,
            descent: Descent::at(root),
        })
    }

    /// The directory `path`, which has been walked.
    pub(super) fn enter(
        &mut self,
        path: &[u8],
        way: Way,
    ) -> std::result::Result<Arc<OwnedFd>, Errno> {
        match (&self.follow, way) {
            (None, way) => self.descent.enter(path, way).map_err(|stop| stop.errno),
            (Some(_), Way::Cached) => Err(Errno::AGAIN),
            (Some(root), _) => follow(root, path, OFlags::PATH | OFlags::DIRECTORY).map(Arc::new),
        }
    }
}

/// Opens what `path` leads to through symbolic links, as long as none leaves the root.
pub(super) fn follow(
    root: impl AsFd,
    path: &[u8],
    flags: OFlags,
) -> std::result::Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    let open = || rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve);
    // A way through `..` is given up when anything is renamed meanwhile, wherever that is.
    for _ in 1..TRIES {
        match open() {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    open()
}

/// Opens the root of a walk; links in its path are followed.
///
/// # Errors
/// `NotFound`, `Malformed` when it is no directory, else `Internal`.
pub(super) fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(root) => Ok(root),
        Err(Errno::NOENT) => Err(Kind::NotFound.told("no such directory")),
        // Said of the path itself, or of something on the way.
        Err(Errno::NOTDIR) if rustix::fs::stat(path).is_ok() => {
            Err(Kind::Malformed.told("path is not a directory; use /v1/fs/file"))
        }
        Err(errno) => Err(unreadable(errno)),
    }
}

/// How often a way is tried while names change.
const TRIES: usize = 32;

pub(super) fn unreadable(errno: Errno) -> Error {
    Kind::Internal.told("cannot read directory").because(errno)
}
