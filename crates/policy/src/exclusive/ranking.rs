//! Pages, ranked by the number of I/Os in a period: section 2.2 of the paper.
//!
//! ```text
//! NewTier_i = 1 (SSD tier)  if r_i ≤ N h,  else 2 (HDD tier)        (1)
//! ```
//!
//! r_i is the rank of page i by its I/Os n_i, N the number of pages, and h the share of pages for which the
//! SSD tier has room. A page counts by its extents with a home: by all of its extents on a full volume. Of
//! pages with the same n_i, pages on the SSD tier rank first.
//!
//! At the end of a period the map is scanned in steps, so that no request waits for a volume of many
//! terabytes. Pages are then sorted, about 0.1 s for a million pages with requests. A page takes 20 bytes: 2
//! MiB for each TiB with pages of 10 MB.
//!
//! The saved state is a version, the extents of a page (4 bytes) and the age of the present period in
//! milliseconds (8). Then follow as many pages as fit, the pages with most I/Os first: number, n_i of the
//! last period and n_i of the present period (4 each). All numbers are little-endian.

use crate::View;
use braid_base::{Bytes, DeviceClass, ExtentId, Nanos};
use std::cmp::Reverse;

/// Pages that the SSD tier takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    /// Pages requested in the last period, and pages on the tier already.
    Asked,
    /// As many pages as fit, as published: "all areas of this tier are allocated to pages".
    All,
}

/// Ranking of the pages, with their counters.
pub(super) struct Ranking {
    page_size: Bytes,
    period: Nanos,
    fills: Fill,
    /// End of the present period; `None` before the policy has seen the volume.
    ends: Option<Nanos>,
    /// Extents of a page; the last page may have fewer.
    extents: u32,
    pages: Vec<Page>,
    /// Next extent of a scan of the map; `None` when no scan is in progress.
    scanned: Option<u32>,
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// n_i of the present period.
    now: u32,
    /// n_i of the last period.
    last: u32,
    /// Number of extents with a home, and with a home on an SSD, as of the last scan.
    homes: u32,
    on_ssd: u32,
    /// True if the page belongs to the SSD tier, by the last ranking.
    in_tier: bool,
}

/// Pages whose tier a ranking has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Pages to leave the SSD tier, the least busy page first.
    pub leaving: Vec<u32>,
    /// Pages to come to the SSD tier, the busiest page first.
    pub coming: Vec<u32>,
}

/// Extents examined by one step of a scan: less than a millisecond.
const STEP: u32 = 1 << 16;
const VERSION: u8 = 1;
const HEADER: usize = 1 + 4 + 8;
const SAVED: usize = 12;

impl Ranking {
    pub fn new(page_size: Bytes, period: Nanos, fills: Fill) -> Ranking {
        Ranking { page_size, period, fills, ends: None, extents: 1, pages: Vec::new(), scanned: None }
    }

    pub fn fills(&self) -> Fill {
        self.fills
    }

    /// Counts a guest's request to an extent.
    #[inline]
    pub fn count(&mut self, extent: ExtentId) {
        if let Some(page) = self.pages.get_mut((extent.0 / self.extents) as usize) {
            page.now = page.now.saturating_add(1);
        }
    }

    /// Returns the page of an extent.
    pub fn page_of(&self, extent: ExtentId) -> u32 {
        extent.0 / self.extents
    }

    /// Returns the extents of a page.
    pub fn extents_of(&self, page: u32, view: &View) -> std::ops::Range<u32> {
        let start = page * self.extents;
        start..start.saturating_add(self.extents).min(view.homes.extents())
    }

    /// True if a page belongs to the SSD tier.
    pub fn is_in_tier(&self, page: u32) -> bool {
        self.pages.get(page as usize).is_some_and(|page| page.in_tier)
    }

    /// Returns n_i of the last and of the present period.
    pub fn requests(&self, page: u32) -> (u32, u32) {
        self.pages.get(page as usize).map_or((0, 0), |page| (page.last, page.now))
    }

    /// Number of pages that belong to the SSD tier.
    pub fn tier(&self) -> usize {
        self.pages.iter().filter(|page| page.in_tier).count()
    }

    /// Does the work that is due. Returns the changes after a new ranking. `capacity` maps the number of
    /// homes on the SSD tier to the number of homes the tier has room for, present homes included.
    pub fn advance(&mut self, view: &View, capacity: impl FnOnce(u64) -> u64) -> Option<Changes> {
        match self.ends {
            None => {
                self.see(view);
                self.begin(Nanos::ZERO, view.now);
            }
            Some(ends) if self.scanned.is_none() && view.now >= ends => {
                self.pages.iter_mut().for_each(|page| (page.last, page.now) = (page.now, 0));
                self.begin(Nanos::ZERO, view.now);
            }
            Some(_) => {}
        }
        let from = self.scanned?;
        self.scanned = self.scan(from, view);
        if self.scanned.is_some() {
            return None;
        }
        let on_ssd = self.pages.iter().map(|page| u64::from(page.on_ssd)).sum();
        Some(self.rank(capacity(on_ssd)))
    }

