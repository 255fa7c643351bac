//! The terminal of an exec: made with a size, typed at, resized, closed with the exec (pty(7), termios(3)).

use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Uid, fchown};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, Winsize, tcgetattr,
    tcsetattr, tcsetwinsize,
};

use crate::error::{Kind, Result};
use crate::ring::Fd;

/// What a child reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// `/dev/null`.
    Null,
    /// A pipe.
    Pipe,
    /// A terminal of this size, which it also writes to.
    Terminal(Size),
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub cols: NonZeroU16,
    /// Lines.
    pub rows: NonZeroU16,
}

impl Size {
    fn to_kernel(self) -> Winsize {
        Winsize {
            ws_row: self.rows.get(),
            ws_col: self.cols.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        }
    }
}

/// Our ends of the terminal of an exec.
///
/// ```text
/// both ends ── the child has ended ──> master ── the exec has ended ──> closed
/// ```
pub(super) struct Terminal {
    master: RefCell<Option<Rc<Fd>>>,
    // A child may close all that it has of its terminal and open it again later: that is no end of its output.
    slave: Cell<Option<OwnedFd>>,
}

impl Terminal {
    /// A terminal of this size, belonging to `owner`; with its master and the descriptors of the child.
    ///
    /// # Errors
    /// What the failing call said; that there are no terminals is named.
    pub(super) fn open(size: Size, owner: Option<u32>) -> io::Result<(Self, Rc<Fd>, [OwnedFd; 3])> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).map_err(unavailable)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        tcsetwinsize(&slave, size.to_kernel())?;
        let mut modes = tcgetattr(&slave)?;
        // Text is UTF-8: the erase character takes back a whole letter.
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        if let Some(owner) = owner {
            // Group and mode are what whoever mounted devpts chose for all terminals.
            fchown(&slave, Some(Uid::from_raw(owner)), None)?;
        }
        let far = [slave.try_clone()?, slave.try_clone()?, slave.try_clone()?];
        let master = Rc::new(Fd::new(master)?);
        let terminal = Self {
            master: RefCell::new(Some(Rc::clone(&master))),
            slave: Cell::new(Some(slave)),
        };
        Ok((terminal, master, far))
    }

    /// Sets the size; if it is another one, the kernel sends SIGWINCH to the foreground processes.
    ///
    /// # Errors
    /// `TerminalClosed`.
    pub(super) fn resize(&self, size: Size) -> Result<()> {
        let Some(master) = self.master.borrow().clone() else {
            return Err(Kind::TerminalClosed.told("the exec has ended, and its terminal with it"));
        };
        tcsetwinsize(&master, size.to_kernel()).map_err(|error| {
            Kind::Internal
                .told("the terminal takes no size")
                .because(error)
        })
    }

    /// Says that the child has ended: from now on the terminal is at its end when nobody else has it open.
    pub(super) fn leave(&self) {
        self.slave.take();
    }

    /// Says that the exec has ended; the terminal closes when those who read or write it let go too.
    pub(super) fn close(&self) {
        self.slave.take();
        self.master.borrow_mut().take();
    }
}

fn unavailable(error: Errno) -> io::Error {
    let why = match error {
        // How the library says ENOSPC.
        Errno::AGAIN => "all are in use".to_owned(),
        other => format!("/dev/ptmx: {other}"),
    };
    io::Error::new(error.kind(), format!("no pseudo-terminal: {why}"))
}

/// What was typed at a terminal, as far as it decides what end of file is.
#[derive(Default)]
pub(super) struct Typing {
    last: Cell<Last>,
}

/// The last byte that was typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    None,
    /// A write broke off, so it may be any.
    Unknown,
    Byte(u8),
}

impl Typing {
    /// Says that `bytes` are about to be typed; all, some or none of them will be.
    pub(super) fn begin(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.last.set(Last::Unknown);
        }
    }

    /// Says that all of `bytes` were typed.
    pub(super) fn end(&self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.last.set(Last::Byte(*last));
        }
    }

    /// What has to be typed now to say end of file.
    ///
    /// # Errors
    /// The terminal does not tell its rules.
    pub(super) fn end_of_file(&self, master: &Fd) -> std::result::Result<Vec<u8>, Errno> {
        // The master answers for the slave.
        Ok(Rules::of(&tcgetattr(master)?).end_of_file(self.last.get()))
    }
}

