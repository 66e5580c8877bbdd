//! Limits of each connection's memory in the arena.
//!
//! Half of the server's memory is guaranteed to the connections in equal parts, half is common. A request
//! takes memory from its connection's guarantee, else from the common half. If both are used up, the request
//! waits for its own connection. A client that never reads its replies can therefore hold the common half,
//! but never another client's guarantee.
//!
//! A request's bytes have the same offset in a page of memory as in a page of the export. A range that is
//! aligned on a device is then aligned in memory, however the request is cut, and direct I/O accepts the
//! memory.

use braid_base::{Bytes, KIB};
use braid_runtime::{Arena, Buf, Permit, Semaphore};

/// Smallest guarantee: also the longest read that must not be fragmented (flag DF).
pub const GUARANTEE_SMALLEST: Bytes = Bytes(64 * KIB.0);

const PAGE: Bytes = Buf::ALIGNMENT;

/// The server's memory.
pub struct Memory {
    arena: Arena,
    common: Semaphore,
    guarantee: Bytes,
}

/// One connection's part of the memory.
pub struct Share {
    arena: Arena,
    common: Semaphore,
    own: Semaphore,
    guarantee: Bytes,
}

/// Required length of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The requested length, at most the guarantee.
    Exact,
    /// Shorter if memory is short or fragmented: the caller works in pieces.
    AtMost,
}

/// A buffer and the right to hold the buffer. The buffer is dropped first.
pub struct Held {
    /// The bytes.
    pub buf: Buf,
    /// Returned when dropped.
    pub permit: Permit,
}

impl Memory {
    /// Limits the server to `limit` bytes of `arena`, for at most `connections`. `None` if the share of each
    /// connection is below [`GUARANTEE_SMALLEST`].
    pub fn new(arena: Arena, limit: Bytes, connections: usize) -> Option<Memory> {
        let each = (limit / 2 / connections as u64).min(Arena::LARGEST);
        let guarantee = Bytes(1 << each.0.checked_ilog2()?);
        let common = Semaphore::new(((limit - guarantee * connections as u64) / PAGE) as usize);
        (guarantee >= GUARANTEE_SMALLEST).then_some(Memory { arena, common, guarantee })
    }

    /// Makes the part of one more connection. At most as many parts as `new` was told may exist at the same
    /// time.
    pub fn share(&self) -> Share {
        let own = Semaphore::new(pages(self.guarantee));
        Share { arena: self.arena.clone(), common: self.common.clone(), own, guarantee: self.guarantee }
    }
}

impl Share {
    /// Guaranteed bytes of this connection: the longest buffer of exact length.
    pub fn guarantee(&self) -> Bytes {
        self.guarantee
    }

    /// Returns a buffer for `len` bytes at `offset` of the export, with undefined content. `None` if memory
    /// is short at this moment.
    pub fn try_alloc(&self, offset: Bytes, len: Bytes) -> Option<Held> {
        let lead = lead_of(offset);
        let permit = self.trypermit(lead + len)?;
        let buf = self.arena.try_alloc(lead + len)?;
        Some(Held { buf: after(lead, buf), permit })
    }

    /// Returns a buffer for at most `len` bytes at `offset` of the export. Waits for other requests of this
    /// connection if necessary.
    ///
    /// A waiting task must hold no other buffer.
    pub async fn alloc(&self, offset: Bytes, len: Bytes, fit: Fit) -> Held {
        if let Some(held) = self.try_alloc(offset, len) {
            return held;
        }
        // A buffer of exact length may be as long as the guarantee. There may then be no room before its
        // bytes.
        let fits = fit == Fit::AtMost || lead_of(offset) + len <= self.guarantee;
        let lead = if fits { lead_of(offset) } else { Bytes::ZERO };
        let (all, permit) = match self.trypermit(lead + len) {
            Some(permit) => (lead + len, permit),
            None => {
                let all = (lead + len).min(self.guarantee);
                (all, self.own.acquire(pages(all)).await)
            }
        };
        let buf = match fit {
            Fit::Exact => self.arena.alloc(all).await,
            Fit::AtMost => match self.largest_left(all) {
                Some(buf) => buf,
                None => self.arena.alloc(all.min(PAGE)).await,
            },
        };
        Held { buf: after(lead, buf), permit }
    }

