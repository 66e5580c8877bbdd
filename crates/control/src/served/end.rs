//! The end of a daemon: the request for it, and the result for the clients that asked.

use crate::Result;
use braid_runtime::Event;
use std::cell::{Cell, RefCell};

/// The end of a daemon.
#[derive(Default)]
pub(crate) struct End {
    /// Notified at every request, and at the result.
    changed: Event,
    has_begun: Cell<bool>,
    /// Result of closing the volume, once the volume is closed.
    closed: RefCell<Option<Result<()>>>,
    /// Number of admin requests that wait for `closed`.
    waiting: Cell<usize>,
}

impl End {
    /// True if the daemon is about to end.
    pub fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Begins the end without a request.
    pub fn begin(&self) {
        self.has_begun.set(true);
    }

    /// Completes when the end is requested.
    pub async fn requested(&self) {
        self.changed.wait_for(|| self.has_begun.get().then_some(())).await;
    }

    /// Requests the end.
    pub fn request(&self) {
        self.begin();
        self.changed.notify();
    }

    /// Requests the end, and waits until the volume is closed.
    pub async fn request_and_wait(&self) -> Result<()> {
        self.waiting.set(self.waiting.get() + 1);
        self.request();
        self.changed.wait_for(|| self.closed.borrow().clone()).await
    }

    /// Sends the result to the requests that wait. Returns true if there are any.
    pub fn tell(&self, closed: &Result<()>) -> bool {
        *self.closed.borrow_mut() = Some(closed.clone());
        self.changed.notify();
        self.waiting.replace(0) > 0
    }
}
