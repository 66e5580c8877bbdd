//! Extent slots: the free slots of each device, and the choice of a slot.
//!
//! Extents keep their order on each device. An extent that comes to a device gets the slot next to its
//! neighbour, else a slot near the extent's *place*. Places spread the extents of the volume, in the order of
//! addresses, over a part of the device. The part is as large as the volume needs if all devices fill about
//! alike, and begins after the metadata. So a small volume stays near the start of the device, where disks
//! are fastest and seeks shortest. An old SSD without discard need not copy areas never used again. An extent
//! that leaves and comes back finds its old slot, unless the slot was taken meanwhile.
//!
//! A slot divided for extra copies has no address. Such a slot lies after the places of the extents, or else
//! as near to the end as possible, to displace few extents.
//!
//! A device that keeps addresses is simpler: an extent lies in the slot of its own number or not on the
//! device. Slots beyond the volume's extents serve content without an address.

use super::taken::Taken;
use braid_base::{DeviceId, ExtentId, Slot};
use braid_format::SlotNumber;
use braid_format::superblock::{DeviceEntry, DeviceState, Layout, Role, Superblock, TablePlace};

/// Extent slots of all devices.
pub(crate) struct Space {
    devices: Vec<Slots>,
    /// First slot and number of slots of each device: all that most requests look at.
    runs: Box<[(u32, u32)]>,
    /// Number of extents of the volume.
    extents: u32,
}

/// Divisor for additional places, a quarter: no policy fills all devices alike.
const SLACK: u64 = 4;

struct Slots {
    first: u32,
    count: u32,
    /// Free slots available to extents.
    free: u32,
    /// Used slots, including slots not available to extents.
    used: u32,
    /// Used slots with metadata.
    reserved: u32,
    taken: Taken,
    /// True if an extent can only lie in the slot of its own number.
    keeps_addresses: bool,
    /// Part with the places of the extents: first slot and number of slots.
    part: (u32, u32),
    /// True if slots are given out: false for a missing or failed device.
    open: bool,
}

impl Space {
    /// Slots of all devices; slots with metadata are taken.
    pub fn new(superblock: &Superblock) -> Space {
        let mut space = Space::of_devices(&superblock.devices, superblock.extents());
        let regions = superblock.regions.iter().map(|region| (region.device, region.offset, region.len));
        // A device table lies before or after the slots, unless the table was moved.
        let in_slots = |table: &&TablePlace| {
            let area = superblock.devices[table.device.index()].slots_area(superblock.extent_size);
            area.is_some_and(|area| area.contains(&table.offset))
        };
        let tables = superblock.tables.iter().filter(in_slots).map(|t| (t.device, t.offset, t.len));
        for (device, offset, len) in regions.chain(tables) {
            let (slots, entry) = (&mut space.devices[device.index()], &superblock.devices[device.index()]);
            let at = offset - entry.slots_offset;
            let end = (at + len).0.div_ceil(superblock.extent_size.0) as u32;
            for index in (at / superblock.extent_size) as u32..end {
                slots.claim(index);
            }
            slots.reserved = slots.used;
        }
        // A device without the data role holds metadata alone.
        for (slots, device) in space.devices.iter_mut().zip(&superblock.devices) {
            if !device.role.contains(Role::DATA) {
                for index in 0..slots.count {
                    slots.claim(index);
                }
                slots.reserved = slots.used;
            }
        }
        space.set_parts(superblock.copies);
        space
    }

    fn of_devices(devices: &[DeviceEntry], extents: u32) -> Space {
        let slots = devices.iter().map(|d| {
            let count = count(d);
            let is_adopted = d.layout == Layout::Adopted;
            let keeps_addresses = is_adopted || d.layout == Layout::Tail;
            Slots {
                first: d.first_slot,
                count,
                free: if is_adopted {
                    0
                } else if keeps_addresses {
                    count.min(extents)
                } else {
                    count
                },
                used: if is_adopted { count } else { 0 },
                reserved: 0,
                // Extents of an adopted disk never move: no slot is given out.
                taken: Taken::none_of(if is_adopted { 0 } else { count }),
                keeps_addresses,
                part: (0, 0),
                open: true,
            }
        });
        let runs = devices.iter().map(|d| (d.first_slot, count(d))).collect();
        let mut space = Space { devices: slots.collect(), runs, extents };
        space.set_parts(1);
        space
    }

