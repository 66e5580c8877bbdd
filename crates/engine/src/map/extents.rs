//! The map: required copies by extent. Eight bytes of memory for each extent with one copy.

use braid_base::ExtentId;
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Where the required copies of every extent lie. Changed only through [`crate::map::State`], which keeps what the
/// journal has to record.
pub(crate) struct Map {
    /// Home in the low half, valid parts above it.
    homes: Vec<u64>,
    /// Second copies and what of them is behind: sparse, for most volumes require one copy.
    seconds: HashMap<ExtentId, (SlotNumber, u16), FixedState>,
    mapped: u32,
}

impl Map {
    pub fn new(extents: u32) -> Map {
        Map { homes: vec![0; extents as usize], seconds: HashMap::default(), mapped: 0 }
    }

    pub fn extents(&self) -> u32 {
        self.homes.len() as u32
    }

    /// Extents that have a home.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    #[inline]
    pub fn get(&self, extent: ExtentId) -> Entry {
        let word = self.homes[extent.index()];
        let (home, valid) = (SlotNumber(word as u32), (word >> 32) as u16);
        if self.seconds.is_empty() {
            return Entry { home, valid, ..Entry::default() };
        }
        let (second, behind) = self.seconds.get(&extent).copied().unwrap_or_default();
        Entry { home, valid, second, behind }
    }

    pub fn set(&mut self, extent: ExtentId, entry: Entry) {
        let word = &mut self.homes[extent.index()];
        self.mapped -= u32::from(*word as u32 != 0);
        self.mapped += u32::from(entry.home != SlotNumber::NONE);
        *word = u64::from(entry.home.0) | u64::from(entry.valid) << 32;
        if entry.second != SlotNumber::NONE {
            self.seconds.insert(extent, (entry.second, entry.behind));
        } else if !self.seconds.is_empty() {
            self.seconds.remove(&extent);
        }
    }

    /// Every extent that has a home.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, Entry)> {
        (0..self.extents())
            .map(ExtentId)
            .map(|e| (e, self.get(e)))
            .filter(|(_, entry)| entry.home != SlotNumber::NONE)
    }

    /// Bytes of memory that the map takes.
    pub fn memory(&self) -> usize {
        self.homes.capacity() * 8 + self.seconds.capacity() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_with_one_copy_takes_eight_bytes() {
        let mut map = Map::new(100_000);
        for extent in (0..100_000).map(ExtentId) {
            map.set(extent, Entry { home: SlotNumber(extent.0 + 1), valid: 7, ..Entry::default() });
        }
        assert_eq!((map.memory(), map.mapped()), (800_000, 100_000));
        let with_second = Entry { home: SlotNumber(1), valid: 1, second: SlotNumber(9), behind: 1 };
        map.set(ExtentId(5), with_second);
        assert_eq!(map.get(ExtentId(5)), with_second);
        map.set(ExtentId(5), Entry::default());
        assert_eq!((map.get(ExtentId(5)), map.mapped()), (Entry::default(), 99_999));
    }
}
