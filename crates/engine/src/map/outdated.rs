//! Slots that nothing uses any more, and that an older map image may still name.
//!
//! With one required copy there is one journal. If its device is lost, the map image on another device is all
//! that is known, and that is as old as the last checkpoint. So a slot of any other device is used again only
//! after a checkpoint: until then it holds the bytes of the extent that the image names it for. The same
//! holds for the block slots of dirty extra copies and the tables of caches on other devices. Those of clean
//! copies need not wait: where a device is lost, no table is believed about these.

use super::Space;
use braid_base::DeviceId;
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::DeviceView;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// What a commit freed.
#[derive(Default)]
pub(super) struct Freed {
    pub slots: Vec<SlotNumber>,
    /// Block slots.
    pub blocks: Vec<Extra>,
}

/// What waits for a checkpoint.
pub(super) struct Outdated {
    /// The device with the only journal, if another one has a map image.
    only_journal: Option<DeviceId>,
    /// With the newest batch when it was freed.
    waiting: VecDeque<(u64, Freed)>,
    /// How many slots of each device wait.
    slots_on: Vec<u32>,
    /// Places in which the table of a cache may still have dirty copies, by the newest batch when they were
    /// so no more.
    once_dirty: HashMap<(SlotNumber, u16), u64, FixedState>,
    newest: u64,
}

impl Outdated {
    /// Nothing waits, on so many devices.
    pub fn new(devices: usize) -> Outdated {
        Outdated {
            only_journal: None,
            waiting: VecDeque::new(),
            slots_on: vec![0; devices],
            once_dirty: HashMap::default(),
            newest: 0,
        }
    }

    /// There are so many devices now.
    pub fn set_devices(&mut self, devices: usize) {
        self.slots_on.resize(devices, 0);
    }

    /// From now on, what is freed on other devices than this one waits; nothing does if there is none.
    pub fn set_only_journal(&mut self, device: Option<DeviceId>) {
        self.only_journal = device;
    }

    /// Whether anything has to wait at all.
    pub fn is_needed(&self) -> bool {
        self.only_journal.is_some()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// With batch `newest`, no dirty copy lies there any more.
    pub fn note_clean(&mut self, newest: u64, place: Extra, space: &Space) {
        if !self.is_free(place.slot, space) {
            self.once_dirty.insert((place.slot, place.place), newest);
        }
    }

    /// Whether a place lies on another device than the only journal's.
    pub fn is_elsewhere(&self, place: &Extra, space: &Space) -> bool {
        !self.is_free(place.slot, space)
    }

    /// The batch with which a dirty copy became clean or left that the table of a cache may still have in a
    /// place.
    pub fn was_dirty(&self, place: &Extra) -> Option<u64> {
        self.once_dirty.get(&(place.slot, place.place)).copied()
    }

    /// Keeps back a block slot that nothing uses any more, if it has to wait.
    pub fn holds_block(&mut self, extra: Extra) -> bool {
        let has_to_wait = self.once_dirty.contains_key(&(extra.slot, extra.place));
        if has_to_wait {
            let newest = self.waiting.back().map_or(self.newest, |(newest, _)| *newest);
            self.waiting
                .push_back((newest.max(self.newest), Freed { slots: Vec::new(), blocks: vec![extra] }));
        }
        has_to_wait
    }

    fn is_free(&self, slot: SlotNumber, space: &Space) -> bool {
        let Some(only) = self.only_journal else { return true };
        space.locate(slot).is_none_or(|slot| slot.device == only)
    }

    /// Keeps back what has to wait of what is free with batch `newest`; gives the rest.
    pub fn hold(&mut self, newest: u64, freed: Freed, space: &Space) -> Freed {
        self.newest = newest;
        if !self.is_needed() {
            return freed;
        }
        let (slots, waiting): (Vec<_>, Vec<_>) =
            freed.slots.into_iter().partition(|&slot| self.is_free(slot, space));
        let (blocks, waiting_blocks): (Vec<_>, Vec<_>) =
            freed.blocks.into_iter().partition(|e| !self.once_dirty.contains_key(&(e.slot, e.place)));
        if !waiting.is_empty() || !waiting_blocks.is_empty() {
            self.count(&waiting, space, 1);
            self.waiting.push_back((newest, Freed { slots: waiting, blocks: waiting_blocks }));
        }
        Freed { slots, blocks }
    }

    /// Gives what has waited for a checkpoint that contains all batches up to `done`.
    pub fn end_checkpoint(&mut self, done: u64, space: &Space) -> Freed {
        self.once_dirty.retain(|_, newest| *newest > done);
        let mut all = Freed::default();
        while let Some((_, freed)) = self.waiting.pop_front_if(|(newest, _)| *newest <= done) {
            self.count(&freed.slots, space, -1);
            all.slots.extend(freed.slots);
            all.blocks.extend(freed.blocks);
        }
        all
    }

    /// The slots that wait.
    pub fn slots(&self) -> impl Iterator<Item = &SlotNumber> {
        self.waiting.iter().flat_map(|(_, freed)| &freed.slots)
    }

    /// Whether on some device at least as many slots wait as are free.
    pub fn outnumbers(&self, views: &[DeviceView]) -> bool {
        views.iter().zip(&self.slots_on).any(|(view, &waiting)| waiting > 0 && waiting >= view.free)
    }

    fn count(&mut self, slots: &[SlotNumber], space: &Space, change: i32) {
        for slot in slots.iter().filter_map(|&slot| space.locate(slot)) {
            let count = &mut self.slots_on[slot.device.index()];
            *count = count.saturating_add_signed(change);
        }
    }
}
