//! A walk over a tree: what will be packed, in the order in which it is packed, with every size known.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, Stat};
use rustix::io::Errno;

use super::confine::{Descent, Way};
use super::member::PATH_BYTES;
use super::mount;
use crate::error::{Error, Kind, Result};
use crate::wire::tar::{Segment, Type, padded, write};

/// What bounds a walk.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Members at most, the root not counted.
    pub members: u64,
    /// Bytes of all regular files together at most, holes included.
    pub bytes: u64,
}

/// A member to be; names, targets and runs lie in the [`Plan`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The directory that holds it; the root is 0 and holds itself.
    pub(super) parent: u32,
    pub(super) name: Span,
    pub(super) kind: Type,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: i64,
    /// Bytes of a file; the number of a device.
    pub(super) size: u64,
    /// True when what is cached of it answers at once; false where a server may be asked.
    pub(super) local: bool,
    pub(super) more: More,
}

/// A stretch of the arena of names, or of the list of runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    at: u32,
    length: u32,
}

/// What else a member has.
#[derive(Clone, Copy, Debug)]
pub(super) enum More {
    Nothing,
    /// The target of a symbolic link.
    Target(Span),
    /// The member that a hard link is another name of.
    Twin(u32),
    /// The runs of a sparse file.
    Runs(Span),
}

/// All that will be packed.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    arena: Vec<u8>,
    runs: Vec<Segment>,
    /// Bytes of the whole archive.
    pub(super) length: u64,
}

impl Plan {
    pub(super) fn name(&self, item: &Item) -> &[u8] {
        cut(&self.arena, item.name)
    }

    pub(super) fn runs(&self, item: &Item) -> Option<&[Segment]> {
        match item.more {
            More::Runs(span) => Some(cut(&self.runs, span)),
            _ => None,
        }
    }

    pub(super) fn target(&self, item: &Item) -> &[u8] {
        match item.more {
            More::Target(span) => cut(&self.arena, span),
            _ => &[],
        }
    }

    /// Puts the full name of an item into `path`; that of the root is empty.
    pub(super) fn path(&self, index: u32, path: &mut Vec<u8>) {
        let above = |index: u32| {
            let next = |at: &u32| Some(self.items[*at as usize].parent);
            std::iter::successors(Some(index), next).take_while(|at| *at != 0)
        };
        let names = || above(index).map(|at| cut(&self.arena, self.items[at as usize].name));
        let length: usize = names().map(|name| name.len() + 1).sum();
        path.clear();
        path.resize(length.saturating_sub(1), b'/');
        let mut end = path.len();
        for name in names() {
            path[end - name.len()..end].copy_from_slice(name);
            end = (end - name.len()).saturating_sub(1);
        }
    }

    fn keep(&mut self, text: &[u8]) -> Result<Span> {
        let at = u32::try_from(self.arena.len()).map_err(|_| too_long())?;
        let length = u32::try_from(text.len()).map_err(|_| too_long())?;
        self.arena.extend_from_slice(text);
        Ok(Span { at, length })
    }

    fn keep_runs(&mut self, runs: &[Segment]) -> Result<Span> {
        let at = u32::try_from(self.runs.len()).map_err(|_| too_long())?;
        let length = u32::try_from(runs.len()).map_err(|_| too_long())?;
        self.runs.extend_from_slice(runs);
        Ok(Span { at, length })
    }
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

/// Walks the tree below `root`; `told` is its path, for sentences. For helper threads.
///
/// # Errors
/// `TooLarge` beyond `limits`, `Internal` when a directory cannot be read.
pub(super) fn walk(root: OwnedFd, told: &Path, limits: Limits) -> Result<(Plan, Descent)> {
    let stat = rustix::fs::fstat(&root).map_err(unreadable)?;
    let local = mount::is_local(&root);
    let mut walk = Walk {
        plan: Plan::default(),
        descent: Descent::at(root),
        twins: HashMap::new(),
        locals: HashMap::new(),
        told,
        limits,
        members: 0,
        bytes: 0,
        path: Vec::new(),
    };
    let root = Child {
        name: Vec::new(),
        stat,
        target: Vec::new(),
        runs: None,
        local,
        index: 0,
    };
    walk.locals.insert(stat.st_dev, local);
    walk.push(0, &root)?;
    let mut frames = vec![walk.read(0)?];
    while let Some(frame) = frames.last_mut() {
        let Some(step) = frame.steps.pop() else {
            frames.pop();
            continue;
        };
        let parent = frame.directory;
        let child = &mut frame.children[step.child];
        if step.down {
            let index = child.index;
            frames.push(walk.read(index)?);
        } else {
            child.index = walk.push(parent, child)?;
        }
    }
    walk.plan.length += write::END.len() as u64;
    Ok((walk.plan, walk.descent))
}

struct Walk<'a> {
    plan: Plan,
    descent: Descent,
    /// Files with several names, by device and inode.
    twins: HashMap<(u64, u64), u32>,
    /// Which devices are local.
    locals: HashMap<u64, bool>,
    told: &'a Path,
    limits: Limits,
    members: u64,
    bytes: u64,
    path: Vec<u8>,
}

