//! The block table: number and size of the accesses to each block, in three levels like a page table.
//!
//! | paper | here | what it stands for, with blocks of 4 KiB |
//! |---|---|---|
//! | block global directory (BGD) | [`Region`], in `regions` | a region, 2 GiB |
//! | block middle directory (BMD), a page of 512 entries | [`SubRegion`], in `subs` | a sub-region, 4 MiB |
//! | block table entries (BTE), a page of 1024 | [`Entries`] | a block |
//!
//! Each level has counters of 16 bits. A request adds its inverse bitmap b for each touched block, and the
//! counter of a page's parent is the sum of the page. A counter about to overflow halves the counters of its
//! page: only ratios within a page matter. `unique` is the number of blocks below with a counter above 0.
//!
//! Deviations that are necessary:
//! - `unique` of a region has 32 bits: its 524,288 blocks would not fit into 16.
//! - Memory is bounded, so not every sub-region has entries. The upper levels are kept whole. A sub-region
//!   has entries if its *share* ([`BlockTable::share`]) is large: the part of the SSD that the walk for
//!   candidates would give to the sub-region. When no page is free, the sixteenth of the pages with the
//!   smallest shares is dropped. A sub-region then gets a page only if its share exceeds the dropped shares
//!   (`bar`).

use braid_base::{BlockId, Bytes};

/// Access history of a volume's blocks. `access` takes constant time for each page of entries that a request
/// touches, and searches for pages to drop once for each [`DROPPED`]th part of all pages that arrives.
pub(super) struct BlockTable {
    regions: Vec<Option<Box<Region>>>,
    /// Sum of the regions' counters.
    total: u64,
    pages: Vec<Box<Entries>>,
    /// Sub-region of each page.
    owners: Vec<u32>,
    /// Pages without a sub-region.
    free: Vec<u32>,
    most_pages: usize,
    /// Once all pages are in use: the largest share for which no page is taken.
    bar: f32,
    /// Buffer of the search for pages to drop, kept to avoid an allocation.
    ranked: Vec<(f32, u32)>,
}

/// A page of the middle directory, with its entry in the global directory.
pub(super) struct Region {
    pub unique: u32,
    pub counter: u16,
    /// Sum of the sub-regions' counters.
    total: u32,
    pub subs: [SubRegion; SUBS],
}

/// An entry of the middle directory.
#[derive(Clone, Copy)]
pub(super) struct SubRegion {
    /// Index of the page of entries, or [`NONE`].
    page: u32,
    pub counter: u16,
    pub unique: u16,
}

/// A page of table entries.
pub(super) struct Entries {
    pub counters: [u16; BLOCKS],
    pub flags: [u16; BLOCKS],
}

/// Entries in a page of the middle directory.
pub(super) const SUBS: usize = 512;
/// Entries in a page of the last level.
pub(super) const BLOCKS: usize = 1024;
const NONE: u32 = u32::MAX;
/// One page in `DROPPED` is dropped when no page is free. More often would leave few cold pages; more seldom
/// would cost more. The search looks at all pages, about 16 looks for each page that arrives.
const DROPPED: usize = 16;
/// Sizes of a middle directory's entry and of a block's entry, in bytes: as published.
const _: () = assert!(size_of::<SubRegion>() == 8 && size_of::<Entries>() == 4 * BLOCKS);
/// Memory of a page of entries with its places in the lists, in bytes.
const PAGE: usize = size_of::<Entries>() + 8 + 4 + 4 + 8;
/// Memory of a page of the middle directory with its place in the global directory, in bytes.
const REGION: usize = size_of::<Region>() + 8;

/// Returns the count of an access to a block by the request's number of sectors: the fewer sectors, the more
/// of a seek each sector costs.
pub(super) fn inverse_bitmap(sectors: u64) -> u16 {
    let log = sectors.checked_ilog2().unwrap_or(0);
    1 << 7u32.saturating_sub(log)
}

