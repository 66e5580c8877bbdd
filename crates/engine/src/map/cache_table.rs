//! Cache tables: the stale pages and the pages ever written.
//!
//! A device has a cache table if the device may hold extra copies. Entries are numbered by cache slot (see
//! `extra_page.rs` of the format), so the block slot alone determines the position of its entry. An entry
//! changes with a commit. The next checkpoint writes the page.

use braid_base::{DeviceId, Slot};
use braid_format::extra_directory::{self, Content};
use braid_format::extra_page::SLOTS_PER_PAGE;
use braid_format::layout;
use braid_format::superblock::{RegionKind, Superblock};
use std::collections::BTreeSet;

/// Cache tables of all devices.
pub(crate) struct CacheTables {
    /// Indexed by device; `None` if the device may hold no extra copies.
    tables: Vec<Option<TableDirectory>>,
    /// Number of block slots in an extent slot.
    places: u64,
    /// Pages of entries older than the journal.
    stale: BTreeSet<CachePage>,
    /// Directory pages older than the pages of entries.
    stale_directories: BTreeSet<CachePage>,
}

/// Page of a device's table: of entries, or of the directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CachePage {
    pub device: DeviceId,
    pub page: u32,
}

struct TableDirectory {
    /// Directory content for each page of entries: as on the device, or as the next write of the directory
    /// will say.
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
                TableDirectory { contents: vec![Content::Unwritten; pages as usize] }
            })
        });
        CacheTables {
            tables: tables.collect(),
            places: superblock.extent_size / superblock.block_size,
            stale: BTreeSet::new(),
            stale_directories: BTreeSet::new(),
        }
    }

    /// Replaces a device's table by an empty one as the superblock describes, or by none.
    pub fn set_device(&mut self, superblock: &Superblock, device: DeviceId) {
        let CacheTables { mut tables, .. } = CacheTables::new(superblock);
        self.stale.retain(|page| page.device != device);
        self.stale_directories.retain(|page| page.device != device);
        self.tables.resize_with(tables.len(), || None);
        self.tables[device.index()] = tables[device.index()].take();
    }

    /// True if a device has a table, so that the device may hold extra copies.
    pub fn has(&self, device: DeviceId) -> bool {
        self.tables[device.index()].is_some()
    }

    /// True if all block slots of an extent slot have entries.
    pub fn describes(&self, slot: Slot) -> bool {
        let last = (u64::from(slot.index) + 1) * self.places - 1;
        last / u64::from(SLOTS_PER_PAGE) < u64::from(self.pages(slot.device))
    }

    /// True if a block slot named by bytes from a device exists and has an entry.
    pub fn describes_place(&self, slot: Slot, place: u16) -> bool {
        self.has(slot.device) && u64::from(place) < self.places && self.describes(slot)
    }

    /// Number of pages of entries in a device's table; 0 without a table.
    pub fn pages(&self, device: DeviceId) -> u32 {
        self.tables[device.index()].as_ref().map_or(0, |table| table.contents.len() as u32)
    }

    /// Number of directory pages of a device.
    pub fn directory_pages(&self, device: DeviceId) -> u32 {
        extra_directory::pages(self.pages(device))
    }

    /// Page with the entry of a block slot. The device must have a table.
    pub fn page_of(&self, slot: Slot, place: u16) -> CachePage {
        let cache_slot = u64::from(slot.index) * self.places + u64::from(place);
        CachePage { device: slot.device, page: (cache_slot / u64::from(SLOTS_PER_PAGE)) as u32 }
    }

    /// Block slots described by a page, in order of the entries: index of the extent slot on the device, and
    /// place inside.
    pub fn slots_of(&self, page: u32) -> impl Iterator<Item = (u32, u16)> {
        let (first, places) = (u64::from(page) * u64::from(SLOTS_PER_PAGE), self.places);
        (first..first + u64::from(SLOTS_PER_PAGE)).map(move |n| ((n / places) as u32, (n % places) as u16))
    }

    /// Directory content for a page of entries.
    pub fn content(&self, page: CachePage) -> Content {
        let table = self.tables[page.device.index()].as_ref();
        table.and_then(|table| table.contents.get(page.page as usize)).copied().unwrap_or_default()
    }

    /// Marks a page of entries as older than the journal.
    pub fn mark_stale(&mut self, page: CachePage) {
        self.stale.insert(page);
    }

    /// Sets the directory content of a page, as read or as just written. Returns true if the content changed.
    pub fn set_content(&mut self, page: CachePage, content: Content) -> bool {
        let table = self.tables[page.device.index()].as_mut();
        let known = table.and_then(|table| table.contents.get_mut(page.page as usize));
        known.is_some_and(|known| std::mem::replace(known, content) != content)
    }

    /// Marks the directory page of a page of entries as stale.
    pub fn mark_directory_stale(&mut self, page: CachePage) {
        let CachePage { device, page } = page;
        self.stale_directories.insert(CachePage { device, page: page / extra_directory::PAGES_PER_PAGE });
    }

    /// Discards a device's table: the directory is stale, and its next write names no page of entries.
    pub fn forget(&mut self, device: DeviceId) {
        let Some(table) = &mut self.tables[device.index()] else { return };
        table.contents.fill(Content::Unwritten);
        self.stale.retain(|page| page.device != device);
        let directory = 0..self.directory_pages(device);
        self.stale_directories.extend(directory.map(|page| CachePage { device, page }));
    }

    /// Marks every page ever written, and all directories, as stale.
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

    /// Number of stale pages: of entries and of directories.
    pub fn stale_pages(&self) -> usize {
        self.stale.len() + self.stale_directories.len()
    }

    /// Takes all stale pages of entries for a checkpoint. Pages not written come back by
    /// [`CacheTables::put_back`].
    pub fn take_stale(&mut self) -> Vec<CachePage> {
        std::mem::take(&mut self.stale).into_iter().collect()
    }

    /// Takes all stale directory pages, as [`CacheTables::take_stale`].
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

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.contents.capacity() * size_of::<Content>()).sum()
    }
}
