//! Extra copies: the second table, from blocks to block slots and back. Memory is used for cached blocks
//! alone.
//!
//! A cache takes whole extent slots of a device and divides them into block slots. An extent slot with all
//! block slots free is given back. A divided extent slot has a *group* here, with a *cell* for each block
//! slot: group × blocks of an extent + place.
//!
//! ```text
//! a cell   entries  6  block + 1 (5 bytes) and state, as in a page of the cache table
//!          links    4  the next cell of the same chain
//! heads             4  for three quarters of the cells in use: the first cell of a chain
//! ```
//!
//! A block costs 13 bytes, and up to a sixteenth more for reserved memory. Chains use linear hashing: the
//! table of heads grows by one head at a time, so no request waits for a rehash of the whole table. During
//! recovery a block may be in several cells, because pages of the cache table differ in age. Afterwards a
//! block is in at most one cell.
//!
//! Neighbouring blocks get adjacent block slots, if any are free, so that a device sees one request: an SSD
//! takes a request of 128 KiB in the time of a few requests of 4 KiB. A group with a newly freed block slot
//! is used last, because more of its block slots become free meanwhile.

mod loading;
#[cfg(test)]
mod tests;

use braid_base::{BlockId, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::{CellId, ExtraCopy};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::ops::Range;

/// Extra copy of each block, block in each block slot, and free block slots.
pub(crate) struct Extras {
    /// Number of block slots in an extent slot.
    places: u32,
    entries: Vec<[u8; ENTRY]>,
    links: Vec<u32>,
    heads: Vec<u32>,
    groups: Vec<Group>,
    /// Groups by extent slot.
    by_slot: HashTable<u32>,
    /// First unused group; the others follow by `next`.
    unused: u32,
    devices: Vec<Pool>,
    len: usize,
    hasher: FixedState,
}

/// Divided extent slot.
#[derive(Clone, Copy)]
struct Group {
    slot: SlotNumber,
    device: DeviceId,
    /// Number of block slots in use, and of dirty block slots.
    used: u16,
    dirty: u16,
    /// Neighbours in the list of the device's groups with a free block slot.
    next: u32,
    before: u32,
}

#[derive(Clone, Copy)]
struct Pool {
    /// Number of divided extent slots.
    divided: u32,
    /// Number of block slots that are not free, and number of blocks held.
    taken: usize,
    held: usize,
    /// Number of dirty blocks.
    dirty: usize,
    /// First and last group with a free block slot. The group with room for longest comes first.
    roomy: u32,
    last_roomy: u32,
}

impl Pool {
    const EMPTY: Pool = Pool { divided: 0, taken: 0, held: 0, dirty: 0, roomy: NONE, last_roomy: NONE };
}

const ENTRY: usize = 6;
/// No cell, no group.
const NONE: u32 = u32::MAX;
/// Heads of chains for each hundred cached blocks.
const HEADS_PER_CENT: usize = 75;
/// Divisor for reserved memory: one part in 16 beyond need.
const RESERVE: usize = 16;
/// Approximate number of cells examined for adjacent free cells: 8 groups of 32.
const LOOKED_AT: u32 = 256;

/// State of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellState {
    Free = 0,
    Clean = 1,
    Dirty = 2,
    /// Taken, without a block yet or any more.
    Taken = 3,
}

impl Extras {
    pub fn new(devices: usize, places: u64) -> Extras {
        let pool = Pool::EMPTY;
        Extras {
            places: u32::try_from(places).expect("an extent has at most 16,384 blocks"),
            entries: Vec::new(),
            links: Vec::new(),
            heads: vec![NONE],
            groups: Vec::new(),
            by_slot: HashTable::new(),
            unused: NONE,
            devices: vec![pool; devices],
            len: 0,
            hasher: FixedState::default(),
        }
    }

