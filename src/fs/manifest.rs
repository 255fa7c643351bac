//! What a tree holds, entry by entry in the order of full names, with digests of its files, in bounded memory.
//!
//! ```text
//! helper: walks, hashes what is small and cached ──▶ queue ──▶ up to 16 files at once: cached bytes are hashed by
//! helpers, cold ones brought in through the ring ──▶ entries leave from the front, so in order
//! ```

mod reading;
mod walk;

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Stat};

use super::filter::Filter;
use crate::error::Result;
use crate::ring::notify::Event;
use crate::ring::{pool, spawn};
use crate::wire::digest::Algorithm;
use reading::{Reading, Verdict};
use walk::{Batch, Walker};

/// What is asked of a manifest.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How files are hashed; `None` leaves digests out.
    pub digest: Option<Algorithm>,
    /// Which names are told.
    pub filter: Filter,
    /// True does not enter directories of other filesystems.
    pub one_file_system: bool,
    /// True leaves out names that begin with a dot, and all below them.
    pub no_hidden: bool,
}

/// One entry.
#[derive(Debug)]
pub struct Entry {
    /// Relative to the root, whose own is empty: any bytes but NUL.
    pub path: Vec<u8>,
    /// What it is, as it was when it was looked at; `None` when nobody can say.
    pub stat: Option<Stat>,
    /// What a symbolic link says.
    pub target: Option<Vec<u8>>,
    /// The digest, when one was asked for and the entry is a file.
    pub digest: Option<[u8; 32]>,
    /// Why something is missing.
    pub error: Option<String>,
}

/// How many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries, the root too; not what only says why a directory could not be read.
    pub entries: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Entries with an error.
    pub errors: u64,
    /// Directories whose content is not told, or not all of it.
    pub unread: u64,
}

/// A manifest under way; dropped, it stops.
pub struct Manifest {
    queue: VecDeque<Waiting>,
    /// There while no walk is under way and there is more to walk.
    walker: Option<Walker>,
    shared: Rc<Shared>,
    totals: Totals,
}

/// What tasks leave for the manifest.
struct Shared {
    walked: Cell<Option<Result<(Walker, Batch)>>>,
    is_walking: Cell<bool>,
    hashing: Cell<usize>,
    /// Happens when a walk or a digest is over.
    over: Event,
    /// True when nobody wants to know any more.
    is_given_up: Arc<AtomicBool>,
}

struct Waiting {
    entry: Entry,
    digest: Digest,
}

enum Digest {
    /// Nothing is left to do.
    Done,
    /// Nobody has begun.
    Open(Box<Reading>),
    /// Under way; the cell is filled when it is over.
    Started(Rc<Cell<Option<Result<Verdict>>>>),
}

/// Opens the manifest of the tree at `path`, relative to the working directory when it is relative.
///
/// # Errors
/// `NotFound`, `Malformed` when it is no directory, else `Internal`.
pub async fn open(path: &Path, options: Options) -> Result<Manifest> {
    let path = path.to_owned();
    let walker = pool::run(move || Walker::open(&path, options)).await??;
    let shared = Shared {
        walked: Cell::new(None),
        is_walking: Cell::new(false),
        hashing: Cell::new(0),
        over: Event::default(),
        is_given_up: Arc::default(),
    };
    Ok(Manifest {
        queue: VecDeque::new(),
        walker: Some(walker),
        shared: Rc::new(shared),
        totals: Totals::default(),
    })
}

