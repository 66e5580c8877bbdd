//! Required copies of the extents. Memory: eight bytes for each extent with one copy, twelve with two, none
//! on an adopted disk.

use braid_base::ExtentId;
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Places of the required copies of every extent. Only [`super::State`] changes the map, and notes each
/// change for the journal.
pub(crate) struct Map {
    /// By extent: home in the low half, above it the valid parts, then the number of blocks with an extra
    /// copy, and at the top the flag for partly lost extents.
    homes: Vec<u64>,
    /// Second copies, by extent; empty for a volume with one required copy.
    seconds: Vec<u32>,
    /// Chunks of [`CHUNK`] extents with a home at any time. The memory of other chunks is never read.
    used: Vec<bool>,
    mapped: u32,
    lost: u32,
    /// Extents with one copy in a volume that requires two.
    single: u32,
    /// Set for an adopted disk: the homes are computed, not stored.
    own: Option<OwnAddresses>,
}

/// Map of an adopted disk: each extent lies in the slot of its own number, always valid.
struct OwnAddresses {
    first: SlotNumber,
    extents: u32,
    /// All parts of an extent.
    valid: u16,
    /// Number of blocks with an extra copy, by extent; no entry for zero.
    extras: HashMap<ExtentId, u16, FixedState>,
}

/// Counter unit for one extra copy: an extent has at most 16,384 blocks.
const EXTRA: u64 = 1 << 48;
/// Extents with their homes in one memory page of the machine.
const CHUNK: u32 = 512;
/// Flag: the parts that are not valid are lost.
const PARTLY_LOST: u64 = 1 << 63;

impl Map {
    pub fn new(extents: u32, copies: u8) -> Map {
        let seconds = if copies > 1 { vec![0; extents as usize] } else { Vec::new() };
        // Allocated zeros take no memory until the first access.
        let (homes, used) = (vec![0; extents as usize], vec![false; extents.div_ceil(CHUNK) as usize]);
        Map { homes, seconds, used, mapped: 0, lost: 0, single: 0, own: None }
    }

    /// Map of an adopted disk from its first slot; all parts of the extents are valid.
    pub fn of_adopted(first: SlotNumber, extents: u32, valid: u16) -> Map {
        let own = OwnAddresses { first, extents, valid, extras: HashMap::default() };
        let (homes, seconds, used) = (Vec::new(), Vec::new(), Vec::new());
        Map { homes, seconds, used, mapped: extents, lost: 0, single: 0, own: Some(own) }
    }

    /// True if every extent lies at its own address on an adopted disk, and stays there.
    #[inline]
    pub fn is_of_adopted(&self) -> bool {
        self.own.is_some()
    }

    pub fn extents(&self) -> u32 {
        self.own.as_ref().map_or(self.homes.len() as u32, |own| own.extents)
    }

    /// Number of extents with a home.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Number of extents whose second copy is required and does not exist.
    pub fn single(&self) -> u32 {
        self.single
    }

    /// Extents with all bytes lost.
    pub fn lost(&self) -> Vec<ExtentId> {
        match self.lost {
            0 => Vec::new(),
            _ => self.iter().filter(|(_, e)| e.home == SlotNumber::LOST).map(|(extent, _)| extent).collect(),
        }
    }

    /// Extents with some parts lost.
    pub fn partly_lost(&self) -> Vec<ExtentId> {
        match self.lost {
            0 => Vec::new(),
            _ => self.iter().filter(|(_, entry)| entry.partly_lost).map(|(extent, _)| extent).collect(),
        }
    }

    #[inline]
    pub fn get(&self, extent: ExtentId) -> Entry {
        if let Some(own) = &self.own {
            let home = SlotNumber(own.first.0 + extent.0);
            return Entry { home, valid: own.valid, second: SlotNumber::NONE, partly_lost: false };
        }
        let word = self.homes[extent.index()];
        let second = self.seconds.get(extent.index()).map_or(SlotNumber::NONE, |&slot| SlotNumber(slot));
        let partly_lost = word & PARTLY_LOST != 0;
        Entry { home: SlotNumber(word as u32), valid: (word >> 32) as u16, second, partly_lost }
    }

