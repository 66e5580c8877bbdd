//! The memory that requests of a simulation read into and write from.

use braid_base::{Bytes, SECTOR};
use braid_runtime::{Arena, Buf};
use std::cell::{Cell, RefCell};

/// What requests read into and write from.
pub(crate) enum Memory {
    /// All the same bytes, since their content does not count: a view of them for each length, by its
    /// sectors. To make one for each request takes longer than to find it.
    Shared(Box<[Buf]>),
    /// Bytes of their own.
    Own(Buffers),
}

/// Memory for requests whose bytes count: far more than a request usually needs, for each that may run.
const MOST_MEMORY: Bytes = Bytes(256 << 20);

impl Memory {
    /// For requests whose bytes count for nothing.
    pub fn shared() -> Memory {
        let buf = Arena::new(Arena::LARGEST).try_alloc(Arena::LARGEST).expect("a new arena has room");
        let lens = (0..=Arena::LARGEST / SECTOR).map(|sectors| SECTOR * sectors);
        Memory::Shared(lens.map(|len| buf.slice(Bytes::ZERO..len)).collect())
    }

    /// For requests whose bytes are looked at, so many of them at the same time.
    pub fn own(outstanding: usize) -> Memory {
        Memory::Own(Buffers::new((Arena::LARGEST * outstanding as u64).min(MOST_MEMORY)))
    }
}

/// Buffers of an arena, of which the last few stay at hand: most requests are as long as the ones before
/// them, and then the arena need not be cut up and joined again for each.
pub(crate) struct Buffers {
    arena: Arena,
    spare: RefCell<Vec<Buf>>,
    /// Requests that wait for room: as long as there are any, nothing is spare.
    waiting: Cell<usize>,
}

/// Buffers that stay at hand.
const SPARE: usize = 32;

impl Buffers {
    fn new(size: Bytes) -> Buffers {
        Buffers { arena: Arena::new(size), spare: RefCell::default(), waiting: Cell::new(0) }
    }

    /// A buffer, once there is room for it.
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

    /// Takes back a buffer that is used no more.
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