    /// Lays out the places of the extents on each device, after the slots taken so far for metadata. The
    /// number of places is the device's share of all copies, by free slots, and a quarter more, but at most
    /// one for each extent.
    fn set_parts(&mut self, copies: u8) {
        let all: u64 = self.devices.iter().map(|slots| u64::from(slots.free)).sum();
        for slots in &mut self.devices {
            let all_copies = u64::from(self.extents) * u64::from(copies);
            let share = (all_copies * u64::from(slots.free)).div_ceil(all.max(1));
            match slots.keeps_addresses {
                true => slots.part = (0, self.extents.min(slots.count)),
                false => slots.set_part((share + share / SLACK).min(self.extents.into()) as u32),
            }
        }
    }

    /// Sets the slots of a new or removed device as the superblock describes, all free except for metadata.
    /// The device must hold nothing else.
    pub fn set_device(&mut self, superblock: &Superblock, device: DeviceId) {
        let Space { devices, runs, .. } = Space::new(superblock);
        for (i, fresh) in devices.into_iter().enumerate() {
            match self.devices.get_mut(i) {
                None => self.devices.push(fresh),
                Some(slots) if i == device.index() => *slots = fresh,
                // With more devices in the volume, the part on each is smaller.
                Some(slots) => slots.part = fresh.part,
            }
        }
        self.runs = runs;
    }

    /// Takes this slot of a device, if the slot exists and is free.
    pub fn take_at(&mut self, device: DeviceId, index: u32) -> Option<SlotNumber> {
        let slots = &mut self.devices[device.index()];
        (slots.open && slots.taken.is_free(index)).then(|| slots.give(index))
    }

    /// Takes the nearest free slot of a device; of two at equal distance, the later slot.
    pub fn take_near(&mut self, device: DeviceId, index: u32) -> Option<SlotNumber> {
        let slots = &mut self.devices[device.index()];
        if slots.free == 0 || !slots.open {
            return None;
        }
        let index = index.min(slots.count - 1);
        let nearest = match (slots.taken.last_up_to(index), slots.taken.first_from(index)) {
            (Some(before), Some(behind)) if index - before < behind - index => before,
            (before, behind) => behind.or(before)?,
        };
        Some(slots.give(nearest))
    }

    /// Takes a slot of a device for content without an address: a free slot after the places of extents, else
    /// the last free slot. A device that keeps addresses gives only slots after the places.
    pub fn take_aside(&mut self, device: DeviceId) -> Option<SlotNumber> {
        let slots = &mut self.devices[device.index()];
        if !slots.open {
            return None;
        }
        let (start, len) = slots.part;
        let index = match slots.taken.first_from(start + len) {
            None if !slots.keeps_addresses => slots.taken.last_up_to(slots.count.checked_sub(1)?),
            beyond => beyond,
        };
        Some(slots.give(index?))
    }

    /// Takes a free slot for metadata.
    pub fn reserve(&mut self, slot: Slot) {
        let slots = &mut self.devices[slot.device.index()];
        slots.give(slot.index);
        slots.reserved += 1;
    }

    /// True if a slot of a device exists and is free.
    pub fn is_free(&self, device: DeviceId, index: u32) -> bool {
        self.devices[device.index()].taken.is_free(index)
    }

    /// Number of slots of a device.
    pub fn slots(&self, device: DeviceId) -> u32 {
        self.devices[device.index()].count
    }

    /// Takes `count` adjacent free slots of a device for metadata. Returns the first slot. A device that
    /// keeps addresses gives the last such slots, but none before slot `addresses`: the volume may grow
    /// later.
    pub fn reserve_run(&mut self, device: DeviceId, count: u32, addresses: u32) -> Option<u32> {
        let slots = &mut self.devices[device.index()];
        let first = match slots.keeps_addresses {
            true => slots.taken.last_run(count, slots.part.1.max(addresses), slots.count),
            false => slots.taken.first_run(count, slots.count),
        }?;
        (first..first + count).for_each(|index| {
            slots.give(index);
        });
        slots.reserved += count;
        Some(first)
    }

