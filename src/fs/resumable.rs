//! Uploads that outlive their requests: files that wait without a name until every byte is there.
//!
//! ```text
//! create ──▶ open ──append, append…──▶ complete ──▶ published, remembered for a while ──▶ unknown
//!              └─ cancelled, idle for too long, daemon ends ──▶ unknown, its disk is free
//! ```

mod ongoing;
mod spans;
mod turns;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

pub use ongoing::{Ongoing, Part};

use super::upload::{Staged, Upload};
use super::version::Version;
use super::{lent, space};
use crate::error::{Error, Kind, Result};
use crate::ring::clock::{self, Moment};
use crate::ring::{Inflow, pool};
use crate::wire::digest::Expected;

/// The bounds on uploads.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Uploads that are not complete, at most.
    pub uploads: usize,
    /// How long an upload may be idle, in running time.
    pub ttl: Duration,
}

/// What is known of an upload when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// How many bytes it has.
    pub length: Option<u64>,
    /// True when its bytes may come in any order; it then has a length.
    pub parallel: bool,
    /// What all its bytes together are expected to be.
    pub digest: Option<Expected>,
}

/// The uploads of the daemon.
pub struct Uploads {
    limits: Limits,
    /// By the order of their creation.
    open: RefCell<BTreeMap<u64, Rc<Ongoing>>>,
    /// Places taken by uploads whose file is being made.
    opening: Cell<usize>,
    last: Cell<u64>,
    done: RefCell<VecDeque<Finished>>,
}

/// An upload that was published.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The id it had.
    pub id: String,
    /// How many bytes it had.
    pub length: u64,
    /// What it was when it was published.
    pub version: Version,
    at: Moment,
}

/// What an id stands for.
pub enum Found {
    /// An upload that is not complete.
    Open(Rc<Ongoing>),
    /// One that was published.
    Finished(Finished),
}

/// An upload as an operator sees it.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its id.
    pub id: String,
    /// The file it is to become.
    pub path: String,
    /// Bytes from the first one on without a gap, of requests that have ended.
    pub offset: u64,
    /// All bytes that have arrived, those of requests under way too.
    pub received: u64,
    /// How many bytes there will be, when that is known.
    pub length: Option<u64>,
    /// True when its bytes may come in any order.
    pub parallel: bool,
    /// Requests under way.
    pub requests: usize,
    /// Time since its creation.
    pub age: Duration,
    /// Time since the last request has ended.
    pub idle: Duration,
}

