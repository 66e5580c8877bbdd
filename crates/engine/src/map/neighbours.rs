//! Choice of an extent's slot on a device: next to its neighbours if possible, else between near neighbours,
//! else near the extent's place ([`super::space`]).
//!
//! An extent enters the map once its data has been written. Slots given out a moment before count as well
//! ([`Given`]): otherwise the layout would depend on whether a client writes extents one after the other or
//! several at once.

use super::{Map, Space, State};
use braid_base::{DeviceId, ExtentId};
use braid_format::SlotNumber;

/// Reason for an extent's arrival on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Written for the first time.
    New,
    /// Moved from another device, or given a second copy. The extent may have been here before.
    Moved,
}

/// State of an extent near the arriving extent.
enum Neighbour {
    /// A copy lies in this slot of the device.
    Here(u32),
    /// All copies lie on other devices.
    Elsewhere,
    Unmapped,
}

/// Distance of the search for neighbours: up to 16 devices may share a volume in stripes, and each keeps its
/// part in order.
const FAR: u32 = 16;

impl State {
    /// Takes a slot of a device for an extent. `None` if the volume is an adopted disk, with extents that
    /// never move, or if the device has no free slot to give.
    pub fn take_for(&mut self, extent: ExtentId, device: DeviceId, arrival: Arrival) -> Option<SlotNumber> {
        if self.map.is_of_adopted() {
            return None;
        }
        let slot = take(&mut self.space, &self.map, &self.given, extent, device, arrival)?;
        if arrival == Arrival::New {
            self.given.remember(extent, slot);
        }
        self.refresh(slot);
        Some(slot)
    }

    /// Takes a slot of a device for content without an address, such as cached blocks.
    pub fn take_aside(&mut self, device: DeviceId) -> Option<SlotNumber> {
        let slot = self.space.take_aside(device)?;
        self.refresh(slot);
        Some(slot)
    }

    /// Takes the first free slot of a device for a short time. On a device that keeps addresses, extents' own
    /// slots are left out.
    pub fn take_first(&mut self, device: DeviceId) -> Option<SlotNumber> {
        let slot = match self.space.keeps_addresses(device) {
            true => self.space.take_aside(device)?,
            false => self.space.take_near(device, 0)?,
        };
        self.refresh(slot);
        Some(slot)
    }
}

/// Slots recently given to new extents. A hint alone: later changes of these slots do not matter.
pub(crate) struct Given {
    last: [(ExtentId, SlotNumber); REMEMBERED],
    oldest: usize,
}

/// As many extents as a few clients write at the same time, or as in one large request.
const REMEMBERED: usize = 64;

impl Given {
    /// Empty list.
    pub fn new() -> Given {
        Given { last: [(ExtentId(0), SlotNumber::NONE); REMEMBERED], oldest: 0 }
    }

    fn remember(&mut self, extent: ExtentId, slot: SlotNumber) {
        self.last[self.oldest] = (extent, slot);
        self.oldest = (self.oldest + 1) % REMEMBERED;
    }

    /// Slots recently given to an extent.
    fn of(&self, extent: ExtentId) -> impl Iterator<Item = SlotNumber> {
        let is_of = move |(of, slot): &&(ExtentId, SlotNumber)| *of == extent && *slot != SlotNumber::NONE;
        self.last.iter().filter(is_of).map(|(_, slot)| *slot)
    }
}

fn take(
    space: &mut Space,
    map: &Map,
    given: &Given,
    extent: ExtentId,
    device: DeviceId,
    arrival: Arrival,
) -> Option<SlotNumber> {
    if space.keeps_addresses(device) {
        return space.take_at(device, extent.0);
    }
    let near = |other: Option<u32>| {
        other.filter(|&e| e < map.extents()).map(|e| neighbour(space, map, given, ExtentId(e), device))
    };
    let (mut before, mut behind) = (None, None);
    // True if all extents between lie on other devices.
    let (mut all_before_elsewhere, mut all_behind_elsewhere) = (true, true);
    for distance in 1..=FAR {
        if before.is_none() {
            match near(extent.0.checked_sub(distance)) {
                Some(Neighbour::Here(index)) => before = Some((distance, index)),
                Some(Neighbour::Elsewhere) => {}
                Some(Neighbour::Unmapped) | None => all_before_elsewhere = false,
            }
        }
        if behind.is_none() {
            match near(extent.0.checked_add(distance)) {
                Some(Neighbour::Here(index)) => behind = Some((distance, index)),
                Some(Neighbour::Elsewhere) => {}
                Some(Neighbour::Unmapped) | None => all_behind_elsewhere = false,
            }
        }
        if before.is_some() && (behind.is_some() || distance == 1) {
            break;
        }
    }
    // A device may get only some of the extents written in sequence: these lie side by side on the device.
    let is_beside = |distance, all_elsewhere| distance == 1 || arrival == Arrival::New && all_elsewhere;
    let next = before.filter(|&(distance, _)| is_beside(distance, all_before_elsewhere));
    let previous = behind.filter(|&(distance, _)| is_beside(distance, all_behind_elsewhere));
    let next = next.map(|(_, index)| index + 1);
    let previous = previous.and_then(|(_, index)| index.checked_sub(1));
    for beside in [next, previous].into_iter().flatten() {
        if let Some(slot) = space.take_at(device, beside) {
            return Some(slot);
        }
    }
    let wanted = match (before, behind) {
        (Some((a, first)), Some((b, last))) if first < last && last - first <= 2 * FAR => {
            first + (last - first) * a / (a + b)
        }
        // Neighbours with slots far apart are not near their places either. The arriving extent would spread
        // the disorder.
        _ => space.place(device, extent),
    };
    space.take_near(device, wanted)
}

