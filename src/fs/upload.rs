//! One file written: whole or not at all, in place where a name cannot be replaced.

mod special;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::lent::{self, Lent};
use super::mount::is_pseudo;
use super::target::{Target, temporary_name};
use super::{space, spool};
use crate::error::{Error, Kind, Result};
use crate::ring::{Fd, Inflow, buffers, clock, copy, pool};

/// A write that is asked for.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Where to; relative to the working directory when it is relative.
    pub path: PathBuf,
    /// Permission bits to set, low 12; `None` keeps those of the file that is there, or takes 0666 less the umask.
    pub mode: Option<u32>,
    /// Truncate and write the file that is there, instead of replacing it when the body is complete.
    pub in_place: bool,
    /// Bytes that must stay free on the disk; 0 asks nothing.
    pub reserve: u64,
    /// Where the body waits when the file may be written but its directory may not.
    pub spool_dir: PathBuf,
}

/// Reads a mode: octal, at most 07777, blanks around it, `0o` before it.
///
/// # Errors
/// `Malformed`.
pub fn parse_mode(text: &str) -> Result<u32> {
    let digits = text
        .trim()
        .trim_start_matches("0o")
        .trim_start_matches("0O");
    let mode = u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Kind::Malformed.told(format!("mode {text} is not a valid octal file mode")))
}

/// Writes `body` to the place that `upload` names.
///
/// # Errors
/// `DiskFull` below the reserve or on a full disk, `Malformed` for a FIFO that nobody reads, those of the body, else
/// `Internal`. Unless the file is written in place it is then as it was.
pub async fn write(upload: Upload, body: &mut dyn Inflow) -> Result<()> {
    let asked = upload.clone();
    match pool::run(move || Place::prepare(&asked)).await?? {
        Place::Beside(beside) => replace(upload, beside, body).await,
        Place::There(there) => overwrite(upload, there, body).await,
        Place::Special(kind) => special::write(&upload, kind, body).await,
    }
}

/// Where the bytes go while they arrive.
enum Place {
    /// A file beside the target, to take its name.
    Beside(Beside),
    /// The file itself.
    There(There),
    /// Something else than a regular file on a disk.
    Special(FileType),
}

struct Beside {
    target: Target,
    file: Lent,
    /// The name of the file until it is renamed, where the filesystem has no files without one.
    name: Option<Temporary>,
    /// True when it is in the spool directory: the target can be written, but not replaced.
    aside: bool,
}

struct There {
    file: Lent,
    /// Set when we made it: it goes again when the body fails.
    made: Option<Temporary>,
}

/// A name that is removed unless it is kept.
struct Temporary {
    dir: Arc<OwnedFd>,
    leaf: Vec<u8>,
    keep: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep {
            let (dir, leaf) = (Arc::clone(&self.dir), std::mem::take(&mut self.leaf));
            lent::let_go(move || {
                let _ = rustix::fs::unlinkat(&dir, leaf.as_slice(), AtFlags::empty());
            });
        }
    }
}

impl Place {
    fn prepare(upload: &Upload) -> Result<Self> {
        let path = &upload.path;
        let there = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        if let Ok(fd) = &there {
            let stat = rustix::fs::fstat(fd).map_err(unwritten)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::RegularFile if !is_pseudo(fd) => {}
                kind => return Ok(Self::Special(kind)),
            }
        }
        space::check(path, upload.reserve)?;
        if let Err(errno) = there
            && !matches!(errno, Errno::NOENT | Errno::NOTDIR)
        {
            return Err(unwritten(errno));
        }
        make_parent(path)?;
        let target = Target::find(path).map_err(unwritten)?;
        if target
            .there
            .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile)
        {
            return Err(unwritten(Errno::ISDIR));
        }
        if upload.in_place {
            return There::open(target, upload.mode).map(Self::There);
        }
        Beside::open(target, upload).map(Self::Beside)
    }
}

