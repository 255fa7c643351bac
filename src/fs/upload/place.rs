//! Where the bytes of an upload go while they arrive, decided before the first of them.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::make::Made;
use super::super::mount::is_made_up;
use super::super::space;
use super::super::target::Target;
use super::beside::Beside;
use super::there::There;
use super::{Draft, File, Found, Upload, is_regular, special, unwritten};
use crate::error::{Error, Kind, Result};

/// Where the bytes go while they arrive.
pub(super) enum Place {
    /// A file beside the target, to take its name.
    Beside(Box<Beside>),
    /// The file itself.
    There(There),
    /// Something else than a regular file on a disk.
    Special(FileType),
}

impl Place {
    /// Judges the upload against what is there and opens what the bytes go to; for helper threads.
    pub(super) fn prepare(upload: &Upload) -> Result<Self> {
        let path = &upload.path;
        let found = Target::find(path);
        // A link may lead where its text does not (`/proc/self/fd/1`), so the kernel follows it too.
        let followed = match &found {
            Ok(target) if !target.is_linked => None,
            _ => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()
            }
        };
        let (there, filesystem) = match (&followed, &found) {
            (Some(fd), _) => {
                let stat = rustix::fs::fstat(fd).map_err(unwritten)?;
                (Some(stat), rustix::fs::fstatfs(fd).ok())
            }
            (None, Ok(target)) => (target.there, target.filesystem()),
            (None, Err(_)) => (None, None),
        };
        if let Some(stat) = &there {
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_special = match kind {
                FileType::Directory => false,
                FileType::RegularFile => filesystem.as_ref().is_some_and(is_made_up),
                _ => true,
            };
            if is_special {
                special::judge(upload, kind)?;
                upload.admit(Found::Unversioned)?;
                return Ok(Self::Special(kind));
            }
        }
        upload.admit(Found::of(there.as_ref()))?;
        match &filesystem {
            Some(told) => space::check_told(told, path, upload.reserve)?,
            None => space::check(path, upload.reserve)?,
        }
        let mut above = Made::default();
        let target = match found {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::NOTDIR) => find_making(path, &mut above)?,
            Err(errno) => return Err(unwritten(errno)),
        };
        if target.there.is_some_and(|stat| !is_regular(&stat)) {
            return Err(unwritten(Errno::ISDIR));
        }
        let unsynced = match upload.sync {
            true => directories(&target, &above)?,
            false => Vec::new(),
        };
        match upload.in_place {
            true => There::open(target, upload, unsynced, above).map(Self::There),
            false => {
                let beside = Beside::open(target, upload, unsynced, above)?;
                Ok(Self::Beside(Box::new(beside)))
            }
        }
    }

    /// The regular file that it is, or else the kind of what it is.
    pub(super) fn into_draft(self) -> std::result::Result<Box<dyn Draft>, FileType> {
        match self {
            Self::Beside(beside) => Ok(beside),
            Self::There(there) => Ok(Box::new(there)),
            Self::Special(kind) => Err(kind),
        }
    }
}

/// Finds the target, and makes the directories above it that are missing, which it adds to `above`.
pub(super) fn find_making(path: &Path, above: &mut Made) -> Result<Target> {
    above.extend(Made::above_or(path, |errno, _| unparented(errno))?);
    Target::find(path).map_err(|errno| match errno {
        Errno::NOTDIR => unparented(errno),
        errno => unwritten(errno),
    })
}

fn unparented(errno: Errno) -> Error {
    space::failed(errno, "cannot create parent")
}

/// The directories that are to be synced, opened beforehand: one that cannot be opened is a refusal, not a surprise.
pub(super) fn directories(target: &Target, above: &Made) -> Result<Vec<File>> {
    let unopened = |error: std::io::Error| {
        Kind::Internal
            .told("cannot open a directory to sync it")
            .because(error)
    };
    let own = target.syncable().map_err(|errno| unopened(errno.into()))?;
    let mut opened = vec![File::from(own)];
    for path in above.changed() {
        opened.push(File::open(path).map_err(unopened)?);
    }
    Ok(opened)
}
