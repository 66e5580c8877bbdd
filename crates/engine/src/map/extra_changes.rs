//! Extra copies and their state in the journal. Part of [`State`].
//!
//! A block with a changed extra copy is among the pending changes, with the copy still in the journal. Until
//! the journal changes, the old block slot is not used again, the page of the cache table shows the journal's
//! state, and the extent counts as having extra copies.

use super::changes::ExtraChange;
use super::{CachePage, State};
use crate::planted::{Bug, planted};
use braid_base::{BlockId, DeviceId, ExtentId, Slot};
use braid_format::extra_page::{CacheEntry, SLOTS_PER_PAGE};
use braid_format::journal::{Extra, Record};
use braid_format::{SlotNumber, SpanId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::ops::Range;

/// Change of a block's dirty extra copies on devices without the only journal, as listed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirtyChange {
    pub block: BlockId,
    pub extent: ExtentId,
    /// Dirty copy given to the block by a batch.
    pub now: Option<Extra>,
    /// True if the batch removes a dirty copy from its place.
    pub leaves: bool,
}

impl State {
    /// Changes by the batch being written to dirty extra copies that survive the loss of the journal. Empty
    /// unless there is one journal alone and the cache tables are all that is known after its loss.
    pub fn dirty_changes(&self) -> Vec<DirtyChange> {
        if !self.are_dirty_listed() {
            return Vec::new();
        }
        let is_listed = |extra: &Extra| extra.dirty && self.outdated.is_elsewhere(extra, &self.space);
        let changes = self.committing.blocks.iter().filter_map(|(&block, &ExtraChange { before, after })| {
            let (was, now) = (before.filter(is_listed), after.filter(is_listed));
            let leaves = was.is_some_and(|was| !after.is_some_and(|after| is_same_place(was, after)));
            let extent = self.shape.range_of(block).extent;
            (was.is_some() || now.is_some()).then_some(DirtyChange { block, extent, now, leaves })
        });
        changes.collect()
    }

    /// Takes the blocks with a copy that left a place which a cache table may call dirty, since the last
    /// call. From now on a guest's write may make the home newer. Each block comes with the batch from which
    /// on no table and no list says dirty; `u64::MAX` for a batch still to be written.
    pub fn take_left_dirty(&mut self) -> Vec<(BlockId, ExtentId, u64)> {
        let left = std::mem::take(&mut self.left_dirty);
        let listed = left.into_iter().filter_map(|(block, place)| {
            let until = match self.is_said_dirty(block, place) {
                true => Some(u64::MAX),
                false => self.outdated.was_dirty(&place),
            };
            Some((block, self.shape.range_of(block).extent, until?))
        });
        listed.collect()
    }

    /// True if dirty extra copies on devices without the journal are listed at all.
    fn are_dirty_listed(&self) -> bool {
        self.outdated.is_needed() && !self.map.is_of_adopted()
    }

    /// Notes a copy leaving a place that the cache table may call dirty, on a device without the only
    /// journal. Until then the place has the bytes of the home, or newer bytes.
    fn note_left(&mut self, block: BlockId, from: Extra, now: Option<Extra>) {
        let stays = now.is_some_and(|now| is_same_place(from, now));
        if stays || !self.are_dirty_listed() || !self.outdated.is_elsewhere(&from, &self.space) {
            return;
        }
        let may_be_dirty = from.dirty || self.is_said_dirty(block, from);
        if may_be_dirty || self.outdated.was_dirty(&from).is_some() {
            self.left_dirty.push((block, from));
        }
    }

    /// True if the journal calls a block dirty in a place, or will with the batch being written.
    fn is_said_dirty(&self, block: BlockId, place: Extra) -> bool {
        let changes = [self.committing.blocks.get(&block), self.pending.blocks.get(&block)];
        let said = changes.into_iter().flatten().flat_map(|change| [change.before, change.after]);
        said.flatten().any(|said| said.dirty && is_same_place(said, place))
    }

