//! What the volume knows, and what of it the journal does not know yet.
//!
//! A change is applied here once the data that it speaks of has been written, and becomes a record at the
//! next commit. Until that is durable, a slot that the change freed stays taken, and a map page that is
//! written meanwhile shows the extent as it was before ([`State::durable_entry`]): so neither can run ahead
//! of the journal.

use super::changes::Changes;
use super::exposed::Exposed;
use super::groups::Groups;
use super::neighbours::Given;
use super::outdated::Outdated;
use super::{Behind, CacheTables, Extras, Map, Moved, NeededLog, PendingLog, Space};
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_format::intent_page::{self, Difference};
use braid_format::journal::{Extra, Record};
use braid_format::map_page::{self, Entry};
use braid_format::map_summary::Summary;
use braid_format::superblock::{Layout, RegionKind, Superblock};
use braid_format::{SlotNumber, SpanId};
use braid_policy::{ByteRange, CellId, DeviceView, ExtraCopy, Homes};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeSet;

pub(crate) struct State {
    pub map: Map,
    pub space: Space,
    pub(super) given: Given,
    pub extras: Extras,
    /// Which pages of the cache tables are not up to date.
    pub tables: CacheTables,
    /// Where copies may differ.
    pub behind: Behind,
    /// Spans in which clean extra copies are not read: they may have been made from what a device held after
    /// it had lost writes.
    pub suspect: HashSet<SpanId, FixedState>,
    /// Whether a write to a block with a clean extra copy needs an intent: the volume has a table of spans.
    pub(super) has_spans: bool,
    /// Dirty blocks by span, on an adopted disk.
    pub(super) dirty: HashMap<SpanId, u32, FixedState>,
    /// What each device alone holds.
    pub(super) exposed: Exposed,
    /// Changes since the last commit began.
    pub(super) pending: Changes,
    /// Changes of the commit that is being written.
    pub(super) committing: Changes,
    /// Changes once more, where a crash of the daemon leaves them.
    pub(super) log: Option<PendingLog>,
    /// While the volume opens: where a daemon that died has left its changes, and what its devices had lost.
    pub(super) left_log: Option<NeededLog>,
    /// The number behind the last entry of the log that the commit covers.
    pub(super) committing_log: Option<u64>,
    /// Extents whose copies were exchanged because the home failed, as long as that may not be durable.
    exchanged: Vec<ExtentId>,
    /// Slots that nothing uses any more, durably: the device is told before they are free again.
    pub(super) trims: BTreeSet<u32>,
    /// Slots that nothing uses any more, durably in the journal alone.
    pub(super) outdated: Outdated,
    /// How many slots devices are being told of right now.
    trimming: usize,
    /// Map pages that are older on the devices than the journal says.
    pub(super) stale_pages: BTreeSet<u32>,
    /// Which map pages lie on the devices.
    pub groups: Groups,
    /// Pages of the spans' table likewise.
    stale_intents: BTreeSet<u32>,
    /// Extents that a background job is copying: a guest's write marks them, and wins.
    pub(super) watched: HashMap<ExtentId, bool, FixedState>,
    /// Extents whose required copies got other places.
    pub moved: Moved,
    /// Dirty blocks that are being written back, and that no guest has written to since that began.
    pub cleaning: HashSet<BlockId, FixedState>,
    /// Blocks of which an extra copy has left a place that a cache table may call dirty, since that was asked
    /// last.
    pub(super) left_dirty: Vec<(BlockId, Extra)>,
    /// The devices as the policy sees them; `free` is kept true by [`State::refresh`], the load by
    /// `Core::begin` and `Core::end`.
    pub views: Vec<DeviceView>,
    pub(super) shape: Shape,
}

