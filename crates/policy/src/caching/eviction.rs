//! Eviction: which cached copy goes when another block needs the room. `evict=lru` evicts the least recently
//! used copy. Under `evict=s3-fifo` ([`super::s3_fifo`]) blocks requested once do not push out blocks
//! requested again and again.
//!
//! Dirty copies are no candidates: [`super::WriteBack`] ensures that clean copies exist. A cache that writes
//! back at purge ([`Eviction::with_dirty`]) keeps dirty copies in the order, and the policy writes back the
//! dirty copies next in turn.

use super::s3_fifo::S3Fifo;
use super::written;
use crate::{BadSetting, CellId, CellLists, ExtraCopy, LONGEST_STATE, Piece, Settings, View};
use braid_base::{BlockId, DeviceId};
use std::iter;

/// Order of eviction of clean cached copies, on each device.
pub struct Eviction {
    order: Order,
    /// True if the order includes dirty copies.
    with_dirty: bool,
    devices: usize,
    known: usize,
}

enum Order {
    Lru(CellLists),
    S3Fifo(S3Fifo),
}

/// Version of the saved state.
const VERSION: u8 = 1;
/// Cached copies examined in a search for a victim.
pub const LOOKED_AT: usize = 64;
/// Hits after which S3-FIFO keeps a block.
const THRESHOLD: u64 = 2;

impl Eviction {
    /// Reads the settings `evict` (lru), or s3-fifo with `threshold` (2), the hits from which a block is
    /// kept. Fails for other values.
    pub fn take(settings: &mut Settings, devices: usize) -> Result<Eviction, BadSetting> {
        let order = match settings.take_text("evict").as_deref() {
            None | Some("lru") => Order::Lru(CellLists::new(devices)),
            Some("s3-fifo") => {
                let threshold = settings.take_count("threshold", THRESHOLD, 1..=3)?;
                Order::S3Fifo(S3Fifo::new(devices, threshold as u8))
            }
            Some(other) => return Err(settings.bad("evict", other, "lru or s3-fifo")),
        };
        Ok(Eviction { order, with_dirty: false, devices, known: 0 })
    }

    /// Adds dirty copies to the order.
    ///
    /// # Errors
    /// For S3-FIFO, which handles clean copies only.
    pub fn with_dirty(mut self, settings: &Settings) -> Result<Eviction, BadSetting> {
        self.with_dirty = true;
        match self.order {
            Order::Lru(_) => Ok(self),
            Order::S3Fifo(_) => Err(settings.bad("dirty-until", "purge", "evict=lru, or dirty-until=mark")),
        }
    }

    /// Returns the settings as text, without defaults.
    pub fn settings(&self) -> Vec<String> {
        let Order::S3Fifo(order) = &self.order else { return Vec::new() };
        let threshold = Some(order.threshold()).filter(|&hits| u64::from(hits) != THRESHOLD);
        written([Some("evict=s3-fifo".to_owned()), threshold.map(|hits| format!("threshold={hits}"))])
    }

    /// Marks the cached blocks of a piece as used by a guest.
    pub fn used(&mut self, piece: &Piece, view: &View) {
        if self.known == 0 {
            return;
        }
        for copy in piece.touched().filter_map(|block| view.homes.extra(block)) {
            match &mut self.order {
                Order::Lru(lists) => lists.touch_member(copy.device.index(), copy.cell),
                Order::S3Fifo(queues) => queues.used(copy),
            }
        }
    }

    /// As [`crate::Policy::extra_changed`].
    pub fn changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        if let (Some(before), Some(now)) = (before, now)
            && (before.device, before.cell) == (now.device, now.cell)
        {
            return self.turned(now);
        }
        if let Some(copy) = before {
            self.known -= 1;
            match &mut self.order {
                Order::Lru(lists) => lists.remove(copy.device.index(), copy.cell),
                Order::S3Fifo(queues) => queues.left(block, copy),
            }
        }
        if let Some(copy) = now {
            self.known += 1;
            match &mut self.order {
                Order::Lru(_) if copy.dirty && !self.with_dirty => {}
                Order::Lru(lists) => lists.touch(copy.device.index(), copy.cell),
                Order::S3Fifo(queues) => queues.entered(block, copy),
            }
        }
    }

    /// Handles a copy turned clean or dirty.
    fn turned(&mut self, copy: ExtraCopy) {
        match &mut self.order {
            Order::Lru(_) if self.with_dirty => {}
            Order::Lru(lists) if copy.dirty => lists.remove(copy.device.index(), copy.cell),
            Order::Lru(lists) => lists.touch(copy.device.index(), copy.cell),
            Order::S3Fifo(queues) => queues.changed(copy),
        }
    }

    /// As [`crate::Policy::evict`].
    pub fn victim(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        let cell = match &mut self.order {
            Order::Lru(lists) if !self.with_dirty => lists.oldest(device.index()),
            Order::Lru(lists) => {
                lists.oldest_first(device.index()).take(LOOKED_AT).find(|&cell| !is_dirty(cell, view))
            }
            Order::S3Fifo(queues) => queues.victim(device),
        };
        view.homes.block_in(cell?)
    }

    /// Returns the dirty copies among the next `most` copies to evict on a device. Empty for S3-FIFO.
    pub fn next_dirty(&self, device: DeviceId, most: usize, view: &View) -> Vec<BlockId> {
        let Order::Lru(lists) = &self.order else { return Vec::new() };
        let next = lists.oldest_first(device.index()).take(most);
        next.filter(|&cell| is_dirty(cell, view)).filter_map(|cell| view.homes.block_in(cell)).collect()
    }

    /// Number of cached blocks.
    pub fn len(&self) -> usize {
        self.known
    }

    /// True if no block is cached.
    pub fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        match &self.order {
            Order::Lru(lists) => lists.memory(),
            Order::S3Fifo(queues) => queues.memory(),
        }
    }

    /// Serialises a version, then the blocks on each device that are evicted last, the very last first, 8
    /// bytes each.
    pub fn save(&self, view: &View) -> Vec<u8> {
        let last = |device: usize| -> Box<dyn Iterator<Item = CellId>> {
            match &self.order {
                Order::Lru(lists) => Box::new(lists.newest_first(device)),
                Order::S3Fifo(queues) => Box::new(queues.main(DeviceId(device as u16))),
            }
        };
        let caching = (0..self.devices).filter(|&device| last(device).next().is_some()).count();
        let most = (LONGEST_STATE.as_usize() - 1) / size_of::<u64>() / caching.max(1);
        let of_device = |device| last(device).filter_map(|cell| view.homes.block_in(cell)).take(most);
        let blocks = (0..self.devices).flat_map(of_device);
        iter::once(VERSION).chain(blocks.flat_map(|block| block.0.to_le_bytes())).collect()
    }

    /// Restores the order from before a restart, for blocks that are still cached.
    pub fn restore(&mut self, state: &[u8], view: &View) {
        let Some((&VERSION, blocks)) = state.split_first() else { return };
        let (blocks, _) = blocks.as_chunks();
        for &block in blocks.iter().rev() {
            let Some(copy) = view.homes.extra(BlockId(u64::from_le_bytes(block))) else { continue };
            match &mut self.order {
                Order::Lru(lists) => lists.touch_member(copy.device.index(), copy.cell),
                Order::S3Fifo(queues) => queues.restore(copy),
            }
        }
    }
}

fn is_dirty(cell: CellId, view: &View) -> bool {
    let copy = view.homes.block_in(cell).and_then(|block| view.homes.extra(block));
    copy.is_some_and(|copy| copy.dirty)
}