/// What a terminal makes of some bytes that are typed.
#[derive(Clone, Debug)]
struct Rules {
    /// True when whole lines are read, false when single bytes are.
    has_lines: bool,
    /// The end-of-file character; `None` when it is switched off.
    eof: Option<u8>,
    /// Bytes after which no part of a line waits.
    breaks: Vec<u8>,
}

impl Rules {
    fn of(modes: &Termios) -> Self {
        // A character that is switched off is zero.
        let code = |index| Some(modes.special_codes[index]).filter(|code| *code != 0);
        let mut breaks = vec![b'\n'];
        if modes.input_modes.contains(InputModes::ICRNL) {
            breaks.push(b'\r');
        }
        let mut special = vec![
            SpecialCodeIndex::VEOF,
            SpecialCodeIndex::VEOL,
            SpecialCodeIndex::VEOL2,
            SpecialCodeIndex::VKILL,
        ];
        let local = modes.local_modes;
        if local.contains(LocalModes::ISIG) && !local.contains(LocalModes::NOFLSH) {
            special.extend([
                SpecialCodeIndex::VINTR,
                SpecialCodeIndex::VQUIT,
                SpecialCodeIndex::VSUSP,
            ]);
        }
        breaks.extend(special.into_iter().filter_map(code));
        Self {
            has_lines: local.contains(LocalModes::ICANON),
            eof: code(SpecialCodeIndex::VEOF),
            breaks,
        }
    }

    fn end_of_file(&self, last: Last) -> Vec<u8> {
        let Some(eof) = self.eof else {
            return Vec::new();
        };
        let is_at_start = match last {
            Last::None => true,
            Last::Unknown => false,
            Last::Byte(byte) => self.breaks.contains(&byte),
        };
        // Behind a part of a line the first one only hands that part over.
        let times = if self.has_lines && !is_at_start { 2 } else { 1 };
        vec![eof; times]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes() -> Termios {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        tcgetattr(&master).expect("its modes")
    }

    fn check(change: impl FnOnce(&mut Termios), last: Last, expected: &[u8]) {
        let mut modes = modes();
        change(&mut modes);
        assert_eq!(Rules::of(&modes).end_of_file(last), expected, "{last:?}");
    }

    #[test]
    fn end_of_file_is_said_twice_behind_a_part_of_a_line() {
        check(|_| (), Last::Byte(b'a'), b"\x04\x04");
        check(|_| (), Last::Unknown, b"\x04\x04");
        check(|_| (), Last::None, b"\x04");
        for byte in *b"\n\r\x03\x04\x15\x1a\x1c" {
            check(|_| (), Last::Byte(byte), b"\x04");
        }
    }

    #[test]
    fn the_rules_are_those_of_the_terminal() {
        let other = |modes: &mut Termios| modes.special_codes[SpecialCodeIndex::VEOF] = b'q';
        check(other, Last::Byte(4), b"qq");
        check(other, Last::Byte(b'q'), b"q");
        let off = |modes: &mut Termios| modes.special_codes[SpecialCodeIndex::VEOF] = 0;
        check(off, Last::Byte(b'a'), b"");
        let plain = |modes: &mut Termios| modes.input_modes.remove(InputModes::ICRNL);
        check(plain, Last::Byte(b'\r'), b"\x04\x04");
        let quiet = |modes: &mut Termios| modes.local_modes.remove(LocalModes::ISIG);
        check(quiet, Last::Byte(3), b"\x04\x04");
        check(quiet, Last::Byte(0), b"\x04\x04");
    }

    #[test]
    fn without_lines_end_of_file_is_a_byte_like_others() {
        let raw = |modes: &mut Termios| modes.make_raw();
        check(raw, Last::Byte(b'a'), b"\x04");
        check(raw, Last::None, b"\x04");
    }
}
