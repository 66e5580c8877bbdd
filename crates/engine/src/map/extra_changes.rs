//! Extra copies, and what the journal says of them: a part of [`State`].
//!
//! A block whose extra copy has changed is among the pending changes, with what the journal still says of it.
//! Until that is another thing, its block slot is not used again, its page of the cache table shows what the
//! journal says, and its extent counts as one with extra copies.

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

/// What is listed of a block's dirty extra copies on devices without the only journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirtyChange {
    pub block: BlockId,
    pub extent: ExtentId,
    /// The dirty copy that a batch gives the block there.
    pub now: Option<Extra>,
    /// Whether that batch takes a dirty copy from its place.
    pub leaves: bool,
}

impl State {
    /// What the batch that is being written changes of dirty extra copies that the loss of the journal would
    /// leave: if there is but one journal, and the cache tables are all that is known without it.
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

    /// The blocks of which a copy has left a place that a cache table may call dirty, since this was asked
    /// last: from now on a guest's write may make the home newer. With the batch from which on no table and
    /// no list says dirty; the largest number for a batch that is still to be written.
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

    /// Whether dirty extra copies on devices without the journal are listed at all.
    fn are_dirty_listed(&self) -> bool {
        self.outdated.is_needed() && !self.map.is_of_adopted()
    }

    /// Notes that a copy leaves a place on a device without the only journal, of which the table of the cache
    /// may say that it is dirty. Until then the place has the same bytes as the home, or newer ones.
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

    /// Whether the journal says that a block is dirty in a place, or will with the batch that is being
    /// written.
    fn is_said_dirty(&self, block: BlockId, place: Extra) -> bool {
        let changes = [self.committing.blocks.get(&block), self.pending.blocks.get(&block)];
        let said = changes.into_iter().flatten().flat_map(|change| [change.before, change.after]);
        said.flatten().any(|said| said.dirty && is_same_place(said, place))
    }

    /// The extra copy of a block is now this, or gone. A block slot that it leaves behind is the caller's.
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
            self.count_exposed_block(block, (known, &entry), (extra, &entry));
        }
        match (known.is_some(), extra.is_some()) {
            (false, true) => self.map.add_extra(extent),
            (true, false) => self.map.remove_extra(extent),
            _ => {}
        }
    }

    /// A block of an extent was dirty or not, and is now. Counted on an adopted disk alone.
    pub(super) fn count_dirty(&mut self, extent: ExtentId, before: bool, now: bool) {
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

    /// Counts the dirty blocks that recovery found.
    pub fn count_all_dirty(&mut self) {
        let dirty: Vec<BlockId> =
            self.extras.all().filter(|(_, extra)| extra.dirty).map(|(block, _)| block).collect();
        for block in dirty {
            self.count_dirty(self.shape.range_of(block).extent, false, true);
        }
    }

    /// Whether a span of an adopted disk has dirty blocks.
    pub fn has_dirty(&self, span: SpanId) -> bool {
        self.dirty.contains_key(&span)
    }

    /// What the next commit says of a block changes. While the journal may name an extra copy of it, the
    /// extent counts as one that has some, so that no write misses it.
    fn note_change(&mut self, block: BlockId, known: Option<Extra>, extra: Option<Extra>) {
        let extent = self.shape.range_of(block).extent;
        self.pending.any_dirty |= [known, extra].into_iter().flatten().any(|extra| extra.dirty);
        match self.pending.blocks.entry(block) {
            Entry::Vacant(vacant) => {
                vacant.insert(ExtraChange { before: known, after: None });
                self.map.add_extra(extent);
            }
            // As the journal has it.
            Entry::Occupied(change) if change.get().before == extra => {
                change.remove();
                self.map.remove_extra(extent);
            }
            Entry::Occupied(_) => {}
        }
    }

    /// What the journal and the cache tables say of a block's extra copy now.
    pub fn durable_extra(&self, block: BlockId) -> Option<Extra> {
        let change = self.committing.blocks.get(&block).or_else(|| self.pending.blocks.get(&block));
        change.map_or_else(|| self.extras.get(block), |change| change.before)
    }

    /// Whether a block's newest bytes are at the home, and in an extra copy by what the journal and the cache
    /// tables say.
    pub fn was_written_back(&self, block: BlockId) -> bool {
        let is_dirty = |extra: Option<Extra>| extra.is_some_and(|extra| extra.dirty);
        is_dirty(self.durable_extra(block)) && !is_dirty(self.extras.get(block))
    }

    /// Whether a write to a piece may make a clean extra copy differ from the required ones that the journal
    /// names, now or with a batch that is being written: then its span must be dirty before.
    pub fn has_clean_extra(&self, mut blocks: impl Iterator<Item = BlockId>) -> bool {
        let is_clean = |block| {
            self.extras.get(block).is_some_and(|extra| !extra.dirty)
                || !planted(Bug::GoneExtraForgotten)
                    && (self.pending.may_say_clean(block) || self.committing.may_say_clean(block))
        };
        self.has_spans && blocks.any(is_clean)
    }

    /// Whether any block of an extent has an extra copy now.
    pub fn any_extra(&self, extent: ExtentId) -> bool {
        let has_extra = |block| self.extras.get(block).is_some();
        self.map.has_extras(extent) && self.shape.blocks_of(extent).any(has_extra)
    }

    /// The page of a cache table that describes an extra copy's block slot.
    pub fn cache_page(&self, extra: &Extra) -> CachePage {
        let slot = self.space.locate(extra.slot).expect("an extra copy lies in a slot that exists");
        self.tables.page_of(slot, extra.place)
    }

    /// Takes up to `wanted` block slots of a device that lie side by side: of the divided extent slots, or of
    /// another one, if fewer than `most` are divided.
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

    /// Nothing uses the block slot of an extra copy any more, which the block has just left. It is free at
    /// once, unless the journal may still say that the block is there.
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

    /// Gives back a block slot that no record speaks of.
    pub fn release_block(&mut self, extra: Extra) {
        if let Some(slot) = self.extras.release(extra.slot, extra.place) {
            self.release(slot);
        }
    }

    /// Whether the batch that is being written changes where the newest bytes of a block lie.
    pub fn commits_data_of(&self, block: BlockId) -> bool {
        self.committing.blocks.get(&block).is_none_or(ExtraChange::concerns_data)
    }

    /// Passes each page with the entries that the journal says it has to `each`: not what has not been
    /// committed.
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
