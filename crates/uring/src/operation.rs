//! An operation in flight, as a future.

use crate::Ring;
use crate::reactor::Keep;
use io_uring::squeue;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Result of an operation: the value of the system call of the same name. Started when made, not when first
/// polled.
pub(crate) struct Operation {
    ring: Ring,
    key: Option<usize>,
    /// True if a drop cancels the operation, because it may wait for ever.
    cancel: bool,
}

impl Operation {
    /// Starts an operation that ends by itself. Every pointer in `entry` must lead into the memory that
    /// `keep` holds.
    pub(crate) fn start(ring: &Ring, entry: squeue::Entry, keep: Keep) -> Operation {
        let key = ring.reactor().start(entry, keep);
        Operation { ring: ring.clone(), key: Some(key), cancel: false }
    }

    /// Starts an operation that may wait for ever, for example for a guest. Cancelled when dropped.
    pub(crate) fn start_wait(ring: &Ring, entry: squeue::Entry, keep: Keep) -> Operation {
        let mut operation = Operation::start(ring, entry, keep);
        operation.cancel = true;
        operation
    }
}

impl Future for Operation {
    type Output = io::Result<u32>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u32>> {
        let key = self.key.expect("an operation is not polled after its end");
        let polled = self.ring.reactor().poll(key, cx.waker());
        polled.map(|result| {
            self.key = None;
            u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
        })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.ring.reactor().abandon(key, self.cancel);
        }
    }
}