impl Beside {
    fn open(target: Target, upload: &Upload) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // What will be narrowed later must not be wide before.
        let narrow = upload.mode.is_some() || target.there.is_some();
        let first = Mode::from_raw_mode(if narrow { 0o600 } else { 0o666 });
        match rustix::fs::openat(&target.dir, ".", flags | OFlags::TMPFILE, first) {
            Ok(file) => {
                return Ok(Self {
                    target,
                    file: Lent::scrap(file.into()),
                    name: None,
                    aside: false,
                });
            }
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if target.there.is_some() => {
                return Self::aside(target, upload);
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(unwritten(errno)),
        }
        let leaf = std::os::unix::ffi::OsStringExt::into_vec(temporary_name());
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let dir = target.dir.try_clone().map_err(unmade)?;
        let file =
            rustix::fs::openat(&target.dir, leaf.as_slice(), flags, first).map_err(unwritten)?;
        let name = Some(Temporary {
            dir: Arc::new(dir),
            leaf,
            keep: false,
        });
        Ok(Self {
            target,
            file: Lent::scrap(file.into()),
            name,
            aside: false,
        })
    }

    /// A file in the spool directory, for a target that we may write in a directory that we may not.
    fn aside(target: Target, upload: &Upload) -> Result<Self> {
        // What cannot be written is refused before its body is there.
        drop(open_there(&target, OFlags::empty())?);
        space::check(&upload.spool_dir, upload.reserve)?;
        let file = spool::unnamed(&upload.spool_dir).map_err(unmade)?;
        Ok(Self {
            target,
            file,
            name: None,
            aside: true,
        })
    }

    /// Gives the file its mode, its owner and the name of the target; for helper threads.
    fn publish(mut self, upload: &Upload) -> Result<()> {
        if self.aside {
            return self.pour(upload);
        }
        if let Some(stat) = &self.target.there {
            inherit(&self.file, stat, upload.mode.is_none())?;
        }
        if let Some(mode) = upload.mode {
            set_mode(&self.file, mode)?;
        }
        match self.rename() {
            // A mount point cannot be replaced, and in a sticky directory not a file of somebody else.
            Err(Errno::BUSY | Errno::XDEV | Errno::PERM | Errno::ACCESS)
                if self.target.there.is_some() =>
            {
                self.pour(upload)
            }
            outcome => outcome.map_err(unwritten),
        }
    }

    fn rename(&mut self) -> std::result::Result<(), Errno> {
        let Target { dir, leaf, there } = &self.target;
        let leaf = leaf.as_slice();
        if self.name.is_none() && there.is_none() {
            match link(&self.file, dir, leaf) {
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
                Ok(()) => {
                    self.file.keep();
                    return Ok(());
                }
            }
        }
        let mut name = match self.name.take() {
            Some(name) => name,
            None => self.name_it()?,
        };
        rustix::fs::renameat(&name.dir, name.leaf.as_slice(), dir, leaf)?;
        name.keep = true;
        self.file.keep();
        Ok(())
    }

    fn name_it(&self) -> std::result::Result<Temporary, Errno> {
        let leaf = std::os::unix::ffi::OsStringExt::into_vec(temporary_name());
        let dir = rustix::io::fcntl_dupfd_cloexec(&self.target.dir, 3)?;
        link(&self.file, &dir, &leaf)?;
        Ok(Temporary {
            dir: Arc::new(dir),
            leaf,
            keep: false,
        })
    }

    /// Copies what has arrived into the file that is there, which loses its content only when there is room.
    fn pour(&self, upload: &Upload) -> Result<()> {
        let mut target = open_there(&self.target, OFlags::empty())?;
        let length = self.file.metadata().map_err(unmade)?.len();
        let held = target.metadata().map_err(unmade)?.blocks() * 512;
        let more = length.saturating_sub(held);
        space::check_file(&target, &upload.path, upload.reserve.saturating_add(more))?;
        if let Some(mode) = upload.mode {
            set_mode(&target, mode)?;
        }
        target.set_len(0).map_err(unmade)?;
        let mut file: &File = &self.file;
        std::io::Seek::rewind(&mut file).map_err(unmade)?;
        std::io::copy(&mut file, &mut target).map_err(unmade)?;
        Ok(())
    }
}

impl There {
    fn open(target: Target, mode: Option<u32>) -> Result<Self> {
        if target.there.is_some() {
            let file = open_there(&target, OFlags::TRUNC)?;
            return Ok(Self {
                file: Lent::to_write(file),
                made: None,
            });
        }
        let first = Mode::from_raw_mode(mode.unwrap_or(0o666));
        let Target { dir, leaf, .. } = target;
        let flags = WRITING | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(&dir, leaf.as_slice(), flags, first);
        Ok(Self {
            file: Lent::scrap(file.map_err(unwritten)?.into()),
            made: Some(Temporary {
                dir: Arc::new(dir),
                leaf,
                keep: false,
            }),
        })
    }
}

