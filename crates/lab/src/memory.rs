//! Memory for reads and writes of a simulation.

use braid_base::{Bytes, SECTOR};
use braid_runtime::{Arena, Buf};
use std::cell::{Cell, RefCell};

/// Memory for reads and writes.
pub(crate) enum Memory {
    /// The same bytes for all requests, because content does not matter: one view for each length, by
    /// sectors. Making a view for each request is slower than finding one.
    Shared(Box<[Buf]>),
    /// A separate buffer for each request.
    Own(Buffers),
}

/// Memory for requests with content that matters: far more than a request usually needs, for each running
/// request.
const MOST_MEMORY: Bytes = Bytes(256 << 20);

impl Memory {
    /// For requests with content that does not matter.
    pub fn shared() -> Memory {
        let buf = Arena::new(Arena::LARGEST).try_alloc(Arena::LARGEST).expect("a new arena has room");
        let lens = (0..=Arena::LARGEST / SECTOR).map(|sectors| SECTOR * sectors);
        Memory::Shared(lens.map(|len| buf.slice(Bytes::ZERO..len)).collect())
    }

    /// For requests with content that is checked, `outstanding` at the same time.
    pub fn own(outstanding: usize) -> Memory {
        Memory::Own(Buffers::new((Arena::LARGEST * outstanding as u64).min(MOST_MEMORY)))
    }
}

/// Buffers of an arena, with the last few kept for reuse. Most requests are as long as the preceding
/// requests, so the arena need not be split and joined again for each.
pub(crate) struct Buffers {
    arena: Arena,
    spare: RefCell<Vec<Buf>>,
    /// Requests waiting for room: while any waits, no buffer is kept.
    waiting: Cell<usize>,
}

/// Most buffers kept for reuse.
const SPARE: usize = 32;

impl Buffers {
    fn new(size: Bytes) -> Buffers {
        Buffers { arena: Arena::new(size), spare: RefCell::default(), waiting: Cell::new(0) }
    }

    /// Returns a buffer, once there is room.
    pub async fn take(&self, len: Bytes) -> Buf {
        let spare = self.spare.borrow_mut().pop_if(|buf| buf.len() == len);
        if let Some(buf) = spare.or_else(|| self.arena.try_alloc(len)) {
            return buf;
        }
        self.spare.borrow_mut().clear();
        self.waiting.set(self.waiting.get() + 1);
        let buf = self.arena.alloc(len).await;
        self.waiting.set(self.waiting.get() - 1);
        buf
    }

    /// Takes back an unused buffer.
    pub fn give_back(&self, buf: Buf) {
        let mut spare = self.spare.borrow_mut();
        if self.waiting.get() > 0 {
            return;
        }
        if spare.len() == SPARE || spare.last().is_some_and(|last| last.len() != buf.len()) {
            spare.clear();
        }
        spare.push(buf);
    }
}
