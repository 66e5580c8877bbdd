//! The two areas of an SSD: the area of each extra copy, and the order of eviction.
//!
//! | area | list | its copies | order |
//! |---|---|---|---|
//! | remap area | [`List::HighCost`], the paper's resident list | high-cost blocks, clean or dirty | when a search last chose them |
//! | remap area | [`List::Metadata`] | metadata of file systems, clean or dirty | when they were last used |
//! | write-back area | [`List::Clean`] | written back, to be used again | when they became clean |
//! | write-back area | [`List::Dirty`] | written by guests | that of addresses: [`WriteBack`] |
//!
//! A copy changes its area without a copy of its bytes: a high-cost block that guests have written is chosen
//! in place. A copy that leaves the remap area becomes the next of its list in the write-back area. A clean
//! copy is then reused, a dirty copy written back with the list. Blocks therefore leave the SSD by one way
//! only.
//!
//! The areas are parts of an SSD's capacity for extra copies. Clean copies beyond the write-back area's part
//! stay until their room is needed: an early eviction would gain nothing.

use crate::caching::WriteBack;
use crate::{CellId, CellLists, DeviceView, ExtraCopy, View};
use braid_base::{BlockId, DeviceId};

/// The lists of all devices.
pub(super) struct Areas {
    cells: CellLists,
    /// List of each cell.
    lists: Vec<Option<List>>,
    /// Number of copies, by device and list.
    counts: Vec<[u32; LISTS]>,
    /// Share of an SSD for the write-back area.
    share: f64,
    /// Dirty blocks of the write-back area.
    pub write_back: WriteBack,
}

/// List of an extra copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum List {
    HighCost,
    Metadata,
    Clean,
    Dirty,
}

const LISTS: usize = 4;
/// One part in `SPARE` of an SSD's block slots stays empty in the engine, for new blocks that arrive before
/// evicted blocks have left.
const SPARE: u64 = 64;
/// Metadata has at most one part in `METADATA` of the remap area: a volume's inode tables may exceed the SSD.
const METADATA: u32 = 2;
/// Copies examined in a search for a clean copy.
const LOOKED_AT: usize = 16;

impl Areas {
    /// Returns empty areas on `devices` devices.
    pub fn new(devices: usize, share: f64, write_back: WriteBack) -> Areas {
        Areas {
            cells: CellLists::new(devices * LISTS),
            lists: Vec::new(),
            counts: vec![[0; LISTS]; devices],
            share,
            write_back,
        }
    }

    /// Number of copies that the write-back area of an SSD holds.
    pub fn write_back_size(&self, device: &DeviceView, view: &View) -> u32 {
        (blocks_of(device, view) as f64 * self.share) as u32
    }

    /// Number of copies that the remap area of an SSD holds.
    pub fn remap_size(&self, device: &DeviceView, view: &View) -> u32 {
        blocks_of(device, view) as u32 - self.write_back_size(device, view)
    }

    /// Number of copies in the remap area of a device.
    pub fn remapped(&self, device: DeviceId) -> u32 {
        self.count(device, List::HighCost) + self.count(device, List::Metadata)
    }

    /// Number of copies in a list.
    pub fn count(&self, device: DeviceId, list: List) -> u32 {
        self.counts[device.index()][list as usize]
    }

    /// Returns the list of a copy.
    pub fn list_of(&self, cell: CellId) -> Option<List> {
        self.lists.get(cell.0 as usize).copied().flatten()
    }

    /// Makes the copy of a block the newest of `list`, and removes the copy from its previous list.
    pub fn put(&mut self, block: BlockId, copy: ExtraCopy, list: List) {
        self.enter(block, copy.device, copy.cell, list);
        self.cells.touch(key(copy.device, list), copy.cell);
    }

    /// Removes the copy of a block from its list.
    pub fn remove(&mut self, block: BlockId, copy: ExtraCopy) {
        self.leave(block, copy.device, copy.cell);
    }

    /// Makes room for `copies` copies in the remap area of a device by handing over the oldest copies. False
    /// if the room cannot be made.
    pub fn make_room(&mut self, device: &DeviceView, copies: u32, view: &View) -> bool {
        let size = self.remap_size(device, view);
        if copies > size {
            return false;
        }
        while self.remapped(device.id) + copies > size {
            let crowded = self.count(device.id, List::Metadata) > size / METADATA;
            let first = if crowded { List::Metadata } else { List::HighCost };
            let oldest = |list| self.cells.oldest(key(device.id, list));
            let Some(cell) = oldest(first).or_else(|| oldest(List::Metadata)) else { return false };
            if !self.hand_over(device.id, cell, view) {
                return false;
            }
        }
        true
    }

    /// Returns the copy to evict first: the oldest clean copy, from the write-back area if possible.
    pub fn evict(&self, device: DeviceId, view: &View) -> Option<CellId> {
        let is_clean = |cell: &CellId| !is_dirty(*cell, view);
        let lists = [List::Clean, List::HighCost, List::Metadata];
        lists
            .into_iter()
            .find_map(|list| self.cells.oldest_first(key(device, list)).take(LOOKED_AT).find(is_clean))
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.cells.memory() + self.lists.capacity() + self.write_back.memory()
    }

    /// Moves a copy from the remap area to the write-back area, as the next copy to leave. False if the
    /// engine does not know the copy.
    fn hand_over(&mut self, device: DeviceId, cell: CellId, view: &View) -> bool {
        let Some(block) = view.homes.block_in(cell) else { return false };
        let list = if is_dirty(cell, view) { List::Dirty } else { List::Clean };
        self.enter(block, device, cell, list);
        self.cells.touch_last(key(device, list), cell);
        true
    }

    fn enter(&mut self, block: BlockId, device: DeviceId, cell: CellId, list: List) {
        self.leave(block, device, cell);
        let place = cell.0 as usize;
        if place >= self.lists.len() {
            self.lists.resize(place + 1, None);
        }
        self.lists[place] = Some(list);
        self.counts[device.index()][list as usize] += 1;
        if list == List::Dirty {
            self.write_back.add(block);
        }
    }

    fn leave(&mut self, block: BlockId, device: DeviceId, cell: CellId) {
        let Some(list) = self.list_of(cell) else { return };
        self.cells.remove(key(device, list), cell);
        self.counts[device.index()][list as usize] -= 1;
        self.lists[cell.0 as usize] = None;
        if list == List::Dirty {
            self.write_back.remove(block);
        }
    }
}

/// Number of blocks that an SSD holds.
fn blocks_of(device: &DeviceView, view: &View) -> u64 {
    let all = u64::from(device.slots) * (view.extent_size / view.block_size);
    (all - all / SPARE).min(u32::MAX.into())
}

fn is_dirty(cell: CellId, view: &View) -> bool {
    let copy = view.homes.block_in(cell).and_then(|block| view.homes.extra(block));
    copy.is_some_and(|copy| copy.dirty)
}

/// Index of a device's list.
fn key(device: DeviceId, list: List) -> usize {
    device.index() * LISTS + list as usize
}
