//! A follower of an exec's output: a cursor that sees every byte still held once, in order, and then the end.

use std::rc::Rc;

use super::Stream;
use super::entry::{Exec, Outcome};
use super::replay::Piece;

/// What a follower is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The bytes in `from..to` are no longer held.
    Gap {
        /// Offset of the first byte that is missing.
        from: u64,
        /// Offset of the first byte that is held.
        to: u64,
    },
    /// Output that begins at `offset`.
    Output {
        /// Offset of the first byte, both streams counted together.
        offset: u64,
        /// Where it was written.
        stream: Stream,
        /// What was written, 16 KiB at most.
        bytes: &'a [u8],
    },
    /// The end; nothing follows.
    Exit(Outcome),
}

/// A cursor into the output of one exec. A follower that is slow costs nothing but itself.
pub struct Follower {
    exec: Rc<Exec>,
    cursor: u64,
    ended: bool,
}

impl Follower {
    pub(super) fn new(exec: Rc<Exec>, offset: u64) -> Self {
        Self {
            exec,
            cursor: offset,
            ended: false,
        }
    }

    /// Tells the next thing, if there is one already; false when the follower has to wait or has seen the end.
    pub fn next(&mut self, tell: impl FnOnce(Told<'_>)) -> bool {
        let replay = self.exec.replay.borrow();
        match replay.read(self.cursor, PIECE) {
            Piece::Gap { from, to } => {
                self.cursor = to;
                tell(Told::Gap { from, to });
                true
            }
            Piece::Bytes { stream, bytes } => {
                let offset = self.cursor;
                self.cursor += bytes.len() as u64;
                tell(Told::Output {
                    offset,
                    stream,
                    bytes,
                });
                true
            }
            Piece::Nothing => match self.exec.outcome() {
                Some(outcome) if !self.ended => {
                    self.ended = true;
                    tell(Told::Exit(outcome));
                    true
                }
                _ => false,
            },
        }
    }

    /// True once the end was told.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Waits until [`Follower::next`] has something to tell; to be called when it had nothing.
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
}

/// Bytes of output told at a time: what clients of the reference are used to.
const PIECE: usize = 16 * 1024;
