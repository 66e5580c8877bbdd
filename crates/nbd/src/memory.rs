//! How much of the arena each connection may hold.
//!
//! Half of the server's memory is guaranteed to the connections in equal parts, half is common. A request takes from
//! its connection's guarantee, else from the common half, and where both are used up it waits for its own connection.
//! So a client that never reads its replies can hold the common half, but never what another one needs to go on.

use braid_base::{Bytes, KIB};
use braid_runtime::{Arena, Buf, Permit, Semaphore};

/// The smallest guarantee: a read that must not be fragmented (flag DF) may be as long as this.
pub const GUARANTEE_SMALLEST: Bytes = Bytes(64 * KIB.0);

const PAGE: Bytes = Bytes(4 * KIB.0);

/// The server's memory.
pub struct Memory {
    arena: Arena,
    common: Semaphore,
    guarantee: Bytes,
}

/// One connection's part in it.
pub struct Share {
    arena: Arena,
    common: Semaphore,
    own: Semaphore,
    guarantee: Bytes,
}

/// How long a buffer must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// As long as asked for, which is at most the guarantee.
    Exact,
    /// Shorter if memory is short or fragmented: the caller works in pieces.
    AtMost,
}

/// A buffer and the right to hold it. The buffer goes first when both are dropped.
pub struct Held {
    /// The bytes.
    pub buf: Buf,
    /// Given back when dropped.
    pub permit: Permit,
}

impl Memory {
    /// At most `limit` bytes of `arena`, for at most `connections`; `None` if that leaves less than
    /// [`GUARANTEE_SMALLEST`] for each.
    pub fn new(arena: Arena, limit: Bytes, connections: usize) -> Option<Memory> {
        let each = (limit / 2 / connections as u64).min(Arena::LARGEST);
        let guarantee = Bytes(1 << each.0.checked_ilog2()?);
        let common = Semaphore::new(((limit - guarantee * connections as u64) / PAGE) as usize);
        (guarantee >= GUARANTEE_SMALLEST).then_some(Memory { arena, common, guarantee })
    }

    /// The part of one more connection. Those that exist at the same time are at most as many as `new` was told.
    pub fn share(&self) -> Share {
        let own = Semaphore::new(pages(self.guarantee));
        Share { arena: self.arena.clone(), common: self.common.clone(), own, guarantee: self.guarantee }
    }
}

impl Share {
    /// What this connection can count on: the longest buffer that fits exactly.
    pub fn guarantee(&self) -> Bytes {
        self.guarantee
    }

    /// A buffer of `len` bytes with undefined content, or `None` if there is none at this moment.
    pub fn try_alloc(&self, len: Bytes) -> Option<Held> {
        let permit = self.trypermit(len)?;
        Some(Held { buf: self.arena.try_alloc(len)?, permit })
    }

    /// A buffer of at most `len` bytes, waiting for other requests of this connection where necessary.
    ///
    /// A task that waits here holds no other buffer.
    pub async fn alloc(&self, len: Bytes, fit: Fit) -> Held {
        if let Some(held) = self.try_alloc(len) {
            return held;
        }
        let (len, permit) = match self.trypermit(len) {
            Some(permit) => (len, permit),
            None => {
                let len = len.min(self.guarantee);
                (len, self.own.acquire(pages(len)).await)
            }
        };
        let buf = match fit {
            Fit::Exact => self.arena.alloc(len).await,
            Fit::AtMost => match self.largest_left(len) {
                Some(buf) => buf,
                None => self.arena.alloc(len.min(PAGE)).await,
            },
        };
        Held { buf, permit }
    }

    fn trypermit(&self, len: Bytes) -> Option<Permit> {
        self.own.try_acquire(pages(len)).or_else(|| self.common.try_acquire(pages(len)))
    }

    /// The arena may be cut up by small buffers that a slow client holds: then a shorter one does.
    fn largest_left(&self, len: Bytes) -> Option<Buf> {
        let halves = std::iter::successors(Some(len), |&len| (len > PAGE).then(|| len / 2));
        halves.into_iter().find_map(|len| self.arena.try_alloc(len))
    }
}

/// Pages that the arena uses for a buffer of `len`.
fn pages(len: Bytes) -> usize {
    len.as_usize().div_ceil(PAGE.as_usize()).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;
    use braid_runtime::{Executor, Order};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn a_greedy_connection_leaves_the_others_their_guarantee() {
        let memory = Memory::new(Arena::new(MIB * 8), MIB * 8, 4).unwrap();
        let (greedy, modest) = (memory.share(), memory.share());
        let mut held = Vec::new();
        while let Some(buffer) = greedy.try_alloc(KIB * 4) {
            held.push(buffer);
        }
        assert_eq!(held.len(), 5 * 256, "its own MiB and the common four");
        assert!(modest.try_alloc(MIB).is_some());
        held.clear();
        assert!(greedy.try_alloc(MIB).is_some());
    }

    #[test]
    fn pieces_get_shorter_where_the_arena_is_cut_up() {
        let arena = Arena::new(MIB * 2);
        let memory = Memory::new(arena.clone(), MIB * 2, 1).unwrap();
        let mut pins: Vec<Buf> = std::iter::from_fn(|| arena.try_alloc(KIB * 64)).collect();
        let mut at = 0;
        pins.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        let executor = Executor::new(Order::Fifo);
        let got = Rc::new(RefCell::new(None));
        let (share, into) = (memory.share(), got.clone());
        executor.spawn(async move {
            let held = share.alloc(KIB * 256, Fit::AtMost).await;
            *into.borrow_mut() = Some(held.buf.len());
        });
        executor.run_ready();
        assert_eq!(*got.borrow(), Some(KIB * 64));
    }

    #[test]
    fn too_many_connections_for_the_memory_are_refused() {
        assert!(Memory::new(Arena::new(MIB), MIB, 8).is_some());
        assert!(Memory::new(Arena::new(MIB), MIB, 9).is_none());
        assert!(Memory::new(Arena::new(MIB), Bytes(0), 1).is_none());
    }
}
