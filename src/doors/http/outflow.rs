//! The sending half of a connection: a response body in the framing that its head has announced.

use std::fs::File;
use std::io::IoSlice;

use super::body::Wire;
use crate::error::{Kind, Result};
use crate::ring::{Frame, Outflow, Step, file, turn};
use crate::wire::http::chunked;
use crate::wire::http::reply::Delimiter;

/// A response on its way out; the head goes with the first bytes of the body.
pub(super) struct Sender<'a> {
    wire: &'a Wire,
    held: Vec<u8>,
    framing: Delimiter,
    /// Bytes still owed under a length.
    owed: u64,
    /// True while nothing was sent, not even the head.
    untouched: bool,
    /// True when an offer was not taken whole.
    is_full: bool,
    /// Fields that follow the body.
    trailers: Vec<(&'static str, String)>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(wire: &'a Wire, head: Vec<u8>, framing: Delimiter) -> Self {
        let owed = match framing {
            Delimiter::Length(length) => length,
            _ => u64::MAX,
        };
        Self {
            wire,
            held: head,
            framing,
            owed,
            untouched: true,
            is_full: false,
            trailers: Vec::new(),
        }
    }

    /// True while nothing was sent, not even the head.
    pub(super) fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Ends the body and sends what is held.
    pub(super) async fn finish(mut self) -> Result<()> {
        match self.framing {
            Delimiter::Chunked => {
                let end = chunked::end(&self.trailers);
                self.held.extend_from_slice(&end);
            }
            Delimiter::Length(_) if self.owed > 0 => {
                return Err(Kind::Internal.told("the body ended before its length"));
            }
            _ => {}
        }
        self.release(false).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.owe_less(bytes.len() as u64)?;
        self.wire.traffic.bodies.send(bytes.len() as u64);
        self.open_chunk(bytes.len() as u64);
        if self.held.len() + bytes.len() <= HELD {
            self.held.extend_from_slice(bytes);
        } else {
            self.release(true).await?;
            self.wire.socket.send_all(bytes, false).await?;
        }
        self.close_chunk();
        Ok(())
    }

    async fn put_file(&mut self, source: &File, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.owe_less(length)?;
        self.open_chunk(length);
        if !self.takes_small(source, offset, length) {
            self.release(true).await?;
            let count = |sent| self.wire.traffic.bodies.send(sent);
            let sending = self.wire.socket.send_file(source, offset, length, count);
            sending.await?;
        }
        self.close_chunk();
        Ok(())
    }

    /// Sends what is held and `frames` in one call; of a frame that goes out in part the rest is held.
    fn put_frames(&mut self, frames: &[Frame<'_>]) -> Result<usize> {
        let frames = &frames[..frames.len().min(MOST_FRAMES)];
        let mut sizes = [[0; chunked::SIZE_LINE]; MOST_FRAMES];
        let mut slices = Vec::with_capacity(1 + 4 * frames.len());
        slices.push(IoSlice::new(&self.held));
        let is_chunked = self.framing == Delimiter::Chunked;
        for (frame, size) in frames.iter().zip(&mut sizes) {
            if is_chunked {
                slices.push(IoSlice::new(chunked::size_line(length(frame), size)));
            }
            slices.push(IoSlice::new(frame.head));
            slices.push(IoSlice::new(frame.body));
            if is_chunked {
                slices.push(IoSlice::new(b"\r\n"));
            }
        }
        let sent = self.wire.socket.try_send(&slices)?;
        self.untouched &= sent == 0;
        self.is_full = true;
        let Some(mut beyond) = sent.checked_sub(self.held.len()) else {
            self.held.drain(..sent);
            return Ok(0);
        };
        let per_frame = if is_chunked { 4 } else { 2 };
        let mut taken = 0;
        let mut rest = Vec::new();
        for parts in slices[1..].chunks(per_frame) {
            if beyond == 0 {
                break;
            }
            taken += 1;
            for part in parts {
                let now = beyond.min(part.len());
                beyond -= now;
                rest.extend_from_slice(&part[now..]);
            }
        }
        self.held = rest;
        self.is_full = taken < frames.len();
        let bytes = frames[..taken].iter().map(length).sum();
        self.wire.traffic.bodies.send(bytes);
        self.owe_less(bytes)?;
        Ok(taken)
    }

    /// Sends what is held, or waits until there is room.
    async fn make_room(&mut self) -> Result<()> {
        // Among hundreds of followers with much to read, each has its turn after one offer.
        turn().await;
        if !self.held.is_empty() {
            return self.release(false).await;
        }
        if self.is_full {
            self.wire.socket.room().await?;
        }
        Ok(())
    }

    /// Takes a small cached file into the held bytes, so that head and body are one packet.
    fn takes_small(&mut self, source: &File, offset: u64, length: u64) -> bool {
        let before = self.held.len();
        let fits = usize::try_from(length).ok();
        let Some(length) = fits.filter(|length| *length <= SMALL && before + *length <= HELD)
        else {
            return false;
        };
        self.held.reserve(length);
        let read = file::try_read_at(source, &mut self.held, offset, length);
        let is_whole = read == Some(length);
        match is_whole {
            true => self.wire.traffic.bodies.send(length as u64),
            false => self.held.truncate(before),
        }
        is_whole
    }

    async fn release(&mut self, more: bool) -> Result<()> {
        self.untouched = false;
        let held = std::mem::take(&mut self.held);
        let outcome = self.wire.socket.send_all(&held, more).await;
        self.held = held;
        self.held.clear();
        outcome
    }

    fn owe_less(&mut self, length: u64) -> Result<()> {
        let owed = self.owed.checked_sub(length);
        self.owed =
            owed.ok_or_else(|| Kind::Internal.told("the body is longer than its length"))?;
        Ok(())
    }

    fn open_chunk(&mut self, length: u64) {
        if self.framing == Delimiter::Chunked {
            let mut space = [0; chunked::SIZE_LINE];
            self.held
                .extend_from_slice(chunked::size_line(length, &mut space));
        }
    }

    fn close_chunk(&mut self) {
        if self.framing == Delimiter::Chunked {
            self.held.extend_from_slice(b"\r\n");
        }
    }
}

impl Outflow for Sender<'_> {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Step<'a, ()> {
        Box::pin(self.put(bytes))
    }

    fn check(&self) -> Result<()> {
        self.wire.socket.check()
    }

    fn flush(&mut self) -> Step<'_, ()> {
        Box::pin(self.release(false))
    }

    fn offer(&mut self, frames: &[Frame<'_>]) -> Result<usize> {
        self.put_frames(frames)
    }

    fn ready(&mut self) -> Step<'_, ()> {
        Box::pin(self.make_room())
    }

    fn trailer(&mut self, name: &'static str, value: String) {
        self.trailers.push((name, value));
    }

    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, length: u64) -> Step<'a, ()> {
        Box::pin(self.put_file(file, offset, length))
    }
}

fn length(frame: &Frame<'_>) -> u64 {
    (frame.head.len() + frame.body.len()) as u64
}

/// Frames sent in one call.
const MOST_FRAMES: usize = 32;
/// Bytes that are held back to go out in one call.
const HELD: usize = 64 * 1024;
/// Files up to this size are copied behind the head instead of being sent by a call of their own.
const SMALL: usize = 32 * 1024;
