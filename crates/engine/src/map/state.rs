//! What the volume knows, and what of it the journal does not know yet.
//!
//! A change is applied here once the data that it speaks of has been written, and becomes a record at the next commit.
//! Until that is durable, a slot that the change freed stays taken, and a map page that is written meanwhile shows the
//! extent as it was before ([`State::durable_entry`]): so neither can run ahead of the journal.

use super::outdated::{Freed, Outdated};
use super::{Behind, CachePage, CacheTables, Extras, Map, Space};
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Slot};
use braid_format::extra_page::{CacheEntry, SLOTS_PER_PAGE};
use braid_format::intent_page::{self, Difference};
use braid_format::journal::{Extra, Record};
use braid_format::map_page::{self, Entry};
use braid_format::superblock::Superblock;
use braid_format::{SlotNumber, SpanId};
use braid_policy::{ByteRange, CellId, DeviceView, ExtraCopy, Homes};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeSet;

pub(crate) struct State {
    pub map: Map,
    pub space: Space,
    pub extras: Extras,
    /// Which pages of the cache tables are not up to date.
    pub tables: CacheTables,
    /// Where copies may differ.
    pub behind: Behind,
    /// Changes since the last commit began.
    pending: Changes,
    /// Changes of the commit that is being written.
    committing: Changes,
    /// Slots that nothing uses any more, durably: the device is told before they are free again.
    trims: Vec<SlotNumber>,
    /// Slots that nothing uses any more, durably in the journal alone.
    outdated: Outdated,
    /// How many slots devices are being told of right now.
    trimming: usize,
    /// Map pages that are older on the devices than the journal says.
    stale_pages: BTreeSet<u32>,
    /// Pages of the spans' table likewise.
    stale_intents: BTreeSet<u32>,
    /// Extents that a background job is copying: a guest's write marks them, and wins.
    watched: HashMap<ExtentId, bool, FixedState>,
    /// The devices as the policy sees them; `free` is kept true by [`State::refresh`], the load by
    /// `Core::begin` and `Core::end`.
    pub views: Vec<DeviceView>,
    shape: Shape,
}

/// Changes that are not in the journal yet.
#[derive(Default)]
struct Changes {
    /// Changed extents, with what the journal still says of them.
    extents: HashMap<ExtentId, Entry, FixedState>,
    /// Changed blocks.
    blocks: HashMap<BlockId, DirtyChange, FixedState>,
    /// Slots that nothing uses once these changes are durable.
    freed: Vec<SlotNumber>,
    /// Block slots likewise.
    freed_blocks: Vec<Extra>,
    /// Spans whose copies are alike once all devices have been flushed.
    cleared: Vec<SpanId>,
}

/// The dirty extra copy of a block that is changed.
#[derive(Clone, Copy)]
struct DirtyChange {
    /// What the journal still says.
    before: Option<Extra>,
    /// What the batch that is being written says.
    after: Option<Extra>,
}

impl State {
    pub fn new(shape: &Shape, superblock: &Superblock) -> State {
        let space = Space::new(superblock);
        let views = superblock.devices.iter().enumerate().map(|(i, d)| {
            let id = DeviceId(i as u16);
            // Slots that metadata lies in are for nothing else.
            DeviceView::empty(id, d.class, space.free(id))
        });
        State {
            map: Map::new(shape.extents(), shape.copies),
            views: views.collect(),
            space,
            extras: Extras::new(superblock.devices.len(), shape.extent_size / shape.block_size),
            tables: CacheTables::new(superblock),
            behind: Behind::new(),
            pending: Changes::default(),
            committing: Changes::default(),
            trims: Vec::new(),
            outdated: Outdated::new(superblock.devices.len()),
            trimming: 0,
            stale_pages: BTreeSet::new(),
            stale_intents: BTreeSet::new(),
            watched: HashMap::default(),
            shape: *shape,
        }
    }

    /// Changes that wait for a commit.
    pub fn pending(&self) -> usize {
        self.pending.extents.len() + self.pending.blocks.len() + self.pending.cleared.len()
    }

    /// Slots that wait for a commit to be free.
    pub fn freeing(&self) -> usize {
        self.pending.freed.len() + self.committing.freed.len()
    }

    /// Whether slots wait for a checkpoint to be free.
    pub fn has_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// Whether a checkpoint would at least double the free slots of a device.
    pub fn lacks_checkpoint(&self) -> bool {
        self.outdated.outnumbers(&self.views)
    }

    /// Whether only the journal, on one device, knows of changes that the map image of another one lacks.
    pub fn is_ahead_of_images(&self) -> bool {
        self.outdated.is_needed() && self.stale_pages() > 0
    }

