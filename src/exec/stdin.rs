//! The standard input of an exec: a pipe or a terminal that is written in turn and closed once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::terminal::Typing;
use super::together::{First, first};
use crate::error::{Error, Kind, Result};
use crate::ring::Fd;
use crate::ring::clock;
use crate::ring::notify::{Event, Once};

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
    busy: Cell<bool>,
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
            busy: Cell::new(false),
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

    /// Writes all of `bytes`, after the writes that came before, then closes the pipe if `eof` says so.
    ///
    /// If dropped, a part of the bytes may have been written, and the next write has its turn.
    ///
    /// # Errors
    /// `StdinClosed`, `StdinWriteTimeout` (a part may have been written), `StdinWriteFailed`.
    pub(super) async fn write(&self, bytes: &[u8], eof: bool, patience: Duration) -> Result<()> {
        let turn = self.turn().await;
        let Some(pipe) = self.pipe.borrow().clone() else {
            return Err(already_closed());
        };
        // The end of the exec cuts a write off; what the pipe took stays written.
        let written = first(
            clock::within(patience, self.deliver(&pipe, bytes, eof)),
            self.closed.wait(),
        );
        match written.await {
            First::Right(()) => return Err(already_closed()),
            First::Left(None) => {
                return Err(Kind::StdinWriteTimeout.told(
                    "the child did not read its standard input in time; a part may have been written",
                ));
            }
            // What a terminal says when nobody has it open is an input-output error.
            First::Left(Some(Err(Errno::PIPE | Errno::IO))) => {
                self.close();
                return Err(Kind::StdinClosed.told("the child no longer reads its standard input"));
            }
            First::Left(Some(Err(error))) => {
                let told = format!("the write to standard input failed: {error}");
                return Err(Kind::StdinWriteFailed.told(told).because(error));
            }
            First::Left(Some(Ok(()))) => {}
        }
        if eof {
            self.close();
        }
        drop(turn);
        Ok(())
    }

    /// Writes `bytes`; on a terminal also what says that they are the last.
    async fn deliver(&self, pipe: &Fd, bytes: &[u8], eof: bool) -> std::result::Result<(), Errno> {
        let Some(typing) = &self.typing else {
            return write_all(pipe, bytes).await;
        };
        typing.begin(bytes);
        write_all(pipe, bytes).await?;
        typing.end(bytes);
        if eof {
            write_all(pipe, &typing.end_of_file(pipe)?).await?;
        }
        Ok(())
    }

    async fn turn(&self) -> Turn<'_> {
        loop {
            let seen = self.freed.count();
            if !self.busy.replace(true) {
                return Turn(self);
            }
            self.freed.after(seen).await;
        }
    }
}

/// The right to write, given up when dropped.
struct Turn<'a>(&'a Stdin);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.set(false);
        self.0.freed.happen();
    }
}

async fn write_all(pipe: &Fd, bytes: &[u8]) -> std::result::Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(pipe, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => pipe
                .writable()
                .await
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn already_closed() -> Error {
    Kind::StdinClosed.told("standard input is closed already, or the child has ended")
}
