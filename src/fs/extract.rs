//! An archive extracted below a root: spooled, checked as a whole and then written, or written while it arrives.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::check::Model;
use super::confine::Descent;
use super::lent;
use super::member::{Action, Entry};
use super::space;
use super::spool::{Archive, Spool};
use super::unpack::{self, Unpacker};
use crate::error::{Kind, Result};
use crate::ring::{self, Inflow, buffers, copy, pool};
use crate::wire::tar::{Event, Scanner};

/// What bounds an extraction.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Members of an archive at most.
    pub members: u64,
    /// Bytes of all its files together at most, holes included.
    pub bytes: u64,
    /// Bytes that must stay free on the disk; 0 asks nothing.
    pub reserve: u64,
    /// Where archives are spooled.
    pub spool_dir: PathBuf,
    /// Bytes of an archive that may be spooled in memory.
    pub spool_memory: u64,
}

/// Extracts `body` below `root`; what is wrong with it is found before anything below `root` is touched.
///
/// Once all of the body is here the extraction goes on to its end, also when the caller is gone.
///
/// # Errors
/// `Malformed` for a broken archive or a member that is refused, `TooLarge`, `DiskFull`, those of the body;
/// `Internal` when the filesystem refuses.
pub async fn spooled(root: &Path, body: &mut dyn Inflow, limits: &Limits) -> Result<()> {
    preflight(root, limits.reserve).await?;
    let mut intake = Intake::new(limits);
    let mut entries = Vec::new();
    let mut kept = 0;
    let mut spool = Spool::new(&limits.spool_dir, limits.spool_memory, limits.reserve);
    let mut buffer = buffers::lease();
    loop {
        let ended = copy::fill(body, &mut buffer).await?;
        let mut bytes = buffer.as_slice();
        while let Some(found) = intake.next(&mut bytes)? {
            let Found::Member(entry) = found else {
                continue;
            };
            kept += entry.weight();
            if kept > MOST_KEPT {
                return Err(Kind::TooLarge.told("archive has names that are too long together"));
            }
            entries.push(entry);
        }
        // What stands behind the end marker belongs to the message, but not to the archive.
        let behind = bytes.len();
        let length = buffer.len() - behind;
        buffer.truncate(length);
        if !buffer.is_empty() {
            spool.append(&mut buffer).await?;
        }
        buffer.clear();
        if ended {
            break;
        }
    }
    intake.scanner.finish()?;
    drop(buffer);
    let (root, limits) = (root.to_owned(), limits.clone());
    let extraction = ring::detached("extract", async move {
        Extraction::begin(root, entries, spool.close(), intake, limits)
            .await?
            .run()
            .await
    });
    let outcome = extraction.await;
    outcome.unwrap_or_else(|| Err(Kind::Internal.told("tar operation failed")))
}

/// Extracts `body` below `root` while it arrives; what is refused leaves what was extracted before.
///
/// # Errors
/// As [`spooled`].
pub async fn streamed(root: &Path, body: &mut dyn Inflow, limits: &Limits) -> Result<()> {
    preflight(root, limits.reserve).await?;
    let (path, reserve) = (root.to_owned(), limits.reserve);
    let made = pool::run(move || {
        unpack::make_root(&path).map(|descent| Unpacker::new(descent, path, reserve))
    });
    let mut stream = Stream {
        intake: Intake::new(limits),
        unpacker: Concluding(Some(made.await??)),
    };
    let mut buffer = buffers::lease();
    loop {
        let ended = match copy::fill(body, &mut buffer).await {
            Ok(ended) => ended,
            Err(error) => {
                // When the client reads of it, what was extracted has its modes and times.
                pool::run(move || drop(stream)).await?;
                return Err(error);
            }
        };
        let bytes = buffer.take();
        let (rest, outcome, bytes) = pool::run(move || {
            let outcome = stream.take(&bytes, ended);
            let goes_on = outcome.is_ok() && !ended;
            (goes_on.then_some(stream), outcome, bytes)
        })
        .await?;
        buffer.restore(bytes);
        buffer.clear();
        outcome?;
        match rest {
            Some(rest) => stream = rest,
            None => return Ok(()),
        }
    }
}

async fn preflight(root: &Path, reserve: u64) -> Result<()> {
    let root = root.to_owned();
    pool::run(move || space::check(&root, reserve)).await?
}

/// Members as they arrive, judged and counted.
struct Intake {
    scanner: Scanner,
    members: u64,
    bytes: u64,
    most_members: u64,
    most_bytes: u64,
}

enum Found<'a> {
    Member(Entry),
    Data(&'a [u8]),
}

impl Intake {
    fn new(limits: &Limits) -> Self {
        Self {
            scanner: Scanner::default(),
            members: 0,
            bytes: 0,
            most_members: limits.members,
            most_bytes: limits.bytes,
        }
    }

