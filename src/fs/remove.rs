//! An entry removed, and on request all that is below it: never through a link, never across a mount, at any depth.
//!
//! A tree is removed bottom up, each call relative to a directory that is held open. Only the deepest directories are;
//! the way back up leads through `..`, and counts only if it leads to where we came from. What is kept of a level is its
//! identity, and as many of its names as the budget allows.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Statx};
use rustix::io::Errno;

use super::confine::openat2;
use super::entry::{Entry, WANTED, is_at_or_above, kind, refused, said};
use super::mount;
use crate::error::{Error, Kind, Result};
use crate::ring::pool;

/// A removal that is asked for.
#[derive(Clone, Debug)]
pub struct Remove {
    pub path: PathBuf,
    /// True removes a directory with all that is in it.
    pub recursive: bool,
    /// True takes it for done when nothing is there.
    pub missing_is_fine: bool,
    /// Directories that must stay, and so must those above them.
    pub needed: Vec<PathBuf>,
}

/// Removes an entry and answers how many that were, with those below it.
///
/// # Errors
/// `NotFound`; `NotEmpty` for a directory with something in it; `InUse` for mount points, what is above them, and what
/// is above a directory that must stay; `Denied`, `Malformed`, else `Internal`. What a removal has begun with stays
/// begun: the error tells how many are gone, in `removed`.
pub async fn remove(ask: Remove) -> Result<u64> {
    let mut removal = match pool::run(move || begin(&ask)).await?? {
        Begun::Over(removed) => return Ok(removed),
        Begun::Tree(removal) => removal,
    };
    loop {
        let worked = pool::run(move || {
            let is_over = removal.work()?;
            Ok((is_over, removal))
        });
        let (is_over, rest) = worked.await??;
        if is_over {
            return Ok(rest.removed);
        }
        removal = rest;
    }
}

enum Begun {
    Over(u64),
    Tree(Box<Removal>),
}

fn begin(ask: &Remove) -> Result<Begun> {
    let path = &ask.path;
    let failed = |errno| refused(errno, REMOVE, path);
    let entry = match Entry::of(path, REMOVE) {
        // Below something that is no directory there is nothing, either.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Exists) => {
            return missing(ask);
        }
        entry => entry?,
    };
    let found = match entry.look() {
        Err(Errno::NOENT) => return missing(ask),
        found => found.map_err(failed)?,
    };
    if kind(&found) != FileType::Directory {
        return match entry.remove(AtFlags::empty()) {
            Ok(()) => Ok(Begun::Over(1)),
            Err(Errno::BUSY) => Err(in_use(path)),
            Err(errno) => Err(failed(errno)),
        };
    }
    spare(ask, &found)?;
    if !ask.recursive {
        return match entry.remove(AtFlags::REMOVEDIR) {
            Ok(()) => Ok(Begun::Over(1)),
            Err(Errno::BUSY) => Err(in_use(path)),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let told = format!("{} is not empty; ask with recursive=1", path.display());
                Err(Kind::NotEmpty.told(told))
            }
            Err(errno) => Err(failed(errno)),
        };
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(&entry.dir, entry.leaf.as_slice(), flags, Mode::empty());
    if let Some(point) = mount::below(&top.map_err(failed)?)? {
        return Err(in_use(&point));
    }
    Ok(Begun::Tree(Box::new(Removal::new(entry, path.clone()))))
}

fn missing(ask: &Remove) -> Result<Begun> {
    match ask.missing_is_fine {
        true => Ok(Begun::Over(0)),
        false => Err(refused(Errno::NOENT, REMOVE, &ask.path)),
    }
}

/// Refuses to remove what the daemon needs, and what is above it.
fn spare(ask: &Remove, found: &Statx) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for needed in &ask.needed {
        let Ok(dir) = rustix::fs::openat(CWD, needed, flags, Mode::empty()) else {
            continue;
        };
        if is_at_or_above(found, &dir).unwrap_or(false) {
            let (path, needed) = (ask.path.display(), needed.display());
            let told = format!("cannot remove {path}: the daemon works in {needed}");
            return Err(Kind::InUse.told(told));
        }
    }
    Ok(())
}

fn in_use(point: &Path) -> Error {
    Kind::InUse.told(format!("{} is a mount point", point.display()))
}

