//! The walk of a manifest: directory by directory on a helper thread, with nothing kept but the names under way.

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::reading::{Reading, Verdict, unreadable};
use super::{Entry, Options};
use crate::error::{Kind, Result};
use crate::fs::confine::{Descent, Way};
use crate::fs::entry::{is_gone, said};
use crate::fs::filter::Verdict as Choice;
use crate::fs::member::PATH_BYTES;
use crate::fs::mount::{self, Mounted};
use crate::fs::tree;
use crate::fs::walk::order;

/// A walk that can be interrupted after any entry.
pub(super) struct Walker {
    options: Options,
    descent: Descent,
    /// What holds the root.
    mounted: Mounted,
    grounds: HashMap<u64, Ground>,
    frames: Vec<Frame>,
    /// What is told first: the root.
    root: Option<Stat>,
    /// The directory under way.
    path: Vec<u8>,
    /// Bytes that the frames hold.
    held: usize,
    listing: Vec<MaybeUninit<u8>>,
}

/// What one turn of a walk has found.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) found: Vec<Found>,
    /// Directories that could not be read.
    pub(super) unread: u64,
    /// True when there is no more.
    pub(super) is_last: bool,
}

pub(super) struct Found {
    pub(super) entry: Entry,
    /// Set when the digest is still to be made.
    pub(super) reading: Option<Box<Reading>>,
}

/// A directory whose entries are being told.
struct Frame {
    /// Bytes of its path.
    path: usize,
    names: Vec<u8>,
    /// What to do, last first.
    steps: Vec<Step>,
}

/// Telling an entry, or going down into it.
#[derive(Clone, Copy)]
struct Step {
    at: u32,
    length: u16,
    down: bool,
    choice: Choice,
}

/// What a filesystem is to a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// What is cached answers at once.
    Local,
    /// A server or a program answers.
    Far,
    /// The kernel makes it up, and reading it may never end.
    Pseudo,
}

impl Walker {
    /// # Errors
    /// `NotFound`, `Malformed` when it is no directory, else `Internal`.
    pub(super) fn open(path: &Path, options: Options) -> Result<Self> {
        let root = tree::open(path)?;
        let unread = |errno| Kind::Internal.told("cannot read directory").because(errno);
        let stat = rustix::fs::fstat(&root).map_err(unread)?;
        let mut walker = Self {
            options,
            mounted: Mounted::of(&root, &stat),
            descent: Descent::at(root),
            grounds: HashMap::new(),
            frames: Vec::new(),
            root: Some(stat),
            path: Vec::new(),
            held: 0,
            listing: vec![MaybeUninit::uninit(); LISTING],
        };
        // What cannot be read at all is refused, not told.
        let choice = walker.options.filter.root();
        walker.enter(choice).map_err(unread)?;
        Ok(walker)
    }

    /// Walks until there is enough to tell.
    pub(super) fn advance(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut open = 0;
        if let Some(stat) = self.root.take()
            && self.options.filter.root() == Choice::Keep
        {
            batch.tell(Entry::of(Vec::new(), stat));
        }
        for _ in 0..MOST_STEPS {
            if batch.found.len() >= MOST_ENTRIES || open >= MOST_OPEN {
                return batch;
            }
            let Some(frame) = self.frames.last_mut() else {
                batch.is_last = true;
                return batch;
            };
            self.path.truncate(frame.path);
            let Some(step) = frame.steps.pop() else {
                self.held -= frame.weight();
                self.frames.pop();
                continue;
            };
            let name = frame.names[step.at as usize..][..usize::from(step.length)].to_vec();
            if step.down {
                self.push(&name);
                if let Err(errno) = self.descend(step.choice) {
                    batch.complain(
                        self.path.clone(),
                        format!("cannot read directory: {}", said(errno)),
                    );
                }
            } else if let Some(found) = self.look(&name, &mut batch) {
                open += usize::from(found.reading.is_some());
                batch.found.push(found);
            }
        }
        batch
    }

