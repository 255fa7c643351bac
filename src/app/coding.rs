//! The memory of content codings: bodies that are coded or decoded at the same time share one bound.

use std::cell::Cell;
use std::rc::Rc;

use crate::error::{Kind, Result};

/// What all codings together may take.
pub struct Memory {
    most: u64,
    taken: Cell<u64>,
}

/// What one of them has taken; dropping it gives it back.
pub struct Claim {
    memory: Rc<Memory>,
    bytes: u64,
}

impl Memory {
    /// Room for `most` bytes.
    pub fn new(most: u64) -> Rc<Self> {
        Rc::new(Self {
            most,
            taken: Cell::new(0),
        })
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Takes `bytes`.
    ///
    /// # Errors
    /// `Busy` when the others have left less.
    pub fn claim(self: &Rc<Self>, bytes: u64) -> Result<Claim> {
        let mut claim = Claim {
            memory: Rc::clone(self),
            bytes: 0,
        };
        claim.grow_to(bytes)?;
        Ok(claim)
    }
}

impl Claim {
    /// Takes as many more as make `bytes` in all.
    ///
    /// # Errors
    /// `Busy` when the others have left less.
    pub fn grow_to(&mut self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        let taken = self.memory.taken.get().saturating_add(more);
        if more > 0 && taken > self.memory.most {
            let sentence = "too many bodies in content codings are under way";
            return Err(Kind::Busy.told(sentence));
        }
        self.memory.taken.set(taken);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let taken = &self.memory.taken;
        taken.set(taken.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_comes_back() {
        let memory = Memory::new(100);
        let mut one = memory.claim(60).expect("there is room");
        let two = memory.claim(40).expect("just so much is left");
        assert!(one.grow_to(61).is_err() && memory.claim(1).is_err());
        assert!(one.grow_to(50).is_ok() && memory.claim(0).is_ok());
        drop(two);
        one.grow_to(100).expect("the other has left");
        drop(one);
        assert_eq!(memory.taken(), 0);
    }
}