async fn replace(upload: Upload, beside: Beside, body: &mut dyn Inflow) -> Result<()> {
    // A small body is written by the helper that gives the file its name: one hop instead of two.
    let small = body
        .remaining()
        .is_some_and(|length| length <= buffers::LEASE as u64);
    if !small {
        let place = if beside.aside {
            &upload.spool_dir
        } else {
            &upload.path
        };
        let received = receive(&beside.file, place, upload.reserve, body).await;
        // Also when it failed: whoever reads of it finds no trace of the body.
        return pool::run(move || received.and_then(|()| beside.publish(&upload))).await?;
    }
    let mut buffer = buffers::lease();
    let filled = copy::fill(body, &mut buffer).await;
    let bytes = buffer.take();
    let (outcome, bytes) = pool::run(move || {
        let written = filled.and_then(|_| beside.file.write_all_at(&bytes, 0).map_err(unmade));
        (written.and_then(|()| beside.publish(&upload)), bytes)
    })
    .await?;
    buffer.restore(bytes);
    outcome
}

async fn overwrite(upload: Upload, mut there: There, body: &mut dyn Inflow) -> Result<()> {
    let received = receive(&there.file, &upload.path, upload.reserve, body).await;
    pool::run(move || {
        received?;
        if let Some(mode) = upload.mode {
            set_mode(&there.file, mode)?;
        }
        if let Some(made) = &mut there.made {
            made.keep = true;
        }
        there.file.keep();
        Ok(())
    })
    .await?
}

/// Writes the body to `file`; `place` is what a sentence about its filesystem names.
async fn receive(file: &File, place: &Path, reserve: u64, body: &mut dyn Inflow) -> Result<()> {
    let go_on = async || space::recheck(file, place, reserve).await;
    copy::to_file(body, file, go_on).await?;
    Ok(())
}

/// Opens the file that is there for writing.
fn open_there(target: &Target, more: OFlags) -> Result<File> {
    let flags = WRITING | more;
    let file = rustix::fs::openat(&target.dir, target.leaf.as_slice(), flags, Mode::empty());
    file.map(File::from).map_err(unwritten)
}

/// Mode and owner of the file that is replaced; the owner only if we may, and before the mode, which it clears.
fn inherit(file: &File, stat: &Stat, with_mode: bool) -> Result<()> {
    let ours = rustix::fs::fstat(file).map_err(unwritten)?;
    if (ours.st_uid, ours.st_gid) != (stat.st_uid, stat.st_gid) {
        let owner = rustix::fs::Uid::from_raw(stat.st_uid);
        let group = rustix::fs::Gid::from_raw(stat.st_gid);
        let _ = rustix::fs::fchown(file, Some(owner), Some(group));
    }
    if with_mode {
        set_mode(file, stat.st_mode & 0o7777)?;
    }
    Ok(())
}

fn set_mode(file: &File, mode: u32) -> Result<()> {
    let set = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    set.map_err(|errno| space::failed(errno, "cannot set mode"))
}

/// Gives an open file a name; the short way is for those with the right to, the other needs /proc.
pub(super) fn link(file: &File, dir: &OwnedFd, leaf: &[u8]) -> std::result::Result<(), Errno> {
    match rustix::fs::linkat(file, "", dir, leaf, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM) => {}
        outcome => return outcome,
    }
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    rustix::fs::linkat(
        CWD,
        format!("/proc/self/fd/{number}"),
        dir,
        leaf,
        AtFlags::SYMLINK_FOLLOW,
    )
}

fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            let made = std::fs::create_dir_all(parent);
            made.map_err(|error| space::failed(error, "cannot create parent"))
        }
        _ => Ok(()),
    }
}

fn unwritten(errno: Errno) -> Error {
    unmade(errno.into())
}

fn unmade(error: std::io::Error) -> Error {
    space::failed(error, CANNOT_WRITE)
}

const CANNOT_WRITE: &str = "cannot write file";
const WRITING: OFlags = OFlags::WRONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests;
