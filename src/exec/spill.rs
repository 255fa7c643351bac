//! Output that has left memory, in a file without a name: written through the ring, read by those who lag.
//!
//! A block stays in memory until it is written. What cannot be stored (no space, the bound of all files reached, a
//! disk that fails or hangs) is dropped when memory needs its place, and followers are told of the gap.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::budget::{Budget, Share};
use super::entry::Exec;
use crate::error::{Error, Kind, Result};
use crate::ring::buffers::Lease;
use crate::ring::clock::{self, within};
use crate::ring::copy::CHECK_EVERY;
use crate::ring::file::{self, Writer};
use crate::ring::notify::Event;
use crate::ring::{self, buffers, pool};

/// Where the files are, and what they may take.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    /// Bytes that stay free on that filesystem.
    pub(super) reserve: u64,
    /// Bytes of all files together.
    pub(super) budget: Rc<Budget>,
}

/// The file of one exec, made when it is needed.
pub(super) struct Spill {
    place: Rc<Place>,
    share: Share,
    shelf: RefCell<Option<Rc<Shelf>>>,
    /// True while a task moves blocks.
    is_moving: Cell<bool>,
    /// Happens each time that a block has left memory.
    moved: Event,
}

/// The file, and the way to write it.
struct Shelf {
    file: Arc<File>,
    /// Let go of when nothing more is to be written.
    writer: RefCell<Option<Rc<Writer>>>,
}

impl Spill {
    /// Nothing stored yet.
    pub(super) fn new(place: &Rc<Place>) -> Self {
        Self {
            share: Share::new(&place.budget),
            place: Rc::clone(place),
            shelf: RefCell::default(),
            is_moving: Cell::new(false),
            moved: Event::default(),
        }
    }

    /// Bytes of disk in use.
    pub(super) fn bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// Says that no more output comes: what has none left to write needs no way to write it.
    pub(super) fn rest(&self) {
        if let Some(shelf) = &*self.shelf.borrow()
            && !self.is_moving.get()
        {
            shelf.writer.take();
        }
    }

    /// The file, made at the first call; none when no descriptor is left.
    async fn shelf(&self, serial: u64) -> Result<Option<Rc<Shelf>>> {
        if let Some(shelf) = self.shelf.borrow().clone() {
            return Ok(Some(shelf));
        }
        let dir = self.place.dir.clone();
        let name = format!(".ringd-{}-{serial}", std::process::id());
        let made = pool::run(move || file::unnamed(&dir, name.as_ref())).await?;
        let made = made.and_then(|file| Ok((Writer::new(&file)?, file)));
        let (writer, file) = match made {
            Ok(both) => both,
            Err(error) if is_shortage(&error) => return Ok(None),
            Err(error) => return Err(Kind::Internal.told("no file can be made").because(error)),
        };
        let shelf = Rc::new(Shelf {
            file: Arc::new(file),
            writer: RefCell::new(Some(Rc::new(writer))),
        });
        *self.shelf.borrow_mut() = Some(Rc::clone(&shelf));
        Ok(Some(shelf))
    }

    /// True when the disk has more than its reserve; asked once in a while as the file grows.
    async fn may_grow(&self, shelf: &Shelf, before: u64, after: u64) -> Result<bool> {
        let checks = |bytes: u64| bytes.div_ceil(CHECK_EVERY);
        let reserve = self.place.reserve;
        if reserve == 0 || checks(before) == checks(after) {
            return Ok(true);
        }
        let file = Arc::clone(&shelf.file);
        let asked = pool::run(move || match rustix::fs::fstatvfs(&file) {
            Ok(space) => space.f_bavail.saturating_mul(space.f_frsize) >= reserve,
            // A question that cannot be answered is no pressure.
            Err(_) => true,
        });
        asked.await
    }
}

impl Shelf {
    /// Frees what lies behind `size`; pages of a large file take milliseconds, so a helper does it.
    fn cut(&self, size: u64) {
        let file = Arc::clone(&self.file);
        pool::detach(move || {
            let _ = rustix::fs::ftruncate(&file, size);
        });
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.cut(0);
    }
}

/// True when a file was not made because of something that passes.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Sees to it that blocks which are due leave memory; returns at once.
pub(super) fn start_moving(exec: &Rc<Exec>) {
    if exec.replay.borrow().excess().is_some() && !exec.spill.is_moving.replace(true) {
        ring::spawn("spill", move_blocks(Rc::clone(exec)));
    }
}

/// Waits while so much waits to be stored that nothing should be read.
///
/// If dropped, nothing is lost.
pub(super) async fn keep_pace(exec: &Exec) {
    while exec.replay.borrow().is_behind() && exec.spill.is_moving.get() {
        exec.spill.moved.next().await;
    }
}

