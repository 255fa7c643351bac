//! Members written below a root, one after the other, on a helper thread; large data may be written from the main one.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::confine::{Descent, Stop, Way};
use super::lent::Lent;
use super::member::{Action, Attributes, Content, Entry, LINK_ON_THE_WAY, Name, Place};
use super::stamp::{self, Modes};
use super::{space, upload};
use crate::error::{Kind, Result};
use crate::ring::buffers::{self, Lease};
use crate::ring::copy::CHECK_EVERY;
use crate::ring::file::Writer;
use crate::wire::tar::{Moment, Segment};

/// Writes members; what depends on all of them (modes and times of directories) is done by [`Unpacker::conclude`].
pub(super) struct Unpacker {
    descent: Descent,
    root: PathBuf,
    reserve: u64,
    unchecked: u64,
    open: Option<Open>,
    modes: Modes,
    directories: Vec<(Name, Late)>,
    /// Files whose owner has more rights until the end: device and inode number of each, and what it is to have then.
    widened: HashMap<Name, ((u64, u64), Late)>,
}

/// The file that data goes to.
struct Open {
    file: File,
    place: Place,
    attributes: Attributes,
    /// True when we made it.
    fresh: bool,
    /// True when it has its mode already.
    has_mode: bool,
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

/// What is set when all members are there.
#[derive(Clone, Copy)]
struct Late {
    mode: u32,
    mtime: Moment,
    owner: Option<(u32, u32)>,
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
            modes: Modes::default(),
            directories: Vec::new(),
            widened: HashMap::new(),
        }
    }

    /// Makes a member; its data follows by [`Unpacker::write`], its end by [`Unpacker::finish`].
    ///
    /// # Errors
    /// `Malformed` when a link or a right is in the way, `DiskFull`, else `Internal`.
    pub(super) fn begin(&mut self, entry: Entry) -> Result<()> {
        let Entry {
            place,
            action,
            attributes,
        } = entry;
        // Whatever has the name from now on, it is no longer the file that had it.
        if !self.widened.is_empty() {
            self.widened.remove(&place.name);
        }
        match action {
            Action::Nothing => Ok(()),
            Action::Directory => self.directory(place, &attributes),
            Action::File(content) => self.file(place, content, attributes),
            Action::Symlink(target) => self.symlink(&place, &target, &attributes),
            Action::HardLink(target) => self.hard_link(&place, &target),
        }
    }

    /// Makes a file of a member whose data is in `landed` already.
    ///
    /// # Errors
    /// As [`Unpacker::begin`] and [`Unpacker::write`].
    pub(super) fn land(&mut self, entry: Entry, mut landed: Lent) -> Result<()> {
        let Entry {
            place,
            mut attributes,
            ..
        } = entry;
        self.widened.remove(&place.name);
        let late = widen(&mut attributes);
        let (dir, leaf) = place.name.split();
        let dir = self.enter(&place, dir)?;
        stamp::set(&landed, &place, &attributes, false)?;
        if upload::link(&landed, &dir, leaf).is_ok() {
            landed.keep();
            self.keep_late(&place, &landed, late);
            return Ok(());
        }
        // The name is taken by a file, which keeps its other names; or another filesystem begins on the way.
        let (file, fresh) =
            create(&dir, leaf, attributes.mode).map_err(|errno| place.failed(errno))?;
        if let Err(error) = self.copy(&landed, &file) {
            if fresh {
                let _ = clear(&dir, leaf);
            }
            return Err(error);
        }
        self.keep_late(&place, &file, late);
        stamp::set(&file, &place, &attributes, false)
    }

    fn copy(&self, mut from: &File, mut to: &File) -> Result<()> {
        let failed = |error| space::failed(error, "tar operation failed");
        std::io::Seek::rewind(&mut from).map_err(failed)?;
        while std::io::copy(&mut from.take(CHECK_EVERY), &mut to).map_err(failed)? > 0 {
            space::check_file(to, &self.root, self.reserve)?;
        }
        Ok(())
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

    /// A writer for what comes next, when so much is to come, without holes, that the main thread may write it.
    ///
    /// Without a descriptor for it there is none, and the helpers go on.
    pub(super) fn writer(&self) -> Option<Writer> {
        let open = self.open.as_ref().filter(|open| open.has_much())?;
        let mut writer = Writer::new(&open.file).ok()?;
        writer.offset = open.at;
        Some(writer)
    }

    /// As [`Unpacker::write`], from the main thread by the writer; empties the buffer, and is false when another of its
    /// size may be too much.
    ///
    /// # Errors
    /// As [`Unpacker::write`].
    pub(super) async fn append(&mut self, writer: &mut Writer, buffer: &mut Lease) -> Result<bool> {
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let count = buffer.len() as u64;
        let (outcome, bytes) = writer.append(buffer.take()).await;
        buffer.restore(bytes);
        outcome.map_err(|error| error.kind().told("tar operation failed").because(error))?;
        open.at += count;
        open.left -= count;
        self.unchecked += count;
        if self.unchecked >= CHECK_EVERY {
            self.unchecked = 0;
            space::recheck(&open.file, &self.root, self.reserve).await?;
        }
        Ok(open.has_much())
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
        stamp::set(&open.file, &open.place, &open.attributes, open.has_mode)
    }

    /// Sets modes and times that had to wait, deepest directories first; what cannot be set is left.
    ///
    /// After a refusal, too: a file that is whole by then is ended, one that we made and that lacks bytes goes again.
    pub(super) fn conclude(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.left == 0) {
            let _ = self.finish();
        }
        if let Some(open) = self.open.take()
            && open.fresh
        {
            self.remove(&open);
        }
        for (name, (ours, late)) in std::mem::take(&mut self.widened) {
            let (dir, leaf) = name.split();
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(dir) = self.descent.enter(dir, Way::Looking)
                && let Ok(file) =
                    rustix::fs::openat(&dir, leaf, flags, Mode::empty()).map(File::from)
                && identity(&file) == Some(ours)
            {
                stamp::set_late(&file, late.mode, late.mtime);
            }
        }
        let mut directories = std::mem::take(&mut self.directories);
        // A name is less than those below it, and those below one directory stand together.
        directories.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (name, late) in directories {
            if let Ok(dir) = self.descent.enter(name.bytes(), Way::Looking) {
                stamp::set_directory(&dir, late.owner, late.mode, late.mtime);
            }
        }
    }

    /// Takes the name of a file away, unless it is another file's by now.
    fn remove(&mut self, open: &Open) {
        let (dir, leaf) = open.place.name.split();
        let is_it =
            |there: &rustix::fs::Stat| identity(&open.file) == Some((there.st_dev, there.st_ino));
        if let Ok(dir) = self.descent.enter(dir, Way::Looking)
            && rustix::fs::statat(&dir, leaf, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|it| is_it(&it))
        {
            let _ = clear(&dir, leaf);
            // The ring may hold a copy that it closes after us: then nothing is left to free on its thread.
            let _ = open.file.set_len(0);
        }
        self.widened.remove(&open.place.name);
    }

    fn directory(&mut self, place: Place, wanted: &Attributes) -> Result<()> {
        let dir = self.enter(&place, place.name.bytes())?;
        if !wanted.xattrs.is_empty() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = rustix::fs::openat(&dir, ".", flags, Mode::empty());
            let open = open.map_err(|errno| place.failed(errno))?;
            stamp::set_xattrs(&open.into(), &place, &wanted.xattrs)?;
        }
        self.directories.push((place.name, Late::of(wanted)));
        Ok(())
    }

    fn file(&mut self, place: Place, content: Content, mut wanted: Attributes) -> Result<()> {
        let (dir, leaf) = place.name.split();
        let dir = self.enter(&place, dir)?;
        let late = widen(&mut wanted);
        let (file, fresh) = create(&dir, leaf, wanted.mode).map_err(|errno| place.failed(errno))?;
        self.keep_late(&place, &file, late);
        let has_mode = fresh && self.modes.are_kept(&dir, &file, wanted.mode);
        let Content { stored, size, runs } = content;
        let sparse = runs.map(|runs| Sparse {
            runs,
            index: 0,
            size,
        });
        let at = sparse
            .as_ref()
            .and_then(|sparse| sparse.runs.first())
            .map_or(0, |run| run.offset);
        self.open = Some(Open {
            file,
            place,
            attributes: wanted,
            fresh,
            has_mode,
            sparse,
            left: stored,
            at,
        });
        Ok(())
    }

    /// Remembers what a file is to have at the end.
    fn keep_late(&mut self, place: &Place, file: &File, late: Option<Late>) {
        if let Some(late) = late
            && let Some(ours) = identity(file)
        {
            self.widened.insert(place.name.clone(), (ours, late));
        }
    }

    fn symlink(&mut self, place: &Place, target: &[u8], wanted: &Attributes) -> Result<()> {
        let (dir, leaf) = place.name.split();
        let dir = self.enter(place, dir)?;
        let make = || rustix::fs::symlinkat(target, &dir, leaf);
        let made = match make() {
            Err(Errno::EXIST) => clear(&dir, leaf).and_then(|()| make()),
            made => made,
        };
        made.map_err(|errno| place.failed(errno))?;
        stamp::set_link(&dir, leaf, place, wanted)
    }

    fn hard_link(&mut self, place: &Place, target: &Name) -> Result<()> {
        if *target == place.name {
            return Err(place.impossible("a hard link to itself"));
        }
        let (dir, leaf) = place.name.split();
        let dir = self.enter(place, dir)?;
        let (from, known) = target.split();
        let from = self
            .descent
            .enter(from, Way::Looking)
            .map_err(|stop| place.failed(stop.errno))?;
        let make = || rustix::fs::linkat(&from, known, &dir, leaf, AtFlags::empty());
        let made = match make() {
            Err(Errno::EXIST) if same(&from, known, &dir, leaf) => Ok(()),
            Err(Errno::EXIST) => clear(&dir, leaf).and_then(|()| make()),
            made => made,
        };
        made.map_err(|errno| place.failed(errno))
    }

    fn enter(&mut self, place: &Place, dir: &[u8]) -> Result<std::sync::Arc<OwnedFd>> {
        self.descent
            .enter(dir, Way::Making)
            .map_err(|Stop { end, errno }| match errno {
                Errno::LOOP => place.obstructed(end, LINK_ON_THE_WAY).because(errno),
                Errno::ACCESS => place.obstructed(end, "permission denied").because(errno),
                _ => place.failed(errno),
            })
    }
}

