//! A limit of time for a piece of work.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Runs `work` until `limit` completes: `None` then.
pub async fn within<T>(work: impl Future<Output = T>, limit: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut limit) = (pin!(work), pin!(limit));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
    })
    .await
}
