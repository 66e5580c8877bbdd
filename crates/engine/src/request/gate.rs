//! The way in for requests that change the volume, or make changes durable: they are counted, and refused
//! once the volume is being closed.
//!
//! The superblocks of a closed volume say that no block is dirty and that all copies are alike, so no guest
//! may write any more once that is found out. The daemon disconnects its guests first, but a file that is
//! still open, or a client that was not waited for, may send requests until the daemon ends.

use crate::{Error, ErrorKind, Result};
use braid_runtime::Event;
use std::cell::Cell;

/// Requests that are under way, and whether more may come.
#[derive(Default)]
pub(crate) struct Gate {
    inside: Cell<usize>,
    is_shut: Cell<bool>,
    left: Event,
}

/// A request that is under way, until it is dropped.
pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// A request begins.
    ///
    /// # Errors
    /// `Io` if the volume is being closed, or is closed.
    #[inline]
    pub fn enter(&self) -> Result<Inside<'_>> {
        if self.is_shut.get() {
            return Err(is_closed());
        }
        self.inside.set(self.inside.get() + 1);
        Ok(Inside(self))
    }

    /// Nothing begins from now on; completes once all that had begun has ended.
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

/// What requests get that come too late.
#[cold]
pub(crate) fn is_closed() -> Error {
    Error::new(ErrorKind::Io, "the volume is being closed: nothing is written to it any more")
}
