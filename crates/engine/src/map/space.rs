//! Slots: which are free on each device. A bit for each; the first free one is taken, so that extents written one after the
//! other lie in order, and what moves about stays near the device's start: where disks are fastest and seeks shortest, and
//! where an old SSD that learns of no discard need not copy what was never used again.

use braid_base::{DeviceId, Slot};
use braid_format::SlotNumber;
use braid_format::superblock::{DeviceEntry, Superblock};

/// The extent slots of all devices.
pub(crate) struct Space {
    devices: Vec<Slots>,
    /// The first slot of each device, and how many it has: all that most requests look at.
    runs: Box<[(u32, u32)]>,
}

struct Slots {
    first: u32,
    count: u32,
    free: u32,
    /// A bit for each slot: 1 is taken.
    taken: Vec<u64>,
    /// No word before this one has a free slot.
    next: usize,
    /// Whether slots are given out: not those of a device that is missing or failed.
    open: bool,
}

impl Space {
    /// The slots of all devices; those that metadata lies in are taken.
    pub fn new(superblock: &Superblock) -> Space {
        let mut space = Space::of_devices(&superblock.devices);
        for region in &superblock.regions {
            let (slots, device) =
                (&mut space.devices[region.device.index()], &superblock.devices[region.device.index()]);
            let at = region.offset - device.slots_offset;
            let end = (at + region.len).0.div_ceil(superblock.extent_size.0) as u32;
            for index in (at / superblock.extent_size) as u32..end {
                slots.claim(index);
            }
        }
        space
    }

    fn of_devices(devices: &[DeviceEntry]) -> Space {
        let slots = devices.iter().map(|d| {
            let words = d.slots.div_ceil(64) as usize;
            let mut taken = vec![0; words];
            // Bits beyond the last slot are taken for ever.
            if let (Some(last), over @ 1..) = (taken.last_mut(), d.slots % 64) {
                *last = u64::MAX << over;
            }
            Slots { first: d.first_slot, count: d.slots, free: d.slots, taken, next: 0, open: true }
        });
        let runs = devices.iter().map(|d| (d.first_slot, d.slots)).collect();
        Space { devices: slots.collect(), runs }
    }

    /// Takes a free slot of a device.
    pub fn take(&mut self, device: DeviceId) -> Option<SlotNumber> {
        let slots = &mut self.devices[device.index()];
        if slots.free == 0 || !slots.open {
            return None;
        }
        let word = (slots.next..slots.taken.len()).find(|&w| slots.taken[w] != u64::MAX)?;
        let bit = slots.taken[word].trailing_ones();
        slots.taken[word] |= 1 << bit;
        slots.next = word;
        slots.free -= 1;
        Some(SlotNumber(slots.first + word as u32 * 64 + bit))
    }

    /// Marks a slot as taken, as the map says. False where it was taken before, or there is no such slot.
    pub fn claim(&mut self, number: SlotNumber) -> bool {
        let Some(Slot { device, index }) = self.locate(number) else { return false };
        self.devices[device.index()].claim(index)
    }

    /// Whether slots of a device are given out from now on.
    pub fn set_open(&mut self, device: DeviceId, open: bool) {
        self.devices[device.index()].open = open;
    }

    /// Gives a slot back.
    pub fn release(&mut self, number: SlotNumber) {
        let Slot { device, index } = self.locate(number).expect("a slot that is released exists");
        let slots = &mut self.devices[device.index()];
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        assert!(slots.taken[word] & bit != 0, "slot {device}:{index} was free already");
        slots.taken[word] &= !bit;
        slots.next = slots.next.min(word);
        slots.free += 1;
    }

    /// Which device a slot lies on, and where there; none for a number that is no slot's.
    #[inline]
    pub fn locate(&self, number: SlotNumber) -> Option<Slot> {
        // By far the most volumes have a few devices, but a simulation may have a thousand.
        let found = match self.runs.len() {
            ..=4 => self.runs.iter().rposition(|&(first, _)| first <= number.0)?,
            _ => self.runs.partition_point(|&(first, _)| first <= number.0).checked_sub(1)?,
        };
        let (first, count) = self.runs[found];
        let index = number.0 - first;
        (index < count).then_some(Slot { device: DeviceId(found as u16), index })
    }

    /// The number of a slot; none if the device has no such slot.
    pub fn number(&self, slot: Slot) -> Option<SlotNumber> {
        let device = &self.devices[slot.device.index()];
        (slot.index < device.count).then_some(SlotNumber(device.first + slot.index))
    }

    /// Slots of a device that can be taken.
    pub fn free(&self, device: DeviceId) -> u32 {
        let slots = &self.devices[device.index()];
        if slots.open { slots.free } else { 0 }
    }

    /// Slots of a device that something uses, metadata included.
    pub fn used(&self, device: DeviceId) -> u32 {
        let slots = &self.devices[device.index()];
        slots.count - slots.free
    }
}

impl Slots {
    fn claim(&mut self, index: u32) -> bool {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        let free = self.taken[word] & bit == 0;
        self.taken[word] |= bit;
        self.free -= u32::from(free);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Bytes, DeviceClass};
    use braid_format::Uuid;
    use braid_format::superblock::{DeviceState, Layout, Role};

    fn space(counts: &[u32]) -> Space {
        let mut first = 1;
        let entries = counts.iter().map(|&slots| {
            let entry = DeviceEntry {
                uuid: Uuid::default(),
                size: Bytes::ZERO,
                class: DeviceClass::Ssd,
                model: String::new(),
                slots,
                first_slot: first,
                slots_offset: Bytes::ZERO,
                state: DeviceState::Active,
                role: Role::DATA,
                layout: Layout::Head,
                in_step: 1,
            };
            first += slots;
            entry
        });
        Space::of_devices(&entries.collect::<Vec<_>>())
    }

    #[test]
    fn every_slot_is_given_once_and_no_more() {
        let mut space = space(&[70, 64, 1]);
        for (device, count) in [(0, 70), (1, 64), (2, 1)] {
            let device = DeviceId(device);
            let mut taken: Vec<u32> = std::iter::from_fn(|| space.take(device)).map(|n| n.0).collect();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!((taken.len(), space.free(device)), (count, 0));
            assert!(taken.iter().all(|&n| space.locate(SlotNumber(n)).unwrap().device == device));
        }
        space.release(SlotNumber(66));
        assert_eq!(space.take(DeviceId(0)), Some(SlotNumber(66)));
    }

    #[test]
    fn the_first_free_slot_is_taken() {
        let (mut space, device) = (space(&[200]), DeviceId(0));
        let first: Vec<u32> = (0..150).map(|_| space.take(device).unwrap().0).collect();
        assert_eq!(first, (1..151).collect::<Vec<_>>());
        [140, 7, 70].into_iter().for_each(|number| space.release(SlotNumber(number)));
        let next: Vec<u32> = (0..4).map(|_| space.take(device).unwrap().0).collect();
        assert_eq!(next, [7, 70, 140, 151]);
    }

    #[test]
    fn a_slot_that_is_claimed_twice_or_does_not_exist_is_noticed() {
        let mut space = space(&[10, 10]);
        assert!(space.claim(SlotNumber(11)));
        assert!(!space.claim(SlotNumber(11)));
        assert!(!space.claim(SlotNumber(0)) && !space.claim(SlotNumber(21)));
    }
}
