//! A follower of an exec's output: a cursor that sees every byte still held once, in order, and then the end.

use std::rc::Rc;

use super::entry::{Exec, Outcome};
use super::replay::Piece;
use super::{spill, texts};
use crate::error::Result;
use crate::ring::Frame;
use crate::wire::output;

/// What there is for a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Nothing,
    /// The bytes in `from..to` are no longer held; the follower stands behind them now.
    Gap {
        /// Offset of the first byte that is missing.
        from: u64,
        /// Offset of the first byte that is held.
        to: u64,
    },
    /// Output.
    Output,
    /// The end; nothing follows.
    Exit(Outcome),
}

/// A cursor into the output of one exec. A follower that is slow costs nothing but itself.
pub struct Follower {
    exec: Rc<Exec>,
    cursor: u64,
}

impl Follower {
    pub(super) fn new(exec: Rc<Exec>, offset: u64) -> Self {
        exec.texts.borrow_mut().enter();
        exec.counters.follow();
        Self {
            exec,
            cursor: offset,
        }
    }

    /// Where it stands: the offset of the next byte that it is told of.
    pub fn offset(&self) -> u64 {
        self.cursor
    }

    /// What there is; a gap is told once.
    pub fn look(&mut self) -> Next {
        let replay = self.exec.replay.borrow();
        match replay.read(self.cursor, 1) {
            Piece::Gap { from, to } => {
                self.cursor = to;
                self.exec.counters.gap();
                Next::Gap { from, to }
            }
            Piece::Bytes { .. } | Piece::Stored { .. } => Next::Output,
            Piece::Nothing => match self.exec.outcome() {
                Some(outcome) => Next::Exit(outcome),
                None => Next::Nothing,
            },
        }
    }

    /// Offers the output that is there as events, each of them encoded once for all followers; what is not taken is
    /// offered again the next time. To be called when [`Follower::look`] has told of output.
    ///
    /// # Errors
    /// `Busy` when output on disk cannot be read now; those of `offer`, which answers how many it has taken.
    pub async fn events(
        &mut self,
        offer: impl FnOnce(&[Frame<'_>]) -> Result<usize>,
    ) -> Result<()> {
        self.exec.texts.borrow_mut().make_room();
        if self.is_stored() && self.exec.texts.borrow_mut().find(self.cursor).is_none() {
            self.recall_texts().await?;
        }
        let mut texts = self.exec.texts.borrow_mut();
        let mut numbers = [0; texts::MOST_AT_ONCE];
        let mut count = 0;
        let mut at = self.cursor;
        let replay = self.exec.replay.borrow();
        while count < numbers.len() {
            let number = match (texts.find(at), replay.read(at, EVENT)) {
                (Some(number), _) => number,
                (None, Piece::Bytes { stream, bytes }) => texts.encode(at, stream, bytes),
                _ => break,
            };
            numbers[count] = number;
            count += 1;
            at = texts.at(number).to;
        }
        let frame = |number: &usize| Frame {
            head: &[],
            body: &texts.at(*number).text,
        };
        let frames: Vec<_> = numbers[..count].iter().map(frame).collect();
        let taken = offer(&frames)?;
        if taken > 0 {
            self.cursor = texts.at(numbers[taken - 1]).to;
        }
        drop((replay, texts));
        self.exec.account();
        Ok(())
    }

    /// As [`Follower::events`], as binary frames (`wire/output`), whose bytes are not encoded and not copied.
    ///
    /// # Errors
    /// `Busy` when output on disk cannot be read now; those of `offer`, which answers how many it has taken.
    pub async fn frames(
        &mut self,
        offer: impl FnOnce(&[Frame<'_>]) -> Result<usize>,
    ) -> Result<()> {
        let recalled = match self.is_stored() {
            true => spill::recall(&self.exec, self.cursor).await?,
            false => crate::ring::buffers::Lease::none(),
        };
        let replay = self.exec.replay.borrow();
        let mut heads = [[0; output::HEAD]; MOST_FRAMES];
        let mut bodies = Vec::with_capacity(MOST_FRAMES);
        let mut at = self.cursor;
        for head in &mut heads {
            let (stream, bytes) = match replay.read(at, FRAME) {
                Piece::Bytes { stream, bytes } => (stream, bytes),
                Piece::Stored { stream, span } => {
                    let bytes = part(&recalled, at - self.cursor, span.length);
                    (stream, bytes)
                }
                _ => break,
            };
            let Some(length) = u32::try_from(bytes.len()).ok().filter(|length| *length > 0) else {
                break;
            };
            let number = stream as u8 + 1;
            *head = output::head(output::Kind::Output, number, length, at);
            bodies.push(bytes);
            at += bytes.len() as u64;
        }
        let frames = heads.iter().zip(&bodies);
        let frames: Vec<_> = frames.map(|(head, body)| Frame { head, body }).collect();
        let taken = offer(&frames)?;
        let bytes: usize = bodies[..taken].iter().map(|body| body.len()).sum();
        self.cursor += bytes as u64;
        Ok(())
    }

    /// Waits until [`Follower::look`] has something to tell; to be called when it had nothing.
    ///
    /// If dropped, nothing is lost.
    pub async fn changed(&self) {
        loop {
            let seen = self.exec.changed.count();
            if self.exec.replay.borrow().total() > self.cursor || self.exec.outcome().is_some() {
                return;
            }
            self.exec.changed.after(seen).await;
        }
    }

    fn is_stored(&self) -> bool {
        let replay = self.exec.replay.borrow();
        matches!(replay.read(self.cursor, 1), Piece::Stored { .. })
    }

    /// Encodes stored output from the cursor on, so that this follower and those beside it find it.
    async fn recall_texts(&self) -> Result<()> {
        let recalled = spill::recall(&self.exec, self.cursor).await?;
        let replay = self.exec.replay.borrow();
        let mut texts = self.exec.texts.borrow_mut();
        let mut at = self.cursor;
        for _ in 0..texts::MOST_AT_ONCE {
            let Piece::Stored { stream, span } = replay.read(at, EVENT) else {
                break;
            };
            let bytes = part(&recalled, at - self.cursor, span.length);
            if bytes.is_empty() {
                break;
            }
            if texts.find(at).is_none() {
                texts.encode(at, stream, bytes);
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.exec.texts.borrow_mut().leave();
        self.exec.counters.unfollow();
        self.exec.account();
    }
}

/// As many of the `length` bytes from `from` on as there are.
fn part(bytes: &[u8], from: u64, length: u64) -> &[u8] {
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let rest = bytes.get(from..).unwrap_or_default();
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    &rest[..length.min(rest.len())]
}

/// Bytes of output in an event: what clients of the reference are used to.
const EVENT: usize = 16 * 1024;
/// Bytes of output in a binary frame; also what is copied when a receiver takes one in part.
const FRAME: usize = 64 * 1024;
/// Binary frames offered at once.
const MOST_FRAMES: usize = 4;
