//! A write-back cache of protected memory before a volume, as in storage controllers: Hayashi and Komoda,
//! sections 2.4 and 4.2.
//!
//! Fully associative, in blocks, LRU. Reads of cached blocks only, writes of whole blocks, and flushes take
//! the time of the model `dram`. Other requests pass on to the volume, and their whole blocks are cached
//! afterwards. An evicted dirty block is written to the volume in the background (a purge).
//!
//! The paper does not bound purges. Here a write waits while `MOST_PURGES` blocks are being written. The
//! cache keeps no bytes, so runs with the cache cannot be verified.

use crate::Result;
use braid_base::{Bytes, Nanos, Op, Request};
use braid_engine::{Durability, Export, Volume};
use braid_policy::Lru;
use braid_runtime::{Buf, Device, Event, Runtime};
use braid_sim::World;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Cached blocks, with the dirty blocks among them.
pub(crate) struct Dram {
    rt: World,
    block: Bytes,
    room: usize,
    /// Cached blocks; true for a dirty block.
    blocks: RefCell<Lru<u64, bool>>,
    purges: Rc<Purges>,
}

/// Blocks being written to the volume.
#[derive(Default)]
struct Purges {
    outstanding: Cell<usize>,
    ended: Event,
    failure: RefCell<Option<crate::Error>>,
}

const MOST_PURGES: usize = 1024;
/// Time of a request beside its bytes, and bytes per microsecond: as in the model `dram`.
const REQUEST: Nanos = Nanos(9_431);
const BYTES_PER_MICROSECOND: u64 = 7_200;

impl Dram {
    /// An empty cache of `size` bytes.
    pub fn new(rt: &World, size: Bytes, block: Bytes) -> Dram {
        let room = (size / block) as usize;
        Dram { rt: rt.clone(), block, room, blocks: RefCell::default(), purges: Rc::default() }
    }

    /// Takes a request; returns true if the cache alone answers the request.
    ///
    /// # Errors
    /// The error of a purge that failed since the last request.
    pub async fn takes(&self, request: &Request) -> Result<bool> {
        let Request { op, offset, len } = *request;
        self.purges.failure.take().map_or(Ok(()), Err)?;
        let mut blocks = self.blocks_of(offset, len);
        let is_whole = offset.is_aligned(self.block) && len.is_aligned(self.block);
        let answers = match op {
            Op::Flush => true,
            Op::Discard => {
                for block in blocks {
                    self.blocks.borrow_mut().remove(block);
                }
                false
            }
            Op::Read => blocks.all(|block| self.blocks.borrow().contains(block)),
            Op::Write => is_whole || blocks.all(|block| self.blocks.borrow().contains(block)),
        };
        if answers {
            if op == Op::Write {
                self.purges.wait().await;
            }
            self.rt.sleep(REQUEST + Nanos(len.0 * 1000 / BYTES_PER_MICROSECOND)).await;
        }
        Ok(answers)
    }

    /// Caches the blocks of a request after its end. A write `answered` by the cache leaves dirty blocks.
    pub fn leaves<D: Device>(&self, request: &Request, answered: bool, volume: &Volume<World, D>, buf: &Buf) {
        let Request { op, offset, len } = *request;
        if matches!(op, Op::Flush | Op::Discard) {
            return;
        }
        let whole = offset.align_up(self.block)..(offset + len).align_down(self.block);
        for block in self.blocks_of(offset, len) {
            let begin = self.block * block;
            // The volume has the bytes of a write that passed on.
            let is_dirty = op == Op::Write && answered;
            if !self.blocks.borrow().contains(block) {
                // A block that passed through only in part is not complete in memory.
                if begin < whole.start || begin >= whole.end {
                    continue;
                }
                self.make_room(volume, buf);
            }
            *self.blocks.borrow_mut().touch_value(block, usize::MAX) |= is_dirty;
        }
    }

    fn make_room<D: Device>(&self, volume: &Volume<World, D>, buf: &Buf) {
        while self.blocks.borrow().len() >= self.room {
            let Some(oldest) = self.blocks.borrow().oldest() else { return };
            let is_dirty = self.blocks.borrow().value(oldest).unwrap_or(false);
            self.blocks.borrow_mut().remove(oldest);
            if is_dirty {
                self.purge(self.block * oldest, volume, buf);
            }
        }
    }

    fn purge<D: Device>(&self, at: Bytes, volume: &Volume<World, D>, buf: &Buf) {
        let (purges, volume) = (self.purges.clone(), volume.clone());
        let buf = buf.slice(Bytes::ZERO..self.block.min(volume.size().saturating_sub(at)));
        purges.outstanding.set(purges.outstanding.get() + 1);
        self.rt.spawn(async move {
            if let Err(error) = volume.write(at, &buf, Durability::Volatile).await {
                purges.failure.borrow_mut().get_or_insert(error.into());
            }
            purges.outstanding.set(purges.outstanding.get() - 1);
            purges.ended.notify();
        });
    }

    fn blocks_of(&self, offset: Bytes, len: Bytes) -> Range<u64> {
        offset / self.block..(offset + len).0.div_ceil(self.block.0)
    }
}

impl Purges {
    /// Completes once fewer than `MOST_PURGES` are outstanding.
    async fn wait(&self) {
        self.ended.wait_for(|| (self.outstanding.get() < MOST_PURGES).then_some(())).await;
    }
}
