//! Content codings in pieces: zstd (RFC 8878) and gzip (RFC 1952), cut anywhere, with memory that is bounded.
//!
//! Concatenated frames and members are one body, as their specifications say; what follows them is not.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use zstd_safe::zstd_sys::{ZSTD_EndDirective, ZSTD_ErrorCode};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer};

use crate::error::{Error, Kind, Result};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `zstd`, with windows of at most 8 MiB, as RFC 9659 asks of this coding.
    Zstd,
    /// `gzip`, also known as `x-gzip`.
    Gzip,
}

impl Coding {
    /// The coding of this name, in any case.
    pub fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("zstd") {
            return Some(Self::Zstd);
        }
        (is("gzip") || is("x-gzip")).then_some(Self::Gzip)
    }

    /// The name by which it is announced.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// Undoes a coding.
pub struct Decoder {
    tool: Undo,
    /// Coded bytes that were taken.
    offset: u64,
    /// True between the first and the last byte of a frame or member.
    is_inside: bool,
    /// True when the last call may have kept something back because there was no room for it.
    holds_back: bool,
}

enum Undo {
    /// With the coded bytes that it wants next.
    Zstd(DCtx<'static>, usize),
    Gzip(Decompress),
}

impl Decoder {
    /// A decoder at the start of a body.
    ///
    /// # Errors
    /// `Internal` when there is no memory.
    pub fn new(coding: Coding) -> Result<Self> {
        let tool = match coding {
            Coding::Zstd => {
                let mut context = DCtx::try_create().ok_or_else(exhausted)?;
                let set = context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG));
                set.map_err(|_| exhausted())?;
                Undo::Zstd(context, FIRST)
            }
            Coding::Gzip => Undo::Gzip(Decompress::new_gzip(GZIP_WINDOW)),
        };
        Ok(Self {
            tool,
            offset: 0,
            is_inside: false,
            holds_back: false,
        })
    }

    /// Bytes of memory that it takes now.
    pub fn memory(&self) -> u64 {
        let bytes = match &self.tool {
            Undo::Zstd(context, _) => context.sizeof(),
            Undo::Gzip(_) => GZIP_MEMORY,
        };
        bytes as u64
    }

    /// True when a call without further input may yield bytes.
    pub fn holds_back(&self) -> bool {
        self.holds_back
    }

    /// Decodes from the front of `input` into the spare capacity of `into`, until one of them is used up.
    ///
    /// # Errors
    /// `Malformed`, saying at which byte of the body.
    pub fn feed(&mut self, input: &mut &[u8], into: &mut Vec<u8>) -> Result<()> {
        while into.len() < into.capacity() {
            if input.is_empty() && !self.holds_back {
                return Ok(());
            }
            let before = (self.offset, into.len());
            match &mut self.tool {
                Undo::Zstd(..) => self.feed_zstd(input, into)?,
                Undo::Gzip(_) => self.feed_gzip(input, into)?,
            }
            self.holds_back = self.is_inside && into.len() == into.capacity();
            if before == (self.offset, into.len()) && !input.is_empty() {
                return Err(self.broken("it cannot be decoded"));
            }
        }
        Ok(())
    }

    /// Checks that the body may end here.
    ///
    /// # Errors
    /// `Malformed` in the middle of a frame or member, and when there was none.
    pub fn finish(&self) -> Result<()> {
        match (self.offset, self.is_inside) {
            (0, _) => Err(self.broken("it is empty")),
            (_, true) => Err(self.broken("it ends too early")),
            (_, false) => Ok(()),
        }
    }

    fn feed_zstd(&mut self, input: &mut &[u8], into: &mut Vec<u8>) -> Result<()> {
        let Undo::Zstd(context, wanted) = &mut self.tool else {
            return Ok(());
        };
        // Pieces as it wants them end where blocks do, so that an error has a place.
        let piece = &input[..input.len().min(*wanted)];
        let mut from = InBuffer::around(piece);
        let at = into.len();
        let mut to = OutBuffer::around_pos(into, at);
        let outcome = context.decompress_stream(&mut to, &mut from);
        let used = from.pos();
        match outcome {
            Ok(hint) => {
                self.offset += used as u64;
                self.is_inside = hint > 0 && (self.is_inside || used > 0);
                *wanted = if hint == 0 { FIRST } else { hint };
                *input = &input[used..];
                Ok(())
            }
            Err(code) => Err(self.broken(zstd_sentence(code))),
        }
    }

    fn feed_gzip(&mut self, input: &mut &[u8], into: &mut Vec<u8>) -> Result<()> {
        let Undo::Gzip(tool) = &mut self.tool else {
            return Ok(());
        };
        if !self.is_inside && tool.total_in() > 0 {
            *tool = Decompress::new_gzip(GZIP_WINDOW);
        }
        let before = tool.total_in();
        let outcome = tool.decompress_vec(input, into, FlushDecompress::None);
        let used = tool.total_in() - before;
        self.offset += used;
        *input = &input[usize::try_from(used).unwrap_or(input.len())..];
        match outcome {
            Ok(Status::StreamEnd) => self.is_inside = false,
            Ok(Status::Ok | Status::BufError) => self.is_inside |= used > 0,
            Err(error) => {
                let what = error.message().unwrap_or("it is not gzip").to_owned();
                return Err(self.broken(&what));
            }
        }
        Ok(())
    }

    fn broken(&self, what: &str) -> Error {
        let name = match self.tool {
            Undo::Zstd(..) => "zstd",
            Undo::Gzip(_) => "gzip",
        };
        let at = self.offset;
        Kind::Malformed.told(format!("malformed {name} body at byte {at}: {what}"))
    }
}

