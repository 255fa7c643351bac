//! A file or link carried to another mount: copied beside its new name, given that name when whole, then removed.

use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use rustix::fs::{
    Access, AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Statx, StatxTimestamp,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::entry::{Entry, is_mount_point, is_same, kind, refused};
use super::make::Made;
use super::rename::{Move, claim, rename};
use super::target::temporary_name;
use super::{lent, mount, space};
use crate::error::{Error, Kind, Result};

/// A copy under way.
pub(super) struct Carry {
    ask: Move,
    from: Entry,
    /// What was there when the move began.
    found: Statx,
    to: Entry,
    /// Source and copy, of a regular file.
    files: Option<(File, File)>,
    /// Bytes of the file that are copied.
    offset: u64,
    /// The copy's name; from the exchange on that of what was replaced.
    beside: Beside,
    made: Made,
}

/// An entry that is removed when it is dropped.
struct Beside(Option<Entry>);

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(entry) = self.0.take() {
            lent::let_go(move || {
                let _ = entry.remove(AtFlags::empty());
            });
        }
    }
}

impl Carry {
    /// Judges whether it can be done, and makes the copy's name. For helper threads.
    pub(super) fn begin(
        ask: Move,
        from: Entry,
        found: Statx,
        to: Entry,
        made: Made,
    ) -> Result<Self> {
        judge(&ask, &from, &found, &to)?;
        let dir = to.dir.try_clone();
        let beside = Entry {
            dir: dir.map_err(|error| uncopied(&ask, error))?,
            leaf: temporary_name().into_vec(),
        };
        let files = match kind(&found) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&from.dir, from.leaf.as_slice(), Vec::new());
                let target = target.map_err(|errno| uncopied(&ask, errno.into()))?;
                let linked = rustix::fs::symlinkat(target, &beside.dir, beside.leaf.as_slice());
                linked.map_err(|errno| unwritten(&ask, errno))?;
                None
            }
            _ => Some(open(&ask, &from, &found, &beside)?),
        };
        Ok(Self {
            ask,
            from,
            found,
            to,
            files,
            offset: 0,
            beside: Beside(Some(beside)),
            made,
        })
    }

    /// Copies some more, and publishes what is whole; `None` when all is done. For helper threads.
    pub(super) fn copy(mut self: Box<Self>, reserve: u64) -> Result<Option<Box<Self>>> {
        if let Some((source, copy)) = &self.files {
            space::check_file(copy, &self.ask.to, reserve)?;
            let end = self.offset + SLICE;
            let copied = pour(source, copy, self.offset, end);
            let at = copied.map_err(|errno| unwritten(&self.ask, errno))?;
            if let Some(at) = at {
                self.offset = at;
                return Ok(Some(self));
            }
            self.settle(source, copy)?;
        } else if let Some(Entry { dir, leaf }) = &self.beside.0 {
            let (owner, group) = owner(&self.found);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            // As good as it goes: not everybody may give files away.
            let _ = rustix::fs::chownat(dir, leaf.as_slice(), owner, group, flags);
            let _ = rustix::fs::utimensat(dir, leaf.as_slice(), &times(&self.found), flags);
        }
        self.publish()?;
        self.made.keep();
        Ok(None)
    }

    /// Gives the copy length, owner, mode, further attributes and times, unless the file has changed meanwhile.
    fn settle(&self, source: &File, copy: &File) -> Result<()> {
        let failed = |errno| unwritten(&self.ask, errno);
        let now = self.from.look();
        let stamp = |found: &Statx| {
            let (modified, changed) = (found.stx_mtime, found.stx_ctime);
            let times = (
                modified.tv_sec,
                modified.tv_nsec,
                changed.tv_sec,
                changed.tv_nsec,
            );
            (found.stx_size, times)
        };
        let is_as_it_was =
            |now: &Statx| is_same(now, &self.found) && stamp(now) == stamp(&self.found);
        if !now.is_ok_and(|now| is_as_it_was(&now)) {
            return Err(self.changed());
        }
        rustix::fs::ftruncate(copy, self.found.stx_size).map_err(failed)?;
        let (owner, group) = owner(&self.found);
        let _ = rustix::fs::fchown(copy, owner, group);
        let mode = Mode::from_raw_mode(u32::from(self.found.stx_mode) & 0o7777);
        rustix::fs::fchmod(copy, mode).map_err(failed)?;
        copy_attributes(source, copy);
        rustix::fs::futimens(copy, &times(&self.found)).map_err(failed)
    }

    /// Gives the copy its name and removes the source; when that fails, all is put back.
    fn publish(&mut self) -> Result<()> {
        let Some(beside) = self.beside.0.take() else {
            return Ok(());
        };
        self.beside.0 = Some(Entry {
            dir: beside
                .dir
                .try_clone()
                .map_err(|error| uncopied(&self.ask, error))?,
            leaf: beside.leaf.clone(),
        });
        for _ in 0..TRIES {
            match claim(&beside, &self.to, false) {
                Ok(()) => {
                    self.beside.0 = None;
                    return self.remove_source().inspect_err(|_| {
                        let _ = self.to.remove(AtFlags::empty());
                    });
                }
                Err(Errno::EXIST) if self.ask.replace => {}
                Err(errno) => return Err(unwritten(&self.ask, errno)),
            }
            match rename(&beside, &self.to, RenameFlags::EXCHANGE) {
                Ok(()) => {
                    return self.remove_source().inspect_err(|_| {
                        let _ = rename(&beside, &self.to, RenameFlags::EXCHANGE);
                    });
                }
                // It has just gone.
                Err(Errno::NOENT) => {}
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    let renamed = rename(&beside, &self.to, RenameFlags::empty());
                    renamed.map_err(|errno| unwritten(&self.ask, errno))?;
                    self.beside.0 = None;
                    return self.remove_source();
                }
                Err(errno) => return Err(unwritten(&self.ask, errno)),
            }
        }
        Err(Kind::InUse.told(format!("{} comes and goes", self.ask.to.display())))
    }

    fn remove_source(&self) -> Result<()> {
        if !self.from.look().is_ok_and(|now| is_same(&now, &self.found)) {
            return Err(self.changed());
        }
        let removed = self.from.remove(AtFlags::empty());
        removed.map_err(|errno| refused(errno, "remove", &self.ask.from))
    }

    fn changed(&self) -> Error {
        let from = self.ask.from.display();
        Kind::InUse.told(format!("{from} was changed while it was copied"))
    }
}