    /// Required copies of an extent, and its number of blocks with an extra copy. Reads no memory of a chunk
    /// that never had a home.
    pub fn peek(&self, extent: ExtentId) -> (Entry, u32) {
        if let Some(own) = &self.own {
            return (self.get(extent), own.extras.get(&extent).map_or(0, |&count| u32::from(count)));
        }
        if !self.used[(extent.0 / CHUNK) as usize] {
            return (Entry::default(), 0);
        }
        let extras = (self.homes[extent.index()] & !PARTLY_LOST) / EXTRA;
        (self.get(extent), extras as u32)
    }

    /// Sets the required copies of an extent. The count of extra copies stays. Panics on an adopted disk.
    pub fn set(&mut self, extent: ExtentId, entry: Entry) {
        assert!(!self.is_of_adopted(), "no home of an adopted disk moves: {extent:?} to {entry:?}");
        self.used[(extent.0 / CHUNK) as usize] |= entry.home != SlotNumber::NONE;
        let word = &mut self.homes[extent.index()];
        let before = SlotNumber(*word as u32);
        self.mapped -= u32::from(*word as u32 != 0);
        self.mapped += u32::from(entry.home != SlotNumber::NONE);
        let is_lost = |home: u32, partly_lost: bool| partly_lost || home == SlotNumber::LOST.0;
        self.lost -= u32::from(is_lost(*word as u32, *word & PARTLY_LOST != 0));
        self.lost += u32::from(is_lost(entry.home.0, entry.partly_lost));
        let mark = if entry.partly_lost { PARTLY_LOST } else { 0 };
        let extras = *word & !(EXTRA - 1) & !PARTLY_LOST;
        *word = extras | u64::from(entry.home.0) | u64::from(entry.valid) << 32 | mark;
        match self.seconds.get_mut(extent.index()) {
            Some(second) => {
                let is_single = |home: SlotNumber, second: SlotNumber| {
                    !matches!(home, SlotNumber::NONE | SlotNumber::LOST) && second == SlotNumber::NONE
                };
                self.single -= u32::from(is_single(before, SlotNumber(*second)));
                self.single += u32::from(is_single(entry.home, entry.second));
                *second = entry.second.0;
            }
            None => assert_eq!(entry.second, SlotNumber::NONE, "a volume of one copy has no second ones"),
        }
    }

    /// True if some block of an extent has an extra copy.
    #[inline]
    pub fn has_extras(&self, extent: ExtentId) -> bool {
        match &self.own {
            None => self.homes[extent.index()] & !PARTLY_LOST >= EXTRA,
            Some(own) => !own.extras.is_empty() && own.extras.contains_key(&extent),
        }
    }

    /// Counts one more block with an extra copy.
    pub fn add_extra(&mut self, extent: ExtentId) {
        match &mut self.own {
            None => self.homes[extent.index()] += EXTRA,
            Some(own) => *own.extras.entry(extent).or_default() += 1,
        }
    }

    /// Counts one block less with an extra copy.
    pub fn remove_extra(&mut self, extent: ExtentId) {
        let Some(own) = &mut self.own else {
            self.homes[extent.index()] -= EXTRA;
            return;
        };
        let count = own.extras.get_mut(&extent).expect("an extra copy that goes was counted");
        *count -= 1;
        if *count == 0 {
            own.extras.remove(&extent);
        }
    }

