//! The standard input of an exec: a pipe or a terminal that is written in turn and closed once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::terminal::Typing;
use super::together::{First, first};
use crate::error::{Error, Kind, Result};
use crate::ring::clock::{self, Deadline};
use crate::ring::notify::{Event, Once};
use crate::ring::{Fd, Inflow};

/// The write end of a child's standard input; that of a terminal is closed for writers only.
///
/// ```text
/// open ── eof, broken pipe, end of the exec ──> closed
/// ```
pub(super) struct Stdin {
    requested: bool,
    pipe: RefCell<Option<Rc<Fd>>>,
    /// Present when the pipe is a terminal.
    typing: Option<Typing>,
    closed: Once<()>,
    /// True when it was closed because a writer said so.
    ended: Cell<bool>,
    /// Bytes that the pipe has taken.
    taken: Cell<u64>,
    busy: Cell<bool>,
    /// True while the turn belongs to a flow, which may take its time.
    flowing: Cell<bool>,
    freed: Event,
}

impl Stdin {
    /// The standard input with this write end; `None` is `/dev/null`.
    pub(super) fn new(pipe: Option<Rc<Fd>>) -> Self {
        Self {
            requested: pipe.is_some(),
            pipe: RefCell::new(pipe),
            typing: None,
            closed: Once::default(),
            ended: Cell::new(false),
            taken: Cell::new(0),
            busy: Cell::new(false),
            flowing: Cell::new(false),
            freed: Event::default(),
        }
    }

    /// The standard input that is this terminal.
    pub(super) fn of_terminal(master: Rc<Fd>) -> Self {
        Self {
            typing: Some(Typing::default()),
            ..Self::new(Some(master))
        }
    }

    /// True when the exec was started with a standard input that can be written to.
    pub(super) fn is_requested(&self) -> bool {
        self.requested
    }

    /// Closes the pipe for good; a write under way ends with `StdinClosed`.
    pub(super) fn close(&self) {
        self.pipe.borrow_mut().take();
        self.closed.set(());
    }

    /// Bytes that the child's end has taken so far, and whether a writer has said that there are no more.
    pub(super) fn progress(&self) -> (u64, bool) {
        (self.taken.get(), self.ended.get())
    }

    /// Writes all of `bytes`, after the writes that came before, then closes the pipe if `eof` says so.
    ///
    /// If dropped, a part of the bytes may have been written, and the next write has its turn.
    ///
    /// # Errors
    /// `StdinClosed`, `StdinWriteTimeout` (a part may have been written), `StdinWriteFailed`.
    pub(super) async fn write(&self, bytes: &[u8], eof: bool, patience: Duration) -> Result<()> {
        let turn = self.turn(patience).await?;
        let Some(pipe) = self.pipe.borrow().clone() else {
            return Err(already_closed());
        };
        let written = clock::within(patience, self.hand_over(&pipe, bytes, Duration::MAX)).await;
        written.unwrap_or_else(|| Err(not_read()))?;
        if eof {
            self.end(Some(&pipe), patience).await?;
        }
        drop(turn);
        Ok(())
    }

    /// Writes what `source` brings as it arrives, after the writes that came before, then closes the pipe if `eof`
    /// says so. Byte 0 of the source is byte `offset` of the standard input: what was taken of it before is skipped.
    ///
    /// The turn may keep it waiting for `patience`, and so may the child each time it does not read. If dropped, what
    /// was taken stays counted.
    ///
    /// # Errors
    /// Those of [`Stdin::write`] and of the source; `StdinOffset` when bytes are missing before `offset`.
    pub(super) async fn flow(
        &self,
        source: &mut dyn Inflow,
        offset: Option<u64>,
        eof: bool,
        patience: Duration,
    ) -> Result<()> {
        let turn = clock::within(patience, self.turn(patience)).await;
        let turn = turn.unwrap_or_else(|| Err(no_turn()))?;
        self.flowing.set(true);
        let next = self.taken.get();
        let mut skip = next.saturating_sub(offset.unwrap_or(next));
        if offset.is_some_and(|offset| offset > next) {
            let told = format!("bytes before this offset are missing: the next one is {next}");
            return Err(Kind::StdinOffset.told(told));
        }
        let pipe = self.pipe.borrow().clone();
        let is_retry = eof && self.ended.get();
        if pipe.is_none() && !is_retry {
            return Err(already_closed());
        }
        let room = source.remaining().map_or(FLOW, |left| left.min(FLOW));
        let mut buffer = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
        while self.arrived(source, &mut buffer, pipe.is_some()).await? {
            let known = skip.min(buffer.len() as u64);
            skip -= known;
            let fresh = &buffer[usize::try_from(known).unwrap_or(buffer.len())..];
            match &pipe {
                Some(pipe) => self.hand_over(pipe, fresh, patience).await?,
                None if fresh.is_empty() => {}
                None => return Err(already_closed()),
            }
            buffer.clear();
        }
        if eof {
            self.end(pipe.as_deref(), patience).await?;
        }
        drop(turn);
        Ok(())
    }

