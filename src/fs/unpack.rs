//! Members written below a root, one after the other, on a helper thread.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::confine::{Descent, Stop, Way};
use super::member::{Action, Content, Entry, LINK_ON_THE_WAY, Name};
use super::space;
use crate::error::{Kind, Result};
use crate::ring::copy::CHECK_EVERY;
use crate::wire::tar::{Moment, Segment};

/// Writes members; what depends on all of them (modes and times of directories) is done by [`Unpacker::conclude`].
pub(super) struct Unpacker {
    descent: Descent,
    root: PathBuf,
    reserve: u64,
    unchecked: u64,
    open: Option<Open>,
    directories: Vec<(Name, Attributes)>,
    /// Files whose owner has more rights until the end, by what each is to have then.
    widened: HashMap<Name, Attributes>,
}

/// The file that data goes to.
struct Open {
    file: File,
    attributes: Attributes,
    /// Set for a sparse file.
    sparse: Option<Sparse>,
    /// Bytes that are still to come.
    left: u64,
    /// Where the next byte goes.
    at: u64,
}

struct Sparse {
    runs: Box<[Segment]>,
    /// The run that is being filled.
    index: usize,
    size: u64,
}

#[derive(Clone, Copy)]
struct Attributes {
    mode: u32,
    mtime: Moment,
}

impl Unpacker {
    /// An unpacker below `descent`; `root` is its path, for sentences.
    pub(super) fn new(descent: Descent, root: PathBuf, reserve: u64) -> Self {
        Self {
            descent,
            root,
            reserve,
            unchecked: 0,
            open: None,
            directories: Vec::new(),
            widened: HashMap::new(),
        }
    }

    /// Makes a member; its data follows by [`Unpacker::write`], its end by [`Unpacker::finish`].
    ///
    /// # Errors
    /// `Malformed` when a link or a right is in the way, `DiskFull`, else `Internal`.
    pub(super) fn begin(&mut self, entry: &Entry) -> Result<()> {
        // Whatever has the name from now on, it is no longer the file that had it.
        if !self.widened.is_empty() {
            self.widened.remove(&entry.name);
        }
        match &entry.action {
            Action::Nothing => Ok(()),
            Action::Directory => {
                self.enter(entry, entry.name.bytes())?;
                let Entry { mode, mtime, .. } = *entry;
                self.directories
                    .push((entry.name.clone(), Attributes { mode, mtime }));
                Ok(())
            }
            Action::File(content) => self.file(entry, content),
            Action::Symlink(target) => self.symlink(entry, target),
            Action::HardLink(target) => self.hard_link(entry, target),
        }
    }

