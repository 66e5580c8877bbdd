//! The cache tables: which of their pages are older than what the volume knows, and which were ever written.
//!
//! A device has one if it may hold extra copies. Its entries are numbered by cache slot (see `extra_page.rs`
//! of the format), so where an entry lies follows from the block slot alone. An entry changes with a commit,
//! and the next checkpoint writes its page.

use braid_base::{DeviceId, Slot};
use braid_format::extra_directory::{self, Content};
use braid_format::extra_page::SLOTS_PER_PAGE;
use braid_format::layout;
use braid_format::superblock::{RegionKind, Superblock};
use std::collections::BTreeSet;

/// The tables of all devices.
pub(crate) struct CacheTables {
    /// By device; none if it may hold no extra copies.
    tables: Vec<Option<Table>>,
    /// Block slots of an extent slot.
    places: u64,
    /// Pages of entries that are older than the journal says.
    stale: BTreeSet<CachePage>,
    /// Pages of directories that are older than the pages of entries.
    stale_directories: BTreeSet<CachePage>,
}

/// A page of a device's table: of its entries, or of its directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CachePage {
    pub device: DeviceId,
    pub page: u32,
}

struct Table {
    /// What the directory says or is to say of each page of entries.
    contents: Vec<Content>,
}

impl CacheTables {
    pub fn new(superblock: &Superblock) -> CacheTables {
        let has_table = |device: DeviceId| {
            superblock.regions.iter().any(|r| r.kind == RegionKind::CacheTable && r.device == device)
        };
        let tables = (0..).zip(&superblock.devices).map(|(id, entry)| {
            let (extent_size, block_size) = (superblock.extent_size, superblock.block_size);
            has_table(DeviceId(id)).then(|| {
                let pages = layout::cache_table_pages(entry.slots, extent_size, block_size);
                Table { contents: vec![Content::Unwritten; pages as usize] }
            })
        });
        CacheTables {
            tables: tables.collect(),
            places: superblock.extent_size / superblock.block_size,
            stale: BTreeSet::new(),
            stale_directories: BTreeSet::new(),
        }
    }

    /// A device has the table that the superblock says now, in which nothing was written yet, or none.
    pub fn set_device(&mut self, superblock: &Superblock, device: DeviceId) {
        let CacheTables { mut tables, .. } = CacheTables::new(superblock);
        self.stale.retain(|page| page.device != device);
        self.stale_directories.retain(|page| page.device != device);
        self.tables.resize_with(tables.len(), || None);
        self.tables[device.index()] = tables[device.index()].take();
    }

    /// Whether a device has a table, and so may hold extra copies.
    pub fn has(&self, device: DeviceId) -> bool {
        self.tables[device.index()].is_some()
    }

    /// Whether all block slots of an extent slot have entries.
    pub fn describes(&self, slot: Slot) -> bool {
        let last = (u64::from(slot.index) + 1) * self.places - 1;
        last / u64::from(SLOTS_PER_PAGE) < u64::from(self.pages(slot.device))
    }

    /// Whether a block slot, as bytes from a device name it, is one and has an entry.
    pub fn describes_place(&self, slot: Slot, place: u16) -> bool {
        self.has(slot.device) && u64::from(place) < self.places && self.describes(slot)
    }

    /// Pages of entries of a device's table; 0 if it has none.
    pub fn pages(&self, device: DeviceId) -> u32 {
        self.tables[device.index()].as_ref().map_or(0, |table| table.contents.len() as u32)
    }

    /// Pages of its directory.
    pub fn directory_pages(&self, device: DeviceId) -> u32 {
        extra_directory::pages(self.pages(device))
    }

    /// The page that describes a block slot, of a device that has a table.
    pub fn page_of(&self, slot: Slot, place: u16) -> CachePage {
        let cache_slot = u64::from(slot.index) * self.places + u64::from(place);
        CachePage { device: slot.device, page: (cache_slot / u64::from(SLOTS_PER_PAGE)) as u32 }
    }

    /// The block slots that a page describes, by their places in it: the index of the extent slot on the
    /// device, and the place there.
    pub fn slots_of(&self, page: u32) -> impl Iterator<Item = (u32, u16)> {
        let (first, places) = (u64::from(page) * u64::from(SLOTS_PER_PAGE), self.places);
        (first..first + u64::from(SLOTS_PER_PAGE)).map(move |n| ((n / places) as u32, (n % places) as u16))
    }

    /// What the directory says of a page.
    pub fn content(&self, page: CachePage) -> Content {
        let table = self.tables[page.device.index()].as_ref();
        table.and_then(|table| table.contents.get(page.page as usize)).copied().unwrap_or_default()
    }

    /// A page of entries is older than the journal says.
    pub fn mark_stale(&mut self, page: CachePage) {
        self.stale.insert(page);
    }

    /// The directory says this of a page: as it was read, or since the page was written. Whether that is
    /// news.
    pub fn set_content(&mut self, page: CachePage, content: Content) -> bool {
        let table = self.tables[page.device.index()].as_mut();
        let known = table.and_then(|table| table.contents.get_mut(page.page as usize));
        known.is_some_and(|known| std::mem::replace(known, content) != content)
    }

    /// The page of the directory that describes a page of entries is older than that.
    pub fn mark_directory_stale(&mut self, page: CachePage) {
        let CachePage { device, page } = page;
        self.stale_directories.insert(CachePage { device, page: page / extra_directory::PAGES_PER_PAGE });
    }

    /// Nothing that a device's table says counts: its directory is written anew, with nothing in it.
    pub fn forget(&mut self, device: DeviceId) {
        let Some(table) = &mut self.tables[device.index()] else { return };
        table.contents.fill(Content::Unwritten);
        self.stale.retain(|page| page.device != device);
        let directory = 0..self.directory_pages(device);
        self.stale_directories.extend(directory.map(|page| CachePage { device, page }));
    }

    /// All that was ever written is written again.
    pub fn mark_all_stale(&mut self) {
        for device in (0..self.tables.len() as u16).map(DeviceId) {
            for page in (0..self.pages(device)).map(|page| CachePage { device, page }) {
                if self.content(page) != Content::Unwritten {
                    self.stale.insert(page);
                }
            }
            let directory = 0..self.directory_pages(device);
            self.stale_directories.extend(directory.map(|page| CachePage { device, page }));
        }
    }

    /// Pages that are older than the journal says.
    pub fn stale_pages(&self) -> usize {
        self.stale.len() + self.stale_directories.len()
    }

    /// Takes all stale pages of entries, for a checkpoint; those that it could not write come back by
    /// [`CacheTables::put_back`].
    pub fn take_stale(&mut self) -> Vec<CachePage> {
        std::mem::take(&mut self.stale).into_iter().collect()
    }

    /// Takes all stale pages of directories likewise.
    pub fn take_stale_directories(&mut self) -> Vec<CachePage> {
        std::mem::take(&mut self.stale_directories).into_iter().collect()
    }

    /// Marks pages as stale again.
    pub fn put_back(
        &mut self,
        pages: impl IntoIterator<Item = CachePage>,
        directories: impl IntoIterator<Item = CachePage>,
    ) {
        self.stale.extend(pages);
        self.stale_directories.extend(directories);
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.contents.capacity() * size_of::<Content>()).sum()
    }
}
