//! The cache tables: which of their pages are older than what the volume knows, and which were ever written.
//!
//! A device has one if it may hold extra copies. Its entries are numbered by cache slot (see `extra_page.rs` of the format), so where
//! an entry lies follows from the block slot alone. An entry of a dirty copy changes with a commit, and the next checkpoint writes its
//! page. That of a clean copy changes with no record: its page is written when the volume is closed, or with a dirty one.

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
    /// By page of entries.
    pages: Vec<Page>,
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// What the directory says or is to say of it.
    content: Content,
    /// Clean copies have changed since it was written.
    is_unsaved: bool,
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
                Table { pages: vec![Page::default(); pages as usize] }
            })
        });
        CacheTables {
            tables: tables.collect(),
            places: superblock.extent_size / superblock.block_size,
            stale: BTreeSet::new(),
            stale_directories: BTreeSet::new(),
        }
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

    /// Pages of entries of a device's table; 0 if it has none.
    pub fn pages(&self, device: DeviceId) -> u32 {
        self.tables[device.index()].as_ref().map_or(0, |table| table.pages.len() as u32)
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

    /// The block slots that a page describes, by their places in it: the index of the extent slot on the device, and the place there.
    pub fn slots_of(&self, page: u32) -> impl Iterator<Item = (u32, u16)> {
        let (first, places) = (u64::from(page) * u64::from(SLOTS_PER_PAGE), self.places);
        (first..first + u64::from(SLOTS_PER_PAGE)).map(move |n| ((n / places) as u32, (n % places) as u16))
    }

    /// What the directory says of a page.
    pub fn content(&self, page: CachePage) -> Content {
        self.page(page).map_or(Content::Unwritten, |page| page.content)
    }

    /// A page of entries is older than the journal says.
    pub fn mark_stale(&mut self, page: CachePage) {
        self.stale.insert(page);
    }

    /// A clean copy in this page has come or gone.
    pub fn mark_unsaved(&mut self, page: CachePage) {
        if let Some(page) = self.page_mut(page) {
            page.is_unsaved = true;
        }
    }

    /// The directory says this of a page: as it was read, or since the page was written. Whether that is news.
    pub fn set_content(&mut self, page: CachePage, content: Content) -> bool {
        let Some(known) = self.page_mut(page) else { return false };
        std::mem::replace(&mut known.content, content) != content
    }

    /// A page of entries has been written with all that is known.
    pub fn saved(&mut self, page: CachePage) {
        if let Some(page) = self.page_mut(page) {
            page.is_unsaved = false;
        }
    }

    /// The page of the directory that describes a page of entries is older than that.
    pub fn mark_directory_stale(&mut self, page: CachePage) {
        let CachePage { device, page } = page;
        self.stale_directories.insert(CachePage { device, page: page / extra_directory::PAGES_PER_PAGE });
    }

    /// Nothing that a device's table says counts: its directory is written anew, with nothing in it.
    pub fn forget(&mut self, device: DeviceId) {
        let Some(table) = &mut self.tables[device.index()] else { return };
        table.pages.fill(Page::default());
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

    /// The volume closes: pages in which clean copies have changed are stale, too.
    pub fn mark_unsaved_stale(&mut self) {
        for (device, table) in (0..).map(DeviceId).zip(&self.tables) {
            let pages = table.iter().flat_map(|table| (0..).zip(&table.pages));
            let unsaved = pages.filter(|(_, page)| page.is_unsaved);
            self.stale.extend(unsaved.map(|(page, _)| CachePage { device, page }));
        }
    }

    /// Pages that are older than the journal says.
    pub fn stale_pages(&self) -> usize {
        self.stale.len() + self.stale_directories.len()
    }

    /// Takes all stale pages of entries, for a checkpoint; those that it could not write come back by [`CacheTables::put_back`].
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
        self.tables.iter().flatten().map(|table| table.pages.capacity() * size_of::<Page>()).sum()
    }

    fn page(&self, page: CachePage) -> Option<&Page> {
        self.tables[page.device.index()].as_ref()?.pages.get(page.page as usize)
    }

    fn page_mut(&mut self, page: CachePage) -> Option<&mut Page> {
        self.tables[page.device.index()].as_mut()?.pages.get_mut(page.page as usize)
    }
}