    /// Sets or removes the extra copy of a block. The caller retires the block slot left behind.
    pub fn set_extra(&mut self, block: BlockId, extra: Option<Extra>) {
        let known = self.extras.get(block);
        if known == extra {
            return;
        }
        let extent = self.shape.range_of(block).extent;
        if let Some(known) = known {
            self.note_left(block, known, extra);
        }
        self.note_change(block, known, extra);
        self.extras.set(block, extra);
        self.log(Record::Extra(block, extra));
        let is_dirty = |extra: Option<Extra>| extra.is_some_and(|extra| extra.dirty);
        self.count_dirty(extent, is_dirty(known), is_dirty(extra));
        if is_dirty(known) || is_dirty(extra) {
            let entry = self.map.get(extent);
            self.count_exposed_block(block, known, &entry, extra, &entry);
        }
        match (known.is_some(), extra.is_some()) {
            (false, true) => self.map.add_extra(extent),
            (true, false) => self.map.remove_extra(extent),
            _ => {}
        }
    }

    /// Counts a change of a block between clean and dirty, or a write that may make a block dirty. Counted on
    /// an adopted disk alone.
    pub fn count_dirty(&mut self, extent: ExtentId, before: bool, now: bool) {
        if before == now || !self.map.is_of_adopted() {
            return;
        }
        let span = self.shape.span_of(extent);
        let count = self.dirty.entry(span).or_default();
        *count = if now { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.dirty.remove(&span);
        }
    }

    /// Counts all dirty blocks after recovery.
    pub fn count_all_dirty(&mut self) {
        let dirty: Vec<BlockId> =
            self.extras.all().filter(|(_, extra)| extra.dirty).map(|(block, _)| block).collect();
        for block in dirty {
            self.count_dirty(self.shape.range_of(block).extent, false, true);
        }
    }

    /// True if a span of an adopted disk has dirty blocks, or writes that may make blocks dirty.
    pub fn has_dirty(&self, span: SpanId) -> bool {
        self.dirty.contains_key(&span)
    }

    /// Adds a block's change to the pending changes. While the journal may name an extra copy of the block,
    /// the extent counts as having one, so no write misses the copy.
    fn note_change(&mut self, block: BlockId, known: Option<Extra>, extra: Option<Extra>) {
        let extent = self.shape.range_of(block).extent;
        self.pending.any_dirty |= [known, extra].into_iter().flatten().any(|extra| extra.dirty);
        match self.pending.blocks.entry(block) {
            Entry::Vacant(vacant) => {
                vacant.insert(ExtraChange { before: known, after: None });
                self.map.add_extra(extent);
            }
            // The journal's state again: no change is left.
            Entry::Occupied(change) if change.get().before == extra => {
                change.remove();
                self.map.remove_extra(extent);
            }
            Entry::Occupied(_) => {}
        }
    }

    /// Durable extra copy of a block, by the journal and the cache tables.
    pub fn durable_extra(&self, block: BlockId) -> Option<Extra> {
        let change = self.committing.blocks.get(&block).or_else(|| self.pending.blocks.get(&block));
        change.map_or_else(|| self.extras.get(block), |change| change.before)
    }

    /// True if a block is written back, but still dirty by the journal and the cache tables.
    pub fn was_written_back(&self, block: BlockId) -> bool {
        let is_dirty = |extra: Option<Extra>| extra.is_some_and(|extra| extra.dirty);
        is_dirty(self.durable_extra(block)) && !is_dirty(self.extras.get(block))
    }

    /// True if a write to these blocks may make a clean extra copy differ from the required copies, by the
    /// journal now or with the batch being written. The span must be dirty before such a write.
    pub fn has_clean_extra(&self, mut blocks: impl Iterator<Item = BlockId>) -> bool {
        let is_clean = |block| {
            self.extras.get(block).is_some_and(|extra| !extra.dirty)
                || !planted(Bug::GoneExtraForgotten)
                    && (self.pending.may_say_clean(block) || self.committing.may_say_clean(block))
        };
        self.has_spans && blocks.any(is_clean)
    }

    /// True if any block of an extent has an extra copy now.
    pub fn any_extra(&self, extent: ExtentId) -> bool {
        let has_extra = |block| self.extras.get(block).is_some();
        self.map.has_extras(extent) && self.shape.blocks_of(extent).any(has_extra)
    }

