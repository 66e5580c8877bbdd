//! Unused slots that an older map image may still name: held slots.
//!
//! With one required copy there is one journal. After the loss of its device, only the map image on another
//! device is known, as old as the last checkpoint. So a freed slot of any other device is used again only
//! after a checkpoint. Until then the slot holds the bytes of the extent named by the image. The same holds
//! for block slots of dirty extra copies and the cache tables on other devices. Block slots of clean copies
//! need not wait: after the loss of a device, no table is trusted about clean copies.

use super::Space;
use braid_base::DeviceId;
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::DeviceView;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Slots freed by a commit.
#[derive(Default)]
pub(super) struct Freed {
    pub slots: Vec<SlotNumber>,
    /// Block slots.
    pub blocks: Vec<Extra>,
}

/// Slots held until a checkpoint.
pub(super) struct Outdated {
    /// Device with the only journal, if another device has a map image.
    only_journal: Option<DeviceId>,
    /// Freed slots with the newest batch at that time.
    waiting: VecDeque<(u64, Freed)>,
    /// Number of held slots on each device.
    slots_on: Vec<u32>,
    /// Places that the cache table may still call dirty, with the newest batch at the end of their dirty
    /// state.
    once_dirty: HashMap<(SlotNumber, u16), u64, FixedState>,
    newest: u64,
}

impl Outdated {
    /// No held slots, for a number of devices.
    pub fn new(devices: usize) -> Outdated {
        Outdated {
            only_journal: None,
            waiting: VecDeque::new(),
            slots_on: vec![0; devices],
            once_dirty: HashMap::default(),
            newest: 0,
        }
    }

    /// Sets the number of devices.
    pub fn set_devices(&mut self, devices: usize) {
        self.slots_on.resize(devices, 0);
    }

    /// Sets the device with the only journal: slots freed on other devices are held from now on. With `None`,
    /// no slots are held.
    pub fn set_only_journal(&mut self, device: Option<DeviceId>) {
        self.only_journal = device;
    }

    /// True if slots have to be held at all.
    pub fn is_needed(&self) -> bool {
        self.only_journal.is_some()
    }

    /// True if no slots are held.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes that a place holds no dirty copy any more, as of batch `newest`.
    pub fn note_clean(&mut self, newest: u64, place: Extra, space: &Space) {
        if !self.is_free(place.slot, space) {
            self.once_dirty.insert((place.slot, place.place), newest);
        }
    }

    /// True if a place lies on another device than the only journal.
    pub fn is_elsewhere(&self, place: &Extra, space: &Space) -> bool {
        !self.is_free(place.slot, space)
    }

    /// Returns the batch with which the dirty copy in a place became clean or left; `None` if the cache table
    /// cannot have such a copy any more.
    pub fn was_dirty(&self, place: &Extra) -> Option<u64> {
        self.once_dirty.get(&(place.slot, place.place)).copied()
    }

    /// Holds an unused block slot if a cache table may call the slot dirty. Returns true if held.
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

    /// Holds freed slots, as of batch `newest`, if an older image may name the slots. Returns the slots free
    /// at once.
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

    /// Returns the held slots free after a checkpoint with all batches up to `done`.
    pub fn release(&mut self, done: u64, space: &Space) -> Freed {
        self.once_dirty.retain(|_, newest| *newest > done);
        let mut all = Freed::default();
        while let Some((_, freed)) = self.waiting.pop_front_if(|(newest, _)| *newest <= done) {
            self.count(&freed.slots, space, -1);
            all.slots.extend(freed.slots);
            all.blocks.extend(freed.blocks);
        }
        all
    }

    /// All held slots, without block slots.
    pub fn slots(&self) -> impl Iterator<Item = &SlotNumber> {
        self.waiting.iter().flat_map(|(_, freed)| &freed.slots)
    }

    /// True if on some device at least as many slots are held as are free.
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