    /// Sets the number of devices.
    pub fn set_devices(&mut self, devices: usize) {
        self.devices.resize(devices, Pool::EMPTY);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of blocks with an extra copy newer than every required copy.
    pub fn dirty(&self) -> usize {
        self.devices.iter().map(|pool| pool.dirty).sum()
    }

    /// Number of dirty blocks on a device.
    pub fn dirty_on(&self, device: DeviceId) -> usize {
        self.devices[device.index()].dirty
    }

    /// Number of free block slots of a device, and number of block slots without a block. The latter are free
    /// or will be, unless a block comes.
    pub fn spare(&self, device: DeviceId) -> (usize, usize) {
        let Pool { divided, taken, held, .. } = self.devices[device.index()];
        let all = divided as usize * self.places as usize;
        (all - taken, all - held)
    }

    pub fn get(&self, block: BlockId) -> Option<Extra> {
        if self.len == 0 { None } else { self.find(block).map(|cell| self.extra_at(cell)) }
    }

    /// Extra copy of a block, as policies see the copy.
    pub fn copy_of(&self, block: BlockId) -> Option<ExtraCopy> {
        let cell = if self.len == 0 { None } else { self.find(block) }?;
        let device = self.groups[(cell / self.places) as usize].device;
        Some(ExtraCopy { device, dirty: self.entry(cell).1 == CellState::Dirty, cell: CellId(cell) })
    }

    /// Block in a cell.
    pub fn block_in(&self, cell: CellId) -> Option<BlockId> {
        if (cell.0 as usize) < self.entries.len() { self.entry(cell.0).0 } else { None }
    }

    /// Block in a block slot, and whether the block is dirty.
    pub fn at(&self, slot: SlotNumber, place: u16) -> Option<(BlockId, bool)> {
        let (block, state) = self.entry(self.cell_at(slot, place)?);
        block.map(|block| (block, state == CellState::Dirty))
    }

    /// First block with an extra copy at or after a cell, in the order of cells. Returns first the cell to
    /// continue from.
    pub fn next(&self, from: u32) -> Option<(u32, BlockId, Extra)> {
        let cells = from..self.entries.len() as u32;
        cells.filter_map(|cell| Some((cell + 1, self.entry(cell).0?, self.extra_at(cell)))).next()
    }

    /// Every extra copy, in the order of cells.
    pub fn all(&self) -> impl Iterator<Item = (BlockId, Extra)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (next, block, extra) = self.next(at)?;
            at = next;
            Some((block, extra))
        })
    }

    /// First divided slot without a dirty block, from a group on: the group to continue from, the slot, and
    /// the blocks inside.
    pub fn next_clean_slot(&self, from: u32) -> Option<(u32, SlotNumber, Vec<BlockId>)> {
        let is_clean = |group: &u32| {
            let Group { used, dirty, .. } = self.groups[*group as usize];
            used > 0 && dirty == 0
        };
        let group = (from..self.groups.len() as u32).find(is_clean)?;
        let cells = group * self.places..(group + 1) * self.places;
        let blocks = cells.filter_map(|cell| self.entry(cell).0).collect();
        Some((group + 1, self.groups[group as usize].slot, blocks))
    }

    /// Up to `most` divided slots of a device, from a group on: the group to continue from, the number of
    /// slots, and the blocks inside. Slots with dirty blocks are included if `with_dirty`.
    pub fn slots_of(
        &self,
        device: DeviceId,
        from: u32,
        most: usize,
        with_dirty: bool,
    ) -> Option<(u32, usize, Vec<BlockId>)> {
        let is_meant = |group: &u32| {
            let Group { device: of, used, dirty, .. } = self.groups[*group as usize];
            of == device && used > 0 && (with_dirty || dirty == 0)
        };
        let groups: Vec<u32> = (from..self.groups.len() as u32).filter(is_meant).take(most).collect();
        let blocks_of = |group: &u32| group * self.places..(group + 1) * self.places;
        let blocks = groups.iter().flat_map(blocks_of).filter_map(|cell| self.entry(cell).0).collect();
        groups.last().map(|last| (last + 1, groups.len(), blocks))
    }

    /// Sets or removes a block's extra copy. A new block slot must be taken before. The caller gives back the
    /// block slot left behind.
    pub fn set(&mut self, block: BlockId, extra: Option<Extra>) {
        let before = self.find(block);
        let now = extra.map(|e| {
            let cell = self.cell_at(e.slot, e.place).expect("an extra copy lies in a divided slot");
            (cell, if e.dirty { CellState::Dirty } else { CellState::Clean })
        });
        if let (Some(cell), Some((same, state))) = (before, now)
            && cell == same
        {
            return self.set_entry(cell, Some(block), state);
        }
        if let Some(cell) = before {
            self.unchain(cell);
            self.set_entry(cell, None, CellState::Taken);
        }
        if let Some((cell, state)) = now {
            assert!(
                self.entry(cell) == (None, CellState::Taken),
                "an extra copy is made in a slot that was taken"
            );
            self.set_entry(cell, Some(block), state);
            self.chain(cell, block);
        }
    }

    /// Number of divided extent slots on a device.
    pub fn divided(&self, device: DeviceId) -> u32 {
        self.devices[device.index()].divided
    }

    /// Divides an extent slot into free block slots. Returns false if no cell numbers are left.
    pub fn divide(&mut self, device: DeviceId, slot: SlotNumber) -> bool {
        let Some(group) = self.add_group(device, slot) else { return false };
        self.link_roomy(group);
        true
    }

    /// Takes adjacent free block slots of a device: `most`, or the longest run in the examined groups.
    /// Returns the extent slot and the places.
    pub fn take(&mut self, device: DeviceId, most: usize) -> Option<(SlotNumber, Range<u16>)> {
        let cells = self.free_run(device, most as u32);
        if cells.is_empty() {
            return None;
        }
        let (number, taken) = (cells.start / self.places, cells.end - cells.start);
        cells.clone().for_each(|cell| self.set_entry(cell, None, CellState::Taken));
        self.devices[device.index()].taken += taken as usize;
        let group = &mut self.groups[number as usize];
        group.used += taken as u16;
        let (slot, is_full) = (group.slot, u32::from(group.used) == self.places);
        if is_full {
            self.unlink_roomy(number);
        }
        let first = (cells.start % self.places) as u16;
        Some((slot, first..first + taken as u16))
    }

    /// First run of `most` free cells of a device, or the longest run among about [`LOOKED_AT`] examined
    /// cells.
    fn free_run(&self, device: DeviceId, most: u32) -> Range<u32> {
        let (mut number, mut looked_at, mut best) = (self.devices[device.index()].roomy, 0, 0..0);
        while let Some(group) = self.groups.get(number as usize) {
            let (mut cell, end) = (number * self.places, (number + 1) * self.places);
            while cell < end {
                let is_free = |cell: &u32| self.entry(*cell).1 == CellState::Free;
                let run = cell..(cell..end.min(cell + most))
                    .find(|cell| !is_free(cell))
                    .unwrap_or(end.min(cell + most));
                looked_at += run.end - run.start + 1;
                if run.end - run.start > best.end - best.start {
                    best = run.clone();
                }
                let is_enough = best.end - best.start >= most || looked_at >= LOOKED_AT;
                if is_enough && !best.is_empty() {
                    return best;
                }
                cell = run.end + 1;
            }
            number = group.next;
        }
        best
    }

    /// Frees a block slot without a block. Returns the extent slot if none of its block slots is in use any
    /// more: the extent slot is whole again, for the caller to release.
    pub fn release(&mut self, slot: SlotNumber, place: u16) -> Option<SlotNumber> {
        let cell = self.cell_at(slot, place).expect("a block slot lies in a divided slot");
        assert!(self.entry(cell) == (None, CellState::Taken), "a block slot that is given back was taken");
        self.set_entry(cell, None, CellState::Free);
        let number = cell / self.places;
        let group = &mut self.groups[number as usize];
        group.used -= 1;
        self.devices[group.device.index()].taken -= 1;
        let was_full = u32::from(group.used) + 1 == self.places;
        match group.used {
            0 => {
                if !was_full {
                    self.unlink_roomy(number);
                }
                self.remove_group(number);
                Some(slot)
            }
            _ => {
                if was_full {
                    self.link_roomy(number);
                }
                None
            }
        }
    }

    /// Bytes of memory used by the tables.
    pub fn memory(&self) -> usize {
        let cells = self.entries.capacity() * ENTRY + self.links.capacity() * 4 + self.heads.capacity() * 4;
        cells + self.groups.capacity() * size_of::<Group>() + self.by_slot.allocation_size()
    }

    fn add_group(&mut self, device: DeviceId, slot: SlotNumber) -> Option<u32> {
        let new = Group { slot, device, used: 0, dirty: 0, next: NONE, before: NONE };
        let number = match self.groups.get(self.unused as usize) {
            Some(group) => {
                let number = std::mem::replace(&mut self.unused, group.next);
                self.groups[number as usize] = new;
                number
            }
            None => {
                let cells = (self.groups.len() + 1) * self.places as usize;
                if cells >= NONE as usize {
                    return None;
                }
                lengthen(&mut self.groups, 1, new);
                lengthen(&mut self.entries, self.places as usize, [0; ENTRY]);
                lengthen(&mut self.links, self.places as usize, NONE);
                self.groups.len() as u32 - 1
            }
        };
        let (hasher, groups) = (&self.hasher, &self.groups);
        let hash = |number: &u32| hasher.hash_one(groups[*number as usize].slot.0);
        self.by_slot.insert_unique(hash(&number), number, hash);
        self.devices[device.index()].divided += 1;
        Some(number)
    }

    /// Removes a group without a used block slot. The group must be in no list.
    fn remove_group(&mut self, number: u32) {
        let Group { slot, device, .. } = self.groups[number as usize];
        let (hash, groups) = (self.hasher.hash_one(slot.0), &self.groups);
        let known = self.by_slot.find_entry(hash, |&n| groups[n as usize].slot == slot);
        known.expect("a group is found by its slot").remove();
        self.devices[device.index()].divided -= 1;
        let group = &mut self.groups[number as usize];
        group.next = std::mem::replace(&mut self.unused, number);
    }

    fn link_roomy(&mut self, number: u32) {
        let device = self.groups[number as usize].device;
        let before = std::mem::replace(&mut self.devices[device.index()].last_roomy, number);
        match self.groups.get_mut(before as usize) {
            Some(group) => group.next = number,
            None => self.devices[device.index()].roomy = number,
        }
        let group = &mut self.groups[number as usize];
        (group.before, group.next) = (before, NONE);
    }

    fn unlink_roomy(&mut self, number: u32) {
        let Group { device, before, next, .. } = self.groups[number as usize];
        match self.groups.get_mut(before as usize) {
            Some(group) => group.next = next,
            None => self.devices[device.index()].roomy = next,
        }
        match self.groups.get_mut(next as usize) {
            Some(group) => group.before = before,
            None => self.devices[device.index()].last_roomy = before,
        }
    }

    fn cell_at(&self, slot: SlotNumber, place: u16) -> Option<u32> {
        let hash = self.hasher.hash_one(slot.0);
        let group = self.by_slot.find(hash, |&number| self.groups[number as usize].slot == slot)?;
        (u32::from(place) < self.places).then_some(group * self.places + u32::from(place))
    }

    fn extra_at(&self, cell: u32) -> Extra {
        let Group { slot, .. } = self.groups[(cell / self.places) as usize];
        Extra { slot, place: (cell % self.places) as u16, dirty: self.entry(cell).1 == CellState::Dirty }
    }

    fn entry(&self, cell: u32) -> (Option<BlockId>, CellState) {
        let [block @ .., state] = self.entries[cell as usize];
        let mut wide = [0; 8];
        wide[..5].copy_from_slice(&block);
        let state =
            [CellState::Free, CellState::Clean, CellState::Dirty, CellState::Taken][usize::from(state)];
        (u64::from_le_bytes(wide).checked_sub(1).map(BlockId), state)
    }

    /// Sets the content of a cell, and updates the counts.
    fn set_entry(&mut self, cell: u32, block: Option<BlockId>, state: CellState) {
        let (known, before) = self.entry(cell);
        let wide = block.map_or(0, |block| block.0 + 1).to_le_bytes();
        self.entries[cell as usize] = [wide[0], wide[1], wide[2], wide[3], wide[4], state as u8];
        self.len = self.len + usize::from(block.is_some()) - usize::from(known.is_some());
        let group = &mut self.groups[(cell / self.places) as usize];
        let pool = &mut self.devices[group.device.index()];
        pool.held = pool.held + usize::from(block.is_some()) - usize::from(known.is_some());
        let (now, before) = (state == CellState::Dirty, before == CellState::Dirty);
        group.dirty = group.dirty + u16::from(now) - u16::from(before);
        pool.dirty = pool.dirty + usize::from(now) - usize::from(before);
    }

    fn find(&self, block: BlockId) -> Option<u32> {
        self.chain_of(block).find(|&cell| self.entry(cell).0 == Some(block))
    }

    /// Cells of the chain of a block.
    fn chain_of(&self, block: BlockId) -> impl Iterator<Item = u32> {
        let mut next = self.heads[self.head_of(block)];
        std::iter::from_fn(move || {
            let cell = next;
            next = *self.links.get(cell as usize)?;
            Some(cell)
        })
    }

    /// Head of a block: as many bits of the hash as the heads need; one bit less if the head does not exist
    /// yet.
    fn head_of(&self, block: BlockId) -> usize {
        let (hash, heads) = (self.hasher.hash_one(block.0) as usize, self.heads.len());
        let all = heads.next_power_of_two();
        let head = hash & (all - 1);
        if head < heads { head } else { head & (all / 2 - 1) }
    }

    fn chain(&mut self, cell: u32, block: BlockId) {
        if self.heads.len() * 100 < self.len * HEADS_PER_CENT {
            self.divide_chain();
        }
        let head = self.head_of(block);
        self.links[cell as usize] = std::mem::replace(&mut self.heads[head], cell);
    }

    /// Adds a head, and moves some cells of one chain there.
    fn divide_chain(&mut self) {
        let new = self.heads.len();
        let old = new & !(1 << new.ilog2());
        lengthen(&mut self.heads, 1, NONE);
        let mut next = std::mem::replace(&mut self.heads[old], NONE);
        while let Some(&following) = self.links.get(next as usize) {
            let block = self.entry(next).0.expect("a cell in a chain holds a block");
            let head = self.head_of(block);
            self.links[next as usize] = std::mem::replace(&mut self.heads[head], next);
            next = following;
        }
    }

    fn unchain(&mut self, cell: u32) {
        let block = self.entry(cell).0.expect("a cell in a chain holds a block");
        let (head, after) = (self.head_of(block), self.links[cell as usize]);
        if self.heads[head] == cell {
            self.heads[head] = after;
            return;
        }
        let before = self.chain_of(block).find(|&c| self.links[c as usize] == cell);
        self.links[before.expect("a cell is in the chain of its block") as usize] = after;
    }
}

/// Appends with a small reserve: a table of half a GB must not take a whole GB.
fn lengthen<T: Clone>(vec: &mut Vec<T>, by: usize, value: T) {
    let len = vec.len() + by;
    if len > vec.capacity() {
        vec.reserve_exact(by + (len / RESERVE).max(16));
    }
    vec.resize(len, value);
}