    /// Page of the cache table with the entry of an extra copy's block slot.
    pub fn cache_page(&self, extra: &Extra) -> CachePage {
        let slot = self.space.locate(extra.slot).expect("an extra copy lies in a slot that exists");
        self.tables.page_of(slot, extra.place)
    }

    /// Takes up to `wanted` adjacent block slots of a device. Divides another extent slot if no divided slot
    /// has room and fewer than `most` are divided.
    pub fn take_blocks(
        &mut self,
        device: DeviceId,
        wanted: usize,
        most: u32,
    ) -> Option<(SlotNumber, Range<u16>)> {
        if let Some(taken) = self.extras.take(device, wanted) {
            return Some(taken);
        }
        if !self.tables.has(device) || self.extras.divided(device) >= most {
            return None;
        }
        let slot = self.take_aside(device)?;
        let place = self.space.locate(slot).expect("a slot that was taken exists");
        if !self.tables.describes(place) || !self.extras.divide(device, slot) {
            self.release(slot);
            return None;
        }
        self.extras.take(device, wanted)
    }

    /// Retires the block slot that a block has just left. The slot is free at once, unless the journal may
    /// still name the block there, or a cache table may call the slot dirty until a checkpoint.
    pub fn retire_block(&mut self, block: BlockId, left: Extra) {
        let is_there = |before: &Extra| (before.slot, before.place) == (left.slot, left.place);
        let before = self.pending.blocks.get(&block).and_then(|change| change.before).filter(is_there);
        let reused_early = |before: Extra| match before.dirty {
            true => planted(Bug::BlockReusedEarly),
            false => planted(Bug::CleanBlockReusedEarly),
        };
        if before.is_some_and(|before| !reused_early(before)) {
            self.pending.freed_blocks.push((block, left));
        } else if !self.outdated.holds_block(left) {
            self.release_block(left);
        }
    }

    /// Frees a block slot named by no record.
    pub fn release_block(&mut self, extra: Extra) {
        if let Some(slot) = self.extras.release(extra.slot, extra.place) {
            self.release(slot);
        }
    }

    /// True if the batch being written changes the place of a block's newest bytes, or does not contain the
    /// block.
    pub fn commits_data_of(&self, block: BlockId) -> bool {
        self.committing.blocks.get(&block).is_none_or(ExtraChange::concerns_data)
    }

    /// Passes each page to `each` with its durable entries. Uncommitted changes are left out.
    pub fn encode_cache_pages(
        &self,
        pages: &[CachePage],
        mut each: impl FnMut(usize, CachePage, &[Option<CacheEntry>]),
    ) {
        let is_ahead = planted(Bug::CachePageAheadOfJournal);
        let mut before: HashMap<(u32, u16), CacheEntry, FixedState> = HashMap::default();
        let changes = self.pending.blocks.iter().chain(&self.committing.blocks).filter(|_| !is_ahead);
        for (&block, change) in changes {
            let durable = self.committing.blocks.get(&block).unwrap_or(change).before;
            before.extend(durable.map(|e| ((e.slot.0, e.place), CacheEntry { block, dirty: e.dirty })));
        }
        let is_changed = |block: &BlockId| {
            let known = self.pending.blocks.contains_key(block) || self.committing.blocks.contains_key(block);
            known && !is_ahead
        };
        let mut entries = Vec::with_capacity(SLOTS_PER_PAGE as usize);
        for (i, &page) in pages.iter().enumerate() {
            entries.clear();
            entries.extend(self.tables.slots_of(page.page).map(|(index, place)| {
                let slot = self.space.number(Slot { device: page.device, index })?;
                if let Some(&entry) = before.get(&(slot.0, place)) {
                    return Some(entry);
                }
                let (block, dirty) = self.extras.at(slot, place)?;
                (!is_changed(&block)).then_some(CacheEntry { block, dirty })
            }));
            each(i, page, &entries);
        }
    }
}

fn is_same_place(one: Extra, other: Extra) -> bool {
    (one.slot, one.place) == (other.slot, other.place)
}
