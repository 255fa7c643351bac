//! Who may touch which bytes: a request that comes later takes them over from those before it.
//!
//! A client that lost its connection comes again while the daemon still waits for the old one. So the old request is
//! told to end, the new one waits until it has, and no byte is ever written by two.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::error::{Error, Kind, Result};
use crate::ring::notify::Event;

/// Every byte there could be.
pub(super) const ALL: Range<u64> = 0..u64::MAX;

/// The requests that hold bytes, or wait for them.
#[derive(Default)]
pub(super) struct Turns {
    holders: RefCell<BTreeMap<u64, Holder>>,
    last: Cell<u64>,
    changed: Event,
}

struct Holder {
    span: Range<u64>,
    stand: Stand,
    /// Bytes that it has written so far.
    written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It may be told to end.
    Open,
    /// It must end.
    Ended,
    /// It cannot be ended any more: others wait.
    Firm,
}

/// The right to the bytes of a span, until it is dropped.
pub(super) struct Turn {
    turns: Rc<Turns>,
    ticket: u64,
}

impl Turns {
    /// Ends those who hold bytes of `span`, and waits until they have let go.
    ///
    /// # Errors
    /// `InUse` when somebody else has taken over meanwhile.
    pub(super) async fn take(self: &Rc<Self>, span: Range<u64>) -> Result<Turn> {
        self.enter(span, Stand::Open).await
    }

    /// The same for who is the last one: nobody takes over from it.
    pub(super) async fn seize(self: &Rc<Self>) -> Result<Turn> {
        self.enter(ALL, Stand::Firm).await
    }

    /// Ends those who are here, and waits until they have let go.
    pub(super) async fn clear(&self) {
        self.end(&ALL);
        self.changed.happen();
        let last = self.last.get();
        loop {
            let seen = self.changed.count();
            if self.holders.borrow().range(..=last).next().is_none() {
                return;
            }
            self.changed.after(seen).await;
        }
    }

    async fn enter(self: &Rc<Self>, span: Range<u64>, stand: Stand) -> Result<Turn> {
        let ticket = self.last.get() + 1;
        self.last.set(ticket);
        self.end(&span);
        let holder = Holder {
            span: span.clone(),
            stand,
            written: 0,
        };
        self.holders.borrow_mut().insert(ticket, holder);
        let turn = Turn {
            turns: Rc::clone(self),
            ticket,
        };
        self.changed.happen();
        loop {
            let seen = self.changed.count();
            if turn.is_over() {
                return Err(taken_over());
            }
            let waits = self
                .holders
                .borrow()
                .range(..ticket)
                .any(|(_, holder)| overlap(&holder.span, &span));
            if !waits {
                return Ok(turn);
            }
            self.changed.after(seen).await;
        }
    }

    fn end(&self, span: &Range<u64>) {
        for holder in self.holders.borrow_mut().values_mut() {
            if holder.stand == Stand::Open && overlap(&holder.span, span) {
                holder.stand = Stand::Ended;
            }
        }
    }

    /// True while nobody holds anything.
    pub(super) fn is_idle(&self) -> bool {
        self.holders.borrow().is_empty()
    }

    /// How many hold bytes or wait for them, and what they have written so far.
    pub(super) fn under_way(&self) -> (usize, u64) {
        let holders = self.holders.borrow();
        let written = holders.values().map(|holder| holder.written).sum();
        (holders.len(), written)
    }
}

impl Turn {
    /// Waits until somebody else takes over.
    pub(super) async fn over(&self) {
        loop {
            let seen = self.turns.changed.count();
            if self.is_over() {
                return;
            }
            self.turns.changed.after(seen).await;
        }
    }

    /// From now on others wait for us.
    ///
    /// # Errors
    /// `InUse` when somebody else has taken over already.
    pub(super) fn hold_firm(&self) -> Result<()> {
        if self.is_over() {
            return Err(taken_over());
        }
        self.with(|holder| holder.stand = Stand::Firm);
        Ok(())
    }