    /// From now on, slots of other devices than this one wait for a checkpoint to be free.
    pub fn set_only_journal(&mut self, device: DeviceId) {
        self.outdated.set_only_journal(device);
    }

    /// Takes the slots that wait for their device to be told; each comes back by [`State::end_trim`].
    pub fn take_trims(&mut self) -> Vec<SlotNumber> {
        self.trimming += self.trims.len();
        std::mem::take(&mut self.trims)
    }

    /// A slot is free.
    pub fn end_trim(&mut self, slot: SlotNumber) {
        self.trimming -= 1;
        self.release(slot);
    }

    /// How many slots devices are being told of.
    pub fn trimming(&self) -> usize {
        self.trimming
    }

    /// Whether slots wait for their device to be told.
    pub fn has_trims(&self) -> bool {
        !self.trims.is_empty()
    }

    /// Slots that are taken and belong to nothing any more: they wait for a commit, a checkpoint, or for their device to be told.
    pub fn waiting_slots(&self) -> impl Iterator<Item = SlotNumber> {
        let freed = self.pending.freed.iter().chain(&self.committing.freed);
        freed.chain(self.outdated.slots()).chain(&self.trims).copied()
    }

    /// The required copies of an extent are now these. The data that they speak of has been written.
    pub fn set_extent(&mut self, extent: ExtentId, entry: Entry) {
        let before = self.map.get(extent);
        if before != entry {
            self.pending.extents.entry(extent).or_insert(before);
            self.map.set(extent, entry);
        }
    }

    /// The extra copy of a block is now this, or gone. A block slot that it leaves behind is the caller's.
    pub fn set_extra(&mut self, block: BlockId, extra: Option<Extra>) {
        let known = self.extras.get(block);
        let before = known.filter(|e| e.dirty);
        if before != extra.filter(|e| e.dirty) {
            self.pending.blocks.entry(block).or_insert(DirtyChange { before, after: None });
        }
        self.extras.set(block, extra);
        for place in [known, extra].into_iter().flatten() {
            let page = self.cache_page(&place);
            self.tables.mark_unsaved(page);
        }
        let extent = self.shape.range_of(block).extent;
        match (known.is_some(), extra.is_some()) {
            (false, true) => self.map.add_extra(extent),
            (true, false) => self.map.remove_extra(extent),
            _ => {}
        }
    }

    /// The page of a cache table that describes an extra copy's block slot.
    pub fn cache_page(&self, extra: &Extra) -> CachePage {
        let slot = self.space.locate(extra.slot).expect("an extra copy lies in a slot that exists");
        self.tables.page_of(slot, extra.place)
    }

