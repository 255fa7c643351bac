//! A tree packed into an archive while it is sent.
//!
//! Heads and small files go through one buffer: what is cached is read into it at once, what is not leaves a gap that
//! a batch of reads fills before the buffer is sent. Large files go from the page cache to the sink. What is not on a
//! local filesystem is opened and read by helper threads only: even an open that is cached may ask its server.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};

use super::confine::{Descent, Stop, Way, openat2};
use super::lent::Lent;
pub use super::walk::Limits;
use super::walk::{self, Item, More, Plan, ROOT};
use crate::error::{Error, Kind, Result};
use crate::ring::batch::{self, Wanted};
use crate::ring::{Outflow, pool, turn};
use crate::wire::tar::{Segment, Type, write};

/// An archive to be: every member known, no data read.
pub struct Pack {
    root: PathBuf,
    plan: Plan,
    descent: Descent,
}

/// Walks the tree below `path`, relative to the working directory when it is relative.
///
/// # Errors
/// `NotFound`, `Malformed` when it is no directory, `TooLarge` beyond `limits`, else `Internal`.
pub async fn plan(path: &Path, limits: Limits) -> Result<Pack> {
    let path = path.to_owned();
    pool::run(move || {
        let root = walk::open(&path)?;
        let (plan, descent) = walk::walk(root, &path, limits)?;
        Ok(Pack {
            root: path,
            plan,
            descent,
        })
    })
    .await?
}

impl Pack {
    /// Bytes of the archive.
    pub fn length(&self) -> u64 {
        self.plan.length
    }

    /// Sends the archive: exactly [`Pack::length`] bytes.
    ///
    /// # Errors
    /// Those of the sink; `Internal` when a file is shorter than it was, or gone.
    pub async fn send(self, sink: &mut dyn Outflow) -> Result<()> {
        let Self {
            root,
            plan,
            descent,
        } = self;
        let mut packer = Packer {
            root,
            plan,
            descent: Some(descent),
            directory: None,
            out: Vec::with_capacity(FLUSH + batch_limit()),
            gaps: Vec::new(),
            path: Vec::new(),
            link: Vec::new(),
        };
        for index in 0..packer.plan.items.len() {
            packer.member(index, sink).await?;
            if packer.out.len() >= FLUSH || packer.gaps.len() >= batch::MOST {
                packer.flush(sink).await?;
            }
        }
        packer.out.extend_from_slice(&write::END);
        packer.flush(sink).await
    }
}

struct Packer {
    /// The path of the tree, for sentences.
    root: PathBuf,
    plan: Plan,
    /// Away while a helper uses it.
    descent: Option<Descent>,
    /// The directory that was used last, by its place in the plan.
    directory: Option<(u32, Arc<OwnedFd>)>,
    /// What is to be sent.
    out: Vec<u8>,
    /// Files whose bytes are missing in `out`.
    gaps: Vec<Gap>,
    path: Vec<u8>,
    link: Vec<u8>,
}

struct Gap {
    item: usize,
    /// True when only helpers may read it.
    far: bool,
    /// Where in `out` its bytes go.
    at: usize,
    wanted: Wanted,
}

impl Packer {
    async fn member(&mut self, index: usize, sink: &mut dyn Outflow) -> Result<()> {
        let item = self.plan.items[index];
        self.head(index, &item);
        if item.kind != Type::File || item.size == 0 {
            return Ok(());
        }
        let dir = self.enter(item.parent).await?;
        match usize::try_from(item.size) {
            Ok(size) if size < LARGE && matches!(item.more, More::Nothing) => {
                self.small(index, dir, size)?;
                write::pad(item.size, &mut self.out);
                Ok(())
            }
            _ => self.large(index, &item, dir, sink).await,
        }
    }

    fn head(&mut self, index: usize, item: &Item) {
        // The index comes from the plan, which counts in 32 bits.
        self.plan
            .path(u32::try_from(index).unwrap_or(0), &mut self.path);
        self.link.clear();
        match item.more {
            More::Twin(twin) => self.plan.path(twin, &mut self.link),
            _ => self.link.extend_from_slice(self.plan.target(item)),
        }
        let device = matches!(item.kind, Type::CharDevice | Type::BlockDevice);
        let head = write::Head {
            path: if index == 0 { ROOT } else { &self.path },
            link: &self.link,
            kind: item.kind,
            mode: item.mode.into(),
            uid: item.uid,
            gid: item.gid,
            mtime: item.mtime,
            size: if device { 0 } else { item.size },
            device: if device {
                (rustix::fs::major(item.size), rustix::fs::minor(item.size))
            } else {
                (0, 0)
            },
            runs: self.plan.runs(item),
        };
        head.write(&mut self.out);
    }

    /// Takes a small file into the buffer, or leaves a gap for it.
    fn small(&mut self, index: usize, dir: Arc<OwnedFd>, size: usize) -> Result<()> {
        let item = &self.plan.items[index];
        let name = self.plan.name(item);
        let at = self.out.len();
        self.out.resize(at + size, 0);
        if item.local
            && let Ok(file) = openat2(&dir, name, READING, ResolveFlags::CACHED)
        {
            let mut slices = [IoSliceMut::new(&mut self.out[at..])];
            let read = rustix::io::preadv2(&file, &mut slices, 0, ReadWriteFlags::NOWAIT);
            if read == Ok(size) {
                return Ok(());
            }
        }
        let name = CString::new(name)
            .map_err(|error| Kind::Internal.told("cannot read file").because(error))?;
        self.gaps.push(Gap {
            item: index,
            far: !item.local,
            at,
            wanted: Wanted { dir, name, size },
        });
        Ok(())
    }

