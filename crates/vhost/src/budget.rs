//! Limit of a guest's memory in the arena.
//!
//! A request holds one buffer at a time and works in pieces, so each request gets its buffer in the end. A
//! request's bytes have the same offset in a page of memory as in a page of the export: a range that is
//! aligned on a device is then aligned in memory, and direct I/O accepts the memory.

use braid_base::{Bytes, KIB};
use braid_runtime::{Arena, Buf, Permit, Semaphore};

/// Longer requests are served in pieces of this size.
const PIECE: Bytes = Bytes(256 * KIB.0);
const PAGE: Bytes = Buf::ALIGNMENT;

/// Memory for requests.
pub struct Budget {
    arena: Arena,
    pages: Semaphore,
}

/// A buffer and the right to hold the buffer. The buffer is dropped first.
pub struct Held {
    /// The bytes.
    pub buf: Buf,
    _permit: Permit,
}

impl Budget {
    /// Smallest memory of a server.
    pub const SMALLEST: Bytes = PIECE;

    /// Limits requests to `limit` bytes of `arena`: at least [`Budget::SMALLEST`].
    pub fn new(arena: Arena, limit: Bytes) -> Budget {
        Budget { arena, pages: Semaphore::new((limit / PAGE) as usize) }
    }

    /// Waits for a buffer for the first bytes of `len` at `offset` of the export, with undefined content. A
    /// waiting task must hold no other buffer.
    pub async fn alloc(&self, offset: Bytes, len: Bytes) -> Held {
        let lead = Bytes(offset.0 % PAGE.0);
        let all = (lead + len).min(PIECE);
        let count = all.as_usize().div_ceil(PAGE.as_usize()).next_power_of_two();
        let permit = self.pages.acquire(count).await;
        let buf = match self.arena.try_alloc(all) {
            Some(buf) => buf,
            None => self.arena.alloc(all).await,
        };
        let buf = if lead == Bytes::ZERO { buf } else { buf.slice(lead..all) };
        Held { buf, _permit: permit }
    }
}
