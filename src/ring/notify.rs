//! Waking tasks of this thread: an event that many may wait for, and a value that is set once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// An event that happens again and again; everyone who waits is woken each time.
#[derive(Default)]
pub struct Event {
    count: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Event {
    /// How often it has happened; pass it to [`Event::after`] to miss nothing in between.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Says that it happened.
    pub fn happen(&self) {
        self.count.set(self.count.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits until the event has happened more than `seen` times.
    pub async fn after(&self, seen: u64) {
        poll_fn(|context| {
            if self.count.get() > seen {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for the next time.
    pub async fn next(&self) {
        self.after(self.count.get()).await;
    }
}

/// A value that is set once and read by any number of waiters.
pub struct Once<T> {
    value: RefCell<Option<T>>,
    event: Event,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self {
            value: RefCell::new(None),
            event: Event::default(),
        }
    }
}

impl<T: Clone> Once<T> {
    /// Sets the value; a second call is ignored and answers false.
    pub fn set(&self, value: T) -> bool {
        if self.value.borrow().is_some() {
            return false;
        }
        *self.value.borrow_mut() = Some(value);
        self.event.happen();
        true
    }

    /// The value, if it is there.
    pub fn peek(&self) -> Option<T> {
        self.value.borrow().clone()
    }

    /// Waits for the value.
    pub async fn wait(&self) -> T {
        loop {
            let seen = self.event.count();
            if let Some(value) = self.peek() {
                return value;
            }
            self.event.after(seen).await;
        }
    }
}