    async fn large(
        &mut self,
        index: usize,
        item: &Item,
        dir: Arc<OwnedFd>,
        sink: &mut dyn Outflow,
    ) -> Result<()> {
        self.flush(sink).await?;
        let file = self.open(index, item, dir).await?;
        let whole = [Segment {
            offset: 0,
            length: item.size,
        }];
        let runs = self.plan.runs(item).unwrap_or(&whole);
        let mut stored = 0;
        for run in runs.iter().filter(|run| run.length > 0) {
            file.send(*run, sink).await?;
            stored += run.length;
        }
        write::pad(stored, &mut self.out);
        Ok(())
    }

    async fn open(&self, index: usize, item: &Item, dir: Arc<OwnedFd>) -> Result<Lent> {
        let name = self.plan.name(item);
        let cached = match item.local {
            true => openat2(&dir, name, READING, ResolveFlags::CACHED).ok(),
            false => None,
        };
        let opened = match cached {
            Some(file) => known(file),
            None => {
                let name = name.to_vec();
                let flags = READING | OFlags::CLOEXEC;
                pool::run(move || {
                    rustix::fs::openat(&dir, name, flags, Mode::empty()).and_then(known)
                })
                .await?
            }
        };
        let (file, stat) = opened.map_err(|errno| self.changed(index).because(errno))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let file = Lent::to_read(file, size, item.local);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size < item.size {
            return Err(self.changed(index));
        }
        Ok(file)
    }

    /// The descriptor of a directory of the plan.
    async fn enter(&mut self, index: u32) -> Result<Arc<OwnedFd>> {
        if let Some((known, dir)) = &self.directory
            && *known == index
        {
            return Ok(Arc::clone(dir));
        }
        let mut path = Vec::new();
        self.plan.path(index, &mut path);
        let gone = |Stop { errno, .. }| {
            Kind::Internal
                .told("a directory is gone since it was walked")
                .because(errno)
        };
        let Some(mut descent) = self.descent.take() else {
            return Err(Kind::Internal.told("cannot read directory"));
        };
        let cached = match self.plan.items[index as usize].local {
            true => descent.enter(&path, Way::Cached).ok(),
            false => None,
        };
        let entered = match cached {
            Some(dir) => Ok(dir),
            None => {
                let (back, entered) = pool::run(move || {
                    let entered = descent.enter(&path, Way::Looking);
                    (descent, entered)
                })
                .await?;
                descent = back;
                entered
            }
        };
        self.descent = Some(descent);
        let dir = entered.map_err(gone)?;
        self.directory = Some((index, Arc::clone(&dir)));
        Ok(dir)
    }

    /// Fills the gaps and sends the buffer.
    async fn flush(&mut self, sink: &mut dyn Outflow) -> Result<()> {
        if !self.gaps.is_empty() {
            sink.flush().await?;
            let gaps = std::mem::take(&mut self.gaps);
            let (far, near): (Vec<_>, Vec<_>) = gaps.into_iter().partition(|gap| gap.far);
            if !near.is_empty() {
                let read = batch::read_files(wanted(&near)).await;
                self.fill(&near, read)?;
            }
            if !far.is_empty() {
                let wanted = wanted(&far);
                let read = pool::run(move || wanted.iter().map(read).collect()).await?;
                self.fill(&far, read)?;
            }
        }
        if !self.out.is_empty() {
            sink.write(&self.out).await?;
            self.out.clear();
            // A sink that takes everything at once gives nobody else a turn.
            turn().await;
        }
        Ok(())
    }

    fn fill(&mut self, gaps: &[Gap], read: Vec<std::io::Result<Vec<u8>>>) -> Result<()> {
        for (gap, bytes) in gaps.iter().zip(read) {
            let bytes = bytes.map_err(|error| self.changed(gap.item).because(error))?;
            let place = &mut self.out[gap.at..gap.at + gap.wanted.size];
            if bytes.len() < place.len() {
                return Err(self.changed(gap.item));
            }
            place.copy_from_slice(&bytes[..gap.wanted.size]);
        }
        Ok(())
    }

    fn changed(&self, index: usize) -> Error {
        let mut path = Vec::new();
        self.plan.path(u32::try_from(index).unwrap_or(0), &mut path);
        let name = self.root.join(OsStr::from_bytes(&path));
        let name = name.display();
        Kind::Internal.told(format!(
            "{name} is gone, or shorter than when it was planned"
        ))
    }
}

fn wanted(gaps: &[Gap]) -> Vec<Wanted> {
    gaps.iter().map(|gap| gap.wanted.clone()).collect()
}

/// Reads a small file; for helper threads.
fn read(wanted: &Wanted) -> std::io::Result<Vec<u8>> {
    let flags = READING | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&wanted.dir, &wanted.name, flags, Mode::empty())?;
    let mut bytes = vec![0; wanted.size];
    File::from(file).read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// An open file, and what it is.
fn known(file: OwnedFd) -> std::result::Result<(File, Stat), Errno> {
    let stat = rustix::fs::fstat(&file)?;
    Ok((file.into(), stat))
}

/// Bytes that the buffer may grow by past [`FLUSH`].
const fn batch_limit() -> usize {
    LARGE + 4096
}

const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK);
/// Bytes gathered before they are sent.
const FLUSH: usize = 1024 * 1024;
/// From this size on a file is sent from the page cache.
const LARGE: usize = 256 * 1024;

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