/// A tree on its way out.
struct Removal {
    entry: Entry,
    path: PathBuf,
    /// The directories from the top to where we are.
    levels: Vec<Level>,
    /// The deepest of them, open.
    open: VecDeque<OwnedFd>,
    /// Bytes of names that the levels hold.
    held: usize,
    removed: u64,
    /// How often the top was entered.
    entered: u32,
}

/// The identity of a directory: device and inode.
type Key = (u32, u32, u64);

struct Level {
    key: Key,
    /// Names still to be removed, each with its type before and its length behind it.
    names: Vec<u8>,
    /// True when names were let go of, so that the directory must be read again.
    is_stale: bool,
    /// The directory below that was entered last, and how often in a row.
    entered: (Key, u32),
}

/// Why a removal stops: what could not be removed, and what the kernel said.
struct Stop {
    name: Vec<u8>,
    errno: Errno,
}

impl Removal {
    fn new(entry: Entry, path: PathBuf) -> Self {
        Self {
            entry,
            path,
            levels: Vec::new(),
            open: VecDeque::new(),
            held: 0,
            removed: 0,
            entered: 0,
        }
    }

    /// Removes some; true when all is gone.
    fn work(&mut self) -> Result<bool> {
        for _ in 0..SLICE {
            match self.step() {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                Err(stop) => return Err(self.failure(&stop)),
            }
        }
        Ok(false)
    }

    /// One call that removes, or one step down or up.
    fn step(&mut self) -> std::result::Result<bool, Stop> {
        let Some(level) = self.levels.last_mut() else {
            return self.take_top();
        };
        let Some(dir) = self.open.back() else {
            // Whoever goes up opens the level that is then the last.
            return Err(stop(b"", Errno::STALE));
        };
        if let Some((kind, name)) = last(&level.names) {
            let name = name.to_vec();
            if self.take(kind, &name)? {
                self.drop_last();
            }
            return Ok(false);
        }
        let mut names = std::mem::take(&mut level.names);
        if std::mem::take(&mut level.is_stale) {
            rustix::fs::seek(dir, SeekFrom::Start(0)).map_err(|errno| stop(b"", errno))?;
        }
        read(dir, &mut names).map_err(|errno| stop(b"", errno))?;
        let is_empty = names.is_empty();
        self.held += names.len();
        level.names = names;
        if is_empty {
            self.ascend()?;
        }
        Ok(false)
    }