fn neighbour(space: &Space, map: &Map, given: &Given, extent: ExtentId, device: DeviceId) -> Neighbour {
    let entry = map.get(extent);
    let on = |slot: SlotNumber| space.locate(slot).filter(|slot| slot.device == device);
    if entry.home != SlotNumber::NONE {
        return on(entry.home)
            .or_else(|| on(entry.second))
            .map_or(Neighbour::Elsewhere, |slot| Neighbour::Here(slot.index));
    }
    match given.of(extent).find_map(on) {
        Some(slot) => Neighbour::Here(slot.index),
        None if given.of(extent).next().is_some() => Neighbour::Elsewhere,
        None => Neighbour::Unmapped,
    }
}

#[cfg(test)]
mod tests {
    use super::super::space::tests::space;
    use super::*;
    use braid_base::Rng;
    use braid_format::map_page::Entry;

    const DISK: DeviceId = DeviceId(0);
    const SSD: DeviceId = DeviceId(1);

    /// Volume of extents with one copy on some devices.
    struct TestVolume {
        space: Space,
        map: Map,
        given: Given,
    }

    impl TestVolume {
        fn new(slots: &[u32], extents: u32) -> TestVolume {
            TestVolume { space: space(slots, extents), map: Map::new(extents, 1), given: Given::new() }
        }

        /// Gives the extent a slot of the device, and releases the old slot.
        fn put(&mut self, extent: u32, device: DeviceId, arrival: Arrival) {
            let extent = ExtentId(extent);
            let before = self.map.get(extent).home;
            let slot = take(&mut self.space, &self.map, &self.given, extent, device, arrival);
            let home = slot.expect("the device has a free slot");
            self.map.set(extent, Entry { home, ..Entry::default() });
            if before != SlotNumber::NONE {
                self.space.release(before);
            }
        }

        /// Slots of a device in use by extents, in the order of the extents' addresses.
        fn slots(&self, device: DeviceId) -> Vec<u32> {
            let slots = self.map.iter().filter_map(|(_, entry)| self.space.locate(entry.home));
            slots.filter(|slot| slot.device == device).map(|slot| slot.index).collect()
        }
    }

    /// Average distance between consecutive slots of a list.
    fn distance(slots: &[u32]) -> f64 {
        let all: u32 = slots.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        f64::from(all) / (slots.len() - 1) as f64
    }

    #[test]
    fn sequentially_written_extents_are_adjacent() {
        for slots in [600, 1_000, 5_000] {
            let mut volume = TestVolume::new(&[slots], 1_000);
            (0..600).for_each(|extent| volume.put(extent, DISK, Arrival::New));
            assert_eq!(volume.slots(DISK), (0..600).collect::<Vec<_>>());
        }
    }

    /// The bug: a client wrote several extents at once, and the extents before were not in the map yet. Each
    /// extent went to its own place. Reads of a disk with a tenth of the data took 1.5 times as long as after
    /// writes in sequence.
    #[test]
    fn concurrent_and_sequential_writes_give_same_slots() {
        let device_of = |extent: u32| if extent.is_multiple_of(5) { DISK } else { SSD };
        let slots = [1_usize, 8].map(|at_once| {
            let mut volume = TestVolume::new(&[1_000, 1_000], 1_000);
            for first in (0..600).step_by(at_once) {
                let taken = (first..first + at_once as u32).map(|extent| {
                    let TestVolume { space, map, given } = &mut volume;
                    let slot =
                        take(space, map, given, ExtentId(extent), device_of(extent), Arrival::New).unwrap();
                    given.remember(ExtentId(extent), slot);
                    (extent, slot)
                });
                for (extent, home) in taken.collect::<Vec<_>>() {
                    volume.map.set(ExtentId(extent), Entry { home, ..Entry::default() });
                }
            }
            volume.slots(DISK)
        });
        assert_eq!(distance(&slots[0]), 1.0);
        assert_eq!(slots[0], slots[1]);
    }

