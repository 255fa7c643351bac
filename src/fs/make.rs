//! Directories made: all that were asked for, or none.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::entry::refused;
use super::{lent, mount, space};
use crate::error::{Error, Kind, Result};
use crate::ring::pool;

/// A directory that is asked for.
#[derive(Clone, Debug)]
pub struct Make {
    pub path: PathBuf,
    /// Permission bits of the last directory, set exactly; `None` takes 0777 less the umask.
    pub mode: Option<u32>,
    /// True makes the directories above it too, and takes it for done when it is there.
    pub parents: bool,
    /// Bytes that must stay free on the disk; 0 asks nothing.
    pub reserve: u64,
}

/// Makes a directory; false when it was there.
///
/// # Errors
/// `Exists` when something has the name, `NotFound` when the directory above it does not exist, `Denied`, `DiskFull`,
/// `Malformed`, else `Internal`; what was made is then removed again.
pub async fn make(make: Make) -> Result<bool> {
    pool::run(move || make_now(&make)).await?
}

fn make_now(make: &Make) -> Result<bool> {
    let path = &make.path;
    if let Some(was_there) = judge(make) {
        return was_there;
    }
    if !is_made_up(path) {
        space::check(path, make.reserve)?;
    }
    let mut made = match make.parents {
        true => Made::above(path)?,
        false => Made::default(),
    };
    // What will be narrowed must not be wide before.
    let first = if make.mode.is_some() { 0o700 } else { 0o777 };
    match rustix::fs::mkdir(path, Mode::from_raw_mode(first)) {
        Ok(()) => made.0.push(path.clone()),
        // Somebody else was faster.
        Err(Errno::EXIST) if make.parents => {
            if let Some(was_there) = judge(make) {
                made.keep();
                return was_there;
            }
            return Err(refused(Errno::EXIST, MAKE, path));
        }
        Err(errno) => return Err(refused(errno, MAKE, path)),
    }
    if let Some(mode) = make.mode {
        let set = set_mode(path, mode);
        set.map_err(|errno| refused(errno, "set the mode of", path))?;
    }
    made.keep();
    Ok(true)
}

/// What to answer when something has the name; `None` when nothing has.
fn judge(make: &Make) -> Option<Result<bool>> {
    let found = rustix::fs::stat(&make.path).ok()?;
    let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    if is_dir && make.parents {
        return Some(Ok(false));
    }
    let told = format!("{} is there already", make.path.display());
    Some(Err(Kind::Exists.told(told)))
}

/// True where the kernel makes the filesystem up (cgroups, for one): it has no space to ask for.
fn is_made_up(path: &Path) -> bool {
    let open = |path: &Path| {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
    };
    let nearest = path.ancestors().find_map(open);
    nearest.is_some_and(mount::is_pseudo)
}

/// By descriptor, so that nobody can put a link in its place.
fn set_mode(path: &Path, mode: u32) -> std::result::Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode))
}

/// Directories that were made, and are removed again unless they are kept.
#[derive(Default)]
pub(super) struct Made(Vec<PathBuf>);

impl Made {
    /// Makes the directories above `path` that are missing, 0777 less the umask.
    pub(super) fn above(path: &Path) -> Result<Self> {
        Self::above_or(path, |errno, path| refused(errno, MAKE, path))
    }

    /// The same, where `failed` says what could not be made.
    pub(super) fn above_or(path: &Path, failed: impl Fn(Errno, &Path) -> Error) -> Result<Self> {
        let mut made = Self::default();
        let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        else {
            return Ok(made);
        };
        let is_missing = |path: &&Path| matches!(rustix::fs::stat(*path), Err(Errno::NOENT));
        let ancestors = parent.ancestors();
        let ancestors = ancestors.take_while(|path| !path.as_os_str().is_empty());
        let missing: Vec<&Path> = ancestors.take_while(is_missing).collect();
        for path in missing.into_iter().rev() {
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)) {
                Ok(()) => made.0.push(path.to_owned()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno, path)),
            }
        }
        Ok(made)
    }

    /// Adds those that were made later.
    pub(super) fn extend(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// The directories that have a new one.
    pub(super) fn changed(&self) -> impl Iterator<Item = &Path> {
        let above = self.0.iter().filter_map(|path| path.parent());
        above.map(|above| match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let made = std::mem::take(&mut self.0);
        if !made.is_empty() {
            lent::let_go(move || {
                for path in made.iter().rev() {
                    // Whoever put something there in the meantime keeps it.
                    let _ = rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR);
                }
            });
        }
    }
}

const MAKE: &str = "make";