impl Late {
    fn of(wanted: &Attributes) -> Self {
        Self {
            mode: wanted.mode,
            mtime: wanted.mtime,
            owner: wanted.owner,
        }
    }
}

impl Open {
    fn has_much(&self) -> bool {
        self.sparse.is_none() && self.left >= MUCH
    }

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

/// A file to write, and whether it is new or emptied; never through a link, never anything but a regular file.
fn create(dir: &OwnedFd, leaf: &[u8], mode: u32) -> std::result::Result<(File, bool), Errno> {
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
        made => return made.map(|file| (file.into(), true)),
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
            fresh().map(|file| (file.into(), true))
        }
        opened => opened.map(|file| (file.into(), false)),
    }
}

/// Another member may open the file again, so its owner has both rights until the end; answers what it is to have then.
fn widen(wanted: &mut Attributes) -> Option<Late> {
    let late = Late::of(wanted);
    wanted.mode |= 0o600;
    (wanted.mode != late.mode).then_some(late)
}

/// Device and inode number.
fn identity(file: &File) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(file).ok()?;
    Some((stat.st_dev, stat.st_ino))
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

/// Bytes to come of a file from which on the main thread writes them: so many that the next buffer holds nothing else.
const MUCH: u64 = 1024 * 1024;
const _: () = assert!(MUCH >= buffers::LEASE as u64);

