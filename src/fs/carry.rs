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
use super::lent::{self, Lent};
use super::make::Made;
use super::rename::{Move, claim, rename, turn_at};
use super::target::temporary_name;
use super::{mount, space, upload};
use crate::error::{Error, Kind, Result};

/// A copy under way.
pub(super) struct Carry {
    ask: Move,
    from: Entry,
    /// What was there when the move began.
    found: Statx,
    to: Entry,
    /// Source and copy, of a regular file.
    files: Option<(File, Lent)>,
    /// Bytes of the file that are copied.
    offset: u64,
    /// The copy's name, where it has one; from the exchange on that of what was replaced.
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
    /// Judges whether it can be done, and makes the copy, without a name where the filesystem can. For helper threads.
    pub(super) fn begin(
        ask: Move,
        from: Entry,
        found: Statx,
        to: Entry,
        made: Made,
    ) -> Result<Self> {
        judge(&ask, &from, &found, &to)?;
        let name = name_beside(&ask, &to)?;
        let mut beside = Beside(None);
        let files = match kind(&found) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&from.dir, from.leaf.as_slice(), Vec::new());
                let target = target.map_err(|errno| uncopied(&ask, errno.into()))?;
                let linked = rustix::fs::symlinkat(target, &name.dir, name.leaf.as_slice());
                linked.map_err(|errno| unwritten(&ask, errno))?;
                beside.0 = Some(name);
                None
            }
            _ => {
                let source = open(&ask, &from, &found)?;
                let copy = match unnamed(&to) {
                    Some(copy) => copy,
                    None => {
                        let copy = named(&name).map_err(|errno| unwritten(&ask, errno))?;
                        beside.0 = Some(name);
                        copy
                    }
                };
                Some((source, Lent::to_write(copy)))
            }
        };
        Ok(Self {
            ask,
            from,
            found,
            to,
            files,
            offset: 0,
            beside,
            made,
        })
    }

    /// Copies some more, and publishes what is whole; `None` when all is done. For helper threads.
    pub(super) fn copy(mut self: Box<Self>, reserve: u64) -> Result<Option<Box<Self>>> {
        if let Some((source, copy)) = &self.files {
            // No more than the next piece can take.
            let size = self
                .found
                .stx_size
                .min(self.found.stx_blocks.saturating_mul(512));
            let ahead = size
                .min(self.found.stx_size.saturating_sub(self.offset))
                .min(SLICE);
            space::check_file(copy, &self.ask.to, space::wanted(reserve, ahead))?;
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
        self.check_source()?;
        rustix::fs::ftruncate(copy, self.found.stx_size).map_err(failed)?;
        let (owner, group) = owner(&self.found);
        // The rights of a user or group are lent no further than to its own files.
        let rights = match rustix::fs::fchown(copy, owner, group) {
            Ok(()) => 0o7777,
            Err(_) => 0o777,
        };
        let mode = Mode::from_raw_mode(u32::from(self.found.stx_mode) & rights);
        rustix::fs::fchmod(copy, mode).map_err(failed)?;
        copy_attributes(source, copy);
        rustix::fs::futimens(copy, &times(&self.found)).map_err(failed)
    }

    /// Gives the copy its name and removes the source; when that fails, all is put back.
    fn publish(&mut self) -> Result<()> {
        let mut beside = name_beside(&self.ask, &self.to)?;
        match (&self.beside.0, &self.files) {
            (Some(named), _) => beside.leaf.clone_from(&named.leaf),
            (None, Some((_, copy))) => {
                let linked = upload::link(copy, &beside.dir, &beside.leaf);
                linked.map_err(|errno| unwritten(&self.ask, errno))?;
                let mut named = name_beside(&self.ask, &self.to)?;
                named.leaf.clone_from(&beside.leaf);
                self.beside.0 = Some(named);
            }
            (None, None) => return Ok(()),
        }
        let _turn = turn_at(&self.to);
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

    /// Refuses to go on with a source that is not as it was when the move began.
    fn check_source(&self) -> Result<()> {
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
        match self.from.look() {
            Ok(now) if is_as_it_was(&now) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    fn remove_source(&self) -> Result<()> {
        self.check_source()?;
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

/// A fresh name in the directory that a move goes to.
fn name_beside(ask: &Move, to: &Entry) -> Result<Entry> {
    Ok(Entry {
        dir: to.dir.try_clone().map_err(|error| uncopied(ask, error))?,
        leaf: temporary_name().into_vec(),
    })
}

/// A file that nobody sees; `None` where the filesystem has none without a name.
fn unnamed(to: &Entry) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&to.dir, ".", flags, NARROW);
    made.ok().map(File::from)
}

fn named(name: &Entry) -> std::result::Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&name.dir, name.leaf.as_slice(), flags, NARROW);
    made.map(File::from)
}

fn open(ask: &Move, from: &Entry, found: &Statx) -> Result<File> {
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
    Ok(source.into())
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

/// The mode of a copy until it is whole.
const NARROW: Mode = Mode::RUSR.union(Mode::WUSR);
/// Bytes that are copied at a time.
const SLICE: u64 = 64 * 1024 * 1024;
/// Bytes that are copied at a time where the kernel does not do it.
const BUFFER: usize = 256 * 1024;
/// Bytes of the names of all attributes, and of the value of one (listxattr(7)).
const MOST_ATTRIBUTES: usize = 64 * 1024;
/// How often a name may come and go.
const TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::{Dir, listing};
    use super::*;

    fn begun(dir: &Dir) -> Box<Carry> {
        let ask = Move {
            from: dir.path().join("from/f"),
            to: dir.path().join("to/f"),
            replace: false,
            parents: false,
            reserve: 0,
        };
        for name in ["from", "to"] {
            fs::create_dir(dir.path().join(name)).expect("it is fresh");
        }
        fs::write(&ask.from, "old").expect("it is fresh");
        let from = Entry::of(&ask.from, "move").expect("its directory is there");
        let found = from.look().expect("it is there");
        let to = Entry::of(&ask.to, "move").expect("its directory is there");
        let carry = Carry::begin(ask, from, found, to, Made::default());
        Box::new(carry.expect("it can be begun"))
    }

    #[test]
    fn a_copy_under_way_has_no_name() {
        let dir = Dir::new();
        let carry = begun(&dir);
        assert_eq!(listing(&dir.path().join("to")), [""; 0]);
        let mut left = Some(carry);
        while let Some(carry) = left {
            left = carry.copy(0).expect("it is moved");
        }
        assert_eq!(
            listing(dir.path()),
            ["from d 755", "to d 755", "to/f f 644 old n1"]
        );
    }

    #[test]
    fn what_is_written_to_a_source_at_the_last_moment_is_not_lost() {
        let dir = Dir::new();
        let mut carry = begun(&dir);
        fs::write(dir.path().join("from/f"), "longer").expect("ours");
        let outcome = carry.publish().map_err(|error| error.kind());
        assert_eq!(outcome, Err(Kind::InUse));
        drop(carry);
        assert_eq!(
            listing(dir.path()),
            ["from d 755", "from/f f 644 longer n1", "to d 755"]
        );
    }
}
