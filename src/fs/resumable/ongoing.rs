//! One upload that is not complete: its file, the bytes that have arrived, and those who write.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::spans::Spans;
use super::turns::{ALL, Turn, Turns, taken_over};
use super::{Plan, Status, shown, unknown};
use crate::error::{Error, Kind, Result};
use crate::fs::space;
use crate::fs::upload::Staged;
use crate::fs::version::Version;
use crate::ring::clock::{self, Moment};
use crate::ring::copy::{self, CHECK_EVERY};
use crate::ring::file::Writer;
use crate::ring::{Inflow, buffers, pool};
use crate::wire::digest::{Comparison, Expected};

/// What a request says about the bytes it brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where they begin.
    pub offset: u64,
    /// How many bytes the whole upload has.
    pub length: Option<u64>,
    /// True when they are the last ones.
    pub completes: bool,
}

/// An upload that is not complete.
pub struct Ongoing {
    pub(super) number: u64,
    /// Its id.
    pub id: String,
    /// What it was begun with; the length comes later, if it was not known then.
    plan: RefCell<Plan>,
    path: String,
    reserve: u64,
    created: Moment,
    pub(super) touched: Cell<Moment>,
    arrived: RefCell<Spans>,
    pub(super) turns: Rc<Turns>,
    /// Gone when it was given up, and while it is published.
    pub(super) staged: Cell<Option<Staged>>,
    /// What a sentence about its filesystem names.
    place: PathBuf,
    /// True when more bytes came than it was to have: it ends.
    pub(super) is_doomed: Cell<bool>,
}

impl Ongoing {
    pub(super) fn new(number: u64, id: String, plan: Plan, reserve: u64, staged: Staged) -> Self {
        let now = clock::now();
        Self {
            number,
            id,
            plan: RefCell::new(plan),
            path: staged.path().to_string_lossy().into_owned(),
            reserve,
            created: now,
            touched: Cell::new(now),
            arrived: RefCell::default(),
            turns: Rc::default(),
            place: staged.place().to_owned(),
            staged: Cell::new(Some(staged)),
            is_doomed: Cell::new(false),
        }
    }

    /// The file it is to become.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True when its bytes may come in any order.
    pub fn is_parallel(&self) -> bool {
        self.plan.borrow().parallel
    }

    /// How many bytes it has, when that is known.
    pub fn length(&self) -> Option<u64> {
        self.plan.borrow().length
    }

    /// Bytes from the first one on without a gap.
    pub fn offset(&self) -> u64 {
        self.arrived.borrow().prefix()
    }

    /// Ranges that are missing, the first `most` of them; none while the length is not known.
    pub fn missing(&self, most: usize) -> Vec<Range<u64>> {
        let Some(length) = self.length() else {
            return Vec::new();
        };
        self.arrived.borrow().missing(length).take(most).collect()
    }

    /// What an operator sees.
    pub fn status(&self) -> Status {
        let (requests, written) = self.turns.under_way();
        let now = clock::now();
        let arrived = self.arrived.borrow();
        Status {
            id: self.id.clone(),
            path: self.path.clone(),
            offset: arrived.prefix(),
            received: arrived.total() + written,
            length: self.length(),
            parallel: self.is_parallel(),
            requests,
            age: now.since(self.created),
            idle: match requests {
                0 => now.since(self.touched.get()),
                _ => Duration::ZERO,
            },
        }
    }

    /// Ends the request that appends, so that the offset stays as it is told; a parallel upload is left alone.
    ///
    /// # Errors
    /// `UnknownUpload` when it was given up or published meanwhile.
    pub async fn settle(&self) -> Result<()> {
        if !self.is_parallel() {
            self.turns.clear().await;
        }
        self.touched.set(clock::now());
        self.is_there()
    }

