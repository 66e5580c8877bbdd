//! Extra copies during recovery: block slots are filled from pages and journal, in any order.

use super::{CellState, Extras};
use braid_base::{BlockId, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;

impl Extras {
    /// Puts a block in a block slot. Returns false if the slot holds another block, if no cell numbers are
    /// left, or if the extent slot has no such place.
    pub fn load(&mut self, device: DeviceId, block: BlockId, extra: Extra) -> bool {
        if u32::from(extra.place) >= self.places {
            return false;
        }
        let cell = match self.cell_at(extra.slot, extra.place) {
            Some(cell) => cell,
            None => match self.add_group(device, extra.slot) {
                Some(group) => group * self.places + u32::from(extra.place),
                None => return false,
            },
        };
        let state = if extra.dirty { CellState::Dirty } else { CellState::Clean };
        match self.entry(cell) {
            (None, CellState::Free) => {
                self.groups[(cell / self.places) as usize].used += 1;
                self.devices[device.index()].taken += 1;
                self.set_entry(cell, Some(block), state);
                self.chain(cell, block);
                true
            }
            (Some(known), _) if known == block => {
                self.set_entry(cell, Some(block), state);
                true
            }
            _ => false,
        }
    }

    /// Every place with a block.
    pub fn places_of(&self, block: BlockId) -> Vec<Extra> {
        let cells = self.chain_of(block).filter(|&cell| self.entry(cell).0 == Some(block));
        cells.map(|cell| self.extra_at(cell)).collect()
    }

    /// Frees a block slot.
    pub fn unload(&mut self, slot: SlotNumber, place: u16) {
        let cell = self.cell_at(slot, place).expect("a block slot that is emptied was filled");
        self.unchain(cell);
        self.set_entry(cell, None, CellState::Free);
        let group = &mut self.groups[(cell / self.places) as usize];
        group.used -= 1;
        self.devices[group.device.index()].taken -= 1;
    }

    /// Divided slots in use, in the order of their groups.
    pub fn divided_slots(&self) -> Vec<SlotNumber> {
        self.groups.iter().filter(|group| group.used > 0).map(|group| group.slot).collect()
    }

    /// True if no block slot of a divided slot is in use. A block slot just left by a block may be in use
    /// until the change is durable.
    pub fn is_unused(&self, slot: SlotNumber) -> bool {
        self.cell_at(slot, 0).is_none_or(|cell| self.groups[(cell / self.places) as usize].used == 0)
    }

    /// Blocks in a divided slot, each with its extra copy.
    pub fn blocks_in(&self, slot: SlotNumber) -> Vec<(BlockId, Extra)> {
        let places = (0..self.places as u16).filter_map(|place| {
            let (block, dirty) = self.at(slot, place)?;
            Some((block, Extra { slot, place, dirty }))
        });
        places.collect()
    }

    /// Ends recovery: cells without a block are free from now on.
    pub fn finish_loading(&mut self) {
        for number in 0..self.groups.len() as u32 {
            let group = self.groups[number as usize];
            if group.used == 0 {
                self.remove_group(number);
                continue;
            }
            if u32::from(group.used) < self.places {
                self.link_roomy(number);
            }
        }
    }
}