    #[test]
    fn stripes_lie_side_by_side_on_each_device() {
        let mut volume = TestVolume::new(&[1_000; 4], 1_000);
        (0..1_000).for_each(|extent| volume.put(extent, DeviceId((extent % 4) as u16), Arrival::New));
        for device in (0..4).map(DeviceId) {
            let slots = volume.slots(device);
            assert!(slots.len() == 250 && slots.windows(2).all(|pair| pair[1] == pair[0] + 1), "{slots:?}");
        }
    }

    /// The bug: stripes written from the end had gaps between them, and were read at half the rate.
    #[test]
    fn stripes_written_backwards_are_adjacent() {
        let mut volume = TestVolume::new(&[1_000; 4], 1_000);
        (0..800).rev().for_each(|extent| volume.put(extent, DeviceId((extent % 4) as u16), Arrival::New));
        for device in (0..4).map(DeviceId) {
            let slots = volume.slots(device);
            assert!(slots.len() == 200 && slots.windows(2).all(|pair| pair[1] == pair[0] + 1), "{slots:?}");
        }
    }

    #[test]
    fn randomly_written_extents_lie_in_address_order() {
        let mut volume = TestVolume::new(&[1_000], 1_000);
        let mut order: Vec<u32> = (0..1_000).collect();
        Rng::new(1).shuffle(&mut order);
        order.into_iter().for_each(|extent| volume.put(extent, DISK, Arrival::New));
        assert_eq!(volume.slots(DISK), (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn extents_return_to_same_slots_on_full_disk() {
        let mut volume = TestVolume::new(&[1_000, 1_000], 1_000);
        (0..1_000).for_each(|extent| volume.put(extent, DISK, Arrival::New));
        let mut rng = Rng::new(7);
        let mut hot: Vec<u32> = (0..1_000).filter(|_| rng.below(3) == 0).collect();
        for _ in 0..20 {
            rng.shuffle(&mut hot);
            hot.iter().for_each(|&extent| volume.put(extent, SSD, Arrival::Moved));
            assert!(volume.slots(DISK).is_sorted());
            rng.shuffle(&mut hot);
            hot.iter().for_each(|&extent| volume.put(extent, DISK, Arrival::Moved));
            assert_eq!(volume.slots(DISK), (0..1_000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn neighbours_stay_neighbours_while_extents_come_and_go_for_ever() {
        // A disk with room for all extents, and an SSD with room for a quarter: each is nearly full at times.
        let mut volume = TestVolume::new(&[1_000, 250], 1_000);
        (0..1_000).for_each(|extent| volume.put(extent, DISK, Arrival::New));
        let mut rng = Rng::new(3);
        for _ in 0..100_000 {
            let extent = rng.below(1_000) as u32;
            let home =
                volume.space.locate(volume.map.get(ExtentId(extent)).home).expect("it is mapped").device;
            let target = if home == DISK { SSD } else { DISK };
            if volume.space.free(target) > 0 && (target == DISK || rng.below(4) == 0) {
                volume.put(extent, target, Arrival::Moved);
            }
        }
        let (disk, ssd) = (volume.slots(DISK), volume.slots(SSD));
        assert_eq!(disk.len() + ssd.len(), 1_000);
        // With slots in random order, the distance is a third of the device. On a full device, a slot is
        // given wherever there is room.
        assert!(distance(&disk) < 3.0, "{} of {}", distance(&disk), disk.len());
        assert!(distance(&ssd) < 8.0, "{} of {}", distance(&ssd), ssd.len());
    }

    #[test]
    fn extent_returns_to_same_slot_within_stripe() {
        let mut volume = TestVolume::new(&[1_000; 4], 1_000);
        (0..1_000).for_each(|extent| volume.put(extent, DeviceId((extent % 4) as u16), Arrival::New));
        let before = volume.slots(DISK);
        for extent in (200..600).step_by(12) {
            volume.put(extent, SSD, Arrival::Moved);
            volume.put(extent, DISK, Arrival::Moved);
        }
        assert_eq!(volume.slots(DISK), before);
    }

    #[test]
    fn volume_much_smaller_than_device_stays_at_start() {
        let mut volume = TestVolume::new(&[100_000, 100_000], 1_000);
        let mut rng = Rng::new(5);
        for round in 0..20_000 {
            let extent = rng.below(1_000) as u32;
            let arrival = if round % 3 == 0 { Arrival::New } else { Arrival::Moved };
            volume.put(extent, DeviceId(rng.below(2) as u16), arrival);
        }
        for device in [DISK, SSD] {
            let last = volume.slots(device).into_iter().max();
            assert!(last < Some(1_100), "{last:?}");
        }
    }
}