    /// Returns the time of the next work.
    pub fn due(&self, view: &View) -> Nanos {
        match (self.ends, self.scanned) {
            (Some(ends), None) => ends,
            _ => view.now,
        }
    }

    /// Begins a period of age `age`, and a ranking by the known counters.
    fn begin(&mut self, age: Nanos, now: Nanos) {
        self.ends = Some(now + self.period.saturating_sub(age));
        self.scanned = Some(0);
    }

    /// Adapts to the size of the volume.
    fn see(&mut self, view: &View) {
        self.extents = (self.page_size / view.extent_size).clamp(1, u32::MAX.into()) as u32;
        let pages = view.homes.extents().div_ceil(self.extents) as usize;
        self.pages.resize(pages, Page::default());
    }

    /// Does one step of a scan of the map. Returns the extent to continue at.
    fn scan(&mut self, from: u32, view: &View) -> Option<u32> {
        let all = view.homes.extents();
        // Whole pages: no page is counted in part.
        let step = (STEP / self.extents).max(1).saturating_mul(self.extents);
        let end = from.saturating_add(step).min(all);
        for page in from / self.extents..end.div_ceil(self.extents) {
            let homes = self.extents_of(page, view).filter_map(|extent| view.homes.home(ExtentId(extent)));
            let counted = homes.fold((0, 0), |(homes, on_ssd), home| {
                (homes + 1, on_ssd + u32::from(view.devices[home.index()].class == DeviceClass::Ssd))
            });
            let page = &mut self.pages[page as usize];
            (page.homes, page.on_ssd) = counted;
        }
        (end < all).then_some(end)
    }

    /// Ranks the pages: formula (1).
    fn rank(&mut self, capacity: u64) -> Changes {
        let rank = |(number, page): (u32, &Page)| (Reverse(page.last), page.on_ssd == 0, number);
        let all = self.fills == Fill::All;
        let matters = |page: &Page| page.homes > 0 && (all || page.last > 0 || page.on_ssd > 0);
        let all = (0..).zip(&self.pages).filter(|(_, page)| matters(page));
        let mut ranked: Vec<_> = all.map(rank).collect();
        ranked.sort_unstable();
        self.pages.iter_mut().for_each(|page| page.in_tier = false);
        let (mut changes, mut used, mut is_full) = (Changes::default(), 0, false);
        for (.., number) in ranked {
            let page = &mut self.pages[number as usize];
            used += u64::from(page.homes);
            is_full |= used > capacity;
            page.in_tier = !is_full;
            match page.in_tier {
                true if page.on_ssd < page.homes => changes.coming.push(number),
                false if page.on_ssd > 0 => changes.leaving.push(number),
                _ => {}
            }
        }
        changes.leaving.reverse();
        changes
    }

    pub fn memory(&self) -> usize {
        self.pages.capacity() * size_of::<Page>()
    }

    /// Returns the state to save, at most `most` bytes.
    pub fn save(&self, now: Nanos, most: usize) -> Vec<u8> {
        let age = self.ends.map_or(Nanos::ZERO, |ends| self.period.saturating_sub(ends.saturating_sub(now)));
        let mut known: Vec<(u32, &Page)> =
            (0..).zip(&self.pages).filter(|(_, page)| page.last > 0 || page.now > 0).collect();
        known.sort_unstable_by_key(|(number, page)| {
            (Reverse(u64::from(page.last) + u64::from(page.now)), *number)
        });
        known.truncate((most - HEADER) / SAVED);
        let mut bytes = vec![VERSION];
        bytes.extend(self.extents.to_le_bytes());
        bytes.extend((age.0 / 1_000_000).to_le_bytes());
        for (number, page) in known {
            [number, page.last, page.now].iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        bytes
    }

    /// Restores the state of [`Ranking::save`]. Any bytes are accepted. A state with another page size is
    /// ignored.
    pub fn restore(&mut self, state: &[u8], view: &View) {
        self.see(view);
        let Some((header, pages)) = state.split_at_checked(HEADER) else { return };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        if header[0] != VERSION || number(&header[1..5]) != u64::from(self.extents) {
            return;
        }
        for saved in pages.chunks_exact(SAVED) {
            let (place, last, now) = (number(&saved[..4]), number(&saved[4..8]), number(&saved[8..]));
            if let Some(page) = self.pages.get_mut(place as usize) {
                (page.last, page.now) = (last as u32, now as u32);
            }
        }
        self.begin(Nanos(number(&header[5..]).saturating_mul(1_000_000)), view.now);
    }
}
