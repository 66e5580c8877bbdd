//! Changes made by a daemon that died, known from the pending log alone. Part of [`State`] during recovery:
//! each change becomes pending again.

use super::State;
use super::changes::{Before, ExtraChange};
use braid_base::{BlockId, ExtentId};
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use std::collections::BTreeMap;

impl State {
    /// Restores the required copies of an extent. `was_behind`: the journal records a stale copy.
    pub fn survive_extent(&mut self, extent: ExtentId, entry: Entry, was_behind: bool) {
        let before = Before { entry: self.map.get(extent), was_behind };
        self.pending.extents.insert(extent, before);
        self.map.set(extent, entry);
    }

    /// Restores the extra copy of a block, or its absence. Returns true if the state changed, and `None` if
    /// the block slot is invalid or holds another block.
    pub fn survive_block(&mut self, block: BlockId, extra: Option<Extra>) -> Option<bool> {
        let extent = self.shape.range_of(block).extent;
        let before = self.extras.get(block);
        if before == extra {
            return Some(false);
        }
        let is_same_place =
            |other: Extra| extra.is_some_and(|e| (e.slot, e.place) == (other.slot, other.place));
        if let Some(left) = before.filter(|before| !is_same_place(*before)) {
            self.extras.set(block, None);
            self.pending.freed_blocks.push((block, left));
        }
        if let Some(extra) = extra {
            let slot = self.space.locate(extra.slot)?;
            let is_loaded =
                self.tables.describes_place(slot, extra.place) && self.extras.load(slot.device, block, extra);
            is_loaded.then_some(())?;
        }
        self.pending.any_dirty |= [before, extra].into_iter().flatten().any(|extra| extra.dirty);
        self.pending.blocks.insert(block, ExtraChange { before, after: None });
        // The journal may name a copy, so the extent counts as having one.
        self.map.add_extra(extent);
        Some(true)
    }

    /// End of the first extents with at most `most` pending changes in all, or of the first extent if this
    /// extent alone has more. `None` if at most `most` changes are pending.
    pub fn first_extents(&self, most: usize) -> Option<ExtentId> {
        if self.pending.len() <= most {
            return None;
        }
        let mut counts: BTreeMap<ExtentId, usize> = BTreeMap::new();
        let of_blocks = self.pending.blocks.keys().map(|&block| self.shape.range_of(block).extent);
        let all = self.pending.extents.keys().copied().chain(of_blocks);
        all.for_each(|extent| *counts.entry(extent).or_default() += 1);
        let (mut sum, mut end) = (0, None);
        for (extent, count) in counts {
            sum += count;
            if sum > most && end.is_some() {
                break;
            }
            end = Some(ExtentId(extent.0 + 1));
        }
        end
    }
}
