//! Gate for requests that change the volume or make changes durable. Requests are counted, and refused once
//! the volume is being closed.
//!
//! The superblocks of a closed volume say that no block is dirty and that all copies are equal. No guest may
//! write after the engine has established both. The daemon disconnects its guests first, but an open file, or
//! a client that the daemon did not wait for, may send requests until the daemon ends.

use crate::{Error, Result};
use braid_runtime::Event;
use std::cell::Cell;

/// Number of requests in flight, and whether new requests are refused.
#[derive(Default)]
pub(crate) struct Gate {
    inside: Cell<usize>,
    is_shut: Cell<bool>,
    left: Event,
}

/// A request in flight, until dropped.
pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// Admits a request.
    ///
    /// # Errors
    /// `Io` if the volume is being closed, or is closed.
    #[inline]
    pub fn enter(&self) -> Result<Inside<'_>> {
        if self.is_shut.get() {
            return Err(Error::closing());
        }
        self.inside.set(self.inside.get() + 1);
        Ok(Inside(self))
    }

    /// Refuses new requests from now on. Completes once all requests in flight have ended.
    pub async fn shut(&self) {
        self.is_shut.set(true);
        self.left.wait_for(|| (self.inside.get() == 0).then_some(())).await;
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        let inside = self.0.inside.get() - 1;
        self.0.inside.set(inside);
        if inside == 0 {
            self.0.left.notify();
        }
    }
}
