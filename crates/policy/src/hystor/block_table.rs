//! The block table: what was accessed how often, by requests of which size, in three levels, as a page table
//! has them.
//!
//! | paper | here | what it stands for, with blocks of 4 KiB |
//! |---|---|---|
//! | block global directory (BGD) | [`Region`], in `regions` | a region, 2 GiB |
//! | block middle directory (BMD), a page of 512 entries | [`SubRegion`], in `subs` | a sub-region, 4 MiB |
//! | block table entries (BTE), a page of 1024 | [`Entries`] | a block |
//!
//! A counter of 16 bits at each level grows by the inverse bitmap b of each request, for each block that it
//! touches, so that the counter of a page's parent is the sum of the page's. A counter that would overflow
//! halves those of its page: only what they are beside each other matters. `unique` is how many blocks below
//! have a counter above 0.
//!
//! Where this differs, because it must:
//! - `unique` of a region has 32 bits: its 524,288 blocks would not fit into 16.
//! - Memory has a bound, and not all entries. The upper levels are kept whole. A sub-region has entries if
//!   the walk that looks for candidates would give it more blocks of the SSD than others: its *share*
//!   ([`BlockTable::share`]). When there is no page left, the sixteenth of them with the smallest shares
//!   goes, and a sub-region gets a page only with a share above theirs (`bar`).

use braid_base::{BlockId, Bytes};

/// Access history of a volume's blocks. `access` takes constant time for each page of entries that a request
/// touches, and searches for pages to drop once for each [`DROPPED`]th of them that come.
pub(super) struct BlockTable {
    regions: Vec<Option<Box<Region>>>,
    /// The sum of the regions' counters.
    total: u64,
    pages: Vec<Box<Entries>>,
    /// The sub-region of each page.
    owners: Vec<u32>,
    /// Pages that no sub-region has.
    free: Vec<u32>,
    most_pages: usize,
    /// Once all pages are in use: the largest share for which no page is taken.
    bar: f32,
    /// For the search of pages to drop, so that it allocates nothing.
    ranked: Vec<(f32, u32)>,
}

/// A page of the middle directory, with its entry in the global one.
pub(super) struct Region {
    pub unique: u32,
    pub counter: u16,
    /// The sum of the counters below.
    total: u32,
    pub subs: [SubRegion; SUBS],
}

/// An entry of the middle directory.
#[derive(Clone, Copy)]
pub(super) struct SubRegion {
    /// Its page of entries, or [`NONE`].
    page: u32,
    pub counter: u16,
    pub unique: u16,
}

/// A page of table entries.
pub(super) struct Entries {
    pub counters: [u16; BLOCKS],
    pub flags: [u16; BLOCKS],
}

/// Entries of a page of the middle directory.
pub(super) const SUBS: usize = 512;
/// Entries of a page of the last level.
pub(super) const BLOCKS: usize = 1024;
const NONE: u32 = u32::MAX;
/// One page in so many goes when there is none left: often enough that few cold ones stay, and seldom enough
/// that the search, which looks at all, costs each page that comes some 16 looks.
const DROPPED: usize = 16;
/// What the middle directory has for a sub-region and for a block, in bytes: as published.
const _: () = assert!(size_of::<SubRegion>() == 8 && size_of::<Entries>() == 4 * BLOCKS);
/// A page of entries with its places in the two lists.
const PAGE: usize = size_of::<Entries>() + 8 + 4 + 4 + 8;
/// A page of the middle directory with its place in the global one.
const REGION: usize = size_of::<Region>() + 8;

/// What an access to a block counts, by how many sectors the request had: the fewer, the more its seek costs
/// each of them.
pub(super) fn inverse_bitmap(sectors: u64) -> u16 {
    let log = sectors.checked_ilog2().unwrap_or(0);
    1 << 7u32.saturating_sub(log)
}

impl BlockTable {
    /// An empty table for a volume of so many blocks, in so much memory; at least one page of entries.
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

    /// A request of so many sectors accesses these blocks.
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
        // At most 1024 if sectors and blocks belong together. A counter that was halved has room for so much.
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

    /// Sets a flag of blocks. Those in a sub-region without entries get a page, whatever its share.
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

