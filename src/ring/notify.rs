//! Waking tasks of this thread: an event that many may wait for, and a value that is set once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// An event that happens again and again; everyone who waits is woken each time.
#[derive(Default)]
pub struct Event {
    count: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Waker>>,
    tickets: Cell<u64>,
}

impl Event {
    /// How often it has happened; pass it to [`Event::after`] to miss nothing in between.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Says that it happened.
    pub fn happen(&self) {
        self.count.set(self.count.get() + 1);
        for waker in self.waiting.take().into_values() {
            waker.wake();
        }
    }

    /// Waits until the event has happened more than `seen` times.
    pub async fn after(&self, seen: u64) {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        Wait {
            event: self,
            seen,
            ticket,
        }
        .await;
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Waits for the next time.
    pub async fn next(&self) {
        self.after(self.count.get()).await;
    }
}

/// One wait; dropped, it leaves nothing behind.
struct Wait<'a> {
    event: &'a Event,
    seen: u64,
    ticket: u64,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.event.count.get() > self.seen {
            return Poll::Ready(());
        }
        let mut waiting = self.event.waiting.borrow_mut();
        match waiting.get_mut(&self.ticket) {
            Some(waker) => waker.clone_from(context.waker()),
            None => drop(waiting.insert(self.ticket, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.event.waiting.borrow_mut().remove(&self.ticket);
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
