//! The scanner: fed with the bytes of an archive, cut anywhere, it yields members and their data.
//!
//! ```text
//!            +-- L, K, x --> Extension --+
//!            v                           |
//!   start -> Header <--------------------+
//!            |  ^  \-- S, pax 1.0 --> Map --> Data
//!            |  +---- Padding <-- Data <------ file
//!            +-- a block of zeros --> End (whatever follows is ignored)
//! ```

use tar::Header;

use super::draft::{self, Draft, More, Pending};
use super::{BLOCK, LONGEST_EXTENSION, Member, broken, guise, padded, sparse};
use crate::error::Result;

/// What the scanner has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All bytes are used up; feed more.
    More,
    /// A member begins; its data, if any, follows as [`Event::Data`].
    Member(Member),
    /// A piece of the data of the last member, as stored.
    Data(&'a [u8]),
    /// The archive is over. Bytes behind it are left alone.
    End,
}

/// Reads an archive piece by piece.
pub struct Scanner {
    state: State,
    /// Offset of the next byte to come.
    offset: u64,
    block: Box<Header>,
    filled: usize,
    pending: Pending,
}

enum State {
    Header,
    Extension {
        flag: u8,
        size: usize,
        text: Vec<u8>,
    },
    Map {
        draft: Box<Draft>,
        text: sparse::Text,
    },
    Data {
        left: u64,
        padding: u64,
    },
    Skip {
        left: u64,
    },
    End,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Header,
            offset: 0,
            block: Box::new(Header::new_old()),
            filled: 0,
            pending: Pending::default(),
        }
    }
}