/// The stored bytes from `from` on, in one piece, as many as are read at once; none when they are no longer held.
///
/// If dropped, nothing is lost.
///
/// # Errors
/// `Busy` when the file cannot be read now.
pub(super) async fn recall(exec: &Exec, from: u64) -> Result<Lease> {
    let mut lease = buffers::lease();
    let shelf = exec.spill.shelf.borrow().clone();
    let span = exec.replay.borrow().on_disk(from, AT_ONCE);
    let (Some(shelf), Some(span)) = (shelf, span) else {
        return Ok(lease);
    };
    let length = usize::try_from(span.length).unwrap_or(usize::MAX);
    let read = file::read_shared_at(&shelf.file, lease.take(), span.position, length);
    let failed = match within(PATIENCE, read).await {
        Some((Ok(_), bytes)) => {
            lease.restore(bytes);
            None
        }
        Some((Err(error), _)) if error.raw_os_error().is_none() => {
            return Err(Kind::Busy.told("output cannot be read now").because(error));
        }
        Some((Err(error), _)) => Some(
            Kind::Internal
                .told("the file cannot be read")
                .because(error),
        ),
        None => Some(unanswered()),
    };
    if let Some(error) = failed {
        give_up(exec, &error);
    }
    // What was overwritten meanwhile was given up before.
    if exec.replay.borrow().oldest() > from {
        lease.clear();
    }
    Ok(lease)
}

async fn move_blocks(exec: Rc<Exec>) {
    let moving = Moving(&exec);
    loop {
        let due = exec.replay.borrow().excess();
        let Some((start, bytes)) = due else { break };
        let stored = within(PATIENCE, persist(&exec, start, &bytes)).await;
        drop(bytes);
        match stored.unwrap_or_else(|| Err(unanswered())) {
            Ok(true) => exec.replay.borrow_mut().stored(start),
            Ok(false) => exec.replay.borrow_mut().skip(start),
            Err(error) => give_up(&exec, &error),
        }
        exec.account();
        exec.spill.moved.happen();
    }
    drop(moving);
}

/// A task that moves blocks; dropped, it says that it has ended.
struct Moving<'a>(&'a Exec);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let spill = &self.0.spill;
        spill.is_moving.set(false);
        spill.moved.happen();
        if self.0.outcome().is_some() {
            spill.rest();
        }
    }
}

fn unanswered() -> Error {
    Kind::Internal.told("the disk does not answer")
}

fn give_up(exec: &Exec, error: &Error) {
    tracing::warn!(exec = exec.serial, %error, "output is no longer kept on disk");
    exec.replay.borrow_mut().stop_storing();
    exec.spill.shelf.take();
    exec.spill.share.set(0);
    exec.account();
}

/// As [`store`], and again while the pool has no room.
async fn persist(exec: &Exec, start: u64, bytes: &Arc<Vec<u8>>) -> Result<bool> {
    loop {
        match store(exec, start, bytes).await {
            Err(error) if error.kind() == Kind::Busy => clock::sleep(BUSY_PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Stores a block; false when there is no place for it and nothing that it could be written over.
async fn store(exec: &Exec, start: u64, bytes: &Arc<Vec<u8>>) -> Result<bool> {
    let (before, after) = sizes(exec, bytes);
    // It may be tried again, so what is taken is what the file comes to, not what is added.
    let is_granted = exec.spill.share.reach(after);
    if !is_granted && !stay_within(exec) {
        return Ok(false);
    }
    let Some(shelf) = exec.spill.shelf(exec.serial).await? else {
        exec.spill.share.set(0);
        return Ok(false);
    };
    let fits = !is_granted || exec.spill.may_grow(&shelf, before, after).await?;
    if !fits && !stay_within(exec) {
        return Ok(false);
    }
    match write(exec, &shelf, start, bytes).await {
        // What is there already can be written over on a full disk.
        Err(error) if error.kind() == Kind::DiskFull && after > before => {
            let has_place = stay_within(exec);
            shelf.cut(exec.spill.share.bytes());
            if !has_place {
                return Ok(false);
            }
            write(exec, &shelf, start, bytes).await?;
        }
        outcome => outcome?,
    }
    Ok(true)
}

/// The size of the file, and what it comes to with `bytes`.
fn sizes(exec: &Exec, bytes: &[u8]) -> (u64, u64) {
    let mut replay = exec.replay.borrow_mut();
    let window = replay.window();
    let size = window.size();
    (size, size + window.growth(bytes.len() as u64))
}

/// From now on the file is written round within the size that it has; false when it has none.
fn stay_within(exec: &Exec) -> bool {
    let mut replay = exec.replay.borrow_mut();
    let window = replay.window();
    let has_size = window.freeze();
    exec.spill.share.set(window.size());
    has_size
}

async fn write(exec: &Exec, shelf: &Shelf, start: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
    let writer = shelf.writer.borrow().clone();
    let Some(writer) = writer else {
        return Err(Kind::Internal.told("the file is written no more"));
    };
    let spans = {
        let mut replay = exec.replay.borrow_mut();
        replay.window().admit(start, bytes.len() as u64)
    };
    for span in spans.into_iter().flatten() {
        let index = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
        let range = index(span.offset)..index(span.offset + span.length);
        writer.put(Arc::clone(bytes), range, span.position).await?;
    }
    Ok(())
}

/// Bytes read from the file at once.
const AT_ONCE: u64 = 128 * 1024;
/// How long a disk may take before the output on it is given up: the child is held up meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a pool that was full is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
