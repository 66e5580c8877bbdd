//! A locality table: number of requests to each block in the sliding window (table I, sections III-B.2 and
//! III-B.3).
//!
//! The paper keeps an item for each request, and divides a request that overlaps an earlier request: the
//! common part has a counter of two, the other parts a counter of one. The hotness of a sub-request is
//! therefore the number of requests in the window for all of the sub-request. A counter for each block gives
//! the same number for all sub-requests at once, in constant time, without items that multiply by division. A
//! test divides as in the paper, and compares.
//!
//! A row holds the counters of an extent, which moves as a whole. The row's location is the extent's, and its
//! hotness is the hotness of its hottest block. (A block is the volume's block here, but at least 1/32 of an
//! extent.) The two halves of the window have separate counters. When the window advances by half of its
//! length, the older counters are cleared. Requests of the last τ/2 therefore count, and requests older than
//! τ do not. The row's timestamp is the half of its last request.
//!
//! The table is bounded: in a full table a new row replaces the row whose first request in a half is oldest,
//! as if the window were shorter.

use crate::lru::Lru;
use crate::{Piece, View};
use braid_base::{Bytes, ExtentId};
use std::ops::Range;

/// The counters of a region, by extent.
pub struct Table {
    rows: Lru<ExtentId, Row>,
    /// Maximum number of rows.
    most: usize,
    /// Rows evicted while in the window, since the last [`Table::take_lost`].
    lost: u64,
}

/// Maximum number of counters for an extent.
const BLOCKS: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Half of the window with the extent's last request.
    half: u32,
    /// Requests to each block in the half `half`.
    latest: [u8; BLOCKS],
    /// Requests to each block in the half before `half`.
    before: [u8; BLOCKS],
}

/// Counters of a request's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Requests to the block in the window, the present request included.
    pub in_window: u8,
    /// Requests to the block in the last half of the window.
    pub in_half: u8,
}

impl Table {
    pub fn new(most: usize) -> Table {
        Table { rows: Lru::default(), most, lost: 0 }
    }

    /// Counts a request for `blocks` in the half `half`. Constant time.
    pub fn record(&mut self, extent: ExtentId, blocks: Range<usize>, half: u32) -> Asked {
        let row = match self.rows.value_mut(extent) {
            Some(row) if row.half == half => row,
            _ => self.touch(extent, half),
        };
        row.count(blocks, half)
    }

    /// Returns the row of an extent with its first request in this half.
    fn touch(&mut self, extent: ExtentId, half: u32) -> &mut Row {
        if self.rows.len() >= self.most && !self.rows.contains(extent) {
            let oldest = self.rows.oldest().and_then(|oldest| self.rows.value(oldest));
            self.lost += u64::from(oldest.is_some_and(|row| row.is_in_window(half)));
        }
        self.rows.touch_value(extent, self.most)
    }

    /// Returns the hotness of an extent; 0 outside the working set.
    pub fn hotness(&self, extent: ExtentId, half: u32) -> u8 {
        self.rows.value(extent).map_or(0, |row| row.hotness(half))
    }

    /// Returns the extents of the working set with their hotness, unordered.
    pub fn working_set(&self, half: u32) -> impl Iterator<Item = (ExtentId, u8)> {
        let in_window = self.rows.values().filter(move |(_, row)| row.is_in_window(half));
        in_window.map(move |(extent, row)| (extent, row.hotness(half)))
    }

    /// Returns the extents of the working set with their hotness, the row touched last first.
    pub fn newest_first(&self, half: u32) -> impl Iterator<Item = (ExtentId, u8)> {
        let in_window = self.rows.values_newest_first().filter(move |(_, row)| row.is_in_window(half));
        in_window.map(move |(extent, row)| (extent, row.hotness(half)))
    }

    /// Deletes the rows with a lower hotness, including rows that have left the window. Returns their
    /// extents.
    pub fn delete_below(&mut self, hotness: u8, half: u32) -> Vec<ExtentId> {
        let is_below = |(extent, row): (ExtentId, &Row)| (row.hotness(half) < hotness).then_some(extent);
        let deleted: Vec<ExtentId> = self.rows.values().filter_map(is_below).collect();
        for &extent in &deleted {
            self.rows.remove(extent);
        }
        deleted
    }

    /// Returns the extents with a row, unordered.
    pub fn rows(&self) -> impl Iterator<Item = ExtentId> {
        self.rows.values().map(|(extent, _)| extent)
    }

    /// Restores an extent's hotness from an earlier opening, for the half before `half`.
    pub fn restore(&mut self, extent: ExtentId, hotness: u8, half: u32) {
        let row = self.rows.touch_value(extent, self.most);
        *row = Row { half: half.wrapping_sub(1), latest: [hotness; BLOCKS], before: [0; BLOCKS] };
    }

    /// Returns and resets the number of rows evicted while in the window.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Approximate memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.rows.memory()
    }
}

impl Row {
    fn count(&mut self, blocks: Range<usize>, half: u32) -> Asked {
        match half.wrapping_sub(self.half) {
            0 => {}
            1 => self.before = std::mem::take(&mut self.latest),
            _ => (self.latest, self.before) = Default::default(),
        }
        self.half = half;
        let first = blocks.start;
        for count in &mut self.latest[blocks] {
            *count = count.saturating_add(1);
        }
        let in_half = self.latest[first];
        Asked { in_window: in_half.saturating_add(self.before[first]), in_half }
    }

