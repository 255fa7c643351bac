//! What the doors have served: requests by operation and status, how long they took, and the bytes that were moved.
//!
//! Counting is a few additions on the one thread; nothing is looked up, and only the first request that an operation
//! answers with a status takes memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::ring::clock::{self, Moment};
use crate::ring::socket::Tally;

/// The counters of all doors together.
pub struct Traffic {
    places: Box<[Place]>,
    /// All bytes on connections: heads, framing and bodies.
    pub network: Rc<Tally>,
    /// Bytes of bodies, without their framing.
    pub bodies: Tally,
    /// Bytes that tunnels have relayed: received from the client, and sent to it.
    pub tunnels: Rc<Tally>,
    accept_errors: Cell<u64>,
}

/// Where requests are counted that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Heads that could not be understood, or did not come in time.
    Refused,
    /// Paths that do not exist.
    Unmatched,
    /// Paths that exist for other methods.
    WrongMethod,
    /// The operation of this number in the table, below [`MOST_OPERATIONS`].
    Operation(usize),
}

/// Operations that the table may have.
pub const MOST_OPERATIONS: usize = 64;

/// The counters of one place.
#[derive(Default)]
pub struct Place {
    under_way: Cell<u64>,
    /// Requests that are over, by status; 0 is none. A handful at most, the commonest one usually first.
    answers: RefCell<Vec<(u16, u64)>>,
    /// Of those, how many took up to each bound and longer than the one before; the last one took longer than all.
    buckets: [Cell<u64>; BOUNDS.len() + 1],
    /// Nanoseconds that they took together.
    spent: Cell<u64>,
}

/// A request under way; dropped, it is over.
pub struct Visit<'a> {
    place: &'a Place,
    began: Moment,
    status: Cell<u16>,
}

impl Default for Traffic {
    fn default() -> Self {
        let places = (0..At::COUNT).map(|_| Place::default());
        Self {
            places: places.collect(),
            network: Rc::default(),
            bodies: Tally::default(),
            tunnels: Rc::default(),
            accept_errors: Cell::default(),
        }
    }
}

impl Traffic {
    /// Counts a request from now, when its head is here, until the answer is dropped.
    pub fn enter(&self, at: At) -> Visit<'_> {
        let place = self.place(at);
        place.under_way.set(place.under_way.get() + 1);
        Visit {
            place,
            began: clock::now(),
            status: Cell::new(0),
        }
    }

    /// Counts a head that was refused with this status; 0 is without an answer.
    pub fn refuse(&self, status: u16) {
        self.place(At::Refused).count(status);
    }

    /// Counts a connection that could not be accepted or taken.
    pub fn accept_failed(&self) {
        self.accept_errors.set(self.accept_errors.get() + 1);
    }

    /// Connections that could not be accepted or taken.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.get()
    }

    /// The counters of a place.
    pub fn place(&self, at: At) -> &Place {
        &self.places[at.index()]
    }
}

impl At {
    const COUNT: usize = 3 + MOST_OPERATIONS;

    fn index(self) -> usize {
        match self {
            Self::Refused => 0,
            Self::Unmatched => 1,
            Self::WrongMethod => 2,
            Self::Operation(number) => 3 + number,
        }
    }
}

impl Place {
    /// True once a request has come here.
    pub fn was_entered(&self) -> bool {
        self.under_way.get() > 0 || !self.answers.borrow().is_empty()
    }

    /// Requests under way.
    pub fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Requests that are over, by the status that was sent, in ascending order; 0 stands for none.
    pub fn answers(&self) -> Vec<(u16, u64)> {
        let mut answers = self.answers.borrow().clone();
        answers.sort_unstable();
        answers
    }

    /// How many took up to each of [`BOUNDS`] and longer than the one before, and how many longer than all of them.
    pub fn buckets(&self) -> impl Iterator<Item = u64> + '_ {
        self.buckets.iter().map(Cell::get)
    }

    /// How long they took together.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.get())
    }

    fn count(&self, status: u16) {
        let mut answers = self.answers.borrow_mut();
        match answers.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => answers.push((status, 1)),
        }
    }

    fn took(&self, span: Duration) {
        let bucket = &self.buckets[BOUNDS.partition_point(|bound| *bound < span)];
        bucket.set(bucket.get() + 1);
        let nanoseconds = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.spent.set(self.spent.get().saturating_add(nanoseconds));
    }
}

impl Visit<'_> {
    /// Says which status is sent; the last one counts.
    pub fn answered(&self, status: u16) {
        self.status.set(status);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let place = self.place;
        place.under_way.set(place.under_way.get() - 1);
        place.count(self.status.get());
        place.took(clock::now().since(self.began));
    }
}

/// The bounds that times are sorted by.
pub const BOUNDS: [Duration; 18] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_under_way_until_it_is_over() {
        let traffic = Traffic::default();
        let at = At::Operation(MOST_OPERATIONS - 1);
        let (one, other) = (traffic.enter(at), traffic.enter(at));
        one.answered(200);
        assert_eq!(traffic.place(at).under_way(), 2);
        assert_eq!(traffic.place(at).answers(), []);
        drop(one);
        // Who left before there was an answer.
        drop(other);
        assert_eq!(traffic.place(at).under_way(), 0);
        assert_eq!(traffic.place(at).answers(), [(0, 1), (200, 1)]);
        assert_eq!(traffic.place(at).buckets().sum::<u64>(), 2);
        assert_eq!(traffic.place(At::Unmatched).answers(), []);
    }

    #[test]
    fn the_status_that_was_sent_in_the_end_counts() {
        let traffic = Traffic::default();
        let visit = traffic.enter(At::WrongMethod);
        visit.answered(200);
        visit.answered(500);
        drop(visit);
        traffic.refuse(431);
        traffic.refuse(431);
        assert_eq!(traffic.place(At::WrongMethod).answers(), [(500, 1)]);
        assert_eq!(traffic.place(At::Refused).answers(), [(431, 2)]);
    }

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        for (span, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_micros(100), 0),
            (Duration::from_nanos(100_001), 1),
            (Duration::from_secs(60), BOUNDS.len() - 1),
            (Duration::from_secs(7200), BOUNDS.len()),
        ] {
            let place = Place::default();
            place.took(span);
            let found = place.buckets().position(|count| count == 1);
            assert_eq!(found, Some(expected), "{span:?}");
            assert_eq!(place.spent(), span);
        }
    }

    #[test]
    fn the_bounds_ascend() {
        assert!(BOUNDS.is_sorted());
    }
}