    /// Every extent with a stored home; none on an adopted disk.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, Entry)> {
        let chunks = (0..).zip(&self.used).filter(|(_, is_used)| **is_used).map(|(chunk, _)| chunk);
        let extents = |chunk: u32| chunk * CHUNK..(chunk * CHUNK + CHUNK).min(self.homes.len() as u32);
        let all = chunks.flat_map(extents).map(ExtentId).map(|e| (e, self.get(e)));
        all.filter(|(_, entry)| entry.home != SlotNumber::NONE)
    }

    /// Bytes of memory used by the map.
    pub fn memory(&self) -> usize {
        let of_own = |own: &OwnAddresses| own.extras.capacity() * (size_of::<(ExtentId, u16)>() + 1);
        self.homes.capacity() * 8 + self.seconds.capacity() * 4 + self.own.as_ref().map_or(0, of_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncached_extents_of_adopted_disk_take_no_memory() {
        let mut map = Map::of_adopted(SlotNumber(9), 1 << 30, 0xffff);
        assert_eq!((map.memory(), map.extents(), map.mapped()), (0, 1 << 30, 1 << 30));
        let last = ExtentId((1 << 30) - 1);
        assert_eq!(
            map.get(last),
            Entry { home: SlotNumber(8 + (1 << 30)), valid: 0xffff, ..Entry::default() }
        );
        map.add_extra(last);
        map.add_extra(last);
        map.remove_extra(last);
        assert!(map.has_extras(last) && !map.has_extras(ExtentId(0)));
        assert_eq!(map.peek(last), (map.get(last), 1));
        map.remove_extra(last);
        assert!(!map.has_extras(last));
        assert_eq!((map.peek(last).1, map.iter().count()), (0, 0));
    }

    #[test]
    fn extent_takes_8_bytes_or_12_with_second_copy() {
        for (copies, memory) in [(1, 800_000), (2, 1_200_000)] {
            let mut map = Map::new(100_000, copies);
            for extent in (0..100_000).map(ExtentId) {
                map.set(extent, Entry { home: SlotNumber(extent.0 + 1), valid: 7, ..Entry::default() });
            }
            assert_eq!((map.memory(), map.mapped()), (memory, 100_000));
        }
        let mut map = Map::new(10, 2);
        let with_second = Entry { home: SlotNumber(1), valid: 1, second: SlotNumber(9), partly_lost: false };
        map.set(ExtentId(5), with_second);
        map.add_extra(ExtentId(5));
        map.add_extra(ExtentId(5));
        map.remove_extra(ExtentId(5));
        assert_eq!((map.get(ExtentId(5)), map.has_extras(ExtentId(5))), (with_second, true));
        map.set(ExtentId(6), Entry { second: SlotNumber::NONE, ..with_second });
        map.set(ExtentId(7), Entry { home: SlotNumber::LOST, ..Entry::default() });
        assert_eq!((map.single(), map.lost()), (1, vec![ExtentId(7)]));
        map.set(ExtentId(6), Entry { second: SlotNumber(8), ..with_second });
        assert_eq!(map.single(), 0);
        map.set(ExtentId(6), Entry::default());
        map.set(ExtentId(7), Entry::default());
        map.set(ExtentId(5), Entry::default());
        assert_eq!((map.get(ExtentId(5)), map.mapped()), (Entry::default(), 0));
        assert!(map.has_extras(ExtentId(5)), "the count changes by extra copies alone");
        map.remove_extra(ExtentId(5));
        assert!(!map.has_extras(ExtentId(5)));
        let partly = Entry { partly_lost: true, ..with_second };
        map.set(ExtentId(5), partly);
        assert!(map.get(ExtentId(5)) == partly && !map.has_extras(ExtentId(5)));
        map.add_extra(ExtentId(5));
        assert_eq!((map.get(ExtentId(5)), map.has_extras(ExtentId(5))), (partly, true));
        assert_eq!(map.peek(ExtentId(5)), (partly, 1));
        assert_eq!((map.partly_lost(), map.lost()), (vec![ExtentId(5)], vec![]));
        map.set(ExtentId(5), with_second);
        assert_eq!(map.partly_lost(), []);
    }
}