impl State {
    pub fn new(shape: &Shape, superblock: &Superblock) -> State {
        let space = Space::new(superblock);
        let views = (0..).map(DeviceId).zip(&superblock.devices).map(|(id, d)| match d.layout {
            Layout::Adopted => DeviceView { free: 0, ..DeviceView::empty(id, d.class, d.slots) },
            // Slots that metadata lies in are for nothing else.
            Layout::Head | Layout::Tail => DeviceView::empty(id, d.class, space.free(id)),
        });
        State {
            map: match superblock.adopted() {
                None => Map::new(shape.extents(), shape.copies),
                Some(disk) => {
                    let first = SlotNumber(superblock.devices[disk.index()].first_slot);
                    Map::of_adopted(first, shape.extents(), shape.all_parts())
                }
            },
            views: views.collect(),
            space,
            given: Given::new(),
            extras: Extras::new(superblock.devices.len(), shape.extent_size / shape.block_size),
            tables: CacheTables::new(superblock),
            behind: Behind::new(*shape),
            suspect: HashSet::default(),
            has_spans: superblock.has(RegionKind::Intents),
            dirty: HashMap::default(),
            exposed: Exposed::default(),
            pending: Changes::default(),
            committing: Changes::default(),
            log: None,
            left_log: None,
            committing_log: None,
            trims: BTreeSet::new(),
            outdated: Outdated::new(superblock.devices.len()),
            exchanged: Vec::new(),
            trimming: 0,
            stale_pages: BTreeSet::new(),
            groups: Groups::all(map_page::pages(shape.extents(), shape.copies)),
            stale_intents: BTreeSet::new(),
            watched: HashMap::default(),
            moved: Moved::default(),
            cleaning: HashSet::default(),
            left_dirty: Vec::new(),
            shape: *shape,
        }
    }

    /// Changes that wait for a commit.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether some of them should not wait long, though no guest flushes: until they are durable, slots are
    /// not free again, and what copies that may differ need after a crash is not less.
    pub fn is_commit_due(&self) -> bool {
        self.pending.is_promised() || self.shape.copies > 1 && !self.pending.cleared.is_empty()
    }

    /// Slots that wait for a commit to be free.
    pub fn freeing(&self) -> usize {
        self.pending.freed.len() + self.committing.freed.len()
    }

