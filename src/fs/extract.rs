//! An archive extracted below a root: spooled, checked as a whole and then written, or written while it arrives.

use std::future::poll_fn;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use rustix::io::Errno;

use super::check::Model;
use super::confine::Descent;
use super::journal::Journal;
use super::landing::{Landed, Landings};
use super::lent;
use super::member::Entry;
use super::space;
use super::spool::{Archive, Spool};
use super::unpack::{self, Unpacker};
use crate::error::{Kind, Result};
use crate::ring::buffers::Lease;
use crate::ring::{self, Inflow, buffers, copy, pool};
use crate::wire::tar::{Event, Scanner, Type};

pub use super::member::Terms;

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
pub async fn spooled(
    root: &Path,
    body: &mut dyn Inflow,
    limits: &Limits,
    terms: Terms,
) -> Result<()> {
    preflight(root, limits.reserve).await?;
    let mut arrival = Arrival {
        intake: Intake::new(limits, terms),
        journal: Journal::new(terms.strip),
        spool: Spool::new(&limits.spool_dir, limits.spool_memory, limits.reserve),
        landings: Landings::new(root, limits.reserve),
    };
    let mut buffer = buffers::lease();
    loop {
        let ended = copy::fill(body, &mut buffer).await?;
        arrival.take(&mut buffer).await?;
        if ended {
            break;
        }
    }
    drop(buffer);
    let arrived = arrival.close()?;
    let (path, limits) = (root.to_owned(), limits.clone());
    let extraction = ring::detached("extract", async move {
        let begun = pool::run(move || Extraction::begin(arrived, path, &limits, terms));
        begun.await??.run().await
    });
    let outcome = extraction.await;
    let outcome = outcome.unwrap_or_else(|| Err(Kind::Internal.told("tar operation failed")));
    explained(outcome, root).await
}

/// Tells how much room there is where something did not fit.
async fn explained(outcome: Result<()>, root: &Path) -> Result<()> {
    match outcome {
        Err(error) => Err(space::explained(error, root).await),
        Ok(()) => Ok(()),
    }
}

/// Extracts `body` below `root` while it arrives; what is refused leaves what was extracted before.
///
/// # Errors
/// As [`spooled`].
pub async fn streamed(
    root: &Path,
    body: &mut dyn Inflow,
    limits: &Limits,
    terms: Terms,
) -> Result<()> {
    explained(stream(root, body, limits, terms).await, root).await
}

async fn stream(root: &Path, body: &mut dyn Inflow, limits: &Limits, terms: Terms) -> Result<()> {
    preflight(root, limits.reserve).await?;
    let (path, reserve) = (root.to_owned(), limits.reserve);
    let made = pool::run(move || {
        unpack::make_root(&path).map(|descent| Unpacker::new(descent, path, reserve))
    });
    let mut stream = Stream {
        intake: Intake::new(limits, terms),
        unpacker: Concluding(Some(made.await??)),
        landed: Landed::default(),
    };
    let mut full = buffers::lease();
    let mut ended = false;
    let mut filled = copy::fill(body, &mut full).await;
    loop {
        if matches!(filled, Ok(false)) {
            filled = stream.pour(body, &mut full).await;
        }
        match filled {
            Ok(last) => ended |= last,
            Err(error) => {
                // When the client reads of it, what was extracted has its modes and times.
                pool::run(move || drop(stream)).await?;
                return Err(error);
            }
        }
        let bytes = full.take();
        let job = pool::run(move || {
            let outcome = stream.take(&bytes).and_then(|()| match ended {
                true => stream.end(),
                false => Ok(()),
            });
            let goes_on = outcome.is_ok() && !ended;
            let rest = goes_on.then_some(stream);
            outcome.map(|()| (rest, bytes))
        });
        // The next piece arrives while this one is written.
        let mut next = buffers::lease();
        let arrives = async {
            match ended {
                true => Ok(true),
                false => copy::fill(body, &mut next).await,
            }
        };
        let (written, arrived) = beside(job, arrives).await?;
        let (rest, bytes) = written;
        full.restore(bytes);
        match rest {
            Some(rest) => stream = rest,
            None => return Ok(()),
        }
        filled = arrived;
        full = next;
    }
}

/// Waits for both, or for the failure of the first alone.
async fn beside<T, U>(
    job: impl Future<Output = Result<Result<T>>>,
    other: impl Future<Output = U>,
) -> Result<(T, U)> {
    let (mut job, mut other) = (pin!(job), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(outcome) = job.as_mut().poll(context)
        {
            first = Some(outcome??);
        }
        if second.is_none()
            && let Poll::Ready(outcome) = other.as_mut().poll(context)
        {
            second = Some(outcome);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(two)) => Poll::Ready(Ok((one, two))),
            (one, two) => {
                (first, second) = (one, two);
                Poll::Pending
            }
        }
    })
    .await
}

/// True when the daemon may give files to any owner.
pub fn may_give_away() -> bool {
    let held = rustix::thread::capabilities(None);
    held.is_ok_and(|sets| {
        sets.effective
            .contains(rustix::thread::CapabilitySet::CHOWN)
    })
}

async fn preflight(root: &Path, reserve: u64) -> Result<()> {
    let root = root.to_owned();
    pool::run(move || space::check(&root, reserve)).await?
}

/// An archive that is being spooled.
struct Arrival {
    intake: Intake,
    journal: Journal,
    spool: Spool,
    landings: Landings,
}

