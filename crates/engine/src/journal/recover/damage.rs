//! What cannot be proved: lost pages, lost batches, and the extents whose places only these knew.

use super::batches::Batches;
use super::pages::Loaded;
use crate::map::State;
use braid_base::{DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_format::superblock::Superblock;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::Range;

/// Damage found by a recovery.
#[derive(Default)]
pub(super) struct Damage {
    sentences: Vec<String>,
    /// Extents of pages that are in neither image.
    pages: Vec<Range<u32>>,
    /// Lost batches, each with the extents that it changed; none if that is not known.
    batches: Vec<(u64, Option<Vec<ExtentId>>)>,
    /// Whether dirty entries of a cache table may be lost.
    dirty_lost: bool,
    /// The newest batch that says where an extent lies.
    proved: HashMap<ExtentId, u64, FixedState>,
}

impl Damage {
    /// A page is in neither image.
    pub fn page_lost(&mut self, page: u32, extents: Range<u32>) {
        self.sentences.push(format!(
            "map page {page} (extents {} to {}) is in neither image",
            extents.start,
            extents.end - 1
        ));
        self.pages.push(extents);
    }

    /// Pages of a cache table are in no image, and may have held dirty entries: which blocks these were of,
    /// nothing else says.
    pub fn cache_lost(&mut self, device: DeviceId, pages: Range<u32>) {
        let last = pages.end.saturating_sub(1);
        self.sentences
            .push(format!("pages {} to {last} of the cache table of {device} are in no image", pages.start));
        self.dirty_lost = true;
    }

    /// Takes over what the journal lacks.
    pub fn of_journal(&mut self, batches: &Batches) {
        self.sentences.extend(batches.problem.clone());
        self.batches.clone_from(&batches.lost);
        let (Some((first, _)), Some((last, _))) = (batches.lost.first(), batches.lost.last()) else { return };
        self.sentences.push(format!(
            "the journal lacks {} batch(es) that were promised, {first} to {last}",
            batches.lost.len()
        ));
    }

    /// The first damage that was found.
    pub fn first(&self) -> Option<&str> {
        self.sentences.first().map(String::as_str)
    }

    /// A batch says where an extent lies.
    pub fn prove(&mut self, extent: ExtentId, sequence: u64) {
        if !self.sentences.is_empty() {
            self.proved.insert(extent, sequence);
        }
    }

    /// Marks every extent whose place is not proved as lost. Gives them, in order. If blocks are written to
    /// extra copies alone, where an extent's home is does not prove that its newest bytes lie there. Those of
    /// an adopted disk keep their homes.
    pub fn give_up(
        &self,
        superblock: &Superblock,
        state: &mut State,
        pages: &Loaded,
        writes_back: bool,
    ) -> Vec<ExtentId> {
        if self.pages.is_empty() && self.batches.is_empty() && !self.dirty_lost {
            return Vec::new();
        }
        // An extent is not proved if a lost batch may have changed it after all that is known of it.
        let unknown = self.batches.iter().filter(|(_, extents)| extents.is_none()).map(|(s, _)| *s).max();
        let mut listed: HashMap<ExtentId, u64, FixedState> = HashMap::default();
        for (sequence, extents) in &self.batches {
            for &extent in extents.iter().flatten() {
                let newest = listed.entry(extent).or_insert(*sequence);
                *newest = (*newest).max(*sequence);
            }
        }
        let mut lost = Vec::new();
        for extent in (0..superblock.extents()).map(ExtentId) {
            let said = self.proved.get(&extent).copied();
            let in_page = !self.pages.iter().any(|page| page.contains(&extent.0));
            let known = if writes_back { 0 } else { said.unwrap_or(0).max(pages.sequence_of(extent)) };
            let changed = listed.get(&extent).copied().max(unknown).unwrap_or(0);
            let may_be_old = self.dirty_lost && state.map.get(extent).home != SlotNumber::NONE;
            if (said.is_none() && !in_page) || changed > known || may_be_old {
                if !state.map.is_of_adopted() {
                    state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
                    state.mark_stale(extent);
                }
                lost.push(extent);
            }
        }
        lost
    }

    /// A sentence for each.
    pub fn into_sentences(self) -> Vec<String> {
        self.sentences
    }
}
