//! Output that has left memory, in a file without a name: written through the ring, read by those who lag.
//!
//! A block stays in memory until it is written. What cannot be stored (no space, the bound of all files reached, a
//! disk that fails or hangs) is dropped when memory needs its place, and followers are told of the gap.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::budget::{Budget, Share};
use super::entry::Exec;
use crate::error::{Kind, Result};
use crate::ring::buffers::Lease;
use crate::ring::clock::within;
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
    file: RefCell<Option<Rc<Shelf>>>,
    /// True while a task moves blocks.
    is_moving: Cell<bool>,
    /// Happens each time that a block has left memory.
    moved: Event,
}

/// The two ways to a file; dropped, its bytes are freed on a helper thread.
struct Shelf {
    reader: Option<File>,
    writer: Writer,
}

impl Spill {
    /// Nothing stored yet.
    pub(super) fn new(place: &Rc<Place>) -> Self {
        Self {
            share: Share::new(&place.budget),
            place: Rc::clone(place),
            file: RefCell::default(),
            is_moving: Cell::new(false),
            moved: Event::default(),
        }
    }

    /// The file, made at the first call.
    async fn shelf(&self, serial: u64) -> Result<Rc<Shelf>> {
        if let Some(shelf) = self.file.borrow().clone() {
            return Ok(shelf);
        }
        let dir = self.place.dir.clone();
        let name = format!(".ringd-{}-{serial}", std::process::id());
        let made = pool::run(move || file::unnamed(&dir, name.as_ref())).await?;
        let failed = |error| Kind::Internal.told("no file can be made").because(error);
        let reader = made.map_err(failed)?;
        let writer = Writer::new(&reader).map_err(failed)?;
        let shelf = Rc::new(Shelf {
            reader: Some(reader),
            writer,
        });
        *self.file.borrow_mut() = Some(Rc::clone(&shelf));
        Ok(shelf)
    }

    /// Takes `bytes` more of the disk; false when a bound or the reserve forbids it.
    async fn grow(&self, shelf: &Shelf, bytes: u64) -> bool {
        if bytes == 0 {
            return true;
        }
        let before = self.share.bytes();
        if !self.share.take(bytes) {
            return false;
        }
        let checks = |bytes: u64| bytes.div_ceil(CHECK_EVERY);
        if self.place.reserve == 0 || checks(before) == checks(before + bytes) {
            return true;
        }
        let Some(Ok(file)) = shelf.reader.as_ref().map(File::try_clone) else {
            return false;
        };
        let reserve = self.place.reserve;
        let asked = pool::run(move || match rustix::fs::fstatvfs(&file) {
            Ok(space) => space.f_bavail.saturating_mul(space.f_frsize) >= reserve,
            // A question that cannot be answered is no pressure.
            Err(_) => true,
        });
        asked.await.unwrap_or(false)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Some(file) = self.reader.take() {
            // The pages of a large file take milliseconds to free.
            pool::detach(move || {
                let _ = rustix::fs::ftruncate(&file, 0);
            });
        }
    }
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
pub(super) async fn recall(exec: &Exec, from: u64, most: u64) -> Lease {
    let mut lease = buffers::lease();
    let shelf = exec.spill.file.borrow().clone();
    let Some(reader) = shelf.as_ref().and_then(|shelf| shelf.reader.as_ref()) else {
        return lease;
    };
    let span = exec.replay.borrow_mut().window().span(from, most);
    let length = usize::try_from(span.length).unwrap_or(usize::MAX);
    let (outcome, bytes) = file::read_at(reader, lease.take(), span.position, length).await;
    lease.restore(bytes);
    if let Err(error) = outcome {
        give_up(
            exec,
            &Kind::Internal
                .told("the file cannot be read")
                .because(error),
        );
        lease.clear();
    }
    // What was overwritten meanwhile was given up before.
    if exec.replay.borrow().oldest() > from {
        lease.clear();
    }
    lease
}

async fn move_blocks(exec: Rc<Exec>) {
    let moving = Moving(&exec.spill);
    loop {
        let due = exec.replay.borrow().excess();
        let Some((start, bytes)) = due else { break };
        match store(&exec, start, &bytes).await {
            Ok(()) => {
                drop(bytes);
                exec.replay.borrow_mut().stored(start);
                exec.account();
            }
            Err(error) => give_up(&exec, &error),
        }
        exec.spill.moved.happen();
    }
    drop(moving);
}

/// A task that moves blocks; dropped, it says that it has ended.
struct Moving<'a>(&'a Spill);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.is_moving.set(false);
        self.0.moved.happen();
    }
}

fn give_up(exec: &Exec, error: &crate::error::Error) {
    tracing::warn!(exec = exec.serial, %error, "output is no longer kept on disk");
    exec.replay.borrow_mut().stop_storing();
    exec.spill.file.take();
    exec.spill.share.set(0);
    exec.account();
}

async fn store(exec: &Exec, start: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
    let shelf = exec.spill.shelf(exec.serial).await?;
    let growth = growth(exec, bytes);
    if !exec.spill.grow(&shelf, growth).await {
        stay_within(exec, "no more disk may be taken")?;
    }
    match write(exec, &shelf, start, bytes).await {
        // What is there already can be written over on a full disk.
        Err(error) if error.kind() == Kind::DiskFull && self::growth(exec, bytes) > 0 => {
            stay_within(exec, "the disk is full")?;
            write(exec, &shelf, start, bytes).await
        }
        outcome => outcome,
    }
}

fn growth(exec: &Exec, bytes: &[u8]) -> u64 {
    let mut replay = exec.replay.borrow_mut();
    replay.window().growth(bytes.len() as u64)
}

/// From now on the file is written round within the size that it has.
fn stay_within(exec: &Exec, why: &'static str) -> Result<()> {
    let mut replay = exec.replay.borrow_mut();
    let window = replay.window();
    if !window.freeze() {
        return Err(Kind::DiskFull.told(why));
    }
    exec.spill.share.set(window.size());
    Ok(())
}

async fn write(exec: &Exec, shelf: &Shelf, start: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
    let spans = {
        let mut replay = exec.replay.borrow_mut();
        replay.window().admit(start, bytes.len() as u64)
    };
    for span in spans.into_iter().flatten() {
        let index = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
        let range = index(span.offset)..index(span.offset + span.length);
        let put = shelf.writer.put(Arc::clone(bytes), range, span.position);
        let written = within(PATIENCE, put).await;
        written.unwrap_or_else(|| Err(Kind::Internal.told("the disk does not answer")))?;
    }
    Ok(())
}

/// How long a write may take before the child's output is no longer held up for it.
const PATIENCE: Duration = Duration::from_secs(5);