    /// The next thing found in `bytes`; `None` when they are used up or the archive is over.
    fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Found<'a>>> {
        let member = match self.scanner.feed(bytes)? {
            Event::More | Event::End => return Ok(None),
            Event::Data(piece) => return Ok(Some(Found::Data(piece))),
            Event::Member(member) => member,
        };
        self.members += 1;
        if self.members > self.most_members {
            return Err(Kind::TooLarge.told(format!(
                "archive has more than {} members",
                self.most_members
            )));
        }
        let entry = Entry::judge(member)?;
        if let Action::File(content) = &entry.action {
            self.bytes = self.bytes.saturating_add(content.size);
        }
        if self.bytes > self.most_bytes {
            return Err(Kind::TooLarge.told(format!(
                "archive exceeds {} uncompressed bytes",
                self.most_bytes
            )));
        }
        Ok(Some(Found::Member(entry)))
    }
}

/// An unpacker that concludes however the extraction ends; it is dropped on a helper thread where somebody waits.
struct Concluding(Option<Unpacker>);

impl Concluding {
    fn get(&mut self) -> &mut Unpacker {
        self.0
            .as_mut()
            .expect("an unpacker is there until it is dropped")
    }
}

impl Drop for Concluding {
    fn drop(&mut self) {
        if let Some(mut unpacker) = self.0.take() {
            lent::let_go(move || unpacker.conclude());
        }
    }
}

/// An extraction without a spool.
struct Stream {
    intake: Intake,
    unpacker: Concluding,
}

impl Stream {
    fn take(&mut self, mut bytes: &[u8], ended: bool) -> Result<()> {
        let unpacker = self.unpacker.get();
        while let Some(found) = self.intake.next(&mut bytes)? {
            match found {
                Found::Member(entry) => {
                    unpacker.finish()?;
                    unpacker.begin(&entry)?;
                }
                Found::Data(piece) => unpacker.write(piece)?,
            }
        }
        if ended {
            self.intake.scanner.finish()?;
            unpacker.finish()?;
        }
        Ok(())
    }
}

/// An extraction of an archive that is all here, done in slices so that others get their turn on the helper threads.
struct Extraction {
    entries: std::vec::IntoIter<Entry>,
    archive: Archive,
    unpacker: Concluding,
    /// What is left to write of the file that was begun last: offset in the archive, and bytes.
    left: (u64, u64),
}

impl Extraction {
    async fn begin(
        root: PathBuf,
        entries: Vec<Entry>,
        archive: Archive,
        intake: Intake,
        limits: Limits,
    ) -> Result<Self> {
        pool::run(move || {
            check(&root, &entries, &intake, &limits)?;
            let descent = unpack::make_root(&root)?;
            Ok(Self {
                entries: entries.into_iter(),
                archive,
                unpacker: Concluding(Some(Unpacker::new(descent, root, limits.reserve))),
                left: (0, 0),
            })
        })
        .await?
    }

    async fn run(mut self) -> Result<()> {
        loop {
            let (rest, outcome) = pool::run(move || {
                let outcome = self.slice();
                let goes_on = matches!(outcome, Ok(false));
                (goes_on.then_some(self), outcome)
            })
            .await?;
            outcome?;
            match rest {
                Some(rest) => self = rest,
                None => return Ok(()),
            }
        }
    }

    /// Some of the work; true when all is done.
    fn slice(&mut self) -> Result<bool> {
        let mut budget = SLICE;
        let unpacker = self.unpacker.get();
        while budget > 0 {
            let (at, left) = self.left;
            if left > 0 {
                let piece = self.archive.piece(at, left);
                let piece =
                    piece.map_err(|error| space::failed(error, "the spool cannot be read"))?;
                unpacker.write(piece)?;
                let length = piece.len() as u64;
                self.left = (at + length, left - length);
                budget = budget.saturating_sub(length);
                continue;
            }
            unpacker.finish()?;
            let Some(entry) = self.entries.next() else {
                return Ok(true);
            };
            unpacker.begin(&entry)?;
            if let Action::File(content) = &entry.action {
                self.left = (content.at, content.stored);
            }
            budget = budget.saturating_sub(MEMBER_COST);
        }
        Ok(false)
    }
}

/// Refuses what extraction would refuse, from the members, the tree that is there and the space that is free.
fn check(root: &Path, entries: &[Entry], intake: &Intake, limits: &Limits) -> Result<()> {
    let disk = match Descent::open(root) {
        Ok(descent) => Some(descent),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(Kind::Internal.told("tar operation failed").because(errno)),
    };
    let stored = |entry: &Entry| match &entry.action {
        Action::File(content) => content.stored,
        _ => 0,
    };
    let fresh = disk.is_none() && limits.reserve > 0;
    // A tree that replaces another gives space back, so only a new one can be judged beforehand.
    let bytes = if fresh {
        entries.iter().map(stored).sum()
    } else {
        0
    };
    space::check(root, limits.reserve.saturating_add(bytes))?;
    let most = intake
        .most_members
        .saturating_mul(NAMES_PER_MEMBER)
        .saturating_add(1);
    let mut model = Model::new(disk, usize::try_from(most).unwrap_or(usize::MAX));
    entries.iter().try_for_each(|entry| model.play(entry))
}

/// Bytes written per slice, and what a member counts for beside its data.
const SLICE: u64 = 32 * 1024 * 1024;
const MEMBER_COST: u64 = 16 * 1024;
/// Bytes of names, targets and sparse maps that are kept while an archive is spooled.
const MOST_KEPT: u64 = 128 * 1024 * 1024;
/// Names that the check may come to know, for each member allowed: members imply directories.
const NAMES_PER_MEMBER: u64 = 16;

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