    /// Removes the top once it is empty; goes into it as long as it is not.
    fn take_top(&mut self) -> std::result::Result<bool, Stop> {
        match self.entry.remove(AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed += 1;
                return Ok(true);
            }
            Err(Errno::NOENT) => return Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(stop(b"", errno)),
        }
        self.entered += 1;
        match self.entered <= AGAIN && self.descend(None)? {
            true => Ok(false),
            // Somebody fills it again and again, or has put something else in its place, which was not asked for.
            false => Err(stop(b"", Errno::NOTEMPTY)),
        }
    }

    /// Removes an entry of the deepest level; false when that is left to be done because it is entered first.
    fn take(&mut self, kind: u8, name: &[u8]) -> std::result::Result<bool, Stop> {
        // What it is may have changed since it was read, in both directions.
        let mut flags = match kind {
            DIRECTORY => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        for _ in 0..CHANGES {
            let Some(dir) = self.open.back() else {
                return Err(stop(name, Errno::STALE));
            };
            match rustix::fs::unlinkat(dir, name, flags) {
                Ok(()) => {
                    self.removed += 1;
                    return Ok(true);
                }
                Err(Errno::NOENT) => return Ok(true),
                Err(Errno::ISDIR) => flags = AtFlags::REMOVEDIR,
                Err(Errno::NOTDIR) => flags = AtFlags::empty(),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    if self.descend(Some(name))? {
                        return Ok(false);
                    }
                    flags = AtFlags::empty();
                }
                Err(errno) => return Err(stop(name, errno)),
            }
        }
        Err(stop(name, Errno::BUSY))
    }

    /// Goes down into `name`, into the top without one; false when it is no directory any more.
    fn descend(&mut self, name: Option<&[u8]>) -> std::result::Result<bool, Stop> {
        let (above, leaf) = match name {
            Some(name) => (self.open.back(), name),
            None => (Some(&self.entry.dir), self.entry.leaf.as_slice()),
        };
        let Some(above) = above else {
            return Err(stop(leaf, Errno::STALE));
        };
        let dir = match open_below(above, leaf) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(errno) => return Err(stop(leaf, errno)),
        };
        let key = key(&dir).map_err(|errno| stop(leaf, errno))?;
        if let Some(level) = self.levels.last_mut() {
            let again = if level.entered.0 == key {
                level.entered.1 + 1
            } else {
                0
            };
            level.entered = (key, again);
            if again >= AGAIN {
                return Err(stop(leaf, Errno::NOTEMPTY));
            }
            if self.held > HELD {
                self.held -= level.names.len();
                level.names = Vec::new();
                level.is_stale = true;
            }
        }
        self.levels.push(Level {
            key,
            names: Vec::new(),
            is_stale: false,
            entered: (key, 0),
        });
        self.open.push_back(dir);
        if self.open.len() > KEPT {
            self.open.pop_front();
        }
        Ok(true)
    }

    /// Goes back up from a directory that is empty.
    fn ascend(&mut self) -> std::result::Result<(), Stop> {
        self.levels.pop();
        let below = self.open.pop_back();
        let (Some(level), Some(below), true) = (self.levels.last(), below, self.open.is_empty())
        else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = rustix::fs::openat(&below, "..", flags, Mode::empty());
        let above = above.map_err(|errno| stop(b"", errno))?;
        if key(&above).ok() != Some(level.key) {
            // Somebody has moved it away: what is above it now is not ours to remove.
            return Err(stop(b"", Errno::STALE));
        }
        self.open.push_back(above);
        Ok(())
    }

    fn drop_last(&mut self) {
        if let Some(level) = self.levels.last_mut()
            && let Some((_, name)) = last(&level.names)
        {
            let length = name.len() + FRAME;
            level.names.truncate(level.names.len() - length);
            self.held -= length;
        }
    }

    /// What the client is told: where it stopped, and how much is gone.
    fn failure(&self, stop: &Stop) -> Error {
        let place = self.open.back().and_then(|dir| {
            let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
            std::fs::read_link(link).ok()
        });
        let mut place = place.unwrap_or_else(|| self.path.clone());
        if !stop.name.is_empty() && !self.levels.is_empty() {
            place.push(std::ffi::OsStr::from_bytes(&stop.name));
        }
        let why = match stop.errno {
            Errno::XDEV | Errno::BUSY => "it is a mount point, or in use".to_owned(),
            Errno::STALE => "it was moved while it was removed".to_owned(),
            errno => said(errno),
        };
        let kind = match stop.errno {
            Errno::XDEV | Errno::STALE => Kind::InUse,
            errno => refused(errno, REMOVE, &place).kind(),
        };
        let removed = self.removed;
        kind.told(format!(
            "cannot remove {}: {why}; {removed} entries are gone, this one and the rest remain",
            place.display()
        ))
        .because(stop.errno)
        .with_number("removed", removed)
    }
}

/// Opens a directory to be emptied: no link, and on the same mount as the one above it.
fn open_below(above: &OwnedFd, name: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = openat2(above, name, flags, ResolveFlags::NO_XDEV);
    let Err(Errno::NOSYS | Errno::PERM) = opened else {
        return opened;
    };
    let dir = rustix::fs::openat(above, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    let look = |fd: &OwnedFd| rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WANTED);
    let (outer, inner) = (look(above)?, look(&dir)?);
    let mount = |found: &Statx| (found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor);
    if mount(&outer) == mount(&inner) {
        Ok(dir)
    } else {
        Err(Errno::XDEV)
    }
}

/// Reads some names of a directory, until there are any.
fn read(dir: &OwnedFd, names: &mut Vec<u8>) -> std::result::Result<(), Errno> {
    let mut buffer = [MaybeUninit::uninit(); READ];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            let is_dir = entry.file_type() == FileType::Directory;
            names.push(if is_dir { DIRECTORY } else { 0 });
            names.extend_from_slice(name);
            // A name has at most 255 bytes of any filesystem that we know; longer ones are cut into an error.
            let length = u16::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
            names.extend_from_slice(&length.to_ne_bytes());
        }
        if entries.is_buffer_empty() && !names.is_empty() {
            return Ok(());
        }
    }
    Ok(())
}