    fn is_in_window(&self, half: u32) -> bool {
        half.wrapping_sub(self.half) <= 1
    }

    fn hotness(&self, half: u32) -> u8 {
        let hottest = |counts: &[u8]| counts.iter().copied().fold(0, u8::max);
        match half.wrapping_sub(self.half) {
            0 => {
                let mut all = self.latest;
                all.iter_mut()
                    .zip(self.before)
                    .for_each(|(count, before)| *count = count.saturating_add(before));
                hottest(&all)
            }
            1 => hottest(&self.latest),
            _ => 0,
        }
    }
}

/// Returns the blocks of its extent that a piece requests.
pub fn blocks_of(piece: &Piece, view: &View) -> Range<usize> {
    let size = view.block_size.max(view.extent_size / BLOCKS as u64);
    let block = |at: Bytes| ((at.0 >> size.0.trailing_zeros()) as usize).min(BLOCKS - 1);
    // An empty request counts for the block at its start.
    let last = piece.range.end.saturating_sub(Bytes(1)).max(piece.range.start);
    block(piece.range.start)..block(last) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    const E: ExtentId = ExtentId(7);

    /// A locality table as in the paper: an item for each sub-request, divided by each request that overlaps
    /// it.
    #[derive(Default)]
    struct Items(Vec<(Range<usize>, u8)>);

    impl Items {
        fn record(&mut self, request: Range<usize>) {
            let (mut items, mut rest) = (Vec::new(), vec![request]);
            for (item, hotness) in self.0.drain(..) {
                let overlap = |r: &Range<usize>| r.start.max(item.start)..r.end.min(item.end);
                let mut parts = vec![(item.clone(), hotness)];
                for both in rest.iter().map(overlap).filter(|both| !both.is_empty()) {
                    let divided = parts.drain(..).flat_map(|(part, hotness)| divide(part, hotness, &both));
                    parts = divided.collect();
                }
                rest = rest.into_iter().flat_map(|part| outside(part, &item)).collect();
                items.extend(parts);
            }
            items.extend(rest.into_iter().map(|part| (part, 1)));
            self.0 = items;
        }

        fn hotness(&self, block: usize) -> u8 {
            self.0.iter().filter(|(item, _)| item.contains(&block)).map(|(_, hotness)| *hotness).sum()
        }
    }

    /// An item, nested or not, becomes up to three.
    fn divide(item: Range<usize>, hotness: u8, both: &Range<usize>) -> Vec<(Range<usize>, u8)> {
        if both.end <= item.start || item.end <= both.start {
            return vec![(item, hotness)];
        }
        let inside = both.start.max(item.start)..both.end.min(item.end);
        let mut parts: Vec<_> = outside(item, &inside).into_iter().map(|part| (part, hotness)).collect();
        parts.push((inside, hotness + 1));
        assert!(parts.len() <= 3);
        parts
    }

    fn outside(range: Range<usize>, hole: &Range<usize>) -> Vec<Range<usize>> {
        let before = range.start..range.end.min(hole.start);
        let after = range.start.max(hole.end)..range.end;
        [before, after].into_iter().filter(|part| !part.is_empty()).collect()
    }

    #[test]
    fn block_counters_match_sub_requests_of_paper() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let (mut table, mut items) = (Table::new(4), Items::default());
            for _ in 0..rng.between(1, 12) {
                let start = rng.below(BLOCKS as u64) as usize;
                let request = start..rng.between(start as u64 + 1, BLOCKS as u64 + 1) as usize;
                table.record(E, request.clone(), 3);
                items.record(request);
            }
            let row = table.rows.value(E).expect("it was asked for");
            for block in 0..BLOCKS {
                assert_eq!(row.latest[block], items.hotness(block), "block {block}");
            }
            assert_eq!(table.hotness(E, 3), (0..BLOCKS).map(|block| items.hotness(block)).max().unwrap());
        }
    }

    #[test]
    fn counters_leave_with_the_window() {
        let mut table = Table::new(4);
        for half in [1, 1, 1, 2] {
            table.record(E, 0..1, half);
        }
        assert_eq!([2, 3, 4].map(|half| table.hotness(E, half)), [4, 1, 0]);
        assert_eq!(table.record(E, 0..1, 3), Asked { in_window: 2, in_half: 1 });
        assert_eq!(table.record(E, 0..1, 9), Asked { in_window: 1, in_half: 1 });
        assert_eq!(table.working_set(10).collect::<Vec<_>>(), [(E, 1)]);
        assert_eq!(table.working_set(11).count(), 0);
    }

    #[test]
    fn block_counter_saturates() {
        let mut table = Table::new(4);
        for half in [1; 1000].into_iter().chain([2; 1000]) {
            table.record(E, 0..BLOCKS, half);
        }
        assert_eq!(table.hotness(E, 2), 255);
    }

    #[test]
    fn full_table_drops_oldest_row_and_counts_loss() {
        let mut table = Table::new(2);
        for extent in [1, 2, 1, 3] {
            table.record(ExtentId(extent), 0..1, 1);
        }
        assert_eq!(table.newest_first(1).map(|(extent, _)| extent.0).collect::<Vec<_>>(), [3, 2]);
        assert_eq!((table.take_lost(), table.take_lost()), (1, 0));
        // A row that has left the window does not count as lost.
        table.record(ExtentId(4), 0..1, 3);
        assert_eq!(table.take_lost(), 0);
    }
}
