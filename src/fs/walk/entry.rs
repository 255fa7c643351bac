//! What an entry of a directory is, and what must be known of it before it is packed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::super::filter::Verdict;
use super::super::plan::{Item, More, Span};
use super::super::tree::{follow, unreadable};
use super::super::{attributes, holes, mount};
use super::{Linked, Walk};
use crate::error::{Kind, Result};
use crate::wire::tar::{Moment, Type};

/// What an entry turned out to be.
pub(super) enum Found {
    /// A part of the plan; true when it is a directory that can be entered.
    Item(u32, bool),
    /// Something that is not packed.
    Left,
    /// Nothing.
    Gone,
}

/// An entry before it is in the plan.
struct Entry<'a> {
    dir: &'a OwnedFd,
    name: &'a [u8],
    parent: u32,
    verdict: Verdict,
    stat: Stat,
    kind: FileType,
    followed: bool,
    /// True when it is on another filesystem than the root, and only that one is wanted.
    beyond: bool,
}

impl Walk<'_> {
    /// What an entry is; `hint` is what its directory says.
    pub(super) fn look(
        &mut self,
        dir: &Arc<OwnedFd>,
        name: &[u8],
        directory: u32,
        hint: FileType,
    ) -> Result<Found> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return Err(Kind::ClientGone.told("nobody waits for the walk any more"));
        }
        let follow = self.options.follow;
        let hinted = hint != FileType::Unknown && !(follow && hint == FileType::Symlink);
        let mut verdict = Verdict::Keep;
        if hinted {
            verdict = self.judge(directory, name, hint == FileType::Directory);
            if verdict == Verdict::Skip {
                return Ok(Found::Left);
            }
        }
        let mut stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Found::Gone),
            Err(errno) => return Err(unreadable(errno)),
        };
        let mut behind = None;
        if follow && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            behind = self.behind(name);
        }
        if let Some((_, target)) = &behind {
            stat = *target;
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !hinted || kind != hint {
            verdict = self.judge(directory, name, kind == FileType::Directory);
        }
        let skipped = match kind {
            FileType::Socket | FileType::Unknown => {
                tracing::info!(name = %String::from_utf8_lossy(name), "a socket is left out of the archive");
                true
            }
            FileType::Directory => false,
            _ => !self.is_newer(&stat),
        };
        if skipped || verdict == Verdict::Skip {
            return Ok(Found::Left);
        }
        let beyond = self.options.one_file_system
            && match &behind {
                Some((target, _)) => !self.mounted.holds(target, b"", &stat),
                None => !self.mounted.holds(dir, name, &stat),
            };
        self.add(Entry {
            dir,
            name,
            parent: directory,
            verdict,
            stat,
            kind,
            followed: behind.is_some(),
            beyond,
        })
    }

    /// Takes an entry into the plan.
    fn add(&mut self, entry: Entry<'_>) -> Result<Found> {
        let options = self.options;
        let is_dir = entry.kind == FileType::Directory;
        if entry.beyond && !is_dir {
            return Ok(Found::Left);
        }
        let mut item = item(entry.parent, &entry.stat, entry.kind);
        item.name = self.plan.keep(entry.name)?;
        item.followed = entry.followed;
        item.chosen = entry.verdict == Verdict::Keep;
        item.kept = item.chosen && (!is_dir || self.is_newer(&entry.stat));
        item.whole = self.plan.items[entry.parent as usize].whole;
        if options.precise {
            item.nanos = nanos(&entry.stat);
        }
        match entry.kind {
            FileType::Symlink => match rustix::fs::readlinkat(entry.dir, entry.name, Vec::new()) {
                Ok(target) => item.more = More::Target(self.plan.keep(target.as_bytes())?),
                // Gone, or no link any more.
                Err(Errno::NOENT | Errno::INVAL) => return Ok(Found::Gone),
                Err(errno) => return Err(unreadable(errno)),
            },
            FileType::RegularFile => {
                item.local = !entry.followed && self.is_local(&entry);
                item.more = self.content(&entry)?;
            }
            FileType::Directory => item.local = self.is_local(&entry),
            _ => {}
        }
        if options.xattrs && (is_dir || entry.kind == FileType::RegularFile) {
            match self.attributes(entry.dir, entry.name, entry.followed)? {
                Some(records) => item.records = records,
                None => return Ok(Found::Gone),
            }
        }
        let index = self.plan.push(item)?;
        if self.plan.items.len() as u64 - 1 > options.limits.members {
            let limit = options.limits.members;
            return Err(self.too_large(format!("has more than {limit} members")));
        }
        Ok(Found::Item(index, is_dir && !entry.beyond))
    }

    /// Judges a name in the directory whose path is known.
    fn judge(&mut self, directory: u32, name: &[u8], is_dir: bool) -> Verdict {
        let options = self.options;
        if options.filter.is_open() {
            return Verdict::Keep;
        }
        let chosen = match self.plan.items[directory as usize].chosen {
            true => Verdict::Keep,
            false => Verdict::Descend,
        };
        self.joined(name, |path| options.filter.judge_in(chosen, path, is_dir))
    }

    /// Calls `with` with the full name of an entry in the directory whose path is known.
    fn joined<T>(&mut self, name: &[u8], with: impl FnOnce(&[u8]) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let answer = with(&self.path);
        self.path.truncate(length);
        answer
    }

    fn is_newer(&self, stat: &Stat) -> bool {
        let newer = |than: Moment| (stat.st_mtime, nanos(stat)) > (than.secs, than.nanos);
        self.options.newer_than.is_none_or(newer)
    }

    /// What a symbolic link leads to, when that is below the root.
    fn behind(&mut self, name: &[u8]) -> Option<(OwnedFd, Stat)> {
        let root = self.tree.follow.clone()?;
        let target = self.joined(name, |path| follow(&root, path, OFlags::PATH));
        let target = target.ok()?;
        let stat = rustix::fs::fstat(&target).ok()?;
        // A link to a directory that leads to it has no end.
        let endless = self.above.contains(&(stat.st_dev, stat.st_ino));
        (!endless).then_some((target, stat))
    }

    /// Judges an entry by its device: a single file can be a mount too.
    fn is_local(&mut self, entry: &Entry<'_>) -> bool {
        let judge = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(entry.dir, entry.name, flags, Mode::empty());
            !entry.followed && opened.is_ok_and(mount::is_local)
        };
        *self.locals.entry(entry.stat.st_dev).or_insert_with(judge)
    }

    /// What a file has besides its head.
    fn content(&mut self, entry: &Entry<'_>) -> Result<More> {
        let mut more = More::Nothing;
        if holes::may_be(&entry.stat)
            && let Ok(file) = self.open(entry.dir, entry.name, entry.followed)
            && let Some(runs) = holes::runs(file, size(&entry.stat))
        {
            more = More::Runs(self.plan.keep_runs(&runs)?);
        }
        if entry.stat.st_nlink > 1 {
            let at = u32::try_from(self.linked.len()).unwrap_or(u32::MAX);
            self.linked.push(Linked {
                device: entry.stat.st_dev,
                inode: entry.stat.st_ino,
                more,
            });
            more = More::Linked(at);
        }
        Ok(more)
    }

    fn open(
        &mut self,
        dir: impl AsFd,
        name: &[u8],
        followed: bool,
    ) -> std::result::Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match self.tree.follow.clone() {
            Some(root) if followed => self.joined(name, |path| follow(&root, path, flags)),
            _ => rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()),
        }
    }

    /// The pax records of a file or directory; `None` when it is gone.
    pub(super) fn attributes(
        &mut self,
        dir: impl AsFd,
        name: &[u8],
        followed: bool,
    ) -> Result<Option<Span>> {
        let opened = self.open(dir, name, followed);
        // Something else may have its name by now.
        if let Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) = opened {
            return Ok(None);
        }
        let records = opened.and_then(attributes::records).map_err(|errno| {
            let name = String::from_utf8_lossy(name);
            Kind::Internal
                .told(format!("cannot read the attributes of {name}"))
                .because(errno)
        })?;
        self.records += records.len();
        if self.records > MOST_RECORDS {
            return Err(self.too_large(format!("has more than {MOST_RECORDS} bytes of attributes")));
        }
        self.plan.keep(&records).map(Some)
    }
}

/// What is the same for every type.
pub(super) fn item(parent: u32, stat: &Stat, file_type: FileType) -> Item {
    Item {
        parent,
        name: Span::default(),
        kind: kind(file_type),
        mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: stat.st_mtime,
        nanos: 0,
        size: match file_type {
            FileType::RegularFile => size(stat),
            FileType::CharacterDevice | FileType::BlockDevice => stat.st_rdev,
            _ => 0,
        },
        more: More::Nothing,
        records: Span::default(),
        local: false,
        followed: false,
        chosen: true,
        kept: true,
        vanishes: false,
        alive: false,
        whole: true,
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn nanos(stat: &Stat) -> u32 {
    u32::try_from(stat.st_mtime_nsec).unwrap_or(0)
}

fn kind(file_type: FileType) -> Type {
    match file_type {
        FileType::Directory => Type::Directory,
        FileType::Symlink => Type::Symlink,
        FileType::Fifo => Type::Fifo,
        FileType::CharacterDevice => Type::CharDevice,
        FileType::BlockDevice => Type::BlockDevice,
        _ => Type::File,
    }
}

/// Bytes of all extended attributes together at most.
const MOST_RECORDS: usize = 8 * 1024 * 1024;