fn zstd_sentence(code: usize) -> &'static str {
    let is = |kind| zstd_safe::is_error_kind(code, kind);
    if is(ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge) {
        "its window is larger than 8 MiB"
    } else if is(ZSTD_ErrorCode::ZSTD_error_prefix_unknown) {
        "no zstd frame begins here"
    } else if is(ZSTD_ErrorCode::ZSTD_error_dictionary_wrong) {
        "it needs a dictionary"
    } else if is(ZSTD_ErrorCode::ZSTD_error_checksum_wrong) {
        "its checksum is another"
    } else {
        "it is corrupt"
    }
}

/// What follows the bytes that an encoder is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More: it may hold back what it likes.
    More,
    /// A pause: all bytes so far can be decoded from what it has yielded.
    Pause,
    /// Nothing.
    End,
}

/// Applies a coding.
///
/// The levels are those that cost least for what they save, since the processor belongs to the guest: zstd 1, which
/// needs about a MiB, and gzip 2, the first one whose codes fit the bytes.
pub struct Encoder(Do);

enum Do {
    Zstd(CCtx<'static>),
    Gzip(Compress),
}

impl Encoder {
    /// Bytes of memory that an encoder of this coding takes.
    pub fn memory(coding: Coding) -> u64 {
        match coding {
            Coding::Zstd => 2 << 20,
            Coding::Gzip => 512 << 10,
        }
    }

    /// An encoder at the start of a body.
    ///
    /// # Errors
    /// `Internal` when there is no memory.
    pub fn new(coding: Coding) -> Result<Self> {
        Ok(Self(match coding {
            Coding::Zstd => {
                let mut context = CCtx::try_create().ok_or_else(exhausted)?;
                let level = context.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL));
                let sum = context.set_parameter(CParameter::ChecksumFlag(true));
                level.and(sum).map_err(|_| exhausted())?;
                Do::Zstd(context)
            }
            Coding::Gzip => {
                let level = Compression::new(GZIP_LEVEL);
                Do::Gzip(Compress::new_gzip(level, GZIP_WINDOW))
            }
        }))
    }

    /// Encodes all of `input`, appending to `into`, which grows.
    ///
    /// # Errors
    /// `Internal` when the library fails.
    pub fn feed(&mut self, input: &[u8], into: &mut Vec<u8>, then: Then) -> Result<()> {
        match &mut self.0 {
            Do::Zstd(context) => feed_zstd(context, input, into, then),
            Do::Gzip(tool) => feed_gzip(tool, input, into, then),
        }
    }
}

fn feed_zstd(
    context: &mut CCtx<'static>,
    input: &[u8],
    into: &mut Vec<u8>,
    then: Then,
) -> Result<()> {
    let end = match then {
        Then::More => ZSTD_EndDirective::ZSTD_e_continue,
        Then::Pause => ZSTD_EndDirective::ZSTD_e_flush,
        Then::End => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut from = InBuffer::around(input);
    loop {
        into.reserve(GROWTH);
        let at = into.len();
        let mut to = OutBuffer::around_pos(into, at);
        let left = context
            .compress_stream2(&mut to, &mut from, end)
            .map_err(|code| Kind::Internal.told(zstd_safe::get_error_name(code)))?;
        let is_done = match then {
            Then::More => from.pos() == input.len(),
            Then::Pause | Then::End => left == 0,
        };
        if is_done {
            return Ok(());
        }
    }
}

fn feed_gzip(tool: &mut Compress, mut input: &[u8], into: &mut Vec<u8>, then: Then) -> Result<()> {
    let flush = match then {
        Then::More => FlushCompress::None,
        Then::Pause => FlushCompress::Sync,
        Then::End => FlushCompress::Finish,
    };
    loop {
        into.reserve(GROWTH);
        let before = tool.total_in();
        let status = tool
            .compress_vec(input, into, flush)
            .map_err(|error| Kind::Internal.told("cannot compress").because(error))?;
        let used = tool.total_in() - before;
        input = &input[usize::try_from(used).unwrap_or(input.len())..];
        let is_done = match then {
            Then::End => status == Status::StreamEnd,
            // With room left, nothing was kept back for the want of it.
            Then::More | Then::Pause => input.is_empty() && into.len() < into.capacity(),
        };
        if is_done {
            return Ok(());
        }
    }
}

fn exhausted() -> Error {
    Kind::Internal.told("no memory for a content coding")
}

/// Windows of at most 8 MiB are what every reader of the coding must have (RFC 9659), and no more is given.
const WINDOW_LOG: u32 = 23;
/// Bytes that the start of a frame is judged by.
const FIRST: usize = 5;
/// The window of gzip, 32 KiB.
const GZIP_WINDOW: u8 = 15;
/// Bytes of memory that undoing gzip takes.
const GZIP_MEMORY: usize = 64 * 1024;
const ZSTD_LEVEL: i32 = 1;
const GZIP_LEVEL: u32 = 2;
/// Bytes by which output grows at least.
const GROWTH: usize = 16 * 1024;

#[cfg(test)]
#[path = "coding_tests.rs"]
mod tests;