impl BlockTable {
    /// Returns an empty table for a volume of `blocks` blocks within `memory`, with at least one page of
    /// entries.
    pub fn new(blocks: u64, memory: Bytes) -> BlockTable {
        let subs = blocks.div_ceil(BLOCKS as u64) as usize;
        let upper = subs.div_ceil(SUBS) * REGION;
        let most_pages = (memory.as_usize().saturating_sub(upper) / PAGE).clamp(1, subs.max(1));
        BlockTable {
            regions: Vec::new(),
            total: 0,
            pages: Vec::new(),
            owners: Vec::new(),
            free: Vec::new(),
            most_pages,
            bar: 0.0,
            ranked: Vec::new(),
        }
    }

    /// Counts an access of `sectors` sectors to the blocks from `first` on.
    pub fn access(&mut self, first: BlockId, blocks: u64, sectors: u64) {
        let b = inverse_bitmap(sectors);
        let (mut at, end) = (first.0, first.0 + blocks);
        while at < end {
            let (sub, from) = ((at / BLOCKS as u64) as u32, at as usize % BLOCKS);
            let to = BLOCKS.min(from + (end - at) as usize);
            self.access_in(sub, from..to, b);
            at += (to - from) as u64;
        }
    }

    fn access_in(&mut self, sub: u32, blocks: std::ops::Range<usize>, b: u16) {
        // At most 1024 if sectors and blocks belong together. A halved counter has room for `added`.
        let added = (u32::from(b) * blocks.len() as u32).min(1 << 15) as u16;
        let (r, s) = split(sub);
        if r >= self.regions.len() {
            self.regions.resize_with(r + 1, || None);
        }
        if self.regions[r].as_ref().is_some_and(|region| region.counter > u16::MAX - added) {
            self.halve_regions();
        }
        let region = self.regions[r].get_or_insert_with(Region::new);
        region.counter += added;
        self.total += u64::from(added);
        if region.subs[s].counter > u16::MAX - added {
            region.halve();
        }
        region.subs[s].counter += added;
        region.total += u32::from(added);
        let page = match region.subs[s].page {
            NONE => match self.take_page(sub) {
                Some(page) => page,
                None => return,
            },
            page => page,
        };
        let (fresh, gone) = self.pages[page as usize].count(blocks, b);
        let region = self.regions[r].as_mut().expect("it was accessed just now");
        region.subs[s].unique += fresh;
        region.subs[s].unique -= gone;
        region.unique += u32::from(fresh);
        region.unique -= u32::from(gone);
    }

    /// Sets a flag of blocks. A sub-region without entries gets a page, whatever its share.
    pub fn mark(&mut self, first: BlockId, blocks: u64, flag: u16) {
        for block in (first.0..first.0 + blocks).map(BlockId) {
            if self.flags_mut(block).is_none() {
                self.bar = 0.0;
                self.take_page((block.0 / BLOCKS as u64) as u32);
            }
            if let Some(flags) = self.flags_mut(block) {
                *flags |= flag;
            }
        }
    }

    /// Clears a flag of all blocks.
    pub fn clear_flag(&mut self, flag: u16) {
        self.pages.iter_mut().for_each(|page| page.flags.iter_mut().for_each(|flags| *flags &= !flag));
    }

    /// Returns the regions with their numbers.
    pub fn regions(&self) -> impl Iterator<Item = (u32, &Region)> {
        (0..).zip(&self.regions).filter_map(|(number, region)| Some((number, region.as_deref()?)))
    }

    /// Returns a region; `None` if no block in the region was ever accessed.
    pub fn region(&self, number: u32) -> Option<&Region> {
        self.regions.get(number as usize)?.as_deref()
    }

    /// Returns the entries of a sub-region; `None` if the sub-region has no page.
    pub fn entries(&self, sub: u32) -> Option<&Entries> {
        let (r, s) = split(sub);
        self.pages.get(self.region(r as u32)?.subs[s].page as usize).map(|page| &**page)
    }

    /// Returns the counter of a sub-region; `None` if no block in the region was ever accessed.
    pub fn sub_counter(&self, sub: u32) -> Option<u16> {
        let (r, s) = split(sub);
        self.region(r as u32).map(|region| region.subs[s].counter)
    }

