//! What all execs together may hold: memory for their output, and disk for what no longer fits there.

use std::cell::Cell;
use std::rc::Rc;

/// Bytes in use out of a bound; shared by all execs.
pub(super) struct Budget {
    most: u64,
    used: Cell<u64>,
}

impl Budget {
    /// Nothing used of `most` bytes.
    pub(super) fn new(most: u64) -> Rc<Self> {
        Rc::new(Self {
            most,
            used: Cell::new(0),
        })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used.get()
    }

    /// True when all is used.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent_without(0)
    }

    /// True when `bytes` more can be taken.
    pub(super) fn has(&self, bytes: u64) -> bool {
        self.used.get().saturating_add(bytes) <= self.most
    }

    /// True when all would be used still, were `bytes` given back.
    pub(super) fn is_spent_without(&self, bytes: u64) -> bool {
        self.used.get().saturating_sub(bytes) >= self.most
    }
}

/// The part of a budget that one exec uses; given back when dropped.
pub(super) struct Share {
    budget: Rc<Budget>,
    bytes: Cell<u64>,
}

impl Share {
    /// A share of nothing yet.
    pub(super) fn new(budget: &Rc<Budget>) -> Self {
        Self {
            budget: Rc::clone(budget),
            bytes: Cell::new(0),
        }
    }

    /// Says how much is used now, be it within the bound or not: what a child has written is not lost for it.
    pub(super) fn set(&self, bytes: u64) {
        let others = self.budget.used.get() - self.bytes.replace(bytes);
        self.budget.used.set(others + bytes);
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Takes what is missing to `bytes` if the bound allows it; false, and nothing taken, when it does not.
    pub(super) fn reach(&self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes.get());
        let fits = self.budget.has(more);
        if fits {
            self.set(self.bytes.get() + more);
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_within_the_bound_and_given_back() {
        let budget = Budget::new(10);
        let (one, other) = (Share::new(&budget), Share::new(&budget));
        assert!(one.reach(6) && !other.reach(5) && other.reach(4));
        assert!(budget.is_spent());
        drop(one);
        assert_eq!(budget.used(), 4);
        assert!(other.reach(10) && !other.reach(11));
    }

    #[test]
    fn what_is_tried_again_is_taken_once() {
        let budget = Budget::new(10);
        let share = Share::new(&budget);
        assert!(share.reach(6) && share.reach(6) && share.reach(4));
        assert_eq!(budget.used(), 6);
    }

    #[test]
    fn what_is_there_counts_even_past_the_bound() {
        let budget = Budget::new(10);
        let share = Share::new(&budget);
        share.set(25);
        assert!(budget.is_spent() && !share.reach(25));
        share.set(3);
        assert_eq!((budget.used(), budget.is_spent()), (3, false));
    }
}
