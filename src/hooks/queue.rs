//! Turns: one at a time, in the order of their coming, with a bound on how many wait.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::ring::notify::Event;

/// A queue; its first has the turn.
#[derive(Default)]
pub(super) struct Queue {
    line: RefCell<VecDeque<u64>>,
    last: Cell<u64>,
    moved: Event,
}

/// A place in a queue; dropping it leaves the queue, and ends the turn.
pub(super) struct Place<'a> {
    queue: &'a Queue,
    number: u64,
}

/// How many may wait behind the one that has the turn.
pub(super) const WAITING: usize = 8;

impl Queue {
    /// Takes the last place; `None` when too many wait.
    pub(super) fn join(&self) -> Option<Place<'_>> {
        let mut line = self.line.borrow_mut();
        if line.len() > WAITING {
            return None;
        }
        let number = self.last.get() + 1;
        self.last.set(number);
        line.push_back(number);
        Some(Place {
            queue: self,
            number,
        })
    }
}

impl Place<'_> {
    /// Waits for the turn.
    pub(super) async fn turn(&self) {
        loop {
            let seen = self.queue.moved.count();
            if self.queue.line.borrow().front() == Some(&self.number) {
                return;
            }
            self.queue.moved.after(seen).await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.line.borrow_mut();
        line.retain(|number| *number != self.number);
        drop(line);
        self.queue.moved.happen();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// True when it is the turn of `place`.
    fn has_turn(place: &Place<'_>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(place.turn()).poll(&mut context).is_ready()
    }

    #[test]
    fn turns_come_in_order_and_one_at_a_time() {
        let queue = Queue::default();
        let places: Vec<_> = (0..3).filter_map(|_| queue.join()).collect();
        for _ in 0..2 {
            assert_eq!(
                places.iter().map(has_turn).collect::<Vec<_>>(),
                [true, false, false]
            );
        }
        let mut places = places.into_iter();
        drop(places.next());
        assert_eq!(
            places.as_slice().iter().map(has_turn).collect::<Vec<_>>(),
            [true, false]
        );
    }

    #[test]
    fn whoever_gives_up_holds_nobody() {
        let queue = Queue::default();
        let first = queue.join();
        let second = queue.join();
        let third = queue.join().expect("there is room");
        drop(second);
        assert!(!has_turn(&third));
        drop(first);
        assert!(has_turn(&third));
    }

    #[test]
    fn who_waits_is_bounded() {
        let queue = Queue::default();
        let mut places: Vec<_> = (0..=WAITING).map(|_| queue.join()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(queue.join().is_none());
        drop(places.pop());
        assert!(queue.join().is_some());
    }
}