    /// Makes the path of an entry that of the directory under way.
    fn push(&mut self, name: &[u8]) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }

    /// Goes down into the directory at the path, if it still is one.
    fn descend(&mut self, choice: Choice) -> std::result::Result<(), Errno> {
        match self.enter(choice) {
            // It was there a moment ago; now nothing is in it.
            Err(errno) if is_gone(errno) => Ok(()),
            outcome => outcome,
        }
    }

    /// Lists the directory at the path.
    fn enter(&mut self, choice: Choice) -> std::result::Result<(), Errno> {
        if self.path.len() > PATH_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let dir = self.descent.enter(&self.path, Way::Looking);
        let dir = dir.map_err(|stop| stop.errno)?;
        if self.is_beyond(&dir, b"", &rustix::fs::fstat(&dir)?) {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&dir, ".", flags, Mode::empty())?;
        let mut buffer = std::mem::take(&mut self.listing);
        let listed = self.list(&opened, &mut buffer, choice);
        self.listing = buffer;
        let frame = listed?;
        self.held += frame.weight();
        self.frames.push(frame);
        Ok(())
    }

    fn list(
        &self,
        dir: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        choice: Choice,
    ) -> std::result::Result<Frame, Errno> {
        let mut frame = Frame {
            path: self.path.len(),
            names: Vec::new(),
            steps: Vec::new(),
        };
        let mut path = self.path.clone();
        let mut listing = RawDir::new(dir, buffer);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (self.options.no_hidden && name.starts_with(b".")) {
                continue;
            }
            let is_dir = match entry.file_type() {
                FileType::Unknown => is_dir(dir, name),
                kind => kind == FileType::Directory,
            };
            path.truncate(self.path.len());
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            frame.add(
                name,
                is_dir,
                self.options.filter.judge_in(choice, &path, is_dir),
            );
            if self.held + frame.weight() > MOST_HELD {
                return Err(Errno::NOMEM);
            }
        }
        frame.sort();
        Ok(frame)
    }

    /// True for what is on another filesystem than the root, when only that one is wanted.
    fn is_beyond(&self, dir: &OwnedFd, name: &[u8], stat: &Stat) -> bool {
        self.options.one_file_system && !self.mounted.holds(dir, name, stat)
    }

    /// What an entry is; `None` when it is gone, or not wanted.
    fn look(&mut self, name: &[u8], batch: &mut Batch) -> Option<Found> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let dir = match self.descent.enter(&self.path, Way::Looking) {
            Ok(dir) => dir,
            Err(stop) => {
                if !is_gone(stop.errno) {
                    batch.complain(path, format!("cannot look: {}", said(stop.errno)));
                }
                return None;
            }
        };
        let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return None,
            Err(errno) => {
                batch.complain(path, format!("cannot look: {}", said(errno)));
                return None;
            }
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && self.is_beyond(&dir, name, &stat) {
            return None;
        }
        let mut entry = Entry::of(path, stat);
        let mut reading = None;
        match kind {
            FileType::Symlink => match rustix::fs::readlinkat(&dir, name, Vec::new()) {
                Ok(target) => entry.target = Some(target.into_bytes()),
                Err(Errno::NOENT | Errno::INVAL) => return None,
                Err(errno) => entry.error = Some(format!("cannot read link: {}", said(errno))),
            },
            FileType::RegularFile if self.options.digest.is_some() => {
                reading = self.read(&dir, name, &mut entry);
            }
            _ => {}
        }
        Some(Found { entry, reading })
    }

    /// Opens a file to be hashed, and hashes it where that takes no time.
    fn read(&mut self, dir: &Arc<OwnedFd>, name: &[u8], entry: &mut Entry) -> Option<Box<Reading>> {
        let algorithm = self.options.digest?;
        let ground = self.ground(dir, name, entry.stat.as_ref()?.st_dev);
        if ground == Ground::Pseudo {
            entry.error = Some("the kernel makes this file up: it has no settled content".into());
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty());
        let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, File::from(file))));
        let (stat, file) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => {
                entry.settle(Verdict::Changed);
                return None;
            }
            Err(errno) => {
                entry.error = Some(unreadable(errno));
                return None;
            }
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            entry.settle(Verdict::Changed);
            return None;
        }
        entry.stat = Some(stat);
        let reading = Reading::new(file, stat, ground == Ground::Local, algorithm.start());
        match Box::new(reading).at_once() {
            Ok(verdict) => {
                entry.settle(verdict);
                None
            }
            Err(reading) => Some(reading),
        }
    }

    /// What lies under an entry on this device: a single file can be a mount too.
    fn ground(&mut self, dir: &OwnedFd, name: &[u8], device: u64) -> Ground {
        *self.grounds.entry(device).or_insert_with(|| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(dir, name, flags, Mode::empty()) {
                Ok(fd) if mount::is_pseudo(&fd) => Ground::Pseudo,
                Ok(fd) if mount::is_local(&fd) => Ground::Local,
                _ => Ground::Far,
            }
        })
    }
}

impl Batch {
    fn tell(&mut self, entry: Entry) {
        self.found.push(Found {
            entry,
            reading: None,
        });
    }

    /// Says that something below a path is not told.
    fn complain(&mut self, path: Vec<u8>, why: String) {
        self.unread += 1;
        self.tell(Entry {
            path,
            stat: None,
            target: None,
            digest: None,
            error: Some(why),
        });
    }
}

impl Entry {
    fn of(path: Vec<u8>, stat: Stat) -> Self {
        Self {
            path,
            stat: Some(stat),
            target: None,
            digest: None,
            error: None,
        }
    }
}

impl Frame {
    fn weight(&self) -> usize {
        self.names.capacity() + self.steps.capacity() * size_of::<Step>()
    }

    /// Adds an entry as it is chosen.
    fn add(&mut self, name: &[u8], is_dir: bool, choice: Choice) {
        // The bound on what is held keeps places in 32 bits, and names have at most 255 bytes.
        let at = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        let step = Step {
            at,
            length,
            down: false,
            choice,
        };
        if choice == Choice::Skip {
            return;
        }
        self.names.extend_from_slice(name);
        if choice == Choice::Keep {
            self.steps.push(step);
        }
        if is_dir {
            self.steps.push(Step { down: true, ..step });
        }
    }

    /// Orders the steps, last first.
    fn sort(&mut self) {
        let names = &self.names;
        let name = |step: &Step| &names[step.at as usize..][..usize::from(step.length)];
        self.steps
            .sort_unstable_by(|a, b| order((name(b), b.down), (name(a), a.down)));
    }
}

fn is_dir(dir: &OwnedFd, name: &[u8]) -> bool {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Entries told at once.
pub(super) const MOST_ENTRIES: usize = 256;
/// Files opened in one turn, to be hashed later.
pub(super) const MOST_OPEN: usize = 32;
/// Steps of one turn: others wait for the helper thread.
const MOST_STEPS: usize = 4096;
/// Bytes of directory entries read at once.
const LISTING: usize = 32 * 1024;
/// Bytes of names under way at most: about a million entries of one directory.
const MOST_HELD: usize = 64 * 1024 * 1024;