    /// Takes the bytes of a request, and answers the right to go on with the upload.
    ///
    /// What arrived before the connection broke, the disk was full or another request took over is kept. A body that is
    /// refused counts for nothing.
    ///
    /// # Errors
    /// `UploadOffset` and `InconsistentLength` for what does not fit, `UnknownUpload`, `InUse` when another request has
    /// taken over, `DiskFull`, those of the body.
    pub(super) async fn take(&self, part: Part, body: &mut dyn Inflow) -> Result<Turn> {
        let parallel = self.is_parallel();
        let span = match (parallel, body.remaining(), self.length()) {
            (false, _, _) => ALL,
            (true, Some(more), _) => part.offset..part.offset.saturating_add(more),
            (true, None, length) => part.offset..length.unwrap_or(u64::MAX),
        };
        if parallel {
            // What does not fit ends nobody.
            self.judge(part, body.remaining())?;
        }
        let turn = self.turns.take(span).await?;
        self.touched.set(clock::now());
        self.is_there()?;
        let length = self.judge(part, body.remaining())?;
        let outcome = self.receive(part.offset, length, &turn, body).await;
        self.touched.set(clock::now());
        let (received, outcome) = outcome?;
        let is_past_its_end =
            matches!(&outcome, Err(error) if error.kind() == Kind::InconsistentLength);
        self.is_doomed.set(is_past_its_end && !parallel);
        let is_short = part.completes && !parallel && length.is_some_and(|all| received.end < all);
        let outcome = match outcome {
            Ok(()) if is_short => Err(inconsistent(format!(
                "the upload was to have {} bytes and ends after {}",
                length.unwrap_or(0),
                received.end
            ))),
            outcome => outcome,
        };
        if let Err(error) = &outcome
            && !is_kept(error)
        {
            self.arrived.borrow_mut().remove(&received);
            self.cut(parallel, part.offset).await;
            return outcome.map(|()| turn);
        }
        self.arrived.borrow_mut().insert(received.clone());
        let ends_here = part.completes && !parallel && outcome.is_ok();
        let length = if ends_here {
            Some(received.end)
        } else {
            length
        };
        self.plan.borrow_mut().length = length;
        match outcome {
            Err(error) => Err(space::explained(error, &self.place).await),
            Ok(()) => Ok(turn),
        }
    }

    /// Decides from what the request says whether its bytes fit; answers the length of the whole.
    fn judge(&self, part: Part, declared: Option<u64>) -> Result<Option<u64>> {
        let parallel = self.is_parallel();
        let offset = self.offset();
        if !parallel && part.offset != offset {
            let sentence = format!("the upload goes on at {offset}, not at {}", part.offset);
            return Err(misplaced(sentence, offset, part.offset));
        }
        let implied = declared.map(|more| part.offset.saturating_add(more));
        let last = implied.filter(|_| part.completes && !parallel);
        let mut length = self.length();
        for said in [part.length, last].into_iter().flatten() {
            match length {
                Some(known) if known != said => {
                    return Err(inconsistent(format!(
                        "the upload was to have {known} bytes, now {said}"
                    )));
                }
                _ => length = Some(said),
            }
        }
        let end = implied.unwrap_or(part.offset);
        if let Some(length) = length
            && end > length
        {
            return Err(inconsistent(format!(
                "bytes up to {end} do not fit into an upload of {length} bytes"
            )));
        }
        let brings_any = declared != Some(0);
        if parallel && brings_any && !self.arrived.borrow().admits(part.offset, MOST_RANGES) {
            let sentence = "too many separate ranges have arrived; fill the first gap";
            return Err(misplaced(sentence.into(), offset, part.offset));
        }
        Ok(length)
    }

    /// Writes the body from `start` on; answers the range that was written, and how the body ended.
    async fn receive(
        &self,
        start: u64,
        length: Option<u64>,
        turn: &Turn,
        body: &mut dyn Inflow,
    ) -> Result<(Range<u64>, Result<()>)> {
        let file = self.file()?;
        space::recheck(&file, &self.place, self.reserve).await?;
        let mut writer = Writer::new(&file).map_err(unwritten)?;
        writer.offset = start;
        let mut buffer = buffers::lease();
        let mut checked = start;
        loop {
            let filled = monoio::select! {
                filled = copy::fill(body, &mut buffer) => filled,
                () = turn.over() => Err(taken_over()),
            };
            let end = writer.offset + buffer.len() as u64;
            if length.is_some_and(|length| end > length) {
                let sentence = format!(
                    "the bytes go past the {} of the upload",
                    length.unwrap_or(0)
                );
                return Ok((start..writer.offset, Err(inconsistent(sentence))));
            }
            let is_worth = filled.as_ref().err().is_none_or(is_kept);
            if is_worth && !buffer.is_empty() {
                // What has arrived is written, however the body ended.
                let (outcome, bytes) = writer.append(buffer.take()).await;
                buffer.restore(bytes);
                if let Err(error) = outcome {
                    // Some of it may stand over what has arrived before.
                    self.arrived.borrow_mut().remove(&(writer.offset..end));
                    return Ok((start..writer.offset, Err(error)));
                }
                turn.has_written(writer.offset - start);
            }
            match filled {
                Ok(false) => {}
                Ok(true) => return Ok((start..writer.offset, Ok(()))),
                Err(error) => return Ok((start..writer.offset, Err(error))),
            }
            if writer.offset - checked >= CHECK_EVERY {
                checked = writer.offset;
                if let Err(error) = space::recheck(&file, &self.place, self.reserve).await {
                    return Ok((start..writer.offset, Err(error)));
                }
            }
        }
    }