    /// Takes a block slot of a device: of the divided extent slots, or of another one, if fewer than `most` are divided.
    pub fn take_block(&mut self, device: DeviceId, most: u32) -> Option<(SlotNumber, u16)> {
        if let Some(taken) = self.extras.take(device) {
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
        self.extras.take(device)
    }

    /// Nothing uses a slot any more: it is free once the changes so far are durable.
    pub fn retire(&mut self, slot: SlotNumber) {
        if planted(Bug::SlotReusedEarly) {
            return self.release(slot);
        }
        self.pending.freed.push(slot);
    }

    /// Nothing uses the block slot of an extra copy any more. It is free at once, unless the journal may still say that a
    /// dirty one lies there.
    pub fn retire_block(&mut self, block: BlockId, extra: Extra) {
        let is_recorded =
            self.pending.blocks.contains_key(&block) || self.committing.blocks.contains_key(&block);
        if is_recorded && !planted(Bug::BlockReusedEarly) {
            self.pending.freed_blocks.push(extra);
        } else if !self.outdated.holds_block(extra) {
            self.release_block(extra);
        }
    }

    /// Gives back a block slot that no record speaks of.
    pub fn release_block(&mut self, extra: Extra) {
        if let Some(slot) = self.extras.release(extra.slot, extra.place) {
            self.release(slot);
        }
    }

    /// Gives back a slot that no record ever spoke of.
    pub fn release(&mut self, slot: SlotNumber) {
        self.space.release(slot);
        self.refresh(slot);
    }

    /// Whether slots of a device are given out: not while it is missing or failed.
    pub fn set_open(&mut self, device: DeviceId, open: bool) {
        self.space.set_open(device, open);
        self.views[device.index()].free = self.space.free(device);
    }

    pub(super) fn refresh(&mut self, slot: SlotNumber) {
        let device = self.space.locate(slot).expect("a slot that is taken or released exists").device;
        self.views[device.index()].free = self.space.free(device);
    }

    /// Recounts the free slots of all devices, after recovery claimed what is in use.
    pub fn refresh_all(&mut self) {
        for view in &mut self.views {
            view.free = self.space.free(view.id);
        }
    }

    /// Begins a commit: the records of all changes so far, into `records`.
    pub fn begin_commit(&mut self, records: &mut Vec<Record>) {
        assert!(
            self.committing.extents.is_empty() && self.committing.blocks.is_empty(),
            "one commit runs at a time"
        );
        self.committing = std::mem::take(&mut self.pending);
        self.committing.cleared = self.behind.begin_clearing(&self.committing.cleared);
        records.clear();
        records.extend(self.committing.extents.keys().map(|&e| Record::Extent(e, self.map.get(e))));
        for (&block, change) in &mut self.committing.blocks {
            // Clean extra copies are not recorded: for the journal such a block has none.
            change.after = self.extras.get(block).filter(|e| e.dirty && !planted(Bug::DirtyMarkDropped));
            records.push(Record::Extra(block, change.after));
        }
        records.extend(self.committing.cleared.iter().map(|&span| Record::Intent(span, Difference::None)));
        records.sort_unstable_by_key(|record| match record {
            Record::Extent(extent, _) => (0, u64::from(extent.0)),
            Record::Extra(block, _) => (1, block.0),
            Record::Intent(span, _) => (2, u64::from(span.0)),
            Record::Device(..) | Record::Epoch(_) => (3, 0),
        });
    }

    /// The commit is durable, with batch `newest`: what it freed is free, or waits for a checkpoint.
    pub fn end_commit(&mut self, newest: u64) {
        let mut done = std::mem::take(&mut self.committing);
        let per_page = map_page::extents_per_page(self.shape.copies);
        self.behind.end_clearing(&done.cleared, true);
        self.mark_intents_stale(std::mem::take(&mut done.cleared));
        self.stale_pages.extend(done.extents.keys().map(|e| e.0 / per_page));
        for DirtyChange { before, after } in done.blocks.values() {
            if let Some(place) = before.filter(|_| before != after) {
                self.outdated.note_clean(newest, place, &self.space);
            }
            let left = before.filter(|_| !planted(Bug::LeftCacheEntryKept));
            for place in [left, *after].into_iter().flatten() {
                let page = self.cache_page(&place);
                self.tables.mark_stale(page);
            }
        }
        let freed = Freed { slots: done.freed, blocks: done.freed_blocks };
        let freed = self.outdated.hold(newest, freed, &self.space);
        self.free(freed);
    }

    /// The pages contain all batches up to `done`, on every device that has them: what these batches freed is free.
    pub fn end_checkpoint(&mut self, done: u64) {
        let freed = self.outdated.end_checkpoint(done, &self.space);
        self.free(freed);
    }

    fn free(&mut self, Freed { slots, blocks }: Freed) {
        self.trims.extend(slots);
        blocks.into_iter().for_each(|extra| self.release_block(extra));
    }

    /// The commit failed, or a device did while it ran: spans that it was to clear stay as they were.
    pub fn keep_spans(&mut self) {
        let kept = std::mem::take(&mut self.committing.cleared);
        self.behind.end_clearing(&kept, false);
    }

    /// The batch of a commit may be on a device or not, and no other one follows. Spans that it was to clear may be clean for the next
    /// opening, so from now on nothing is written to both copies there.
    pub fn doubt_spans(&mut self) {
        let doubted = std::mem::take(&mut self.committing.cleared);
        self.behind.end_clearing(&doubted, true);
    }

    /// From the next commit on these spans are clean, if nothing writes to them before.
    pub fn clear_spans(&mut self, spans: Vec<SpanId>) {
        self.pending.cleared = spans;
    }

    /// Pages of the spans' table are older than the journal says.
    pub fn mark_intents_stale(&mut self, spans: impl IntoIterator<Item = SpanId>) {
        self.stale_intents.extend(spans.into_iter().map(|span| span.0 / intent_page::SPANS_PER_PAGE));
    }

    /// What the journal and the map pages say of an extent now: not what has not been committed.
    pub fn durable_entry(&self, extent: ExtentId) -> Entry {
        if planted(Bug::PageAheadOfJournal) {
            return self.map.get(extent);
        }
        let before = self.committing.extents.get(&extent).or_else(|| self.pending.extents.get(&extent));
        before.copied().unwrap_or_else(|| self.map.get(extent))
    }

    /// Passes each page with the entries that the journal says it has to `each`: dirty copies as they are durable, and clean ones as
    /// they are, which count only if the volume is closed after this. Also whether an entry is dirty.
    pub fn encode_cache_pages(
        &self,
        pages: &[CachePage],
        mut each: impl FnMut(usize, CachePage, &[Option<CacheEntry>]),
    ) {
        let mut before: HashMap<(u32, u16), BlockId, FixedState> = HashMap::default();
        let changes = self.pending.blocks.iter().chain(&self.committing.blocks);
        for (&block, change) in changes {
            let durable = self.committing.blocks.get(&block).unwrap_or(change).before;
            before.extend(durable.map(|extra| ((extra.slot.0, extra.place), block)));
        }
        if planted(Bug::CachePageAheadOfJournal) {
            before.clear();
        }
        let is_changed = |block: &BlockId| {
            let known = self.pending.blocks.contains_key(block) || self.committing.blocks.contains_key(block);
            known && !planted(Bug::CachePageAheadOfJournal)
        };
        let mut entries = Vec::with_capacity(SLOTS_PER_PAGE as usize);
        for (i, &page) in pages.iter().enumerate() {
            entries.clear();
            entries.extend(self.tables.slots_of(page.page).map(|(index, place)| {
                let slot = self.space.number(Slot { device: page.device, index })?;
                if let Some(&block) = before.get(&(slot.0, place)) {
                    return Some(CacheEntry { block, dirty: true });
                }
                let (block, dirty) = self.extras.at(slot, place)?;
                (!dirty || !is_changed(&block)).then_some(CacheEntry { block, dirty })
            }));
            each(i, page, &entries);
        }
    }

    /// A map page is older than the journal says.
    pub fn mark_stale(&mut self, extent: ExtentId) {
        self.stale_pages.insert(extent.0 / map_page::extents_per_page(self.shape.copies));
    }

    /// Map pages that are older than the journal says.
    pub fn stale_pages(&self) -> usize {
        self.stale_pages.len() + self.stale_intents.len() + self.tables.stale_pages()
    }

    /// Takes all stale pages, for a checkpoint; those that it could not write come back by [`State::put_back`].
    pub fn take_stale_pages(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.stale_pages)
    }

