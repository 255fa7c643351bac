//! The sending half of a connection: a response body in the framing that its head has announced.

use std::fs::File;

use super::body::Wire;
use crate::error::{Kind, Result};
use crate::ring::{Outflow, Step, file};
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
        }
    }

    /// True while nothing was sent, not even the head.
    pub(super) fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Ends the body and sends what is held.
    pub(super) async fn finish(mut self) -> Result<()> {
        match self.framing {
            Delimiter::Chunked => self.held.extend_from_slice(chunked::END),
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
            self.wire.socket.send_file(source, offset, length).await?;
        }
        self.close_chunk();
        Ok(())
    }

    /// Takes a small cached file into the held bytes, so that head and body are one packet.
    fn takes_small(&mut self, source: &File, offset: u64, length: u64) -> bool {
        let before = self.held.len();
        let fits = usize::try_from(length)
            .ok()
            .filter(|length| *length <= SMALL);
        let Some(length) = fits.filter(|length| before + length <= HELD) else {
            return false;
        };
        let mut body = Vec::with_capacity(length);
        let is_whole =
            file::try_read_at(source, &mut body, offset).is_some() && body.len() >= length;
        if is_whole {
            self.held.extend_from_slice(&body[..length]);
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
            self.held
                .extend_from_slice(chunked::size_line(length).as_bytes());
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

    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, length: u64) -> Step<'a, ()> {
        Box::pin(self.put_file(file, offset, length))
    }
}

/// Bytes that are held back to go out in one call.
const HELD: usize = 64 * 1024;
/// Files up to this size are copied behind the head instead of being sent by a call of their own.
const SMALL: usize = 32 * 1024;