    /// Takes what a refused request wrote off the disk; in a parallel upload others may have written there too.
    async fn cut(&self, parallel: bool, offset: u64) {
        if !parallel && let Ok(file) = self.file() {
            // What stays is cut off when the upload is published.
            let _ = pool::run(move || file.set_len(offset)).await;
        }
    }

    /// How many bytes it has, if all of them are there.
    pub(super) fn is_whole(&self) -> Result<u64> {
        let arrived = self.arrived.borrow();
        let length = self.length().unwrap_or_else(|| arrived.prefix());
        match arrived.missing(length).next() {
            None => Ok(length),
            Some(gap) => Err(Kind::UploadIncomplete
                .told(format!("bytes {} are missing", shown(&gap)))
                .with_number(OFFSET, arrived.prefix())
                .with_field(MISSING, format!("bytes={}", shown(&gap)))),
        }
    }

    /// Gives the file its name, if its bytes are what they were announced to be; they are not lost when they are not.
    pub(super) async fn publish(&self, length: u64, also: Option<Expected>) -> Result<Version> {
        let staged = self.staged.take().ok_or_else(unknown)?;
        let expected = [self.plan.borrow().digest.clone(), also];
        let held = Arc::new(Mutex::new(Some(staged)));
        let lent = Arc::clone(&held);
        let nearly = pool::run(move || {
            let mut slot = lent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(staged) = slot.as_ref() {
                // What a request wrote that was then refused may stand behind the end.
                staged.file().set_len(length).map_err(unwritten)?;
                compare(staged.file(), expected)?;
            }
            let staged = slot.take();
            drop(slot);
            staged.map_or_else(|| Err(unknown()), |staged| staged.finish(length))
        })
        .await;
        // It is still there when no thread could be had, too.
        let left = held.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.staged.set(left);
        let outcome = match nearly {
            Ok(Ok(nearly)) => nearly.conclude().await,
            Ok(Err(error)) | Err(error) => Err(error),
        };
        match outcome {
            Err(error) => Err(space::explained(error, &self.place).await),
            outcome => outcome,
        }
    }

    /// True while the file is there to be written or published.
    pub(super) fn is_there(&self) -> Result<()> {
        let staged = self.staged.take().ok_or_else(unknown)?;
        self.staged.set(Some(staged));
        Ok(())
    }

    /// A descriptor of the file of its own, so that whoever writes is not in the way of who gives the upload up.
    fn file(&self) -> Result<File> {
        let staged = self.staged.take().ok_or_else(unknown)?;
        let file = staged.file().try_clone();
        self.staged.set(Some(staged));
        file.map_err(unwritten)
    }
}

/// Reads the file through, if anything is expected of it.
fn compare(file: &File, expected: [Option<Expected>; 2]) -> Result<()> {
    let expected = expected.into_iter().flatten();
    let mut comparisons: Vec<Comparison> = expected.map(Comparison::new).collect();
    if comparisons.is_empty() {
        return Ok(());
    }
    let mut buffer = vec![0; buffers::LEASE];
    let mut at = 0;
    loop {
        let count = match file.read_at(&mut buffer, at) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Kind::Internal.told("cannot read file").because(error)),
        };
        for comparison in &mut comparisons {
            comparison.update(&buffer[..count]);
        }
        at += count as u64;
    }
    match comparisons.iter().all(Comparison::agrees) {
        true => Ok(()),
        false => Err(Kind::Malformed.told("the upload is not what repr-digest says")),
    }
}

/// True when what came before this error counts: it tells of the way, not of the bytes.
fn is_kept(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::ClientGone | Kind::ClientStalled | Kind::InUse | Kind::DiskFull | Kind::Internal
    )
}

fn misplaced(sentence: String, expected: u64, provided: u64) -> Error {
    Kind::UploadOffset
        .told(sentence)
        .with_number(OFFSET, expected)
        .with_number("provided-offset", provided)
}

fn inconsistent(sentence: String) -> Error {
    Kind::InconsistentLength.told(sentence)
}

fn unwritten(error: std::io::Error) -> Error {
    space::failed(error, "cannot write file")
}

/// The names by which a client is told where to go on.
const OFFSET: &str = "upload-offset";
const MISSING: &str = "upload-missing";
/// Ranges of one upload that may have arrived apart from each other.
const MOST_RANGES: usize = 65_536;