/// The last of the names, and its type.
fn last(names: &[u8]) -> Option<(u8, &[u8])> {
    let (rest, length) = names.split_last_chunk::<2>()?;
    let start = rest
        .len()
        .checked_sub(usize::from(u16::from_ne_bytes(*length)))?;
    let kind = names.get(start.checked_sub(1)?)?;
    Some((*kind, &rest[start..]))
}

fn key(dir: &OwnedFd) -> std::result::Result<Key, Errno> {
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, WANTED)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

fn stop(name: &[u8], errno: Errno) -> Stop {
    Stop {
        name: name.to_vec(),
        errno,
    }
}

const REMOVE: &str = "remove";
/// The type of a name that was a directory when it was read.
const DIRECTORY: u8 = 1;
/// Bytes of a name in memory beside its own.
const FRAME: usize = 3;
/// Steps of one job: a removal of many entries lets other jobs have their turn.
const SLICE: usize = 4096;
/// Directories that are held open.
const KEPT: usize = 32;
/// Bytes of names that the levels hold before they let go of them.
const HELD: usize = 1024 * 1024;
/// Bytes of directory entries read at once; on the stack of a helper.
const READ: usize = 16 * 1024;
/// How often an entry may turn from a directory into something else and back.
const CHANGES: usize = 16;
/// How often a directory is entered again because somebody fills it.
const AGAIN: u32 = 1000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::testing::{Dir, listing};
    use super::*;

    fn removal(path: &Path) -> Removal {
        let entry = Entry::of(path, REMOVE).expect("its directory is there");
        Removal::new(entry, path.to_owned())
    }

    fn step(removal: &mut Removal) -> std::result::Result<bool, Errno> {
        removal.step().map_err(|stop| stop.errno)
    }

    #[test]
    fn what_has_become_a_link_is_not_entered() {
        let dir = Dir::new();
        fs::create_dir_all(dir.path().join("outside/kept")).expect("ours");
        fs::create_dir_all(dir.path().join("t/x")).expect("ours");
        let mut removal = removal(&dir.path().join("t"));
        assert_eq!(step(&mut removal), Ok(false));
        assert_eq!(removal.levels.len(), 1);
        symlink("../outside", dir.path().join("t/link")).expect("ours");
        assert_eq!(removal.descend(Some(b"link")).ok(), Some(false));
        assert_eq!(removal.descend(Some(b"none")).ok(), Some(false));
        assert_eq!(removal.descend(Some(b"x")).ok(), Some(true));
    }

    #[test]
    fn the_way_back_up_ends_where_it_leads_elsewhere() {
        let dir = Dir::new();
        // Deeper than the way up is long: whoever followed it would still not leave the directory of this test.
        let outside = dir
            .path()
            .join("fence/fence/fence/fence/fence/fence/outside");
        fs::create_dir_all(outside.join("kept/x")).expect("ours");
        let before = listing(&outside);
        let depth = KEPT + 10;
        let chain = vec!["d"; depth].join("/");
        fs::create_dir_all(dir.path().join("t").join(chain)).expect("ours");
        let mut removal = removal(&dir.path().join("t"));
        while removal.levels.len() < depth {
            assert_eq!(step(&mut removal), Ok(false));
        }
        let moved = outside.join("moved");
        fs::rename(dir.path().join("t/d/d"), &moved).expect("ours");
        let end = loop {
            match step(&mut removal) {
                Ok(false) => {}
                end => break end,
            }
        };
        assert_eq!(end, Err(Errno::STALE));
        fs::remove_dir_all(&moved).expect("what was moved is not removed to its end");
        assert_eq!(listing(&outside), before);
    }

    #[test]
    fn names_are_read_from_the_last_to_the_first() {
        let mut names = Vec::new();
        for (kind, name) in [(DIRECTORY, &b"a"[..]), (0, b"\n\xff\0\0")] {
            names.push(kind);
            names.extend_from_slice(name);
            let length = u16::try_from(name.len()).expect("short");
            names.extend_from_slice(&length.to_ne_bytes());
        }
        assert_eq!(last(&names), Some((0, &b"\n\xff\0\0"[..])));
        names.truncate(names.len() - 4 - FRAME);
        assert_eq!(last(&names), Some((DIRECTORY, &b"a"[..])));
        assert_eq!(last(&[]), None);
    }
}