    /// Writes a piece of the data of the member that was begun last.
    ///
    /// # Errors
    /// `DiskFull` when the disk is full or the reserve is touched, else `Internal`.
    pub(super) fn write(&mut self, mut piece: &[u8]) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        self.unchecked += piece.len() as u64;
        while !piece.is_empty() {
            let (offset, room) = open.place();
            let count = usize::try_from(room).map_or(piece.len(), |room| room.min(piece.len()));
            let written = open.file.write_all_at(&piece[..count], offset);
            written.map_err(|error| space::failed(error, "tar operation failed"))?;
            open.at += count as u64;
            open.left = open.left.saturating_sub(count as u64);
            piece = &piece[count..];
        }
        if self.unchecked >= CHECK_EVERY {
            self.unchecked = 0;
            space::check_file(&open.file, &self.root, self.reserve)?;
        }
        Ok(())
    }

    /// Ends the member that was begun last.
    ///
    /// # Errors
    /// As [`Unpacker::write`].
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        if let Some(sparse) = &open.sparse {
            let sized = open.file.set_len(sparse.size);
            sized.map_err(|error| space::failed(error, "tar operation failed"))?;
        }
        set(&open.file, open.attributes);
        Ok(())
    }

    /// Sets modes and times that had to wait, deepest directories first; what cannot be set is left.
    ///
    /// After a refusal, too: a file that is whole by then is ended, one that lacks bytes is left as it is.
    pub(super) fn conclude(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.left == 0) {
            let _ = self.finish();
        }
        self.open = None;
        for (name, attributes) in std::mem::take(&mut self.widened) {
            let (dir, leaf) = name.split();
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(dir) = self.descent.enter(dir, Way::Looking)
                && let Ok(file) = rustix::fs::openat(&dir, leaf, flags, Mode::empty())
            {
                set(&file.into(), attributes);
            }
        }
        let mut directories = std::mem::take(&mut self.directories);
        let depth = |name: &Name| name.bytes().iter().filter(|byte| **byte == b'/').count();
        directories.sort_by_cached_key(|(name, _)| std::cmp::Reverse(depth(name)));
        for (name, attributes) in directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(dir) = self.descent.enter(name.bytes(), Way::Looking)
                && let Ok(dir) = rustix::fs::openat(&dir, ".", flags, Mode::empty())
            {
                set(&dir.into(), attributes);
            }
        }
    }

    fn file(&mut self, entry: &Entry, content: &Content) -> Result<()> {
        let (dir, leaf) = entry.name.split();
        let dir = self.enter(entry, dir)?;
        // Another member may open the file again, so its owner keeps both rights until the end.
        let mode = entry.mode | 0o600;
        let mtime = entry.mtime;
        if mode != entry.mode {
            self.widened.insert(
                entry.name.clone(),
                Attributes {
                    mode: entry.mode,
                    mtime,
                },
            );
        }
        let file = create(&dir, leaf, mode).map_err(|errno| entry.failed(errno))?;
        let sparse = content.runs.clone().map(|runs| Sparse {
            runs,
            index: 0,
            size: content.size,
        });
        let at = sparse
            .as_ref()
            .and_then(|sparse| sparse.runs.first())
            .map_or(0, |run| run.offset);
        self.open = Some(Open {
            file,
            attributes: Attributes { mode, mtime },
            sparse,
            left: content.stored,
            at,
        });
        Ok(())
    }

    fn symlink(&mut self, entry: &Entry, target: &[u8]) -> Result<()> {
        let (dir, leaf) = entry.name.split();
        let dir = self.enter(entry, dir)?;
        let make = || rustix::fs::symlinkat(target, &dir, leaf);
        let made = match make() {
            Err(Errno::EXIST) => clear(&dir, leaf).and_then(|()| make()),
            made => made,
        };
        made.map_err(|errno| entry.failed(errno))?;
        let _ = rustix::fs::utimensat(&dir, leaf, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    fn hard_link(&mut self, entry: &Entry, target: &Name) -> Result<()> {
        if *target == entry.name {
            return Err(entry.impossible("a hard link to itself"));
        }
        let (dir, leaf) = entry.name.split();
        let dir = self.enter(entry, dir)?;
        let (from, known) = target.split();
        let from = self
            .descent
            .enter(from, Way::Looking)
            .map_err(|stop| entry.failed(stop.errno))?;
        let make = || rustix::fs::linkat(&from, known, &dir, leaf, AtFlags::empty());
        let made = match make() {
            Err(Errno::EXIST) if same(&from, known, &dir, leaf) => Ok(()),
            Err(Errno::EXIST) => clear(&dir, leaf).and_then(|()| make()),
            made => made,
        };
        made.map_err(|errno| entry.failed(errno))
    }

    fn enter(&mut self, entry: &Entry, dir: &[u8]) -> Result<std::sync::Arc<OwnedFd>> {
        self.descent
            .enter(dir, Way::Making)
            .map_err(|Stop { end, errno }| match errno {
                Errno::LOOP => entry.obstructed(end, LINK_ON_THE_WAY).because(errno),
                Errno::ACCESS => entry.obstructed(end, "permission denied").because(errno),
                _ => entry.failed(errno),
            })
    }
}

impl Open {
    /// Where the next byte goes, and how many may go there.
    fn place(&mut self) -> (u64, u64) {
        let Some(sparse) = &mut self.sparse else {
            return (self.at, u64::MAX);
        };
        while let Some(run) = sparse.runs.get(sparse.index) {
            if self.at < run.offset {
                self.at = run.offset;
            }
            let end = run.offset + run.length;
            if self.at < end {
                return (self.at, end - self.at);
            }
            sparse.index += 1;
        }
        // The map holds as many bytes as the archive stores, so this is never reached with data at hand.
        (self.at, u64::MAX)
    }
}

/// Makes the root and its ancestors.
///
/// # Errors
/// `Internal` when it cannot be made or is no directory.
pub(super) fn make_root(root: &std::path::Path) -> Result<Descent> {
    let failed = |error: std::io::Error| space::failed(error, "tar operation failed");
    match Descent::open(root) {
        Ok(descent) => Ok(descent),
        Err(Errno::NOENT) => {
            std::fs::create_dir_all(root).map_err(failed)?;
            Descent::open(root).map_err(|errno| failed(errno.into()))
        }
        Err(errno) => Err(Kind::Internal.told("tar operation failed").because(errno)),
    }
}

/// A file to write, new or emptied; never through a link, never anything but a regular file.
fn create(dir: &OwnedFd, leaf: &[u8], mode: u32) -> std::result::Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fresh = || {
        rustix::fs::openat(
            dir,
            leaf,
            flags | OFlags::CREATE | OFlags::EXCL,
            Mode::from_raw_mode(mode),
        )
    };
    match fresh() {
        Err(Errno::EXIST) => {}
        made => return made.map(File::from),
    }
    let there = rustix::fs::statat(dir, leaf, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP),
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::NXIO),
    }
    match rustix::fs::openat(
        dir,
        leaf,
        flags | OFlags::TRUNC | OFlags::NONBLOCK,
        Mode::empty(),
    ) {
        // A program that runs cannot be written to, but its name can be given to another file.
        Err(Errno::TXTBSY) => {
            rustix::fs::unlinkat(dir, leaf, AtFlags::empty())?;
            fresh().map(File::from)
        }
        opened => opened.map(File::from),
    }
}

/// Removes what is in the way of a link, unless it is a directory.
fn clear(dir: &OwnedFd, leaf: &[u8]) -> std::result::Result<(), Errno> {
    rustix::fs::unlinkat(dir, leaf, AtFlags::empty())
}

fn same(a: &OwnedFd, one: &[u8], b: &OwnedFd, other: &[u8]) -> bool {
    let stat = |dir, name| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    match (stat(a, one), stat(b, other)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Sets mode and time; the mode is right already, unless the umask or an access list took bits away.
fn set(file: &File, Attributes { mode, mtime }: Attributes) {
    if rustix::fs::fstat(file).is_ok_and(|stat| stat.st_mode & 0o7777 != mode) {
        let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    }
    let _ = rustix::fs::futimens(file, &times(mtime));
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