    fn trypermit(&self, len: Bytes) -> Option<Permit> {
        self.own.try_acquire(pages(len)).or_else(|| self.common.try_acquire(pages(len)))
    }

    /// Returns the longest buffer that the arena has now, by halving `len`. Small buffers of a slow client
    /// may cut up the arena.
    fn largest_left(&self, len: Bytes) -> Option<Buf> {
        let halves = std::iter::successors(Some(len), |&len| (len > PAGE).then(|| (len / 2).max(PAGE)));
        halves.into_iter().find_map(|len| self.arena.try_alloc(len))
    }
}

/// Offset within a page of the byte at an offset of the export.
pub fn lead_of(offset: Bytes) -> Bytes {
    Bytes(offset.0 % PAGE.0)
}

/// Returns the buffer without its first `lead` bytes, less than a page.
fn after(lead: Bytes, buf: Buf) -> Buf {
    if lead == Bytes::ZERO { buf } else { buf.slice(lead..buf.len()) }
}

/// Pages of the arena for a buffer of `len`.
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
    fn greedy_connection_leaves_guaranteed_memory_to_a_second() {
        let memory = Memory::new(Arena::new(MIB * 8), MIB * 8, 4).unwrap();
        let (greedy, modest) = (memory.share(), memory.share());
        let mut held = Vec::new();
        while let Some(buffer) = greedy.try_alloc(Bytes::ZERO, KIB * 4) {
            held.push(buffer);
        }
        assert_eq!(held.len(), 5 * 256, "its own MiB and the common four");
        assert!(modest.try_alloc(Bytes::ZERO, MIB).is_some());
        held.clear();
        assert!(greedy.try_alloc(Bytes::ZERO, MIB).is_some());
    }

    #[test]
    fn buffers_are_shortened_if_the_arena_is_fragmented() {
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
            let held = share.alloc(Bytes::ZERO, KIB * 256, Fit::AtMost).await;
            *into.borrow_mut() = Some(held.buf.len());
        });
        executor.run_ready();
        assert_eq!(*got.borrow(), Some(KIB * 64));
    }

    /// Story: a buffer began at a page, regardless of the offset. An extent that begins within a request
    /// therefore began anywhere in memory. Direct I/O refused the address: `qemu-io -c 'write 512 300032'`
    /// failed with EIO.
    #[test]
    fn bytes_lie_as_far_into_a_page_of_memory_as_of_the_export() {
        let memory = Memory::new(Arena::new(MIB * 2), MIB * 2, 2).unwrap();
        let share = memory.share();
        for (offset, len) in [(0, 4096), (1, 1), (512, 4096), (4095, 2), (8193, 65_536), (1 << 40, 7)] {
            let held = share.try_alloc(Bytes(offset), Bytes(len)).unwrap();
            assert_eq!((held.buf.as_ptr().addr() as u64 % 4096, held.buf.len().0), (offset % 4096, len));
        }
        assert_eq!(memory.arena.available(), MIB * 2);
    }

    /// One connection has all memory but its guarantee, and waits for a buffer within the guarantee.
    #[test]
    fn guaranteed_buffer_is_granted_at_any_offset() {
        let memory = Memory::new(Arena::new(MIB), MIB, 1).unwrap();
        let share = memory.share();
        let _common = share.try_alloc(Bytes::ZERO, KIB * 512).unwrap();
        let guarantee = share.guarantee();
        for (fit, expected) in [(Fit::Exact, guarantee), (Fit::AtMost, guarantee - Bytes(1))] {
            let executor = Executor::new(Order::Fifo);
            let got = Rc::new(RefCell::new(None));
            let (share, into) = (memory.share(), got.clone());
            executor.spawn(async move {
                let held = share.alloc(Bytes(1), share.guarantee(), fit).await;
                *into.borrow_mut() = Some(held.buf.len());
            });
            executor.run_ready();
            assert_eq!(*got.borrow(), Some(expected), "{fit:?}");
        }
    }

    #[test]
    fn too_many_connections_for_the_memory_are_refused() {
        assert!(Memory::new(Arena::new(MIB), MIB, 8).is_some());
        assert!(Memory::new(Arena::new(MIB), MIB, 9).is_none());
        assert!(Memory::new(Arena::new(MIB), Bytes(0), 1).is_none());
    }
}