    /// Takes all stale pages of the spans' table likewise.
    pub fn take_stale_intents(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.stale_intents)
    }

    /// Marks pages as stale again.
    pub fn put_back(&mut self, pages: impl IntoIterator<Item = u32>, intents: impl IntoIterator<Item = u32>) {
        self.stale_pages.extend(pages);
        self.stale_intents.extend(intents);
    }

    /// Watches an extent for writes of guests. False where someone watches it already.
    pub fn watch(&mut self, extent: ExtentId) -> bool {
        self.watched.insert(extent, false).is_none_or(|before| {
            self.watched.insert(extent, before);
            false
        })
    }

    /// A guest is about to write to an extent.
    pub fn disturb(&mut self, extent: ExtentId) {
        if !self.watched.is_empty()
            && let Some(disturbed) = self.watched.get_mut(&extent)
        {
            *disturbed = true;
        }
    }

    /// Stops watching; whether a guest wrote meanwhile.
    pub fn unwatch(&mut self, extent: ExtentId) -> bool {
        let disturbed = self.watched.remove(&extent);
        disturbed.expect("an extent that is no longer watched was watched")
            && !planted(Bug::MoveIgnoresWrites)
    }

    /// Bytes of memory that the tables take.
    pub fn memory(&self) -> usize {
        self.map.memory() + self.extras.memory() + self.tables.memory() + self.behind.memory()
    }
}

impl Homes for State {
    fn extents(&self) -> u32 {
        self.map.extents()
    }

    fn home(&self, extent: ExtentId) -> Option<DeviceId> {
        self.space.locate(self.map.get(extent).home).map(|slot| slot.device)
    }

    fn extra(&self, block: BlockId) -> Option<ExtraCopy> {
        self.extras.copy_of(block)
    }

    fn block_in(&self, cell: CellId) -> Option<BlockId> {
        self.extras.block_in(cell)
    }

    fn behind(&self) -> Bytes {
        self.shape.span_size() * self.behind.len().1 as u64
    }

    fn next_behind(&self, from: Bytes) -> Option<ByteRange> {
        let size = self.shape.span_size();
        let span = self.behind.next_behind(SpanId((from.0 / size.0) as u32))?;
        let mut end = span.0 + 1;
        while self.behind.is_any_behind(SpanId(end)) {
            end += 1;
        }
        let start = (size * u64::from(span.0)).max(from);
        let end = (size * u64::from(end)).min(self.shape.volume_size);
        (start < end).then(|| ByteRange::new(start, end - start))
    }
}