#[cfg(test)]
mod tests {
    use super::super::testing::{Dir, listing, run};
    use super::*;

    #[test]
    fn a_file_of_somebody_else_keeps_its_mode_at_the_end() {
        let dir = Dir::new();
        let descent = Descent::open(dir.path()).expect("it is there");
        let mut unpacker = Unpacker::new(descent, dir.path().into(), 0);
        for name in ["ours", "theirs"] {
            let entry = Entry {
                place: Place::again(name.as_bytes(), 0).expect("it is a name"),
                action: Action::File(Content {
                    stored: 0,
                    size: 0,
                    runs: None,
                }),
                attributes: Attributes {
                    mode: 0o444,
                    ..Attributes::default()
                },
            };
            unpacker.begin(entry).expect("it is made");
            unpacker.finish().expect("it is whole");
        }
        std::fs::write(dir.path().join("new"), "x").expect("it is fresh");
        let renamed = std::fs::rename(dir.path().join("new"), dir.path().join("theirs"));
        renamed.expect("it is ours");
        unpacker.conclude();
        assert_eq!(listing(dir.path()), ["ours f 444  n1", "theirs f 644 x n1"]);
    }

    fn begun(root: &std::path::Path, stored: u64, runs: Option<Box<[Segment]>>) -> Unpacker {
        let descent = Descent::open(root).expect("it is there");
        let mut unpacker = Unpacker::new(descent, root.into(), 0);
        let content = Content {
            stored,
            size: stored,
            runs,
        };
        let entry = Entry {
            place: Place::again(b"f", 0).expect("it is a name"),
            action: Action::File(content),
            attributes: Attributes::default(),
        };
        unpacker.begin(entry).expect("it is made");
        unpacker
    }

    #[test]
    fn only_much_data_without_holes_is_written_from_the_main_thread() {
        let hole = |length| Some([Segment { offset: 9, length }].into());
        for (stored, runs, expected) in [
            (0, None, false),
            (MUCH - 1, None, false),
            (MUCH, None, true),
            (1 << 30, None, true),
            (1 << 30, hole(1 << 30), false),
        ] {
            let dir = Dir::new();
            let has_one = run(async || begun(dir.path(), stored, runs).writer().is_some());
            assert_eq!(has_one, expected, "{stored}");
        }
    }

    #[test]
    fn the_main_thread_and_a_helper_write_behind_each_other() {
        let dir = Dir::new();
        run(async || {
            let mut unpacker = begun(dir.path(), MUCH + 5, None);
            unpacker.write(b"ab").expect("it is open");
            let mut writer = unpacker.writer().expect("much is to come");
            let mut buffer = buffers::lease();
            for (piece, goes_on) in [(b"cde", true), (b"fgh", false)] {
                buffer.extend_from_slice(piece);
                let outcome = unpacker.append(&mut writer, &mut buffer).await;
                assert_eq!(outcome.expect("there is room"), goes_on);
                assert!(buffer.is_empty());
            }
            unpacker.write(b"i").expect("it is open");
        });
        assert_eq!(
            std::fs::read(dir.path().join("f")).expect("ours"),
            b"abcdefghi"
        );
    }
}
