//! The extents' required copies. Eight bytes of memory for each extent with one copy, twelve with two.

use braid_base::ExtentId;
use braid_format::SlotNumber;
use braid_format::map_page::Entry;

/// Where the required copies of every extent lie. Changed only through [`super::State`], which keeps what the journal
/// has to record.
pub(crate) struct Map {
    /// Home in the low half, above it the valid parts, above these how many blocks have an extra copy.
    homes: Vec<u64>,
    /// Second copies, by extent; empty for a volume that requires one copy.
    seconds: Vec<u32>,
    mapped: u32,
    lost: u32,
}

/// One extra copy: an extent has at most 16,384 blocks.
const EXTRA: u64 = 1 << 48;

impl Map {
    pub fn new(extents: u32, copies: u8) -> Map {
        let seconds = if copies > 1 { vec![0; extents as usize] } else { Vec::new() };
        Map { homes: vec![0; extents as usize], seconds, mapped: 0, lost: 0 }
    }

    pub fn extents(&self) -> u32 {
        self.homes.len() as u32
    }

    /// Extents that have a home.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Extents whose bytes are lost.
    pub fn lost(&self) -> Vec<ExtentId> {
        match self.lost {
            0 => Vec::new(),
            _ => self.iter().filter(|(_, e)| e.home == SlotNumber::LOST).map(|(extent, _)| extent).collect(),
        }
    }

    #[inline]
    pub fn get(&self, extent: ExtentId) -> Entry {
        let word = self.homes[extent.index()];
        let second = self.seconds.get(extent.index()).map_or(SlotNumber::NONE, |&slot| SlotNumber(slot));
        Entry { home: SlotNumber(word as u32), valid: (word >> 32) as u16, second }
    }

    /// Sets the required copies of an extent; the count of extra copies stays.
    pub fn set(&mut self, extent: ExtentId, entry: Entry) {
        let word = &mut self.homes[extent.index()];
        self.mapped -= u32::from(*word as u32 != 0);
        self.mapped += u32::from(entry.home != SlotNumber::NONE);
        self.lost -= u32::from(*word as u32 == SlotNumber::LOST.0);
        self.lost += u32::from(entry.home == SlotNumber::LOST);
        *word = *word & !(EXTRA - 1) | u64::from(entry.home.0) | u64::from(entry.valid) << 32;
        match self.seconds.get_mut(extent.index()) {
            Some(second) => *second = entry.second.0,
            None => assert_eq!(entry.second, SlotNumber::NONE, "a volume of one copy has no second ones"),
        }
    }

    /// Whether some block of an extent has an extra copy.
    #[inline]
    pub fn has_extras(&self, extent: ExtentId) -> bool {
        self.homes[extent.index()] >= EXTRA
    }

    /// One block more of an extent has an extra copy.
    pub fn add_extra(&mut self, extent: ExtentId) {
        self.homes[extent.index()] += EXTRA;
    }

    /// One block less of an extent has an extra copy.
    pub fn remove_extra(&mut self, extent: ExtentId) {
        self.homes[extent.index()] -= EXTRA;
    }

    /// Every extent that has a home.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, Entry)> {
        let all = (0..self.extents()).map(ExtentId).map(|e| (e, self.get(e)));
        all.filter(|(_, entry)| entry.home != SlotNumber::NONE)
    }

    /// Bytes of memory that the map takes.
    pub fn memory(&self) -> usize {
        self.homes.capacity() * 8 + self.seconds.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_takes_eight_bytes_with_one_copy_and_twelve_with_two() {
        for (copies, memory) in [(1, 800_000), (2, 1_200_000)] {
            let mut map = Map::new(100_000, copies);
            for extent in (0..100_000).map(ExtentId) {
                map.set(extent, Entry { home: SlotNumber(extent.0 + 1), valid: 7, ..Entry::default() });
            }
            assert_eq!((map.memory(), map.mapped()), (memory, 100_000));
        }
        let mut map = Map::new(10, 2);
        let with_second = Entry { home: SlotNumber(1), valid: 1, second: SlotNumber(9) };
        map.set(ExtentId(5), with_second);
        map.add_extra(ExtentId(5));
        map.add_extra(ExtentId(5));
        map.remove_extra(ExtentId(5));
        assert_eq!((map.get(ExtentId(5)), map.has_extras(ExtentId(5))), (with_second, true));
        map.set(ExtentId(5), Entry::default());
        assert_eq!((map.get(ExtentId(5)), map.mapped()), (Entry::default(), 0));
        assert!(map.has_extras(ExtentId(5)), "the count changes by extra copies alone");
        map.remove_extra(ExtentId(5));
        assert!(!map.has_extras(ExtentId(5)));
    }
}