    /// Gives back slots taken by [`Space::reserve_run`].
    pub fn release_run(&mut self, device: DeviceId, first: u32, count: u32) {
        self.devices[device.index()].reserved -= count;
        for index in first..first + count {
            self.release(self.number(Slot { device, index }).expect("slots of metadata exist"));
        }
    }

    /// Gives back the slots of a device that held metadata before and hold none now.
    pub fn release_metadata(&mut self, before: &Superblock, now: &Superblock, device: DeviceId) {
        let (before, now) = (Space::new(before), Space::new(now));
        let is_free = |space: &Space, index| space.devices[device.index()].taken.is_free(index);
        for index in 0..now.devices[device.index()].count {
            if !is_free(&before, index) && is_free(&now, index) {
                self.release_run(device, index, 1);
            }
        }
    }

    /// True if an extent can lie on this device only in the slot of its own number.
    pub fn keeps_addresses(&self, device: DeviceId) -> bool {
        self.devices[device.index()].keeps_addresses
    }

    /// Place of an extent on a device, as a slot index.
    pub fn place(&self, device: DeviceId, extent: ExtentId) -> u32 {
        let (start, len) = self.devices[device.index()].part;
        start + (u64::from(extent.0) * u64::from(len) / u64::from(self.extents.max(1))) as u32
    }

    /// Marks a slot as taken by the map. Returns false if the slot was taken before or does not exist.
    pub fn claim(&mut self, number: SlotNumber) -> bool {
        let Some(Slot { device, index }) = self.locate(number) else { return false };
        self.devices[device.index()].claim(index)
    }

    /// As [`Space::claim`], for an extent. Also returns false for another slot than the extent's own on a
    /// device that keeps addresses.
    pub fn claim_for(&mut self, extent: ExtentId, number: SlotNumber) -> bool {
        let misplaced = |slot: Slot| self.keeps_addresses(slot.device) && slot.index != extent.0;
        !self.locate(number).is_some_and(misplaced) && self.claim(number)
    }

    /// Sets whether slots of a device are given out from now on.
    pub fn set_open(&mut self, device: DeviceId, open: bool) {
        self.devices[device.index()].open = open;
    }

    /// Frees a slot. Panics if the slot is free already or does not exist.
    pub fn release(&mut self, number: SlotNumber) {
        let Slot { device, index } = self.locate(number).expect("a slot that is released exists");
        let slots = &mut self.devices[device.index()];
        assert!(!slots.taken.is_free(index), "slot {device}:{index} was free already");
        slots.taken.free(index);
        slots.used -= 1;
        slots.free += u32::from(slots.is_for_extents(index));
    }

    /// Device of a slot, and index on the device; `None` for a number without a slot.
    #[inline]
    pub fn locate(&self, number: SlotNumber) -> Option<Slot> {
        // By far most volumes have a few devices, but a simulation may have a thousand.
        let found = match self.runs.len() {
            ..=4 => self.runs.iter().rposition(|&(first, _)| first <= number.0)?,
            _ => self.runs.partition_point(|&(first, _)| first <= number.0).checked_sub(1)?,
        };
        let (first, count) = self.runs[found];
        let index = number.0 - first;
        (index < count).then_some(Slot { device: DeviceId(found as u16), index })
    }

    /// Number of a slot; `None` if the device has no such slot.
    pub fn number(&self, slot: Slot) -> Option<SlotNumber> {
        let device = &self.devices[slot.device.index()];
        (slot.index < device.count).then_some(SlotNumber(device.first + slot.index))
    }

    /// Free slots of a device, as far as slots are given out.
    pub fn free(&self, device: DeviceId) -> u32 {
        let slots = &self.devices[device.index()];
        if slots.open { slots.free } else { 0 }
    }

    /// Slots of a device taken for other content than metadata, including slots not free again yet.
    pub fn held(&self, device: DeviceId) -> u32 {
        let slots = &self.devices[device.index()];
        slots.used - slots.reserved
    }

