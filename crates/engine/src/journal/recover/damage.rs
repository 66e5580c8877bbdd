//! Damage: lost pages, lost batches, and the extents whose places are therefore unproved.

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
    /// Extents of pages that are valid in no image.
    pages: Vec<Range<u32>>,
    /// Lost batches, each with the extents that the batch changed; none if unknown.
    batches: Vec<(u64, Option<Vec<ExtentId>>)>,
    /// True if dirty entries of a cache table may be lost.
    dirty_lost: bool,
    /// Newest batch that places an extent.
    proved: HashMap<ExtentId, u64, FixedState>,
}

impl Damage {
    /// Notes a page that is valid in no image.
    pub fn page_lost(&mut self, page: u32, extents: Range<u32>) {
        self.sentences.push(format!(
            "map page {page} (extents {} to {}) is in neither image",
            extents.start,
            extents.end - 1
        ));
        self.pages.push(extents);
    }

    /// Notes lost pages of a cache table that may have held dirty entries. Nothing else names their blocks.
    pub fn cache_lost(&mut self, device: DeviceId, pages: Range<u32>) {
        let last = pages.end.saturating_sub(1);
        self.sentences
            .push(format!("pages {} to {last} of the cache table of {device} are in no image", pages.start));
        self.dirty_lost = true;
    }

    /// Takes over the damage of the journal.
    pub fn of_journal(&mut self, batches: &Batches) {
        self.sentences.extend(batches.problem.clone());
        self.batches.clone_from(&batches.lost);
        let (Some((first, _)), Some((last, _))) = (batches.lost.first(), batches.lost.last()) else { return };
        self.sentences.push(format!(
            "the journal lacks {} batch(es) that were promised, {first} to {last}",
            batches.lost.len()
        ));
    }

    /// Returns the first damage found.
    pub fn first(&self) -> Option<&str> {
        self.sentences.first().map(String::as_str)
    }

    /// Notes a batch that places an extent.
    pub fn prove(&mut self, extent: ExtentId, sequence: u64) {
        if !self.sentences.is_empty() {
            self.proved.insert(extent, sequence);
        }
    }

    /// Marks every extent without a proved place as lost. Returns these extents, in order. If blocks are
    /// written only to cached copies, a proved home does not prove that the newest bytes lie there. Extents
    /// of an adopted disk keep their homes.
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
        // An extent is unproved if a lost batch may have changed it after the newest batch known for the
        // extent.
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

    /// Returns a sentence for each damage.
    pub fn into_sentences(self) -> Vec<String> {
        self.sentences
    }
}
