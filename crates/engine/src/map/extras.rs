//! Extra copies by block: the second table. Sparse: only blocks that have one take room.
//!
//! A cache takes whole extent slots of a device and divides them into block slots; a slot whose blocks are all free goes
//! back. Clean extra copies are forgotten on restart. Dirty ones are in the journal until they are written back.

use braid_base::{BlockId, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Which blocks have an extra copy, and where block slots are free.
pub(crate) struct Extras {
    blocks: HashMap<BlockId, Extra, FixedState>,
    /// By device: extent slots that are divided.
    pools: Vec<Pool>,
    /// Blocks that one extent slot is divided into.
    places: u16,
    dirty: usize,
}

#[derive(Default)]
struct Pool {
    /// Divided slots, with how many of their block slots are in use.
    slots: HashMap<SlotNumber, u16, FixedState>,
    free: Vec<(SlotNumber, u16)>,
}

impl Extras {
    pub fn new(devices: usize, places: u64) -> Extras {
        let pools = (0..devices).map(|_| Pool::default()).collect();
        Extras { blocks: HashMap::default(), pools, places: places.min(u64::from(u16::MAX)) as u16, dirty: 0 }
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks whose extra copy is newer than every required one.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    pub fn get(&self, block: BlockId) -> Option<Extra> {
        if self.blocks.is_empty() { None } else { self.blocks.get(&block).copied() }
    }

    /// All dirty extra copies, in order of block.
    pub fn dirty_blocks(&self) -> Vec<(BlockId, Extra)> {
        let mut dirty: Vec<_> = self.blocks.iter().filter(|(_, e)| e.dirty).map(|(b, e)| (*b, *e)).collect();
        dirty.sort_unstable_by_key(|(block, _)| *block);
        dirty
    }

    /// Every extra copy, in no order.
    pub fn all(&self) -> impl Iterator<Item = (BlockId, Extra)> {
        self.blocks.iter().map(|(block, extra)| (*block, *extra))
    }

    /// Divided slots without a dirty block, in order, with the blocks that lie in them.
    pub fn clean_slots(&self) -> Vec<(SlotNumber, Vec<BlockId>)> {
        let mut slots: BTreeMap<u32, Vec<(BlockId, bool)>> = BTreeMap::new();
        for (block, extra) in self.all() {
            slots.entry(extra.slot.0).or_default().push((block, extra.dirty));
        }
        let clean = slots.into_iter().filter(|(_, blocks)| blocks.iter().all(|(_, dirty)| !dirty));
        clean
            .map(|(slot, blocks)| (SlotNumber(slot), blocks.into_iter().map(|(block, _)| block).collect()))
            .collect()
    }

    /// Sets or removes a block's extra copy. The block slot must have been taken before, and is given back by the caller.
    pub fn set(&mut self, block: BlockId, extra: Option<Extra>) {
        let before = match extra {
            Some(extra) => self.blocks.insert(block, extra),
            None => self.blocks.remove(&block),
        };
        self.dirty -= usize::from(before.is_some_and(|e| e.dirty));
        self.dirty += usize::from(extra.is_some_and(|e| e.dirty));
    }

    /// Extent slots that are divided on a device.
    pub fn divided(&self, device: DeviceId) -> u32 {
        self.pools[device.index()].slots.len() as u32
    }

    /// Divides an extent slot: its block slots become free.
    pub fn divide(&mut self, device: DeviceId, slot: SlotNumber) {
        let pool = &mut self.pools[device.index()];
        pool.slots.insert(slot, 0);
        pool.free.extend((0..self.places).rev().map(|place| (slot, place)));
    }

    /// Takes a free block slot.
    pub fn take(&mut self, device: DeviceId) -> Option<(SlotNumber, u16)> {
        let pool = &mut self.pools[device.index()];
        let taken = pool.free.pop()?;
        *pool.slots.get_mut(&taken.0).expect("a free block slot lies in a divided slot") += 1;
        Some(taken)
    }

    /// Marks a block slot as in use, as the journal says, dividing its extent slot where that is new.
    /// False where it was in use.
    pub fn claim(&mut self, device: DeviceId, slot: SlotNumber, place: u16) -> bool {
        let pool = &mut self.pools[device.index()];
        let Some(at) = pool.free.iter().position(|&free| free == (slot, place)) else { return false };
        pool.free.swap_remove(at);
        *pool.slots.get_mut(&slot).expect("a free block slot lies in a divided slot") += 1;
        true
    }

    pub fn is_divided(&self, device: DeviceId, slot: SlotNumber) -> bool {
        self.pools[device.index()].slots.contains_key(&slot)
    }

    /// Gives a block slot back. Returns the extent slot where no block of it is in use any more: it is whole again, and
    /// the caller's to release.
    pub fn release(&mut self, device: DeviceId, slot: SlotNumber, place: u16) -> Option<SlotNumber> {
        let pool = &mut self.pools[device.index()];
        let used = pool.slots.get_mut(&slot).expect("a block slot lies in a divided slot");
        *used -= 1;
        if *used > 0 {
            pool.free.push((slot, place));
            return None;
        }
        pool.slots.remove(&slot);
        pool.free.retain(|&(free, _)| free != slot);
        Some(slot)
    }
}