    /// Says how many bytes were written so far.
    pub(super) fn has_written(&self, bytes: u64) {
        self.with(|holder| holder.written = bytes);
    }

    fn is_over(&self) -> bool {
        let holders = self.turns.holders.borrow();
        let holder = holders.get(&self.ticket);
        holder.is_none_or(|holder| holder.stand == Stand::Ended)
    }

    fn with(&self, act: impl FnOnce(&mut Holder)) {
        if let Some(holder) = self.turns.holders.borrow_mut().get_mut(&self.ticket) {
            act(holder);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.holders.borrow_mut().remove(&self.ticket);
        self.turns.changed.happen();
    }
}

pub(super) fn taken_over() -> Error {
    Kind::InUse.told("another request has taken this upload over")
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    !one.is_empty() && !other.is_empty() && one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::run;
    use super::*;
    use crate::ring::{spawn, turn};

    /// Takes a span in a task of its own, holds it until told to end, and notes both in `seen`.
    fn hold(
        turns: &Rc<Turns>,
        span: Range<u64>,
        name: &'static str,
        seen: &Rc<RefCell<Vec<String>>>,
    ) {
        let (turns, seen) = (Rc::clone(turns), Rc::clone(seen));
        spawn("holder", async move {
            let note = |what: &str| seen.borrow_mut().push(format!("{name} {what}"));
            let Ok(mine) = turns.take(span).await else {
                return note("is refused");
            };
            note("begins");
            mine.over().await;
            note("ends");
        });
    }

    #[test]
    fn the_last_one_takes_over_and_waits_for_the_end_of_those_before() {
        let seen = run(async || {
            let turns = Rc::new(Turns::default());
            let seen = Rc::default();
            for name in ["a", "b", "c"] {
                hold(&turns, ALL, name, &seen);
                turn().await;
            }
            let mine = turns.take(5..6).await.expect("nobody comes after us");
            drop(mine);
            assert!(turns.is_idle());
            seen.take()
        });
        assert_eq!(
            seen,
            [
                "a begins", "a ends", "b begins", "b ends", "c begins", "c ends"
            ]
        );
    }

    #[test]
    fn spans_that_do_not_overlap_are_left_alone() {
        let held = run(async || {
            let turns = Rc::new(Turns::default());
            let first = turns.take(0..10).await.expect("nobody is there");
            let second = turns.take(10..20).await.expect("nobody is there");
            second.has_written(7);
            assert_eq!(turns.under_way(), (2, 7));
            let third = turns.take(20..30).await;
            let empty = turns.take(5..5).await;
            third.is_ok() && empty.is_ok() && !first.is_over() && !second.is_over()
        });
        assert!(held);
    }

    #[test]
    fn clearing_ends_those_who_are_here_and_not_those_who_come() {
        let seen = run(async || {
            let turns = Rc::new(Turns::default());
            let seen = Rc::default();
            hold(&turns, ALL, "a", &seen);
            turn().await;
            turns.clear().await;
            hold(&turns, ALL, "b", &seen);
            turn().await;
            assert!(!turns.is_idle());
            seen.take()
        });
        assert_eq!(seen, ["a begins", "a ends", "b begins"]);
    }

    #[test]
    fn one_who_holds_firm_is_waited_for_and_the_last_of_those_who_wait_comes_next() {
        let seen = run(async || {
            let turns = Rc::new(Turns::default());
            let firm = turns.seize().await.expect("nobody is there");
            let seen = Rc::default();
            for name in ["a", "b"] {
                hold(&turns, ALL, name, &seen);
                turn().await;
            }
            assert!(!firm.is_over());
            drop(firm);
            turn().await;
            drop(turns.take(ALL).await.expect("nobody comes after us"));
            seen.take()
        });
        assert_eq!(seen, ["a is refused", "b begins", "b ends"]);
    }
}
