//! Dirty cached copies after the loss of the journal with its device, if the cache of another device is left.
//!
//! The table of that cache describes the last checkpoint. The list of recent entries brings the table up to
//! date. If copies left their places in an extent after the list, a dirty copy may be older than the home:
//! such an extent is lost.

use super::RecoveryInput;
use super::cache_table::LoadedTables;
use crate::journal::recent::ListContents;
use crate::map::State;
use crate::shape::Shape;
use braid_base::{BlockId, ExtentId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_format::witness::Witness;
use braid_runtime::Device;

impl LoadedTables {
    /// Applies the dirty copies in the list, and marks extents as lost whose dirty copies are unknown.
    /// Returns the lost extents. All extents with dirty copies are lost if the list of the witness is
    /// incomplete, or if an older version of Braid wrote the witness.
    pub fn restore<D: Device>(
        &mut self,
        input: &RecoveryInput<'_, D>,
        witness: &Witness,
        contents: Option<&ListContents>,
        state: &mut State,
    ) -> Vec<ExtentId> {
        // A volume with an adopted disk has a table of its dirty spans. After a shutdown the tables are
        // complete.
        if input.clean || input.superblock.adopted().is_some() {
            return Vec::new();
        }
        let shape = Shape::of(input.superblock);
        if let Some((recent, contents)) = witness.recent.as_ref().zip(contents) {
            let blocks = contents.blocks.iter().filter(|(block, _)| block.0 < shape.blocks());
            // Old places are emptied first, before other blocks take them.
            for &(block, _) in blocks.clone() {
                self.replay(state, recent.batch, block, None);
            }
            for &(block, now) in blocks {
                let is_there = |extra: &Extra| {
                    let slot = state.space.locate(extra.slot);
                    slot.is_some_and(|slot| input.members[slot.device.index()].is_current())
                };
                self.replay(state, recent.batch, block, now.filter(is_there));
            }
        }
        let is_whole = match &witness.recent {
            Some(recent) => recent.pages == 0 || contents.is_some(),
            None => true,
        };
        let is_known = is_whole && witness.left.is_some();
        let dirty: Vec<(BlockId, Extra)> = state.extras.all().filter(|(_, extra)| extra.dirty).collect();
        let mut lost = Vec::new();
        for (block, extra) in dirty {
            let (extent, page) = (shape.range_of(block).extent, state.cache_page(&extra));
            if self.sequence_of(page) >= witness.listed {
                continue;
            }
            // From now on the page contains batch `listed`: the next opening needs neither witness nor list.
            state.tables.mark_stale(page);
            let has_home = ![SlotNumber::NONE, SlotNumber::LOST].contains(&state.map.get(extent).home);
            if has_home && (!is_known || witness.lists_left(extent)) {
                lost.push(extent);
                state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
                state.mark_stale(extent);
            }
        }
        lost
    }
}