    /// Returns the flags of a block for a change; `None` without an entry.
    pub fn flags_mut(&mut self, block: BlockId) -> Option<&mut u16> {
        let (r, s) = split((block.0 / BLOCKS as u64) as u32);
        let page = self.regions.get(r)?.as_ref()?.subs[s].page;
        self.pages.get_mut(page as usize).map(|page| &mut page.flags[block.0 as usize % BLOCKS])
    }

    /// Returns the flags of a block; 0 without an entry.
    pub fn flags(&self, block: BlockId) -> u16 {
        let entries = self.entries((block.0 / BLOCKS as u64) as u32);
        entries.map_or(0, |entries| entries.flags[block.0 as usize % BLOCKS])
    }

    /// Returns the counter of a block; 0 without an entry.
    pub fn counter(&self, block: BlockId) -> u16 {
        let entries = self.entries((block.0 / BLOCKS as u64) as u32);
        entries.map_or(0, |entries| entries.counters[block.0 as usize % BLOCKS])
    }

    /// Returns a sub-region's share of the SSD by the counters. As in the walk for candidates, the SSD is
    /// divided among regions, then within a region.
    pub fn share(&self, sub: u32) -> f32 {
        let (r, s) = split(sub);
        let Some(region) = self.region(r as u32) else { return 0.0 };
        let part = |counter: u16, total: u64| f32::from(counter) / total.max(1) as f32;
        part(region.counter, self.total) * part(region.subs[s].counter, region.total.into())
    }

    /// Returns the sub-regions with entries, the largest share first.
    pub fn hottest_first(&self) -> Vec<u32> {
        let mut subs: Vec<(f32, u32)> = self.owned().map(|(_, sub)| (self.share(sub), sub)).collect();
        subs.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        subs.into_iter().map(|(_, sub)| sub).collect()
    }

