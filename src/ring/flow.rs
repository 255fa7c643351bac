//! Bytes in motion, seen without knowing the door: what comes in piece by piece, what goes out piece by piece.

use std::fs::File;
use std::future::Future;
use std::pin::Pin;

use crate::error::Result;

/// A step of a flow that borrows the flow until it is done.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// Bytes that arrive: a request body, or a test's vector.
pub trait Inflow {
    /// Bytes that are still to come, when the sender has said how many.
    fn remaining(&self) -> Option<u64>;

    /// Appends what is there to `into`, within its spare capacity; 0 means the end.
    ///
    /// # Errors
    /// `ClientGone` or `ClientStalled` when the sender fails, `Malformed` for broken framing, `TooLarge` past the limit.
    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize>;

    /// Tells the sender, while its bytes are still to come, what it needs to know beforehand; true when it was told.
    ///
    /// Where there is no way to, nothing is said.
    ///
    /// # Errors
    /// `ClientGone` when the sender fails.
    fn announce<'a>(&'a mut self, _fields: &'a [(&'static str, String)]) -> Step<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    /// Appends what has arrived already, within the spare capacity of `into`; neither waits nor asks the sender for it.
    ///
    /// An inflow may know of nothing, and leave all to [`Inflow::read`].
    ///
    /// # Errors
    /// As [`Inflow::read`].
    fn gather(&mut self, _into: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// Bytes that are sent as a whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What comes first; may be empty.
    pub head: &'a [u8],
    /// What follows.
    pub body: &'a [u8],
}

/// Where bytes go: a response body.
pub trait Outflow {
    /// Sends `bytes`; they may be held back until the next call or the end.
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Step<'a, ()>;

    /// Asks, without waiting, whether anybody can still receive; what was sent before makes a vanished peer show.
    ///
    /// # Errors
    /// `ClientGone`.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Sends what is held back; a producer calls it before it waits for something other than the sink.
    fn flush(&mut self) -> Step<'_, ()>;

    /// Sends, in one call and without waiting, as many of `frames` as the receiver takes now; answers how many.
    ///
    /// A frame that is taken in part is kept to its end and counts as taken. Unless all are taken, the producer waits
    /// with [`Outflow::ready`] before it offers more; what it holds meanwhile is its own choice.
    ///
    /// # Errors
    /// `ClientGone`.
    fn offer(&mut self, frames: &[Frame<'_>]) -> Result<usize>;

    /// Waits until the receiver can take more.
    ///
    /// # Errors
    /// `ClientGone`, `ClientStalled`.
    fn ready(&mut self) -> Step<'_, ()>;

    /// Adds a field that follows the body; it is dropped where the framing has no place for it.
    ///
    /// The head must have announced it (`trailer`), so a producer knows beforehand that it will come.
    fn trailer(&mut self, _name: &'static str, _value: String) {}

    /// Sends exactly `length` bytes of `file` from `offset`, without a copy through user space where that pays.
    ///
    /// # Errors
    /// `ClientGone`, `ClientStalled`; `Internal` when the file ends early or cannot be read.
    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, length: u64) -> Step<'a, ()>;
}

/// An inflow of bytes that are all here: for tests, and for doors that have read everything.
pub struct Ready(std::vec::IntoIter<u8>);

impl Ready {
    /// An inflow that yields `bytes` and ends.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into_iter())
    }
}

impl Ready {
    fn take(&mut self, into: &mut Vec<u8>) -> usize {
        let room = into.capacity() - into.len();
        let before = into.len();
        into.extend(self.0.by_ref().take(room));
        into.len() - before
    }
}

impl Inflow for Ready {
    fn remaining(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn gather(&mut self, into: &mut Vec<u8>) -> Result<()> {
        self.take(into);
        Ok(())
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize> {
        Box::pin(async move { Ok(self.take(into)) })
    }
}