/// A directory under way.
struct Frame {
    directory: u32,
    children: Vec<Child>,
    /// What to do, last first.
    steps: Vec<Step>,
}

struct Child {
    name: Vec<u8>,
    stat: Stat,
    target: Vec<u8>,
    runs: Option<Vec<Segment>>,
    local: bool,
    /// Its place in the plan, once it has one.
    index: u32,
}

/// Packing a child, or going down into it.
struct Step {
    child: usize,
    down: bool,
}

impl Walk<'_> {
    /// Reads a directory of the plan.
    fn read(&mut self, directory: u32) -> Result<Frame> {
        self.plan.path(directory, &mut self.path);
        let mut frame = Frame {
            directory,
            children: Vec::new(),
            steps: Vec::new(),
        };
        let dir = match self.descent.enter(&self.path, Way::Looking) {
            Ok(dir) => dir,
            // It was there a moment ago; it is packed as it is now, empty.
            Err(stop) if matches!(stop.errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Ok(frame);
            }
            Err(stop) => return Err(unreadable(stop.errno)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&dir, ".", flags, Mode::empty()).map_err(unreadable)?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING];
        let mut listing = RawDir::new(&listed, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if let Some(child) = self.look(&dir, name)? {
                frame.children.push(child);
            }
        }
        frame.sort();
        Ok(frame)
    }

    /// What an entry is; `None` when it is not packed.
    fn look(&mut self, dir: &OwnedFd, name: &[u8]) -> Result<Option<Child>> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(unreadable(errno)),
        };
        let mut child = Child {
            name: name.to_vec(),
            stat,
            target: Vec::new(),
            runs: None,
            local: false,
            index: 0,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket | FileType::Unknown => {
                tracing::info!(name = %String::from_utf8_lossy(name), "a socket is left out of the archive");
                return Ok(None);
            }
            FileType::Symlink => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => child.target = target.into_bytes(),
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(unreadable(errno)),
            },
            FileType::RegularFile => {
                child.local = self.is_local(dir, &child);
                child.runs = runs(dir, name, &stat);
            }
            FileType::Directory => child.local = self.is_local(dir, &child),
            _ => {}
        }
        self.members += 1;
        if self.members > self.limits.members {
            let limit = self.limits.members;
            return Err(Kind::TooLarge.told(format!(
                "tree under {} has more than {limit} members",
                self.told.display()
            )));
        }
        Ok(Some(child))
    }

    /// Judges a child by its device: a single file can be a mount too.
    fn is_local(&mut self, dir: &OwnedFd, child: &Child) -> bool {
        let judge = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(dir, child.name.as_slice(), flags, Mode::empty());
            opened.is_ok_and(mount::is_local)
        };
        let device = child.stat.st_dev;
        *self.locals.entry(device).or_insert_with(judge)
    }

    /// Adds a child to the plan.
    fn push(&mut self, parent: u32, child: &Child) -> Result<u32> {
        let index = u32::try_from(self.plan.items.len()).map_err(|_| too_long())?;
        let stat = &child.stat;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let mut item = Item {
            parent,
            name: self.plan.keep(&child.name)?,
            kind: kind(file_type),
            mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: stat.st_mtime,
            size: 0,
            local: child.local,
            more: More::Nothing,
        };
        match file_type {
            FileType::RegularFile => {
                let twin = (stat.st_nlink > 1).then(|| {
                    *self
                        .twins
                        .entry((stat.st_dev, stat.st_ino))
                        .or_insert(index)
                });
                match twin {
                    Some(twin) if twin != index => {
                        item.kind = Type::HardLink;
                        item.more = More::Twin(twin);
                    }
                    _ => self.weigh(&mut item, child)?,
                }
            }
            FileType::Symlink => item.more = More::Target(self.plan.keep(&child.target)?),
            FileType::CharacterDevice | FileType::BlockDevice => item.size = stat.st_rdev,
            _ => {}
        }
        self.plan.items.push(item);
        self.measure(index);
        if self.path.len() > PATH_BYTES {
            return Err(Kind::TooLarge.told(format!(
                "tree under {} has a path of more than {PATH_BYTES} bytes",
                self.told.display()
            )));
        }
        Ok(index)
    }

    fn weigh(&mut self, item: &mut Item, child: &Child) -> Result<()> {
        item.size = u64::try_from(child.stat.st_size).unwrap_or(0);
        self.bytes = self.bytes.saturating_add(item.size);
        if self.bytes > self.limits.bytes {
            let limit = self.limits.bytes;
            return Err(Kind::TooLarge.told(format!(
                "tree under {} exceeds {limit} bytes",
                self.told.display()
            )));
        }
        if let Some(runs) = &child.runs {
            item.more = More::Runs(self.plan.keep_runs(runs)?);
        }
        Ok(())
    }

    /// Adds what an item takes in the archive.
    fn measure(&mut self, index: u32) {
        let plan = &mut self.plan;
        plan.path(index, &mut self.path);
        let path = if index == 0 {
            ROOT.len()
        } else {
            self.path.len()
        };
        let item = &plan.items[index as usize];
        let link = match item.more {
            More::Target(span) => span.length as usize,
            More::Twin(twin) => {
                plan.path(twin, &mut self.path);
                self.path.len()
            }
            _ => 0,
        };
        let runs = plan.runs(item);
        let stored = if item.kind == Type::File {
            write::stored(item.size, runs)
        } else {
            0
        };
        plan.length += write::length(path, link, runs.map(<[_]>::len)) + padded(stored);
    }
}