    /// Sets the bar by the present shares: shares have changed since pages were last dropped.
    pub fn set_bar(&mut self) {
        self.bar = match self.free.is_empty() && self.pages.len() == self.most_pages {
            true => self.rank_coldest().map_or(0.0, |(share, _)| share),
            false => 0.0,
        };
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> usize {
        let regions = self.regions.iter().flatten().count() * size_of::<Region>();
        let lists = self.regions.capacity() * 8
            + self.pages.capacity() * 8
            + (self.owners.capacity() + self.free.capacity()) * 4
            + self.ranked.capacity() * 8;
        regions + self.pages.len() * size_of::<Entries>() + lists
    }

    /// Sets the counters of a sub-region and of its blocks in a restored table. The blocks are left out if no
    /// page is free.
    pub fn restore(&mut self, sub: u32, counter: u16, blocks: impl Iterator<Item = (usize, u16)>) {
        let (r, s) = split(sub);
        if r >= self.regions.len() {
            self.regions.resize_with(r + 1, || None);
        }
        let region = self.regions[r].get_or_insert_with(Region::new);
        region.total = region.total - u32::from(region.subs[s].counter) + u32::from(counter);
        region.subs[s].counter = counter;
        if self.free.is_empty() && self.pages.len() == self.most_pages {
            return;
        }
        let Some(page) = self.take_page(sub) else { return };
        for (block, counter) in blocks {
            self.pages[page as usize].counters[block] = counter;
        }
        let unique = self.pages[page as usize].counters.iter().filter(|&&counter| counter > 0).count();
        let region = self.regions[r].as_mut().expect("it was made just now");
        region.unique = region.unique - u32::from(region.subs[s].unique) + unique as u32;
        region.subs[s].unique = unique as u16;
    }

    /// Sets the counter of a region, after its sub-regions were restored.
    pub fn restore_region(&mut self, number: u32, counter: u16) {
        if let Some(region) = self.regions.get_mut(number as usize).and_then(Option::as_mut) {
            self.total = self.total - u64::from(region.counter) + u64::from(counter);
            region.counter = counter;
        }
    }

    /// Takes a page for a sub-region without a page; `None` if the sub-region's share is not above the bar.
    #[cold]
    fn take_page(&mut self, sub: u32) -> Option<u32> {
        if self.free.is_empty() && self.pages.len() < self.most_pages {
            self.free.push(self.pages.len() as u32);
            self.pages.push(Box::new(Entries::EMPTY));
            self.owners.push(NONE);
        }
        if self.free.is_empty() {
            if self.share(sub) <= self.bar {
                return None;
            }
            self.drop_coldest();
        }
        let page = self.free.pop()?;
        *self.pages[page as usize] = Entries::EMPTY;
        self.owners[page as usize] = sub;
        let (r, s) = split(sub);
        self.regions[r].as_mut().expect("it was accessed just now").subs[s].page = page;
        Some(page)
    }

    fn drop_coldest(&mut self) {
        let Some((bar, count)) = self.rank_coldest() else { return };
        self.bar = bar;
        for place in 0..count {
            let page = self.ranked[place].1;
            let (r, s) = split(std::mem::replace(&mut self.owners[page as usize], NONE));
            let region = self.regions[r].as_mut().expect("a page belongs to a sub-region");
            region.unique -= u32::from(region.subs[s].unique);
            (region.subs[s].unique, region.subs[s].page) = (0, NONE);
            self.free.push(page);
        }
    }

    /// Moves the pages with the smallest shares to the front of `ranked`. Returns the largest share among
    /// them and their number.
    fn rank_coldest(&mut self) -> Option<(f32, usize)> {
        let mut ranked = std::mem::take(&mut self.ranked);
        ranked.clear();
        ranked.extend(self.owned().map(|(page, sub)| (self.share(sub), page)));
        let count = (ranked.len() / DROPPED).max(1).min(ranked.len());
        if count > 0 {
            ranked.select_nth_unstable_by(count - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        self.ranked = ranked;
        self.ranked.get(count.checked_sub(1)?).map(|&(share, _)| (share, count))
    }

    /// Returns the pages in use, with their sub-regions.
    fn owned(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(&self.owners).filter(|&(_, &sub)| sub != NONE).map(|(page, &sub)| (page, sub))
    }

    #[cold]
    fn halve_regions(&mut self) {
        self.total = 0;
        for region in self.regions.iter_mut().flatten() {
            region.counter /= 2;
            self.total += u64::from(region.counter);
        }
    }
}

impl Region {
    fn new() -> Box<Region> {
        let sub = SubRegion { page: NONE, counter: 0, unique: 0 };
        Box::new(Region { unique: 0, counter: 0, total: 0, subs: [sub; SUBS] })
    }

    #[cold]
    fn halve(&mut self) {
        self.subs.iter_mut().for_each(|sub| sub.counter /= 2);
        self.total = self.subs.iter().map(|sub| u32::from(sub.counter)).sum();
    }
}

impl Entries {
    const EMPTY: Entries = Entries { counters: [0; BLOCKS], flags: [0; BLOCKS] };

    /// Adds `b` to the counters of blocks. Returns how many counters were 0 before, and how many became 0
    /// because all had to be halved.
    fn count(&mut self, blocks: std::ops::Range<usize>, b: u16) -> (u16, u16) {
        let is_full = self.counters[blocks.clone()].iter().any(|&counter| counter > u16::MAX - b);
        let gone = if is_full { self.halve() } else { 0 };
        let mut fresh = 0;
        for counter in &mut self.counters[blocks] {
            fresh += u16::from(*counter == 0);
            *counter += b;
        }
        (fresh, gone)
    }

    #[cold]
    fn halve(&mut self) -> u16 {
        let gone = self.counters.iter().filter(|&&counter| counter == 1).count();
        self.counters.iter_mut().for_each(|counter| *counter /= 2);
        gone as u16
    }
}

/// Returns the region of a sub-region, and the sub-region's number within the region.
fn split(sub: u32) -> (usize, usize) {
    (sub as usize / SUBS, sub as usize % SUBS)
}

#[cfg(test)]
#[path = "block_table_tests.rs"]
mod tests;
