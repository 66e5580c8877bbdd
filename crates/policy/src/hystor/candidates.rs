//! Choice of the blocks for the SSD: the walk from the top of the block table to its entries, as in the
//! paper's programme 1.
//!
//! Each level divides its quota of SSD blocks among its entries by their counters. Entries with the fewest
//! unique blocks come first, because accesses are most concentrated there. Quota that an entry cannot use
//! goes to the next entries. In a page of table entries the largest counters win.
//!
//! The walk of a large volume takes about 10 ms, too long for a guest to wait, and is therefore done
//! sub-region by sub-region on request. The programme leaves open: an entry without unique blocks, or with a
//! counter of 0, is skipped and not part of the sums; shares are rounded down; of equal counters the lower
//! address wins.

use super::block_table::{BLOCKS, BlockTable, SUBS};
use braid_base::BlockId;
use std::cmp::Reverse;
use std::vec::IntoIter;

/// A walk in progress.
pub(super) struct Search {
    /// `quota`: SSD blocks left to be given.
    quota: u64,
    /// Regions left, in the order of the walk.
    regions: IntoIter<u32>,
    /// `bgd_count`: sum of the counters of the regions left.
    count: u64,
    region: Option<InRegion>,
}

/// Position of the walk within a region.
struct InRegion {
    /// `bmd_quota`
    quota: u64,
    subs: IntoIter<u32>,
    /// `bmd_count`
    count: u64,
}

impl Search {
    /// Begins a walk that chooses up to `quota` blocks.
    pub fn new(table: &BlockTable, quota: u64) -> Search {
        let mut regions: Vec<(u32, u32, u16)> =
            table.regions().map(|(number, region)| (region.unique, number, region.counter)).collect();
        regions.retain(|&(unique, _, counter)| unique > 0 && counter > 0);
        regions.sort_unstable();
        let count = regions.iter().map(|region| u64::from(region.2)).sum();
        let regions: Vec<u32> = regions.into_iter().map(|region| region.1).collect();
        Search { quota, regions: regions.into_iter(), count, region: None }
    }

    /// Continues to the next sub-region that gets blocks, and puts the chosen blocks into `chosen`, in the
    /// order of addresses. Blocks with a flag of `without` are skipped. False at the end of the walk.
    pub fn next(&mut self, table: &BlockTable, without: u16, chosen: &mut Vec<BlockId>) -> bool {
        chosen.clear();
        loop {
            if self.region.is_none() && !self.enter_region(table) {
                return false;
            }
            let Some(region) = &mut self.region else { return false };
            let next = if region.quota > 0 { region.subs.next() } else { None };
            let Some(sub) = next else {
                self.quota += region.quota;
                self.region = None;
                continue;
            };
            let entry = table.region(sub / SUBS as u32).map(|r| r.subs[sub as usize % SUBS]);
            let counter = entry.map_or(0, |entry| u64::from(entry.counter));
            // Guests continue meanwhile: a counter may have grown, or been halved.
            let quota = region.quota * counter.min(region.count) / region.count.max(1);
            region.count = region.count.saturating_sub(counter);
            choose(table, sub, quota as usize, without, chosen);
            region.quota -= chosen.len() as u64;
            if !chosen.is_empty() {
                return true;
            }
        }
    }

    fn enter_region(&mut self, table: &BlockTable) -> bool {
        if self.quota == 0 {
            return false;
        }
        let Some(number) = self.regions.next() else { return false };
        let Some(region) = table.region(number) else { return true };
        let counter = u64::from(region.counter);
        let quota = self.quota * counter.min(self.count) / self.count.max(1);
        self.count = self.count.saturating_sub(counter);
        self.quota -= quota;
        let mut subs: Vec<(u16, u32, u16)> =
            (number * SUBS as u32..).zip(&region.subs).map(|(n, sub)| (sub.unique, n, sub.counter)).collect();
        subs.retain(|&(unique, _, counter)| unique > 0 && counter > 0);
        subs.sort_unstable();
        let count = subs.iter().map(|sub| u64::from(sub.2)).sum();
        let subs: Vec<u32> = subs.into_iter().map(|sub| sub.1).collect();
        self.region = Some(InRegion { quota, subs: subs.into_iter(), count });
        true
    }
}

/// Chooses the blocks of a sub-region with the largest counters, at most `quota`.
fn choose(table: &BlockTable, sub: u32, quota: usize, without: u16, chosen: &mut Vec<BlockId>) {
    let Some(entries) = table.entries(sub).filter(|_| quota > 0) else { return };
    let known = entries.counters.iter().zip(&entries.flags).enumerate();
    let eligible = known.filter(|(_, (counter, flags))| **counter > 0 && **flags & without == 0);
    let mut ranked: Vec<(Reverse<u16>, usize)> =
        eligible.map(|(place, (counter, _))| (Reverse(*counter), place)).collect();
    if quota < ranked.len() {
        ranked.select_nth_unstable(quota);
        ranked.truncate(quota);
    }
    let first = u64::from(sub) * BLOCKS as u64;
    chosen.extend(ranked.into_iter().map(|(_, place)| BlockId(first + place as u64)));
    chosen.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    /// Accesses the first `blocks` blocks of a sub-region of the first region, each `times` times, by
    /// requests of one block.
    fn access(table: &mut BlockTable, sub: u64, blocks: u64, times: u32) {
        for block in 0..blocks {
            (0..times).for_each(|_| table.access(BlockId(sub * 1024 + block), 1, 8));
        }
    }

    fn all(table: &BlockTable, quota: u64) -> Vec<u64> {
        let (mut search, mut chosen, mut all) = (Search::new(table, quota), Vec::new(), Vec::new());
        while search.next(table, 0, &mut chosen) {
            all.extend(chosen.iter().map(|block| block.0));
        }
        all
    }

    #[test]
    fn sub_region_quota_follows_counter_share() {
        let mut table = BlockTable::new(1 << 20, MIB * 16);
        access(&mut table, 0, 100, 1);
        access(&mut table, 1, 40, 5);
        // 100 accesses beside 200: the first sub-region gets a third of 30 blocks, after the more
        // concentrated second.
        let chosen = all(&table, 30);
        assert_eq!(chosen, (1024..1044).chain(0..10).collect::<Vec<u64>>());
        table.access(BlockId(77), 1, 1);
        assert!(all(&table, 30).contains(&77));
    }

    #[test]
    fn unused_quota_passes_to_later_regions() {
        let mut table = BlockTable::new(1 << 22, MIB * 16);
        access(&mut table, 0, 2, 200);
        access(&mut table, 512, 60, 1);
        access(&mut table, 513, 70, 1);
        // The first region, of two blocks, has more than half of the counters and cannot use its quota.
        let chosen = all(&table, 100);
        assert_eq!(chosen.len(), 100);
        assert_eq!(chosen[..2], [0, 1]);
        assert_eq!(all(&table, 1_000).len(), 132);
        assert_eq!(all(&table, 0), [0; 0]);
    }

    #[test]
    fn a_block_with_an_excluded_flag_is_passed_over() {
        let mut table = BlockTable::new(1 << 20, MIB);
        access(&mut table, 0, 3, 1);
        *table.flags_mut(BlockId(1)).expect("it was accessed") = 1;
        let (mut search, mut chosen) = (Search::new(&table, 10), Vec::new());
        assert!(search.next(&table, 1, &mut chosen));
        assert_eq!(chosen, [BlockId(0), BlockId(2)]);
        assert!(!search.next(&table, 1, &mut chosen));
    }
}
