//! The mirrored class: extents with their home on a disk, and extra copies of their blocks on an SSD.
//!
//! A block is a subpage of the paper. With a clean extra copy, both copies are valid. With a dirty extra
//! copy, the copy on C is stale. Without an extra copy, the copy on P is invalid.

use crate::{ByteRange, View};
use braid_base::{BlockId, ExtentId};
use std::collections::BTreeSet;

/// The mirrored extents.
#[derive(Default)]
pub struct Mirror {
    extents: BTreeSet<ExtentId>,
    /// Runs of `RUN` blocks with an extra copy made or dropped since the last look.
    changed: BTreeSet<u64>,
    /// Extent at which the next search for extents to clean begins.
    hand: u32,
}

/// Valid copies of a mirrored extent's blocks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Validity {
    /// Blocks valid on both.
    pub both: u32,
    /// Blocks valid only on the SSD.
    pub ssd: u32,
    /// Blocks valid only on the disk.
    pub disk: u32,
}

const RUN: u64 = 32;
/// Extents examined in a search for extents to clean.
const LOOKED_AT: usize = 256;

impl Mirror {
    /// Records that an extra copy of a block was made or dropped.
    pub fn changed(&mut self, block: BlockId) {
        self.changed.insert(block.0 / RUN);
    }

    /// Updates the class by the recorded changes: an extent is mirrored while a block of the extent has an
    /// extra copy.
    pub fn look(&mut self, view: &View) {
        for run in std::mem::take(&mut self.changed) {
            let range = ByteRange::new(view.block_size * (run * RUN), view.block_size * RUN);
            let last = (range.end.0 - 1) / view.extent_size.0;
            for extent in (range.start / view.extent_size..=last).map(|extent| ExtentId(extent as u32)) {
                let is_mirrored = view
                    .blocks_of(view.range_of_extent(extent))
                    .any(|block| view.homes.extra(block).is_some());
                match is_mirrored {
                    true => self.extents.insert(extent),
                    false => self.extents.remove(&extent),
                };
            }
        }
    }

    /// True if an extent was mirrored at the last look.
    pub fn has(&self, extent: ExtentId) -> bool {
        self.extents.contains(&extent)
    }

    /// All mirrored extents.
    pub fn extents(&self) -> impl Iterator<Item = ExtentId> {
        self.extents.iter().copied()
    }

    /// Number of mirrored extents.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Returns the next mirrored extents, in turns through the class.
    pub fn next_to_clean(&mut self) -> Vec<ExtentId> {
        let hand = ExtentId(self.hand);
        let rest = self.extents.range(hand..).chain(self.extents.range(..hand));
        let next: Vec<ExtentId> = rest.copied().take(LOOKED_AT).collect();
        self.hand = next.last().map_or(0, |last| last.0.wrapping_add(1));
        next
    }

    /// Counts the valid copies of an extent's blocks.
    pub fn validity(extent: ExtentId, view: &View) -> Validity {
        let mut validity = Validity::default();
        for block in view.blocks_of(view.range_of_extent(extent)) {
            match view.homes.extra(block) {
                Some(copy) if copy.dirty => validity.ssd += 1,
                Some(_) => validity.both += 1,
                None => validity.disk += 1,
            }
        }
        validity
    }

    /// Approximate memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.extents.len() * 2 * size_of::<ExtentId>() + self.changed.len() * 2 * size_of::<u64>()
    }
}
