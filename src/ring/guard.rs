//! The panic guard: a task or a request that panics ends alone.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::notify::Once;

/// A future whose panic becomes `Err(message)`.
pub struct Guarded<F: ?Sized>(Pin<Box<F>>);

/// Guards `future`.
pub fn guarded<F: Future>(future: F) -> Guarded<F> {
    Guarded(Box::pin(future))
}

/// Guards what makes a future, and the future.
///
/// # Errors
/// What made the future has panicked.
pub fn guarded_from<F: Future + ?Sized>(
    make: impl FnOnce() -> Pin<Box<F>>,
) -> Result<Guarded<F>, String> {
    // After a panic nothing of it is used.
    let made = catch_unwind(AssertUnwindSafe(make));
    made.map(Guarded)
        .map_err(|payload| message(payload.as_ref()))
}

impl<F: Future + ?Sized> Future for Guarded<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // After a panic the future is dropped, never polled again, so no broken state is seen.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(payload) => Poll::Ready(Err(message(payload.as_ref()))),
        }
    }
}

/// Runs `future` as a task of its own; a panic in it is logged under `name` and ends only this task.
pub fn spawn<F: Future<Output = ()> + 'static>(name: &'static str, future: F) {
    // Boxed before it is moved anywhere: futures are large.
    let task = guarded(future);
    monoio::spawn(async move {
        if let Err(panic) = task.await {
            tracing::error!(task = name, panic, "a task panicked");
        }
    });
}

/// Runs `future` as a task of its own, to its end even when the caller is dropped; `None` when it panicked.
pub fn detached<T: 'static>(
    name: &'static str,
    future: impl Future<Output = T> + 'static,
) -> impl Future<Output = Option<T>> {
    let slot = Rc::new(Slot {
        value: Cell::new(None),
        over: Once::default(),
    });
    let over = Over(Rc::clone(&slot));
    let future = Box::pin(future);
    spawn(name, async move {
        let value = future.await;
        over.0.value.set(Some(value));
    });
    async move {
        slot.over.wait().await;
        slot.value.take()
    }
}

struct Slot<T> {
    value: Cell<Option<T>>,
    over: Once<()>,
}

/// Says that a detached task is over, however it ended.
struct Over<T>(Rc<Slot<T>>);

impl<T> Drop for Over<T> {
    fn drop(&mut self) {
        self.0.over.set(());
    }
}

/// The text of a panic payload.
pub(super) fn message(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => "a panic without a message".into(),
    }
}
