//! Two waits in one task: both to their end, or whichever ends first.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Runs both to their end.
pub(super) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(|context| {
        if left.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(context)
        {
            left = Some(value);
        }
        if right.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(context)
        {
            right = Some(value);
        }
        match (left.take(), right.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (some_left, some_right) => {
                (left, right) = (some_left, some_right);
                Poll::Pending
            }
        }
    })
    .await
}

/// Which of two futures ended, and how.
pub(super) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Runs both until one ends, and drops the other; when both are ready the left one counts.
pub(super) async fn first<A: Future, B: Future>(a: A, b: B) -> First<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|context| {
        if let Poll::Ready(value) = a.as_mut().poll(context) {
            return Poll::Ready(First::Left(value));
        }
        b.as_mut().poll(context).map(First::Right)
    })
    .await
}