    /// The regions, with their numbers.
    pub fn regions(&self) -> impl Iterator<Item = (u32, &Region)> {
        (0..).zip(&self.regions).filter_map(|(number, region)| Some((number, region.as_deref()?)))
    }

    /// A region, if anything in it was ever accessed.
    pub fn region(&self, number: u32) -> Option<&Region> {
        self.regions.get(number as usize)?.as_deref()
    }

    /// The entries of a sub-region, if it has any.
    pub fn entries(&self, sub: u32) -> Option<&Entries> {
        let (r, s) = split(sub);
        self.pages.get(self.region(r as u32)?.subs[s].page as usize).map(|page| &**page)
    }

    /// The counter of a sub-region, if anything in its region was ever accessed.
    pub fn sub_counter(&self, sub: u32) -> Option<u16> {
        let (r, s) = split(sub);
        self.region(r as u32).map(|region| region.subs[s].counter)
    }

    /// The flags of a block, to be changed; none if it has no entry.
    pub fn flags_mut(&mut self, block: BlockId) -> Option<&mut u16> {
        let (r, s) = split((block.0 / BLOCKS as u64) as u32);
        let page = self.regions.get(r)?.as_ref()?.subs[s].page;
        self.pages.get_mut(page as usize).map(|page| &mut page.flags[block.0 as usize % BLOCKS])
    }

    /// The flags of a block; none set if it has no entry.
    pub fn flags(&self, block: BlockId) -> u16 {
        let entries = self.entries((block.0 / BLOCKS as u64) as u32);
        entries.map_or(0, |entries| entries.flags[block.0 as usize % BLOCKS])
    }

    /// The counter of a block; 0 if it has no entry.
    pub fn counter(&self, block: BlockId) -> u16 {
        let entries = self.entries((block.0 / BLOCKS as u64) as u32);
        entries.map_or(0, |entries| entries.counters[block.0 as usize % BLOCKS])
    }

    /// The share of the SSD that the counters give to a sub-region, as the walk for candidates divides it: by
    /// region, then within.
    pub fn share(&self, sub: u32) -> f32 {
        let (r, s) = split(sub);
        let Some(region) = self.region(r as u32) else { return 0.0 };
        let part = |counter: u16, total: u64| f32::from(counter) / total.max(1) as f32;
        part(region.counter, self.total) * part(region.subs[s].counter, region.total.into())
    }

    /// The sub-regions that have entries, those with the largest share first.
    pub fn hottest_first(&self) -> Vec<u32> {
        let mut subs: Vec<(f32, u32)> = self.owned().map(|(_, sub)| (self.share(sub), sub)).collect();
        subs.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        subs.into_iter().map(|(_, sub)| sub).collect()
    }

    /// Sets the bar by what the shares are now: they have changed since pages were last dropped.
    pub fn set_bar(&mut self) {
        self.bar = match self.free.is_empty() && self.pages.len() == self.most_pages {
            true => self.rank_coldest().map_or(0.0, |(share, _)| share),
            false => 0.0,
        };
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let regions = self.regions.iter().flatten().count() * size_of::<Region>();
        let lists = self.regions.capacity() * 8
            + self.pages.capacity() * 8
            + (self.owners.capacity() + self.free.capacity()) * 4
            + self.ranked.capacity() * 8;
        regions + self.pages.len() * size_of::<Entries>() + lists
    }

    /// For a table that is restored: the counters of a sub-region and of its blocks. What exceeds the bounds
    /// is left out.
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

    /// The counter of a region, after its sub-regions were restored.
    pub fn restore_region(&mut self, number: u32, counter: u16) {
        if let Some(region) = self.regions.get_mut(number as usize).and_then(Option::as_mut) {
            self.total = self.total - u64::from(region.counter) + u64::from(counter);
            region.counter = counter;
        }
    }

    /// A page for a sub-region that has none, unless others deserve it more.
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

    /// Sorts the pages so far that those with the smallest shares come first: how many these are, and the
    /// largest share among them.
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

    /// Pages that are in use, with their sub-regions.
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

    /// Adds to the counters of blocks: how many were 0 before, and how many are 0 since all had to be halved.
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

/// The region of a sub-region, and its number in there.
fn split(sub: u32) -> (usize, usize) {
    (sub as usize / SUBS, sub as usize % SUBS)
}

#[cfg(test)]
#[path = "block_table_tests.rs"]
mod tests;