    /// Slots of a device in use, metadata included.
    pub fn used(&self, device: DeviceId) -> u32 {
        self.devices[device.index()].used
    }
}

/// Number of a device's slots for the volume: 0 for a removed device.
fn count(device: &DeviceEntry) -> u32 {
    if device.state == DeviceState::Removed { 0 } else { device.slots }
}

impl Slots {
    /// Marks a slot as taken. Returns false if the slot was taken before.
    fn claim(&mut self, index: u32) -> bool {
        let free = self.taken.is_free(index);
        if free {
            self.give(index);
        }
        free
    }

    /// True if extents may lie in a slot.
    fn is_for_extents(&self, index: u32) -> bool {
        !self.keeps_addresses || index < self.part.1
    }

    /// Takes a free slot.
    fn give(&mut self, index: u32) -> SlotNumber {
        self.taken.take(index);
        self.used += 1;
        self.free -= u32::from(self.is_for_extents(index));
        SlotNumber(self.first + index)
    }

    /// Lays out at most `len` places after the slots taken so far.
    fn set_part(&mut self, len: u32) {
        let start = self.taken.first_from(0).unwrap_or(self.count);
        self.part = (start, len.min(self.count - start));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use braid_base::{Bytes, DeviceClass, Rng};
    use braid_format::Fingerprint;
    use braid_format::Uuid;
    use braid_format::superblock::{DeviceState, Layout};

    /// Devices with the given numbers of slots, without metadata.
    pub fn space(counts: &[u32], extents: u32) -> Space {
        let mut next = 1;
        let entries = counts.iter().map(|&slots| {
            next += slots;
            entry(slots, next - slots)
        });
        Space::of_devices(&entries.collect::<Vec<_>>(), extents)
    }

    fn entry(slots: u32, first_slot: u32) -> DeviceEntry {
        DeviceEntry {
            uuid: Uuid::default(),
            size: Bytes::ZERO,
            class: DeviceClass::Ssd,
            model: String::new(),
            slots,
            first_slot,
            slots_offset: Bytes::ZERO,
            state: DeviceState::Active,
            role: Role::DATA,
            layout: Layout::Head,
            in_step: 1,
            fingerprint: Fingerprint::default(),
        }
    }

    #[test]
    fn every_slot_is_given_once_and_no_more() {
        for extents in [10, 100, 1_000] {
            let mut space = space(&[70, 64, 1], extents);
            let mut rng = Rng::new(u64::from(extents));
            for (device, count) in [(0, 70), (1, 64), (2, 1)] {
                let device = DeviceId(device);
                let mut taken: Vec<u32> = std::iter::from_fn(|| match rng.below(3) {
                    0 => space.take_aside(device),
                    _ => space
                        .take_near(device, space.place(device, ExtentId(rng.below(extents.into()) as u32))),
                })
                .map(|number| number.0)
                .collect();
                taken.sort_unstable();
                taken.dedup();
                assert_eq!((taken.len(), space.free(device)), (count, 0));
                assert!(taken.iter().all(|&n| space.locate(SlotNumber(n)).unwrap().device == device));
                assert_eq!(space.take_at(device, 0), None);
            }
            space.release(SlotNumber(66));
            assert_eq!(space.take_near(DeviceId(0), 3), Some(SlotNumber(66)));
        }
    }

    #[test]
    fn the_nearest_free_slot_is_taken() {
        let (mut space, device) = (space(&[200], 200), DeviceId(0));
        let mut near = |index| space.take_near(device, index).unwrap().0 - 1;
        let taken: Vec<u32> =
            [100, 100, 100, 100, 0, 0, 199, 199, 5_000].into_iter().map(&mut near).collect();
        assert_eq!(taken, [100, 101, 99, 102, 0, 1, 199, 198, 197]);
    }

    #[test]
    fn small_volume_lies_at_device_start_with_cache_behind() {
        let (mut space, device) = (space(&[10_000], 100), DeviceId(0));
        (0..5).for_each(|index| assert!(space.claim(SlotNumber(1 + index))));
        space.devices[0].set_part(100);
        let places: Vec<u32> = (0..100).map(|e| space.place(device, ExtentId(e))).collect();
        assert_eq!(places, (5..105).collect::<Vec<_>>());
        let aside: Vec<u32> = (0..3).map(|_| space.take_aside(device).unwrap().0 - 1).collect();
        assert_eq!(aside, [105, 106, 107]);
    }

    #[test]
    fn volume_larger_than_device_spreads_over_whole_device() {
        let (mut space, device) = (space(&[100], 1_000), DeviceId(0));
        assert_eq!([0, 9, 10, 500, 999].map(|e| space.place(device, ExtentId(e))), [0, 0, 1, 50, 99]);
        assert_eq!(space.take_aside(device), Some(SlotNumber(100)));
    }

    #[test]
    fn address_keeping_device_has_fixed_slot_per_extent() {
        let mut entries = vec![entry(12, 1), entry(20, 13)];
        entries[1].layout = Layout::Tail;
        let mut space = Space::of_devices(&entries, 16);
        let device = DeviceId(1);
        assert_eq!((space.free(device), space.used(device)), (16, 0));
        // Metadata lies after the extents.
        assert!(space.claim(SlotNumber(13 + 19)));
        let aside: Vec<u32> =
            std::iter::from_fn(|| space.take_aside(device)).map(|slot| slot.0 - 13).collect();
        assert_eq!(aside, [16, 17, 18]);
        assert_eq!((space.free(device), space.used(device)), (16, 4));
        assert!(
            !space.claim_for(ExtentId(5), SlotNumber(13 + 6)) && space.claim_for(ExtentId(5), SlotNumber(18))
        );
        assert!(space.claim_for(ExtentId(6), SlotNumber(3)));
        assert_eq!(space.take_at(device, 5), None);
        space.release(SlotNumber(18));
        space.release(SlotNumber(13 + 17));
        assert_eq!((space.free(device), space.used(device)), (16, 3));
        assert_eq!(space.take_at(device, 5), Some(SlotNumber(18)));
    }

    #[test]
    fn no_slot_of_an_adopted_disk_or_of_a_device_without_data_is_given_out() {
        let mut entries = vec![entry(12, 1), entry(20, 13)];
        entries[1].layout = Layout::Adopted;
        let mut space = Space::of_devices(&entries, 20);
        let device = DeviceId(1);
        assert_eq!((space.free(device), space.used(device)), (0, 20));
        assert_eq!((space.take_aside(device), space.take_at(device, 3)), (None, None));
        assert_eq!(space.take_near(device, 3), None);
        assert_eq!(space.locate(SlotNumber(13 + 19)), Some(Slot { device, index: 19 }));
    }

    #[test]
    fn metadata_reserves_and_releases_adjacent_slots() {
        let (mut space, device) = (space(&[20], 20), DeviceId(0));
        [3, 9].into_iter().for_each(|index| assert!(space.claim(SlotNumber(1 + index))));
        assert_eq!(space.reserve_run(device, 11, 0), None);
        assert_eq!(space.reserve_run(device, 5, 0), Some(4));
        assert_eq!(space.reserve_run(device, 10, 0), Some(10));
        assert_eq!((space.held(device), space.free(device)), (2, 3));
        space.release_run(device, 4, 5);
        assert_eq!((space.held(device), space.free(device)), (2, 8));
        let mut entries = vec![entry(20, 1)];
        entries[0].layout = Layout::Tail;
        let mut space = Space::of_devices(&entries, 16);
        assert_eq!((space.reserve_run(device, 5, 0), space.reserve_run(device, 4, 17)), (None, None));
        assert_eq!((space.reserve_run(device, 2, 17), space.reserve_run(device, 2, 0)), (Some(18), Some(16)));
        assert_eq!((space.held(device), space.free(device)), (0, 16));
    }

    #[test]
    fn repeated_or_invalid_claim_of_slot_is_rejected() {
        let mut space = space(&[10, 10], 20);
        assert!(space.claim(SlotNumber(11)));
        assert!(!space.claim(SlotNumber(11)));
        assert!(!space.claim(SlotNumber(0)) && !space.claim(SlotNumber(21)));
    }
}
