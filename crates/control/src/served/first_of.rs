//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Result of [`first_of`]: the future that was ready first.
pub(crate) enum First<L, R> {
    Left(L),
    Right(R),
}

/// Waits for the first of two futures. The other future is dropped unfinished.
pub(crate) async fn first_of<L, R>(
    left: impl Future<Output = L>,
    right: impl Future<Output = R>,
) -> First<L, R> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(done) = left.as_mut().poll(cx) {
            return Poll::Ready(First::Left(done));
        }
        right.as_mut().poll(cx).map(First::Right)
    })
    .await
}