impl Arrival {
    /// Takes what is in the buffer, and empties it.
    async fn take(&mut self, buffer: &mut Lease) -> Result<()> {
        let bytes = Arc::new(buffer.take());
        let mut rest = bytes.as_slice();
        let mut kept: Vec<Range<usize>> = Vec::new();
        let mut mark = 0;
        while let Some(found) = self.intake.next(&mut rest)? {
            let at = bytes.len() - rest.len();
            match found {
                Found::Member(entry) => {
                    let lands = self.landings.begin(&entry).await?;
                    self.journal.note(&entry, lands)?;
                }
                Found::Data(piece) => {
                    let start = at - piece.len();
                    if self.landings.take(&bytes, start..at).await? {
                        kept.push(mark..start);
                        mark = at;
                    }
                }
            }
        }
        // What stands behind the end marker belongs to the message, but not to the archive.
        kept.push(mark..bytes.len() - rest.len());
        let mut bytes = Arc::unwrap_or_clone(bytes);
        let mut length = 0;
        for range in kept {
            let count = range.len();
            bytes.copy_within(range, length);
            length += count;
        }
        bytes.truncate(length);
        if !bytes.is_empty() {
            self.spool.append(&mut bytes).await?;
        }
        bytes.clear();
        buffer.restore(bytes);
        Ok(())
    }

    /// Says that no more comes.
    fn close(self) -> Result<Arrived> {
        self.intake.scanner.finish()?;
        Ok(Arrived {
            journal: self.journal,
            archive: self.spool.close(),
            landed: self.landings.close(),
        })
    }
}

/// An archive that is all here.
struct Arrived {
    journal: Journal,
    archive: Archive,
    landed: Landed,
}

/// Members as they arrive, judged and counted.
struct Intake {
    scanner: Scanner,
    terms: Terms,
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
    fn new(limits: &Limits, terms: Terms) -> Self {
        Self {
            scanner: Scanner::default(),
            terms,
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
        if member.kind == Type::File {
            self.bytes = self.bytes.saturating_add(member.size);
        }
        let entry = Entry::judge(member, self.terms)?;
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

/// An archive on its way below the root.
struct Stream {
    intake: Intake,
    unpacker: Concluding,
    landed: Landed,
}

impl Stream {
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        let unpacker = self.unpacker.get();
        while let Some(found) = self.intake.next(&mut bytes)? {
            let entry = match found {
                Found::Data(piece) => {
                    unpacker.write(piece)?;
                    continue;
                }
                Found::Member(entry) => entry,
            };
            unpacker.finish()?;
            match self.landed.claim(&entry) {
                None => unpacker.begin(entry)?,
                Some(file) => {
                    self.intake.scanner.pass();
                    unpacker.land(entry, file)?;
                }
            }
        }
        Ok(())
    }

    /// Writes from this thread, as a file is uploaded, while nothing but data of a large member comes.
    ///
    /// What is in the buffer then is for a helper; true when the body has ended.
    async fn pour(&mut self, body: &mut dyn Inflow, buffer: &mut Lease) -> Result<bool> {
        let unpacker = self.unpacker.get();
        let Some(mut writer) = unpacker.writer() else {
            return Ok(false);
        };
        loop {
            let mut rest = buffer.as_slice();
            let found = self.intake.next(&mut rest)?;
            let is_data = matches!(found, Some(Found::Data(piece)) if piece.len() == buffer.len());
            assert!(is_data, "a member with so much to come fills the buffer");
            let goes_on = unpacker.append(&mut writer, buffer).await?;
            let ended = copy::fill(body, buffer).await?;
            if ended || !goes_on {
                return Ok(ended);
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        self.intake.scanner.finish()?;
        self.unpacker.get().finish()
    }
}

/// An extraction of an archive that is all here, done in slices so that others get their turn on the helper threads.
struct Extraction {
    archive: Archive,
    stream: Stream,
}

impl Extraction {
    /// Checks the archive against the tree, and makes the root.
    fn begin(arrived: Arrived, root: PathBuf, limits: &Limits, terms: Terms) -> Result<Self> {
        check(&root, &arrived, limits)?;
        let descent = unpack::make_root(&root)?;
        Ok(Self {
            archive: arrived.archive,
            stream: Stream {
                intake: Intake::new(limits, terms),
                unpacker: Concluding(Some(Unpacker::new(descent, root, limits.reserve))),
                landed: arrived.landed,
            },
        })
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
        for _ in 0..SLICE {
            let piece = self.archive.next();
            let piece = piece.map_err(|error| space::failed(error, "the spool cannot be read"))?;
            if piece.is_empty() {
                self.stream.end()?;
                return Ok(true);
            }
            self.stream.take(piece)?;
        }
        Ok(false)
    }
}

/// Refuses what extraction would refuse, from the members, the tree that is there and the space that is free.
fn check(root: &Path, arrived: &Arrived, limits: &Limits) -> Result<()> {
    let disk = match Descent::open(root) {
        Ok(descent) => Some(descent),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(Kind::Internal.told("tar operation failed").because(errno)),
    };
    space::check(root, limits.reserve)?;
    let most = limits
        .members
        .saturating_mul(NAMES_PER_MEMBER)
        .saturating_add(1);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut model = Model::new(disk, most, space::unit(root));
    let mut members = arrived.journal.members();
    members.try_for_each(|(place, wish)| model.play(&place, &wish))?;
    match limits.reserve {
        0 => Ok(()),
        reserve => space::check(root, space::wanted(reserve, model.needs())),
    }
}

/// Pieces of the archive that are extracted before others get their turn.
const SLICE: usize = 16;
/// Names that the check may come to know, for each member allowed: members imply directories.
const NAMES_PER_MEMBER: u64 = 16;

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
