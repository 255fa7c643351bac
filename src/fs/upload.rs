//! One file written: whole or not at all, in place where a name cannot be replaced.
//!
//! ```text
//! prepare ──▶ receive ──▶ dress (mode, owner, time) ──▶ sync, when asked ──▶ publish ──▶ sync of the directory
//!    │            │                                                             │
//!    └ judged     └ small and here already: with the steps around it            └ judged again, one at a time
//! ```
//! All but receiving and syncing is done by helper threads; a small body that has arrived takes one of them once.

mod attributes;
mod beside;
mod place;
mod sparse;
mod special;
mod staged;
mod there;
mod turnstile;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::space;
use super::target::Target;
use super::version::Version;
use crate::error::{Error, Kind, Result};
use crate::ring::{Inflow, Step, buffers, copy, file, pool};
use crate::wire::tar::Moment;

pub use attributes::{Owner, parse_mode, parse_mtime};
pub(super) use beside::link;
use place::Place;

pub(super) use staged::Staged;
pub(super) use turnstile::Turn;

/// A write that is asked for.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Where to; relative to the working directory when it is relative.
    pub path: PathBuf,
    /// Permission bits to set, low 12; `None` keeps those of the file that is there, or takes 0666 less the umask.
    pub mode: Option<u32>,
    /// Who the file is to belong to; what is not given is kept.
    pub owner: Owner,
    /// The time of modification; `None` is now.
    pub mtime: Option<Moment>,
    /// Truncate and write the file that is there, instead of replacing it when the body is complete.
    pub in_place: bool,
    /// Make holes of blocks of zeros.
    pub sparse: bool,
    /// Bring the file, and its name, to the disk.
    pub sync: bool,
    /// What must hold of the file that is there.
    pub condition: Condition,
    /// Bytes that must stay free on the disk; 0 asks nothing.
    pub reserve: u64,
    /// Where the body waits when the file may be written but its directory may not.
    pub spool_dir: PathBuf,
}

/// A judgement on what is at a path, made before the body is taken and again when the file gets its name.
///
/// Between that last look and the name no other upload and no move to it comes in; a removal, a move away, an archive or
/// a process may.
#[derive(Clone, Default)]
pub struct Condition(Option<Arc<Judge>>);

type Judge = dyn Fn(Found) -> Result<()> + Send + Sync;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// Something of which no version can be told: a directory, a device, a file that the kernel makes up.
    Unversioned,
    /// A regular file.
    File(Version),
}

/// Writes `body` to the place that `upload` names, and answers with the version of the file; `None` where none can be
/// told.
///
/// # Errors
/// `Malformed` for a FIFO that nobody reads and for what cannot be had of a special file, the condition's,
/// `DiskFull` below the reserve or on a full disk, `Denied` for an owner or a time that we may not set, those of the
/// body, else `Internal`. Unless the file is written in place it is then as it was.
pub async fn write(upload: Upload, body: &mut dyn Inflow) -> Result<Option<Version>> {
    let upload = Arc::new(upload);
    let is_small = body
        .remaining()
        .is_some_and(|left| left <= buffers::LEASE as u64);
    let outcome = match is_small {
        true => write_small(&upload, body).await,
        false => write_large(&upload, body).await,
    };
    match outcome {
        Err(error) => Err(space::explained(error, &upload.path).await),
        outcome => outcome,
    }
}

impl Upload {
    /// Judges what is there.
    fn admit(&self, found: Found) -> Result<()> {
        match &self.condition.0 {
            Some(judge) => judge(found),
            None => Ok(()),
        }
    }

    fn is_conditional(&self) -> bool {
        self.condition.0.is_some()
    }
}

impl Condition {
    /// A condition that holds where `judge` says so; its error is the upload's.
    pub fn new(judge: impl Fn(Found) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(judge)))
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.0.is_some()).finish()
    }
}

impl Found {
    /// What has this status, on a disk.
    fn of(stat: Option<&Stat>) -> Self {
        match stat {
            None => Self::Nothing,
            Some(stat) if is_regular(stat) => Self::File(Version::of(stat)),
            Some(_) => Self::Unversioned,
        }
    }
}

/// A regular file on its way to its name, or to its new content.
trait Draft: Send {
    /// The file that the bytes go to.
    fn file(&self) -> &File;

    /// True when it is in the spool directory, whose filesystem may be another.
    fn is_aside(&self) -> bool {
        false
    }

    /// Looks again what it replaces, after the time that a body takes.
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    /// Gives the file all but its name.
    fn dress(&mut self, upload: &Upload) -> Result<()>;

    /// Makes it what the path leads to.
    fn publish(self: Box<Self>, upload: &Upload) -> Result<Published>;
}

/// A file that is what the path leads to.
struct Published {
    version: Version,
    /// What is to be brought to the disk yet.
    unsynced: Vec<File>,
}

/// What is left to do when all bytes are written.
enum Rest {
    /// The file is to be synced before it is published.
    Sync(Box<dyn Draft>),
    /// The directory is to be synced, if anything.
    Done(Published),
}

