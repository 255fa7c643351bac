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
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};

use super::confine::{Way, openat2};
use super::lent::Lent;
pub use super::listed::Listed;
use super::plan::{Item, More, Plan};
use super::tree::{self, Tree};
pub use super::tree::{Limits, Options};
use super::walk::walk;
use crate::error::{Error, Kind, Result};
use crate::ring::batch::{self, Wanted};
use crate::ring::{Outflow, pool, turn};
use crate::wire::tar::{Segment, Type, write};

/// An archive to be: every member known, no data read.
pub struct Pack {
    root: PathBuf,
    plan: Plan,
    tree: Tree,
}

/// Somebody who waits for a walk; dropped, it is given up.
#[derive(Default)]
struct Asked {
    is_given_up: Arc<AtomicBool>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Walks the tree below `path`, relative to the working directory when it is relative.
///
/// # Errors
/// `NotFound` for the tree or a listed name, `Malformed` when it is no directory, `TooLarge` beyond the limits, else
/// `Internal`. Dropped, it ends the walk.
pub async fn plan(path: &Path, options: Options) -> Result<Pack> {
    let path = path.to_owned();
    let asked = Asked::default();
    let is_given_up = Arc::clone(&asked.is_given_up);
    pool::run(move || {
        let root = tree::open(&path)?;
        let (plan, tree) = walk(root, &path, &options, &is_given_up)?;
        Ok(Pack {
            root: path,
            plan,
            tree,
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
        let Self { root, plan, tree } = self;
        let mut packer = Packer {
            root,
            plan,
            follow: tree.follow.clone(),
            tree: Some(tree),
            directory: None,
            out: Vec::with_capacity(FIRST + batch_limit()),
            gaps: Vec::new(),
            path: Vec::new(),
            link: Vec::new(),
        };
        // The first bytes leave early, so that nobody waits for more than the walk.
        let (mut enough, mut most) = (FIRST, FIRST_BATCH);
        for at in 0..packer.plan.order.len() {
            let index = packer.plan.order[at];
            if !packer.plan.items[index as usize].alive {
                continue;
            }
            packer.member(index, sink).await?;
            if packer.out.len() >= enough || packer.gaps.len() >= most {
                packer.flush(sink).await?;
                enough = FLUSH.min(enough * 2);
                most = batch::MOST.min(most * 2);
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
    tree: Option<Tree>,
    /// The root, where links are followed.
    follow: Option<Arc<OwnedFd>>,
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
    item: u32,
    /// True when only helpers may read it.
    far: bool,
    /// True when its name is that of a link, seen from the root.
    followed: bool,
    /// Where in `out` its bytes go.
    at: usize,
    wanted: Wanted,
}

impl Packer {
    async fn member(&mut self, index: u32, sink: &mut dyn Outflow) -> Result<()> {
        let item = self.plan.items[index as usize];
        let (head, extra) = self.plan.head(index, &mut self.path, &mut self.link);
        head.write_with(&extra, &mut self.out);
        if item.kind != Type::File || item.size == 0 {
            return Ok(());
        }
        let dir = match &self.follow {
            Some(root) if item.followed => Arc::clone(root),
            _ => self.enter(item.parent).await?,
        };
        match usize::try_from(item.size) {
            Ok(size) if size < LARGE && matches!(item.more, More::Nothing) => {
                self.small(index, &item, dir, size)?;
                write::pad(item.size, &mut self.out);
                Ok(())
            }
            _ => self.large(index, &item, dir, sink).await,
        }
    }

    /// The name of an item in the directory from which it is opened.
    fn name(&self, index: u32, item: &Item) -> Vec<u8> {
        let mut name = Vec::new();
        match item.followed {
            true => self.plan.path(index, &mut name),
            false => name.extend_from_slice(self.plan.name(item)),
        }
        name
    }

    /// Takes a small file into the buffer, or leaves a gap for it.
    fn small(&mut self, index: u32, item: &Item, dir: Arc<OwnedFd>, size: usize) -> Result<()> {
        let at = self.out.len();
        self.out.resize(at + size, 0);
        if item.local
            && let Ok(file) = openat2(&dir, self.plan.name(item), READING, ResolveFlags::CACHED)
        {
            let mut slices = [IoSliceMut::new(&mut self.out[at..])];
            let read = rustix::io::preadv2(&file, &mut slices, 0, ReadWriteFlags::NOWAIT);
            if read == Ok(size) {
                return Ok(());
            }
        }
        let name = CString::new(self.name(index, item))
            .map_err(|error| Kind::Internal.told("cannot read file").because(error))?;
        self.gaps.push(Gap {
            item: index,
            far: !item.local,
            followed: item.followed,
            at,
            wanted: Wanted { dir, name, size },
        });
        Ok(())
    }

    async fn large(
        &mut self,
        index: u32,
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

    async fn open(&self, index: u32, item: &Item, dir: Arc<OwnedFd>) -> Result<Lent> {
        let cached = match item.local {
            true => openat2(&dir, self.plan.name(item), READING, ResolveFlags::CACHED).ok(),
            false => None,
        };
        let opened = match cached {
            Some(file) => known(file),
            None => {
                let (name, followed) = (self.name(index, item), item.followed);
                pool::run(move || open(&dir, &name, followed).and_then(known)).await?
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
        let Some(mut tree) = self.tree.take() else {
            return Err(Kind::Internal.told("cannot read directory"));
        };
        let cached = match self.plan.items[index as usize].local {
            true => tree.enter(&path, Way::Cached).ok(),
            false => None,
        };
        let entered = match cached {
            Some(dir) => Ok(dir),
            None => {
                let (back, entered) = pool::run(move || {
                    let entered = tree.enter(&path, Way::Looking);
                    (tree, entered)
                })
                .await?;
                tree = back;
                entered
            }
        };
        self.tree = Some(tree);
        let dir = entered.map_err(|errno| {
            Kind::Internal
                .told("a directory is gone since it was walked")
                .because(errno)
        })?;
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
                let wanted: Vec<_> = far
                    .iter()
                    .map(|gap| (gap.wanted.clone(), gap.followed))
                    .collect();
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

    fn changed(&self, index: u32) -> Error {
        let mut path = Vec::new();
        self.plan.path(index, &mut path);
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
fn read((wanted, followed): &(Wanted, bool)) -> std::io::Result<Vec<u8>> {
    let file = open(&wanted.dir, wanted.name.as_bytes(), *followed)?;
    let mut bytes = vec![0; wanted.size];
    File::from(file).read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Opens a file to read it; for helper threads.
fn open(dir: &OwnedFd, name: &[u8], followed: bool) -> std::result::Result<OwnedFd, Errno> {
    match followed {
        true => tree::follow(dir, name, OFlags::RDONLY | OFlags::NONBLOCK),
        false => rustix::fs::openat(dir, name, READING | OFlags::CLOEXEC, Mode::empty()),
    }
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
/// Bytes gathered before the first are sent, and files read at once then; both double up to the whole.
const FIRST: usize = 64 * 1024;
const FIRST_BATCH: usize = 8;
/// Bytes gathered before they are sent.
const FLUSH: usize = 1024 * 1024;
/// From this size on a file is sent from the page cache.
const LARGE: usize = 256 * 1024;

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