    /// Waits for more of `source`; false at its end. When `cut`, the end of the standard input cuts the wait off.
    async fn arrived(
        &self,
        source: &mut dyn Inflow,
        buffer: &mut Vec<u8>,
        cut: bool,
    ) -> Result<bool> {
        let read = source.read(buffer);
        let count = if cut {
            match first(read, self.closed.wait()).await {
                First::Left(count) => count?,
                First::Right(()) => return Err(already_closed()),
            }
        } else {
            read.await?
        };
        Ok(count > 0)
    }

    /// Hands `bytes` to the child, counting what it takes; `patience` bounds each wait for it to read.
    async fn hand_over(&self, pipe: &Fd, bytes: &[u8], patience: Duration) -> Result<()> {
        if let Some(typing) = &self.typing {
            typing.begin(bytes);
        }
        self.put(pipe, bytes, &self.taken, patience).await?;
        if let Some(typing) = &self.typing {
            typing.end(bytes);
        }
        Ok(())
    }

    async fn put(
        &self,
        pipe: &Fd,
        bytes: &[u8],
        taken: &Cell<u64>,
        patience: Duration,
    ) -> Result<()> {
        // The end of the exec cuts a write off; what the pipe took stays written.
        let written = first(write_all(pipe, bytes, taken, patience), self.closed.wait());
        match written.await {
            First::Left(Ok(())) => Ok(()),
            First::Right(()) => Err(already_closed()),
            First::Left(Err(Errno::TIMEDOUT)) => Err(not_read()),
            // What a terminal says when nobody has it open is an input-output error.
            First::Left(Err(Errno::PIPE | Errno::IO)) => {
                self.close();
                Err(Kind::StdinClosed.told("the child no longer reads its standard input"))
            }
            First::Left(Err(error)) => Err(failed(error)),
        }
    }

    /// Closes the pipe because a writer has said that there is no more; at a terminal that is typed, and not counted.
    async fn end(&self, pipe: Option<&Fd>, patience: Duration) -> Result<()> {
        if let (Some(typing), Some(pipe)) = (&self.typing, pipe) {
            let typed = typing.end_of_file(pipe).map_err(failed)?;
            typing.begin(&typed);
            self.put(pipe, &typed, &Cell::new(0), patience).await?;
            typing.end(&typed);
        }
        self.ended.set(true);
        self.close();
        Ok(())
    }

    /// Waits for the turn to write; behind a flow at most for `patience`, since that may take any time.
    async fn turn(&self, patience: Duration) -> Result<Turn<'_>> {
        loop {
            let seen = self.freed.count();
            if !self.busy.replace(true) {
                return Ok(Turn(self));
            }
            let freed = self.freed.after(seen);
            if self.flowing.get() {
                let in_time = clock::within(patience, freed).await;
                in_time.ok_or_else(no_turn)?;
            } else {
                freed.await;
            }
        }
    }
}

/// The right to write, given up when dropped.
struct Turn<'a>(&'a Stdin);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.flowing.set(false);
        self.0.busy.set(false);
        self.0.freed.happen();
    }
}

/// Writes all of `bytes` and adds to `taken` what the pipe takes; `TIMEDOUT` when it takes nothing for `patience`.
async fn write_all(
    pipe: &Fd,
    bytes: &[u8],
    taken: &Cell<u64>,
    patience: Duration,
) -> std::result::Result<(), Errno> {
    let mut rest = bytes;
    let mut deadline = Deadline::after(patience);
    let mut is_stuck = false;
    while !rest.is_empty() {
        match rustix::io::write(pipe, rest) {
            Ok(count) => {
                rest = &rest[count..];
                taken.set(taken.get() + count as u64);
                (deadline, is_stuck) = (Deadline::after(patience), false);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // A terminal that nobody has open any more is ready for ever, and takes nothing.
                if is_stuck {
                    clock::sleep(PAUSE).await;
                }
                if deadline.has_passed() {
                    return Err(Errno::TIMEDOUT);
                }
                is_stuck = true;
                let ready = clock::until(deadline, pipe.writable()).await;
                ready
                    .ok_or(Errno::TIMEDOUT)?
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Pause before a pipe that was ready and took nothing is tried again.
const PAUSE: Duration = Duration::from_millis(10);

fn failed(error: Errno) -> Error {
    let told = format!("the write to standard input failed: {error}");
    Kind::StdinWriteFailed.told(told).because(error)
}

fn already_closed() -> Error {
    Kind::StdinClosed.told("standard input is closed already, or the child has ended")
}

fn not_read() -> Error {
    Kind::StdinWriteTimeout
        .told("the child did not read its standard input in time; a part may have been written")
}

fn no_turn() -> Error {
    Kind::StdinWriteTimeout.told("another write to this standard input is still under way")
}

/// Bytes of a flow that are read before they are written: less than what the sender's door would wait for.
const FLOW: u64 = 256 * 1024;
