//! A condition that one task waits for: as [`braid_runtime::Event`], but waiting allocates nothing.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// One task waits until something that it tests itself has become true.
#[derive(Default)]
pub struct Signal {
    waiting: Cell<Option<Waker>>,
}

impl Signal {
    /// Wakes the task that waits, if any, to test its condition again.
    pub fn notify(&self) {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Completes once `test` holds; tested now and after each [`Signal::notify`]. A second task that waits
    /// replaces the first, which then may wait for ever.
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