/// A small body: what is here of it already is written with no wait in between.
async fn write_small(upload: &Arc<Upload>, body: &mut dyn Inflow) -> Result<Option<Version>> {
    let mut buffer = buffers::lease();
    body.gather(&mut buffer)?;
    if body.remaining() == Some(0) {
        if buffer.is_empty() {
            // The read that finds the end is the one that tells whether the body is what it should be.
            copy::fill(body, &mut buffer).await?;
        }
        let (asked, bytes) = (Arc::clone(upload), buffer.take());
        let (outcome, bytes) = pool::run(move || {
            let outcome = Place::prepare(&asked).map(|place| match place.into_draft() {
                Ok(draft) => Ok(finish_small(draft, &asked, &bytes)),
                Err(kind) => Err(kind),
            });
            (outcome, bytes)
        })
        .await?;
        return match outcome? {
            Ok(rest) => {
                buffer.restore(bytes);
                conclude(upload, rest?).await.map(Some)
            }
            Err(kind) => write_special(upload, kind, &mut Behind { bytes, body }).await,
        };
    }
    let mut draft = match prepare(upload).await?.into_draft() {
        Ok(draft) => draft,
        Err(kind) => {
            let bytes = buffer.take();
            return write_special(upload, kind, &mut Behind { bytes, body }).await;
        }
    };
    let filled = copy::fill(body, &mut buffer).await;
    let (asked, bytes) = (Arc::clone(upload), buffer.take());
    let (outcome, bytes) = pool::run(move || {
        // Also when it failed the draft goes here: whoever reads of it finds no trace of the body.
        let outcome = filled.and_then(|_| draft.refresh());
        (
            outcome.and_then(|()| finish_small(draft, &asked, &bytes)),
            bytes,
        )
    })
    .await?;
    buffer.restore(bytes);
    conclude(upload, outcome?).await.map(Some)
}

/// The rest of a body, behind what was gathered of it.
struct Behind<'b> {
    bytes: Vec<u8>,
    body: &'b mut dyn Inflow,
}

impl Inflow for Behind<'_> {
    fn remaining(&self) -> Option<u64> {
        let left = self.body.remaining()?;
        Some(left + self.bytes.len() as u64)
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize> {
        if self.bytes.is_empty() {
            return self.body.read(into);
        }
        let count = self.bytes.len().min(into.capacity() - into.len());
        into.extend(self.bytes.drain(..count));
        Box::pin(async move { Ok(count) })
    }
}

async fn write_large(upload: &Arc<Upload>, body: &mut dyn Inflow) -> Result<Option<Version>> {
    let mut draft = match prepare(upload).await?.into_draft() {
        Ok(draft) => draft,
        Err(kind) => return write_special(upload, kind, body).await,
    };
    let received = receive(draft.as_ref(), upload, body).await;
    let asked = Arc::clone(upload);
    let finished = pool::run(move || {
        let length = received?;
        draft.refresh()?;
        finish(draft, &asked, length)
    });
    conclude(upload, finished.await??).await.map(Some)
}

async fn prepare(upload: &Arc<Upload>) -> Result<Place> {
    let asked = Arc::clone(upload);
    pool::run(move || Place::prepare(&asked)).await?
}

async fn write_special(
    upload: &Upload,
    kind: FileType,
    body: &mut dyn Inflow,
) -> Result<Option<Version>> {
    special::write(upload, kind, body).await.map(|()| None)
}

/// Writes the body to the file of the draft, and answers how many bytes there were.
async fn receive(draft: &dyn Draft, upload: &Upload, body: &mut dyn Inflow) -> Result<u64> {
    let file = draft.file();
    let place = match draft.is_aside() {
        true => &upload.spool_dir,
        false => &upload.path,
    };
    let go_on = async || space::recheck(file, place, upload.reserve).await;
    let received = match upload.sparse {
        true => sparse::to_file(body, file, go_on).await,
        false => copy::to_file(body, file, go_on).await,
    };
    match received {
        Err(error) if draft.is_aside() => Err(space::explained(error, place).await),
        received => received,
    }
}

/// Writes all the bytes and finishes; for helper threads.
fn finish_small(draft: Box<dyn Draft>, upload: &Upload, bytes: &[u8]) -> Result<Rest> {
    let written = match upload.sparse {
        true => sparse::write_at(draft.file(), bytes, 0),
        false => draft.file().write_all_at(bytes, 0),
    };
    written.map_err(|error| match draft.is_aside() {
        // The disk that is full is not that of the target.
        true => space::explained_here(unmade(error), &upload.spool_dir),
        false => unmade(error),
    })?;
    finish(draft, upload, bytes.len() as u64)
}

/// Does what comes after the bytes; for helper threads.
fn finish(mut draft: Box<dyn Draft>, upload: &Upload, length: u64) -> Result<Rest> {
    if upload.sparse {
        draft.file().set_len(length).map_err(unmade)?;
    }
    draft.dress(upload)?;
    match upload.sync {
        true => Ok(Rest::Sync(draft)),
        false => draft.publish(upload).map(Rest::Done),
    }
}

async fn conclude(upload: &Arc<Upload>, rest: Rest) -> Result<Version> {
    let Published { version, unsynced } = match rest {
        Rest::Done(published) => published,
        Rest::Sync(draft) => {
            let synced = file::sync(draft.file()).await;
            let asked = Arc::clone(upload);
            let published = pool::run(move || {
                synced.map_err(unsynced_file)?;
                draft.publish(&asked)
            });
            published.await??
        }
    };
    for file in unsynced {
        file::sync(&file).await.map_err(unsynced_file)?;
    }
    Ok(version)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The version of an open file.
fn version(file: &File) -> Result<Version> {
    let stat = rustix::fs::fstat(file).map_err(unwritten)?;
    Ok(Version::of(&stat))
}

/// Opens the file that is there for writing.
fn open_there(target: &Target) -> Result<File> {
    let file = rustix::fs::openat(&target.dir, target.leaf.as_slice(), WRITING, Mode::empty());
    file.map(File::from).map_err(unwritten)
}

fn unwritten(errno: Errno) -> Error {
    unmade(errno.into())
}

fn unmade(error: std::io::Error) -> Error {
    space::failed(error, CANNOT_WRITE)
}

fn unsynced_file(error: std::io::Error) -> Error {
    space::failed(error, "cannot sync file")
}

const CANNOT_WRITE: &str = "cannot write file";
const WRITING: OFlags = OFlags::WRONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests;