    /// Block slots that wait for a commit to be free.
    pub fn freeing_blocks(&self) -> usize {
        self.pending.freed_blocks.len() + self.committing.freed_blocks.len()
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

    /// From now on, slots of other devices than this one wait for a checkpoint to be free; if there is none,
    /// no slots wait.
    pub fn set_only_journal(&mut self, device: Option<DeviceId>) {
        self.outdated.set_only_journal(device);
    }

    /// Takes slots side by side on one device that wait for the device to be told: at most so many, and at
    /// least one of those that wait. Each comes back by [`State::end_trim`].
    pub fn take_trims(&mut self, most: usize) -> Vec<SlotNumber> {
        let Some(&first) = self.trims.first() else { return Vec::new() };
        let device = |slot| self.space.locate(SlotNumber(slot)).map(|slot| slot.device);
        let follow = |(slot, next): &(u32, u32)| slot == next && device(*slot) == device(first);
        let run: Vec<u32> = self
            .trims
            .iter()
            .copied()
            .zip(first..)
            .take(most)
            .take_while(follow)
            .map(|(slot, _)| slot)
            .collect();
        for slot in &run {
            self.trims.remove(slot);
        }
        self.trimming += run.len();
        run.into_iter().map(SlotNumber).collect()
    }

    /// Frees all slots that wait for their device to be told. False if there are none.
    pub fn release_trims(&mut self) -> bool {
        let slots = std::mem::take(&mut self.trims);
        slots.iter().for_each(|&slot| self.release(SlotNumber(slot)));
        !slots.is_empty()
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

    /// Slots that are taken and belong to nothing any more: they wait for a commit, a checkpoint, or for
    /// their device to be told.
    pub fn waiting_slots(&self) -> impl Iterator<Item = SlotNumber> {
        let freed = self.pending.freed.iter().chain(&self.committing.freed);
        freed.chain(self.outdated.slots()).copied().chain(self.trims.iter().map(|&slot| SlotNumber(slot)))
    }

    /// The required copies of an extent are now these. The data that they speak of has been written.
    pub fn set_extent(&mut self, extent: ExtentId, entry: Entry) {
        let before = self.map.get(extent);
        if before != entry {
            if (before.home, before.second) != (entry.home, entry.second) {
                self.moved.note(extent);
            }
            let was_behind = || self.behind.durable(self.shape.span_of(extent)) == Difference::Behind;
            self.pending.note_extent(extent, before, was_behind);
            self.map.set(extent, entry);
            self.count_exposed(extent, &before, &entry);
            self.log(Record::Extent(extent, entry));
        }
    }

    /// Whether the clean extra copies of an extent are not to be read.
    #[inline]
    pub fn is_suspect(&self, extent: ExtentId) -> bool {
        !self.suspect.is_empty() && self.suspect.contains(&self.shape.span_of(extent))
    }

    /// The journal calls whole spans behind, and a device that is lost later would count as the only one that
    /// has the newest bytes of all homes there. So where one device alone lacks something in a span, the
    /// homes of extents whose copies are alike go to the other device. For a volume that closes: both copies
    /// are flushed, no batch follows, and the map pages are to be written.
    pub fn prefer_what_lacks_nothing(&mut self, is_current: impl Fn(DeviceId) -> bool) {
        let of =
            |space: &Space, slot| space.locate(slot).map(|place| place.device).filter(|d| is_current(*d));
        let of_journal = |span: &SpanId| !self.behind.is_span_undecided(*span);
        let spans: Vec<SpanId> = self.behind.behind_spans().into_iter().filter(of_journal).collect();
        for span in spans {
            let pairs: Vec<(ExtentId, Entry, [DeviceId; 2])> = self
                .shape
                .extents_of(span)
                .filter_map(|extent| {
                    let entry = self.map.get(extent);
                    Some((extent, entry, [of(&self.space, entry.home)?, of(&self.space, entry.second)?]))
                })
                .collect();
            let (lacking, alike): (Vec<_>, Vec<_>) =
                pairs.into_iter().partition(|(extent, ..)| self.behind.lacks_flushed(*extent));
            let lacks = |device| lacking.iter().any(|(.., [_, second])| *second == device);
            for (extent, entry, [home, second]) in alike {
                if lacks(home) && !lacks(second) {
                    let now = Entry { home: entry.second, second: entry.home, ..entry };
                    self.map.set(extent, now);
                    self.count_exposed(extent, &entry, &now);
                    self.mark_stale(extent);
                }
            }
        }
    }

    /// Whether the home of an extent has moved, and a crash, or the loss of the device that the home left,
    /// would bring that back.
    pub fn is_move_pending(&self, extent: ExtentId) -> bool {
        has_moved_home(&self.durable_entry(extent), &self.map.get(extent))
    }

    /// The copies of an extent were exchanged because the home failed.
    pub fn note_exchange(&mut self, extent: ExtentId) {
        self.exchanged.push(extent);
    }

    /// Whether the journal does not say so yet of some extent.
    pub fn is_exchange_pending(&mut self) -> bool {
        let mut exchanged = std::mem::take(&mut self.exchanged);
        exchanged.retain(|&extent| self.durable_entry(extent).home != self.map.get(extent).home);
        self.exchanged = exchanged;
        !self.exchanged.is_empty()
    }

    /// Corrects the records of a commit that has begun likewise, now that a device has been given up: of
    /// extents whose copies have been exchanged since, and of those that a guest has discarded since.
    pub fn exchange_recorded(&mut self, records: &mut [Record], is_current: impl Fn(DeviceId) -> bool) {
        for record in records {
            let Record::Extent(extent, entry) = record else { continue };
            let now = self.map.get(*extent);
            if (now.home, now.second) == (entry.home, entry.second) || entry.second == SlotNumber::NONE {
                continue;
            }
            let before = self.committing.extents[&*extent].entry;
            let has_moved = entry.home != before.home && entry.second == before.second;
            let left = self.space.locate(before.home).is_some_and(|place| !is_current(place.device));
            if (now.home, now.second) == (entry.second, entry.home) || has_moved && left {
                (entry.home, entry.second) = (entry.second, entry.home);
                // That is what the journal will say of it.
                self.pending.extents.entry(*extent).and_modify(|said| said.entry = *entry);
            }
        }
    }

    /// Nothing uses a slot any more: it is free once the changes so far are durable.
    pub fn retire(&mut self, slot: SlotNumber) {
        if planted(Bug::SlotReusedEarly) {
            return self.release(slot);
        }
        self.pending.freed.push(slot);
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

    /// A device has the slots that the superblock says now: it is new, or has been removed. Nothing lies on
    /// it.
    pub fn set_device(&mut self, superblock: &Superblock, device: DeviceId) {
        let (count, class) = (superblock.devices.len(), superblock.devices[device.index()].class);
        self.space.set_device(superblock, device);
        self.extras.set_devices(count);
        self.outdated.set_devices(count);
        self.tables.set_device(superblock, device);
        self.views.resize_with(count, || DeviceView::empty(device, class, 0));
        let view = &mut self.views[device.index()];
        view.slots = self.space.free(device);
        view.free = view.slots;
    }

    /// Takes so many free slots of a device that lie side by side, for metadata; the first of them.
    pub fn reserve_run(&mut self, device: DeviceId, count: u32) -> Option<u32> {
        let before = self.space.free(device);
        let first = self.space.reserve_run(device, count)?;
        let view = &mut self.views[device.index()];
        view.free = self.space.free(device);
        view.slots -= before - view.free;
        Some(first)
    }

    /// Gives such slots back: no metadata lies there any more.
    pub fn release_run(&mut self, device: DeviceId, first: u32, count: u32) {
        let before = self.space.free(device);
        self.space.release_run(device, first, count);
        let view = &mut self.views[device.index()];
        view.free = self.space.free(device);
        view.slots += view.free - before;
    }

    /// Gives back the slots of a device in which metadata lay and lies no more.
    pub fn release_metadata(&mut self, before: &Superblock, now: &Superblock, device: DeviceId) {
        self.space.release_metadata(before, now, device);
        self.views[device.index()].free = self.space.free(device);
    }

    /// Slots of a device that something but metadata uses, or that are not free again yet.
    pub fn held(&self, device: DeviceId) -> u32 {
        self.space.held(device)
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

    /// From the next commit on these spans are clean, if nothing writes to them before.
    pub fn clear_spans(&mut self, spans: Vec<SpanId>) {
        self.pending.cleared = spans;
    }

    /// Pages of the spans' table are older than the journal says.
    pub fn mark_intents_stale(&mut self, spans: impl IntoIterator<Item = SpanId>) {
        self.stale_intents.extend(spans.into_iter().map(|span| span.0 / intent_page::SPANS_PER_PAGE));
    }

    /// What the journal says of extents that have changed since, or is about to, and whether a copy may lack
    /// what a flush promised: a crash brings that back.
    pub fn entries_of_journal(&self) -> impl Iterator<Item = (ExtentId, Entry, bool)> {
        let changed = self.pending.extents.iter().chain(&self.committing.extents);
        changed.map(|(&extent, before)| (extent, before.entry, before.was_behind))
    }

    /// What the journal and the map pages say of an extent now: not what has not been committed.
    pub fn durable_entry(&self, extent: ExtentId) -> Entry {
        if planted(Bug::PageAheadOfJournal) {
            return self.map.get(extent);
        }
        let before = self.committing.extents.get(&extent).or_else(|| self.pending.extents.get(&extent));
        before.map_or_else(|| self.map.get(extent), |before| before.entry)
    }

    /// A map page is older than the journal says.
    pub fn mark_stale(&mut self, extent: ExtentId) {
        if !self.map.is_of_adopted() {
            self.stale_pages.insert(extent.0 / map_page::extents_per_page(self.shape.copies));
        }
    }

    /// All pages of the map that lie on the devices, and all of the spans' table, are to be written again.
    pub fn mark_all_stale(&mut self, spans: u32) {
        if !self.map.is_of_adopted() {
            self.stale_pages.extend(self.groups.mark_all_stale());
        }
        self.mark_intents_stale((0..spans).map(SpanId));
    }

    /// Pages that are older than the journal says, the summary of the map among them.
    pub fn stale_pages(&self) -> usize {
        let of_map = self.stale_pages.len() + usize::from(self.groups.is_stale());
        of_map + self.stale_intents.len() + self.tables.stale_pages()
    }

    /// Takes all stale pages, for a checkpoint, with the whole of each group that was never written. Then
    /// comes the summary that the checkpoint is to write behind them, if any. What it could not write comes
    /// back by [`State::put_back`].
    pub fn take_stale_pages(&mut self) -> (BTreeSet<u32>, Option<Summary>) {
        let mut pages = std::mem::take(&mut self.stale_pages);
        let summary = self.groups.begin(&mut pages);
        (pages, summary)
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

    /// Bytes of memory that the tables take.
    pub fn memory(&self) -> usize {
        self.map.memory() + self.extras.memory() + self.tables.memory() + self.behind.memory()
    }
}

/// Whether an extent with two copies has another home than before, beside the same second copy.
pub(crate) fn has_moved_home(before: &Entry, now: &Entry) -> bool {
    let had_home = before.home != SlotNumber::NONE && before.home != SlotNumber::LOST;
    had_home && now.home != before.home && now.second == before.second && now.second != SlotNumber::NONE
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
        self.behind.total()
    }

    fn next_behind(&self, from: Bytes) -> Option<ByteRange> {
        let range = self.behind.next(from)?;
        let end = range.end.min(self.shape.volume_size);
        (range.start < end).then_some(ByteRange { start: range.start, end })
    }
}