impl Frame {
    /// Orders the steps so that full names come in byte order: what is in `a` comes where `a/` would, after `a-b`.
    fn sort(&mut self) {
        for (child, Child { stat, .. }) in self.children.iter().enumerate() {
            self.steps.push(Step { child, down: false });
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.steps.push(Step { child, down: true });
            }
        }
        let children = &self.children;
        let key = |step: &Step| {
            children[step.child]
                .name
                .iter()
                .chain(step.down.then_some(&b'/'))
        };
        self.steps.sort_unstable_by(|a, b| key(b).cmp(key(a)));
    }
}

/// The name of the first member.
pub(super) const ROOT: &[u8] = b"./";

/// The runs of a file with holes; `None` for one that is stored whole.
fn runs(dir: &OwnedFd, name: &[u8], stat: &Stat) -> Option<Vec<Segment>> {
    let size = u64::try_from(stat.st_size).ok()?;
    let held = u64::try_from(stat.st_blocks).ok()?.saturating_mul(512);
    if held >= size || size < SMALLEST_SPARSE {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let mut runs = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))
            .ok()?
            .min(size);
        if end <= start {
            return None;
        }
        runs.push(Segment {
            offset: start,
            length: end - start,
        });
        at = end;
    }
    let whole = runs
        .first()
        .is_some_and(|run| run.offset == 0 && run.length == size);
    if whole || runs.len() >= MOST_RUNS {
        return None;
    }
    // GNU tar ends a map with the end of the file, and old readers take the size from there.
    if at < size || runs.is_empty() {
        runs.push(Segment {
            offset: size,
            length: 0,
        });
    }
    Some(runs)
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

fn cut<T>(all: &[T], span: Span) -> &[T] {
    let at = span.at as usize;
    &all[at..at + span.length as usize]
}

fn unreadable(errno: Errno) -> Error {
    Kind::Internal.told("cannot read directory").because(errno)
}

fn too_long() -> Error {
    Kind::TooLarge.told("the names of the tree are too long together")
}

/// Bytes of directory entries read at once.
const LISTING: usize = 32 * 1024;
/// Below this the head of a sparse file costs as much as its holes.
const SMALLEST_SPARSE: u64 = 8 * 1024;
/// Runs of a sparse file at most; one with more is stored whole.
const MOST_RUNS: usize = 32 * 1024;