impl Manifest {
    /// The next entries in order, as soon as there are any; `None` at the end. Dropped while it waits, it loses none.
    ///
    /// # Errors
    /// `Internal` and `Busy` when no helper can be had.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>> {
        loop {
            self.collect()?;
            self.walk_on();
            self.hash_on();
            let ready = self.take_ready()?;
            if !ready.is_empty() {
                return Ok(Some(ready));
            }
            if self.queue.is_empty() && self.walker.is_none() && !self.shared.is_walking.get() {
                return Ok(None);
            }
            self.shared.over.next().await;
        }
    }

    /// True when the end of what can be told at once is reached: the next call may take a while.
    pub fn is_dry(&self) -> bool {
        self.queue.front().is_none_or(|first| !first.is_ready())
    }

    /// What has been told so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Takes over what a walk has found.
    fn collect(&mut self) -> Result<()> {
        let Some(outcome) = self.shared.walked.take() else {
            return Ok(());
        };
        let (walker, batch) = outcome?;
        self.totals.unread += batch.unread;
        self.queue
            .extend(batch.found.into_iter().map(|found| Waiting {
                entry: found.entry,
                digest: found.reading.map_or(Digest::Done, Digest::Open),
            }));
        self.walker = (!batch.is_last).then_some(walker);
        Ok(())
    }

    /// Lets a helper walk on when little is waiting, and little of it is open.
    fn walk_on(&mut self) {
        if self.queue.len() >= walk::MOST_ENTRIES || self.open_files() > AT_ONCE {
            return;
        }
        let Some(mut walker) = self.walker.take() else {
            return;
        };
        let shared = Rc::clone(&self.shared);
        shared.is_walking.set(true);
        spawn("manifest walk", async move {
            let over = Over(shared);
            let walked = pool::run(move || {
                let batch = walker.advance();
                (walker, batch)
            });
            let outcome = walked.await;
            over.0.walked.set(Some(outcome));
            over.0.is_walking.set(false);
        });
    }

    /// Begins with as many digests as may be under way.
    fn hash_on(&mut self) {
        for waiting in &mut self.queue {
            if self.shared.hashing.get() >= AT_ONCE {
                return;
            }
            if !matches!(waiting.digest, Digest::Open(_)) {
                continue;
            }
            let slot = Rc::new(Cell::new(None));
            let started = Digest::Started(Rc::clone(&slot));
            let Digest::Open(reading) = std::mem::replace(&mut waiting.digest, started) else {
                continue;
            };
            let shared = Rc::clone(&self.shared);
            shared.hashing.set(shared.hashing.get() + 1);
            spawn("manifest digest", async move {
                let over = Over(shared);
                let is_given_up = Arc::clone(&over.0.is_given_up);
                slot.set(Some(reading::run(reading, is_given_up).await));
                over.0.hashing.set(over.0.hashing.get() - 1);
            });
        }
    }

    /// Files that are held open until they are hashed.
    fn open_files(&self) -> usize {
        let digests = self.queue.iter().map(|waiting| &waiting.digest);
        digests
            .filter(|digest| !matches!(digest, Digest::Done))
            .count()
    }

    fn take_ready(&mut self) -> Result<Vec<Entry>> {
        let mut ready = Vec::new();
        while ready.len() < walk::MOST_ENTRIES {
            let Some(first) = self.queue.front_mut() else {
                break;
            };
            let mut first = match &first.digest {
                Digest::Open(_) => break,
                Digest::Done => self.queue.pop_front(),
                Digest::Started(slot) => match slot.take() {
                    None => break,
                    Some(outcome) => {
                        first.settle(outcome?);
                        self.queue.pop_front()
                    }
                },
            };
            ready.extend(first.take().map(|first| first.entry));
        }
        for entry in &ready {
            self.totals.count(entry);
        }
        Ok(ready)
    }
}

impl Drop for Manifest {
    fn drop(&mut self) {
        self.shared.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Says that a task is over, however it ended.
struct Over(Rc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over.happen();
    }
}

impl Waiting {
    fn is_ready(&self) -> bool {
        match &self.digest {
            Digest::Done => true,
            Digest::Open(_) => false,
            Digest::Started(slot) => {
                let outcome = slot.take();
                let is_over = outcome.is_some();
                slot.set(outcome);
                is_over
            }
        }
    }

    fn settle(&mut self, verdict: Verdict) {
        self.digest = Digest::Done;
        self.entry.settle(verdict);
    }
}

impl Entry {
    fn settle(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Is(digest) => self.digest = Some(digest),
            Verdict::Changed => self.error = Some("the file changed while it was read".into()),
            Verdict::Unreadable(why) => self.error = Some(why),
        }
    }
}

impl Totals {
    fn count(&mut self, entry: &Entry) {
        self.errors += u64::from(entry.error.is_some());
        let Some(stat) = &entry.stat else { return };
        self.entries += 1;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            self.bytes = self.bytes.saturating_add(size);
        }
    }
}

/// Files whose digests are under way: enough of them to keep a disk busy.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::testing::{Dir, run};
    use super::*;

    #[test]
    fn few_files_are_open_however_many_wait_to_be_hashed() {
        let dir = Dir::new();
        for number in 0..600 {
            let file = std::fs::File::create(dir.path().join(number.to_string()));
            // More than what is hashed at once by who finds it.
            file.and_then(|file| file.set_len(100_000))
                .expect("it is ours");
        }
        let (told, most) = run(async || {
            let options = Options {
                digest: Some(Algorithm::Sha256),
                ..Options::default()
            };
            let mut manifest = open(dir.path(), options).await.expect("it is there");
            let (mut told, mut most) = (0, 0);
            while let Some(entries) = manifest.next().await.expect("it can be walked") {
                told += entries.len();
                most = most.max(manifest.open_files());
            }
            (told, most)
        });
        assert_eq!(told, 601);
        assert!(most <= AT_ONCE + walk::MOST_OPEN, "{most}");
    }
}