impl Uploads {
    /// No uploads yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: RefCell::default(),
            opening: Cell::new(0),
            last: Cell::new(0),
            done: RefCell::default(),
        }
    }

    /// How long an upload may be idle.
    pub fn ttl(&self) -> Duration {
        self.limits.ttl
    }

    /// Begins an upload: makes its file, without a name where the filesystem can.
    ///
    /// # Errors
    /// `Busy` when there are too many, those of [`super::upload::write`]; `Malformed` where the target is no regular
    /// file.
    pub async fn create(&self, upload: Upload, plan: Plan) -> Result<Rc<Ongoing>> {
        assert!(
            plan.length.is_some() || !plan.parallel,
            "parts need a whole"
        );
        let place = Place::take(self)?;
        let id = fresh_id()?;
        let reserve = upload.reserve;
        let staged = pool::run(move || {
            if let Some(ahead) = plan.length {
                space::check(&upload.path, space::wanted(reserve, ahead))?;
            }
            Staged::open(upload)
        });
        let staged = staged.await??;
        let number = self.last.get() + 1;
        self.last.set(number);
        let ongoing = Rc::new(Ongoing::new(number, id, plan, reserve, staged));
        drop(place);
        self.open.borrow_mut().insert(number, Rc::clone(&ongoing));
        Ok(ongoing)
    }

    /// What `id` stands for.
    ///
    /// # Errors
    /// `UnknownUpload`.
    pub fn find(&self, id: &str) -> Result<Found> {
        let open = self.open.borrow();
        if let Some(ongoing) = open.values().find(|ongoing| ongoing.id == id) {
            return Ok(Found::Open(Rc::clone(ongoing)));
        }
        self.finished(id).map(Found::Finished).ok_or_else(unknown)
    }

    /// The upload of this id, if it was published not long ago.
    pub fn finished(&self, id: &str) -> Option<Finished> {
        let done = self.done.borrow();
        done.iter().find(|finished| finished.id == id).cloned()
    }

    /// How many uploads are not complete.
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Every upload that is not complete, the oldest first.
    pub fn list(&self) -> Vec<Status> {
        let open = self.open.borrow();
        open.values().map(|ongoing| ongoing.status()).collect()
    }

    /// Ends an upload: its requests end, its disk is free when this returns. One that was published is forgotten.
    ///
    /// # Errors
    /// `UnknownUpload`.
    pub async fn cancel(&self, id: &str) -> Result<()> {
        if let Found::Open(ongoing) = self.find(id)? {
            let turn = ongoing.turns.seize().await?;
            if let Some(staged) = self.give_up(&ongoing) {
                pool::run(move || drop(staged)).await?;
                return Ok(());
            }
            drop(turn);
        }
        // It may have been published while we waited.
        let mut done = self.done.borrow_mut();
        let before = done.len();
        done.retain(|finished| finished.id != id);
        match done.len() < before {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    /// Takes the bytes of a request: appends them, or puts them to their place in a parallel upload. When they are the
    /// last ones the upload is published, and what it was is the answer; `also` is what it is then expected to be.
    ///
    /// What arrived before the connection broke, the disk was full or another request took over is kept. A body that is
    /// refused counts for nothing; one that goes past the length ends an upload that is not parallel.
    ///
    /// # Errors
    /// `UploadOffset` and `InconsistentLength` for what does not fit, `UnknownUpload`, `InUse` when another request has
    /// taken over, `DiskFull`, those of the body and of [`Uploads::finish`].
    pub async fn append(
        &self,
        ongoing: &Rc<Ongoing>,
        part: Part,
        also: Option<Expected>,
        body: &mut dyn Inflow,
    ) -> Result<Option<Finished>> {
        let taken = ongoing.take(part, body).await;
        if ongoing.is_doomed.get() {
            self.scrap(ongoing);
        }
        let turn = taken?;
        if !part.completes {
            return Ok(None);
        }
        if ongoing.is_parallel() {
            drop(turn);
            return self.finish(ongoing, also).await.map(Some);
        }
        self.finish_in(ongoing, turn, also).await.map(Some)
    }

    /// Publishes an upload: the file takes its name if every byte is there, and they are what they are expected to be.
    ///
    /// # Errors
    /// `UploadIncomplete` when bytes are missing, `UnknownUpload` when the upload is gone, `InUse` when another request
    /// works on it; `Malformed` for other bytes than those expected, after which only a parallel upload is still there,
    /// to be mended; those of [`super::upload::write`], after which it is gone.
    pub async fn finish(&self, ongoing: &Rc<Ongoing>, also: Option<Expected>) -> Result<Finished> {
        if self.finished(&ongoing.id).is_none() {
            ongoing.is_whole()?;
            if ongoing.length().is_none() && !ongoing.turns.is_idle() {
                return Err(Kind::InUse.told("a request that appends is under way"));
            }
        }
        let turn = ongoing.turns.seize().await?;
        self.finish_in(ongoing, turn, also).await
    }

    /// The same for who holds every byte of it already.
    async fn finish_in(
        &self,
        ongoing: &Rc<Ongoing>,
        turn: turns::Turn,
        also: Option<Expected>,
    ) -> Result<Finished> {
        if let Some(finished) = self.finished(&ongoing.id) {
            return Ok(finished);
        }
        let length = ongoing.is_whole()?;
        turn.hold_firm()?;
        let version = match ongoing.publish(length, also).await {
            Ok(version) => version,
            Err(error) => {
                let is_other = error.kind() == Kind::Malformed && !ongoing.is_parallel();
                if is_other || ongoing.is_there().is_err() {
                    self.scrap(ongoing);
                    return Err(error.with_field("upload-complete", "?1"));
                }
                return Err(error);
            }
        };
        let finished = Finished {
            id: ongoing.id.clone(),
            length,
            version,
            at: clock::now(),
        };
        self.give_up(ongoing);
        let mut done = self.done.borrow_mut();
        done.push_back(finished.clone());
        if done.len() > REMEMBERED {
            done.pop_front();
        }
        Ok(finished)
    }

    /// Ends what was idle for too long, and forgets what was published long ago.
    pub fn sweep(&self, now: Moment) {
        self.done
            .borrow_mut()
            .retain(|finished| now.since(finished.at) < MEMORY);
        let open: Vec<_> = self.open.borrow().values().cloned().collect();
        for ongoing in open {
            if ongoing.turns.is_idle() && now.since(ongoing.touched.get()) >= self.limits.ttl {
                tracing::info!(id = ongoing.id, "an upload was idle for too long");
                self.scrap(&ongoing);
            }
        }
    }

    /// Gives an upload up without waiting until its disk is free.
    pub fn scrap(&self, ongoing: &Ongoing) {
        if let Some(staged) = self.give_up(ongoing) {
            lent::let_go(move || drop(staged));
        }
    }

    /// Ends every upload, at the end of the daemon: nothing of them is left on the disk.
    pub async fn close(&self) {
        let open: Vec<_> = self.open.borrow().values().cloned().collect();
        let staged: Vec<Staged> = open.iter().filter_map(|one| self.give_up(one)).collect();
        if !staged.is_empty() {
            // A file without a name goes with the process anyhow, and a disk that hangs keeps nobody.
            clock::within(PARTING, pool::run(move || drop(staged))).await;
        }
    }

    /// Takes an upload off the list; its file, unless somebody has it already.
    fn give_up(&self, ongoing: &Ongoing) -> Option<Staged> {
        self.open.borrow_mut().remove(&ongoing.number);
        ongoing.staged.take()
    }
}

/// A place among the uploads, while the file of one is being made.
struct Place<'a>(&'a Uploads);

impl<'a> Place<'a> {
    fn take(uploads: &'a Uploads) -> Result<Self> {
        let taken = uploads.open.borrow().len() + uploads.opening.get();
        if taken >= uploads.limits.uploads {
            let most = uploads.limits.uploads;
            return Err(Kind::Busy.told(format!("{most} uploads are not complete")));
        }
        uploads.opening.set(uploads.opening.get() + 1);
        Ok(Self(uploads))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get() - 1);
    }
}

/// A name that nobody can guess.
fn fresh_id() -> Result<String> {
    let mut random = [0u8; 16];
    let flags = rustix::rand::GetRandomFlags::NONBLOCK;
    match rustix::rand::getrandom(&mut random, flags) {
        Ok(count) if count == random.len() => {}
        _ => return Err(Kind::Internal.told("the system has no randomness yet")),
    }
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

fn unknown() -> Error {
    Kind::UnknownUpload.told("no upload has this id")
}

/// Missing bytes as a client reads them, both ends included.
fn shown(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end - 1)
}

/// How long an upload that was published is remembered.
const MEMORY: Duration = Duration::from_secs(600);
/// How many are.
const REMEMBERED: usize = 1024;
/// How long the daemon waits at its end until the files are gone.
const PARTING: Duration = Duration::from_secs(2);
