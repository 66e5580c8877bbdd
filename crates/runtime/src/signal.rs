//! A condition with a single waiting task: as [`crate::Event`], but waiting allocates nothing.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes one task that waits for a condition and tests the condition itself.
#[derive(Default)]
pub struct Signal {
    waiting: Cell<Option<Waker>>,
}

impl Signal {
    /// Wakes the waiting task, if any, to test its condition again.
    pub fn notify(&self) {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Completes once `test` holds; tested now and after each [`Signal::notify`]. A second waiting task
    /// replaces the first, and the first may then wait for ever.
    pub async fn wait_until(&self, test: impl Fn() -> bool) {
        poll_fn(|cx| {
            if test() {
                return Poll::Ready(());
            }
            self.waiting.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}
