//! Large buffers that are lent, used and given back, so that a transfer does not touch fresh memory each time.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;

use rustix::io::Errno;

/// Bytes a leased buffer has room for: the size at which one more byte per call stops to pay.
pub const LEASE: usize = 512 * 1024;

/// Buffers kept for later; the rest of those given back is freed.
const KEPT: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for [`LEASE`] bytes, given back when dropped.
pub struct Lease(Vec<u8>);

/// Lends a buffer.
pub fn lease() -> Lease {
    Lease(take())
}

/// An empty buffer with room for [`LEASE`] bytes, for good.
pub fn take() -> Vec<u8> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| Vec::with_capacity(LEASE))
}

/// Gives a buffer away for later; one of another size is freed.
pub fn give_back(mut bytes: Vec<u8>) {
    if bytes.capacity() != LEASE {
        return;
    }
    bytes.clear();
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT {
            spare.push(bytes);
        }
    });
}

impl Lease {
    /// A lease of nothing, with no room.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads at most `most` bytes of `fd` behind what is there; 0 at its end.
    ///
    /// # Errors
    /// What the kernel says.
    #[expect(
        unsafe_code,
        reason = "the length is set to what the kernel has written"
    )]
    pub fn read_from(&mut self, fd: impl AsFd, most: usize) -> Result<usize, Errno> {
        let spare = self.0.spare_capacity_mut();
        let room = spare.len().min(most);
        let (read, _) = rustix::io::read(fd, &mut spare[..room])?;
        let count = read.len();
        // SAFETY: the kernel has written `count` bytes behind the length, within the capacity.
        unsafe { self.0.set_len(self.0.len() + count) };
        Ok(count)
    }

    /// Takes the bytes out to lend them to the ring; put them back with [`Lease::restore`].
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    /// Puts bytes back that were taken out.
    pub fn restore(&mut self, bytes: Vec<u8>) {
        self.0 = bytes;
    }
}

impl Deref for Lease {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}
