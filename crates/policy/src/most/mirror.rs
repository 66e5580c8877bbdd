//! The mirrored class: extents with their home on a disk, and extra copies of their blocks on an SSD.
//!
//! A block is a subpage of the paper. A clean extra copy: both are valid. A dirty one: the copy on C is not.
//! None: the copy on P is not.

use crate::{ByteRange, View};
use braid_base::{BlockId, ExtentId};
use std::collections::BTreeSet;

/// Which extents are mirrored.
#[derive(Default)]
pub struct Mirror {
    extents: BTreeSet<ExtentId>,
    /// Runs of `RUN` blocks of which some copy was made or has gone since the last look.
    changed: BTreeSet<u64>,
    /// The extent at which the next search for what to clean begins.
    hand: u32,
}

/// What is valid of a mirrored extent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Validity {
    /// Blocks that are valid on both.
    pub both: u32,
    /// Blocks that are valid on the SSD alone.
    pub ssd: u32,
    /// Blocks that are valid on the disk alone.
    pub disk: u32,
}

const RUN: u64 = 32;
/// Extents that a search for what to clean looks at.
const LOOKED_AT: usize = 256;

impl Mirror {
    /// A copy of a block was made, or has gone.
    pub fn changed(&mut self, block: BlockId) {
        self.changed.insert(block.0 / RUN);
    }

    /// Looks at what has changed: an extent is mirrored as long as a block of it has a copy.
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

    /// Whether an extent was mirrored at the last look.
    pub fn has(&self, extent: ExtentId) -> bool {
        self.extents.contains(&extent)
    }

    /// All mirrored extents.
    pub fn extents(&self) -> impl Iterator<Item = ExtentId> {
        self.extents.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Some extents, each turn others.
    pub fn next_to_clean(&mut self) -> Vec<ExtentId> {
        let hand = ExtentId(self.hand);
        let rest = self.extents.range(hand..).chain(self.extents.range(..hand));
        let next: Vec<ExtentId> = rest.copied().take(LOOKED_AT).collect();
        self.hand = next.last().map_or(0, |last| last.0.wrapping_add(1));
        next
    }

    /// What is valid of an extent.
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

    /// Bytes of memory that it takes, about.
    pub fn memory(&self) -> usize {
        self.extents.len() * 2 * size_of::<ExtentId>() + self.changed.len() * 2 * size_of::<u64>()
    }
}