impl Scanner {
    /// Takes bytes off the front of `bytes` until something is found.
    ///
    /// # Errors
    /// `Malformed`, with the offset and what is wrong there; the scanner is of no use then.
    pub fn feed<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Event<'a>> {
        loop {
            match &mut self.state {
                State::End => return Ok(Event::End),
                State::Data { left: 0, padding } => self.state = State::Skip { left: *padding },
                State::Skip { left: 0 } => self.state = State::Header,
                _ if bytes.is_empty() => return Ok(Event::More),
                State::Data { left, .. } => {
                    let piece = take(bytes, *left);
                    *left -= piece.len() as u64;
                    self.offset += piece.len() as u64;
                    return Ok(Event::Data(piece));
                }
                State::Skip { left } => {
                    let piece = take(bytes, *left);
                    *left -= piece.len() as u64;
                    self.offset += piece.len() as u64;
                }
                State::Extension { size, text, .. } => {
                    // Padding is gathered too and cut off at the end.
                    let whole = padded(*size as u64) - text.len() as u64;
                    let piece = take(bytes, whole);
                    text.extend_from_slice(piece);
                    self.offset += piece.len() as u64;
                    if piece.len() as u64 == whole {
                        self.extended()?;
                    }
                }
                State::Header | State::Map { .. } => {
                    if self.gather(bytes)
                        && let Some(member) = self.decide()?
                    {
                        return Ok(Event::Member(member));
                    }
                }
            }
        }
    }

    /// Says that no more bytes come.
    ///
    /// # Errors
    /// `Malformed` when the archive breaks off inside a member.
    pub fn finish(&self) -> Result<()> {
        match &self.state {
            State::End => Ok(()),
            State::Header if self.filled == 0 && self.pending.at.is_none() => Ok(()),
            State::Skip { left: 0 }
            | State::Data {
                left: 0,
                padding: 0,
            } => Ok(()),
            State::Header if self.offset == self.filled as u64 && self.guise().is_some() => {
                Err(self.unsound(0))
            }
            State::Header => Err(broken(self.offset, "it ends inside a header")),
            _ => Err(broken(self.offset, "it ends inside a member")),
        }
    }

    /// Skips what has not come yet of the data of the last member: it is kept elsewhere. Its padding still comes.
    pub fn pass(&mut self) {
        if let State::Data { left, padding } = &mut self.state {
            self.offset += *left;
            self.state = State::Skip { left: *padding };
        }
    }

    /// True once the end marker was seen.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::End)
    }

    fn unsound(&self, at: u64) -> crate::error::Error {
        match self.guise() {
            Some(what) if at == 0 => broken(at, what),
            _ => broken(at, "the checksum of a header is wrong"),
        }
    }

    /// What the block looks like that is no header, as far as it has come.
    fn guise(&self) -> Option<&'static str> {
        let filled = match self.filled {
            0 => self.block.as_bytes().as_slice(),
            some => &self.block.as_bytes()[..some],
        };
        guise::recognize(filled)
    }

    /// Fills the block; true when it is whole.
    fn gather(&mut self, bytes: &mut &[u8]) -> bool {
        let room = &mut self.block.as_mut_bytes()[self.filled..];
        let piece = take(bytes, room.len() as u64);
        room[..piece.len()].copy_from_slice(piece);
        self.filled += piece.len();
        self.offset += piece.len() as u64;
        if self.filled as u64 == BLOCK {
            self.filled = 0;
            return true;
        }
        false
    }

    /// Judges a whole block, a header or a part of a sparse map.
    fn decide(&mut self) -> Result<Option<Member>> {
        let at = self.offset - BLOCK;
        match std::mem::replace(&mut self.state, State::Header) {
            State::Map { draft, text } => self.mapped(draft, text, at),
            _ => self.headed(at),
        }
    }

    fn headed(&mut self, at: u64) -> Result<Option<Member>> {
        let bytes = self.block.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            if self.pending.at.is_some() {
                return Err(broken(at, "an extension header describes no member"));
            }
            self.state = State::End;
            return Ok(None);
        }
        if !draft::is_sound(&self.block) {
            return Err(self.unsound(at));
        }
        let flag = self.block.as_old().linkflag[0];
        if matches!(flag, b'L' | b'K' | b'x' | b'X' | b'g') {
            self.extend(flag, at)?;
            return Ok(None);
        }
        let pending = std::mem::take(&mut self.pending);
        let draft = draft::draft(&self.block, pending, at).map_err(|what| broken(at, what))?;
        if draft.more == More::Nothing {
            return self.begin(draft, at).map(Some);
        }
        self.state = State::Map {
            draft: Box::new(draft),
            text: sparse::Text::default(),
        };
        Ok(None)
    }

    fn extend(&mut self, flag: u8, at: u64) -> Result<()> {
        let size = super::number::unsigned(&self.block.as_old().size);
        let size = size.ok_or_else(|| broken(at, "the size is no number"))?;
        if flag == b'g' {
            // What it says of all members (a commit id, mostly) is nothing that we apply.
            self.state = State::Skip { left: padded(size) };
            return Ok(());
        }
        self.pending.at.get_or_insert(at);
        if size > LONGEST_EXTENSION {
            return Err(broken(at, "an extension header is longer than 1 MiB"));
        }
        let size = usize::try_from(size).map_err(|_| broken(at, "the size is absurd"))?;
        self.state = State::Extension {
            flag,
            size,
            text: Vec::new(),
        };
        if size == 0 {
            self.extended()?;
        }
        Ok(())
    }

    fn extended(&mut self) -> Result<()> {
        let State::Extension {
            flag,
            size,
            mut text,
        } = std::mem::replace(&mut self.state, State::Header)
        else {
            return Ok(());
        };
        text.truncate(size);
        if matches!(flag, b'x' | b'X') {
            let start = self.offset - padded(size as u64);
            return self
                .pending
                .records
                .read(&text)
                .map_err(|what| broken(start, what));
        }
        let end = text.iter().position(|byte| *byte == 0);
        text.truncate(end.unwrap_or(text.len()));
        match flag {
            b'L' => self.pending.name = Some(text),
            _ => self.pending.link = Some(text),
        }
        Ok(())
    }

    fn mapped(
        &mut self,
        mut draft: Box<Draft>,
        mut text: sparse::Text,
        at: u64,
    ) -> Result<Option<Member>> {
        let block = self.block.as_bytes();
        let outcome = match draft.more {
            More::Text => {
                let whole = text.feed(block);
                draft.member.stored = draft
                    .member
                    .stored
                    .checked_sub(BLOCK)
                    .ok_or_else(|| broken(at, "a sparse map is longer than its member"))?;
                if whole == Ok(true) {
                    draft.runs = Some(std::mem::take(&mut text).runs());
                }
                whole
            }
            _ => {
                let mut table = tar::GnuExtSparseHeader::new();
                table.as_mut_bytes().copy_from_slice(block);
                let runs = draft.runs.get_or_insert_default();
                sparse::take(table.sparse(), runs).map(|()| !table.is_extended())
            }
        };
        draft.member.data_at = self.offset;
        if outcome.map_err(|what| broken(at, what))? {
            return self.begin(*draft, at).map(Some);
        }
        self.state = State::Map { draft, text };
        Ok(None)
    }

    fn begin(&mut self, draft: Draft, at: u64) -> Result<Member> {
        let member = draft.settle().map_err(|what| broken(at, what))?;
        let padding = padded(member.stored) - member.stored;
        self.state = State::Data {
            left: member.stored,
            padding,
        };
        Ok(member)
    }
}

fn take<'a>(bytes: &mut &'a [u8], most: u64) -> &'a [u8] {
    let count = usize::try_from(most).map_or(bytes.len(), |most| most.min(bytes.len()));
    let (piece, rest) = bytes.split_at(count);
    *bytes = rest;
    piece
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