/// What can be told before anything is copied.
fn judge(ask: &Move, from: &Entry, found: &Statx, to: &Entry) -> Result<()> {
    let (source, target) = (ask.from.display(), ask.to.display());
    if is_mount_point(found) == Some(true) {
        return Err(Kind::InUse.told(format!("{source} is a mount point")));
    }
    if !matches!(kind(found), FileType::RegularFile | FileType::Symlink) {
        return Err(Kind::Unsupported.told(format!(
            "{source} and {target} are on different mounts: only files and symbolic links are moved from one to another"
        )));
    }
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::accessat(&from.dir, ".", rights, AtFlags::EACCESS) {
        Ok(()) | Err(Errno::NOSYS | Errno::INVAL) => {}
        Err(errno) => return Err(refused(errno, "remove", &ask.from)),
    }
    match to.look() {
        Ok(there) if !ask.replace || kind(&there) == FileType::Directory => {
            Err(Kind::Exists.told(format!("{target} is there already")))
        }
        Ok(there) if is_mount_point(&there) == Some(true) => {
            Err(Kind::InUse.told(format!("{target} is a mount point")))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(refused(errno, "move to", &ask.to)),
    }
}

fn open(ask: &Move, from: &Entry, found: &Statx, beside: &Entry) -> Result<(File, File)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = rustix::fs::openat(&from.dir, from.leaf.as_slice(), flags, Mode::empty());
    let source = source.map_err(|errno| refused(errno, "read", &ask.from))?;
    if mount::is_pseudo(&source) {
        let told = format!("{} is made up by the kernel", ask.from.display());
        return Err(Kind::Unsupported.told(told));
    }
    let opened = rustix::fs::statx(&source, "", AtFlags::EMPTY_PATH, super::entry::WANTED);
    if !opened.is_ok_and(|opened| is_same(&opened, found)) {
        let told = format!("{} was changed while it was copied", ask.from.display());
        return Err(Kind::InUse.told(told));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let narrow = Mode::from_raw_mode(0o600);
    let copy = rustix::fs::openat(&beside.dir, beside.leaf.as_slice(), flags, narrow);
    let copy = copy.map_err(|errno| unwritten(ask, errno))?;
    Ok((source.into(), copy.into()))
}

/// Copies the data between `at` and `end`, holes left out; where to go on, `None` at the end of the file.
fn pour(source: &File, copy: &File, at: u64, end: u64) -> std::result::Result<Option<u64>, Errno> {
    let mut at = at;
    while at < end {
        let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A filesystem that knows no holes.
            Err(_) => at,
        };
        let hole = rustix::fs::seek(source, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
        let wanted = hole.min(end.max(start + 1)).saturating_sub(start);
        let count = pour_some(source, copy, start, wanted)?;
        if count == 0 {
            return Ok(None);
        }
        at = start + count;
    }
    Ok(Some(at))
}

fn pour_some(
    source: &File,
    copy: &File,
    start: u64,
    wanted: u64,
) -> std::result::Result<u64, Errno> {
    let length = usize::try_from(wanted).unwrap_or(usize::MAX);
    let (mut from, mut to) = (start, start);
    match rustix::fs::copy_file_range(source, Some(&mut from), copy, Some(&mut to), length) {
        Ok(count @ 1..) => return Ok(count as u64),
        // Between filesystems of different types, or one that claims to have nothing.
        Ok(0) | Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    let mut buffer = vec![0; length.min(BUFFER)];
    let count = rustix::io::pread(source, &mut buffer, start)?;
    let written = copy.write_all_at(&buffer[..count], start);
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(count as u64)
}

/// Extended attributes, ACLs among them; those that the new place does not take are left out.
fn copy_attributes(source: &File, copy: &File) {
    let mut names = vec![0; MOST_ATTRIBUTES];
    let Ok(length) = rustix::fs::flistxattr(source, names.as_mut_slice()) else {
        return;
    };
    let mut value = vec![0; MOST_ATTRIBUTES];
    let names = names[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| !name.is_empty()) {
        if let Ok(length) = rustix::fs::fgetxattr(source, name, value.as_mut_slice()) {
            let _ = rustix::fs::fsetxattr(copy, name, &value[..length], XattrFlags::empty());
        }
    }
}

fn owner(found: &Statx) -> (Option<Uid>, Option<Gid>) {
    let owner = Uid::from_raw(found.stx_uid);
    let group = Gid::from_raw(found.stx_gid);
    (Some(owner), Some(group))
}

fn times(found: &Statx) -> Timestamps {
    let time = |stamp: StatxTimestamp| Timespec {
        tv_sec: stamp.tv_sec,
        tv_nsec: stamp.tv_nsec.into(),
    };
    Timestamps {
        last_access: time(found.stx_atime),
        last_modification: time(found.stx_mtime),
    }
}

fn unwritten(ask: &Move, errno: Errno) -> Error {
    refused(errno, "move to", &ask.to)
}

fn uncopied(ask: &Move, error: std::io::Error) -> Error {
    let told = format!("cannot move {}", ask.from.display());
    Kind::Internal.told(told).because(error)
}

/// Bytes that are copied at a time.
const SLICE: u64 = 64 * 1024 * 1024;
/// Bytes that are copied at a time where the kernel does not do it.
const BUFFER: usize = 256 * 1024;
/// Bytes of the names of all attributes, and of the value of one (listxattr(7)).
const MOST_ATTRIBUTES: usize = 64 * 1024;
/// How often a name may come and go.
const TRIES: usize = 16;
