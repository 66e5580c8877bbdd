//! State of the volume in memory, and the changes pending for the journal.
//!
//! A change is applied here once its data has been written, and becomes a record at the next commit. Until
//! the commit is durable, a slot freed by the change stays taken. A map page written meanwhile shows the
//! extent before the change ([`State::durable_entry`]). So neither can run ahead of the journal.

use super::changes::Changes;
use super::exposed::Exposed;
use super::groups::Groups;
use super::neighbours::Given;
use super::outdated::Outdated;
use super::window::Window;
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
    /// Cache tables, with their stale pages.
    pub tables: CacheTables,
    /// Spans with copies that may differ.
    pub behind: Behind,
    /// Spans in which clean extra copies are not read: a copy may have been made from a device that had lost
    /// writes.
    pub suspect: HashSet<SpanId, FixedState>,
    /// True if the volume has a table of spans: a write to a block with a clean extra copy needs an intent.
    pub(super) has_spans: bool,
    /// Number of dirty blocks and of writes that may make blocks dirty, by span, on an adopted disk.
    pub(super) dirty: HashMap<SpanId, u32, FixedState>,
    /// Written bytes, counted by the devices of their copies.
    pub(super) exposed: Exposed,
    /// Changes since the last commit began.
    pub(super) pending: Changes,
    /// Changes of the running commit.
    pub(super) committing: Changes,
    /// Pending changes again, in memory that survives a crash of the daemon.
    pub(super) log: Option<PendingLog>,
    /// Set while the volume opens: the log of a daemon that died, with the loss of its devices.
    pub(super) left_log: Option<NeededLog>,
    /// Number after the last log entry covered by the running commit.
    pub(super) committing_log: Option<u64>,
    /// Extents with copies exchanged because the home failed, as long as the exchange may not be durable.
    exchanged: Vec<ExtentId>,
    /// Durably unused slots: the device is told by a discard before the slots are free again.
    pub(super) trims: BTreeSet<u32>,
    /// Slots durably unused in the journal alone.
    pub(super) outdated: Outdated,
    /// Number of slots being discarded on devices now.
    trimming: usize,
    /// Map pages older on the devices than the journal.
    pub(super) stale_pages: BTreeSet<u32>,
    /// Map pages present on the devices, by groups.
    pub groups: Groups,
    /// Pages of the spans' table older than the journal.
    stale_intents: BTreeSet<u32>,
    /// Extents being copied by a background job. A guest's write marks the extent, and wins.
    pub(super) watched: HashMap<ExtentId, bool, FixedState>,
    /// Counts of extents with moved required copies.
    pub moved: Moved,
    /// Dirty blocks being written back, without a guest's write since the start.
    pub cleaning: HashSet<BlockId, FixedState>,
    /// Blocks with an extra copy that left a place which a cache table may call dirty, since the last
    /// [`State::take_left_dirty`].
    pub(super) left_dirty: Vec<(BlockId, Extra)>,
    /// Devices as seen by the policy. [`State::refresh`] updates `free`; `Durable::begin` and `Durable::end`
    /// update the load.
    pub views: Vec<DeviceView>,
    /// Adjacent slots that are being emptied for metadata.
    pub(super) window: Option<Window>,
    pub(super) shape: Shape,
}

impl State {
    pub fn new(shape: &Shape, superblock: &Superblock) -> State {
        let space = Space::new(superblock);
        let views = (0..).map(DeviceId).zip(&superblock.devices).map(|(id, d)| match d.layout {
            Layout::Adopted => DeviceView { free: 0, ..DeviceView::empty(id, d.class, d.slots) },
            // Slots with metadata serve nothing else.
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
            window: None,
            shape: *shape,
        }
    }

    /// Number of pending changes.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// True if pending changes hold back freed slots or the clearing of dirty spans: commit soon without
    /// waiting for a guest's flush.
    pub fn is_commit_due(&self) -> bool {
        self.pending.is_promised() || self.shape.copies > 1 && !self.pending.cleared.is_empty()
    }

    /// Number of slots that wait for a commit to be free.
    pub fn freeing(&self) -> usize {
        self.pending.freed.len() + self.committing.freed.len()
    }

    /// Number of block slots that wait for a commit to be free.
    pub fn freeing_blocks(&self) -> usize {
        self.pending.freed_blocks.len() + self.committing.freed_blocks.len()
    }

    /// True if slots are held until a checkpoint.
    pub fn has_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// True if a checkpoint would at least double the free slots of a device.
    pub fn lacks_checkpoint(&self) -> bool {
        self.outdated.outnumbers(&self.views)
    }

    /// True if the journal on one device has changes that the map image of another device lacks.
    pub fn is_ahead_of_images(&self) -> bool {
        self.outdated.is_needed() && self.stale_pages() > 0
    }

    /// Sets the device with the only journal: freed slots of other devices are held until a checkpoint from
    /// now on. With `None`, no slots are held.
    pub fn set_only_journal(&mut self, device: Option<DeviceId>) {
        self.outdated.set_only_journal(device);
    }

    /// Takes adjacent slots of one device that wait for a discard: at most `most`, at least one if any waits.
    /// Each slot comes back by [`State::end_trim`].
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

    /// Frees all slots that wait for a discard. Returns false if none waits.
    pub fn release_trims(&mut self) -> bool {
        let slots = std::mem::take(&mut self.trims);
        slots.iter().for_each(|&slot| self.release(SlotNumber(slot)));
        !slots.is_empty()
    }

    /// Frees a slot after its discard.
    pub fn end_trim(&mut self, slot: SlotNumber) {
        self.trimming -= 1;
        self.release(slot);
    }

    /// Number of slots being discarded on devices.
    pub fn trimming(&self) -> usize {
        self.trimming
    }

    /// True if slots wait for a discard.
    pub fn has_trims(&self) -> bool {
        !self.trims.is_empty()
    }

    /// Taken slots without content, waiting for a commit, a checkpoint, or a discard.
    pub fn waiting_slots(&self) -> impl Iterator<Item = SlotNumber> {
        let freed = self.pending.freed.iter().chain(&self.committing.freed);
        freed.chain(self.outdated.slots()).copied().chain(self.trims.iter().map(|&slot| SlotNumber(slot)))
    }

    /// Sets the required copies of an extent. The data must be written before.
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

    /// True if the clean extra copies of an extent must not be read.
    #[inline]
    pub fn is_suspect(&self, extent: ExtentId) -> bool {
        !self.suspect.is_empty() && self.suspect.contains(&self.shape.span_of(extent))
    }

    /// Moves homes to the device that lacks nothing, before a close. The journal calls whole spans behind, so
    /// after a later loss the device with the homes would count as the only device with the newest bytes.
    /// Hence, if one device alone lacks something in a span, extents with equal copies get their home on the
    /// other device. Both copies are flushed, no batch follows, and the map pages are still to be written.
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

    /// True if the home of an extent has moved, and a crash, or the loss of the old device, would undo the
    /// move.
    pub fn is_move_pending(&self, extent: ExtentId) -> bool {
        has_moved_home(&self.durable_entry(extent), &self.map.get(extent))
    }

    /// Notes an exchange of an extent's copies because the home failed.
    pub fn note_exchange(&mut self, extent: ExtentId) {
        self.exchanged.push(extent);
    }

    /// True if the exchange of some extent is not in the journal yet.
    pub fn is_exchange_pending(&mut self) -> bool {
        let mut exchanged = std::mem::take(&mut self.exchanged);
        exchanged.retain(|&extent| self.durable_entry(extent).home != self.map.get(extent).home);
        self.exchanged = exchanged;
        !self.exchanged.is_empty()
    }

    /// Corrects the records of a running commit after the failure of a device. The copies are exchanged in
    /// records of extents exchanged since. The same applies to extents changed otherwise since, such as by a
    /// discard, if their home had moved off a device that is not current.
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
                // The corrected entry is the state that the journal will hold.
                self.pending.extents.entry(*extent).and_modify(|said| said.entry = *entry);
            }
        }
    }

    /// Retires an unused slot: free once the changes so far are durable.
    pub fn retire(&mut self, slot: SlotNumber) {
        if planted(Bug::SlotReusedEarly) {
            return self.release(slot);
        }
        self.pending.freed.push(slot);
    }

    /// Frees a slot never named by a record.
    pub fn release(&mut self, slot: SlotNumber) {
        self.space.release(slot);
        self.gather_freed(slot);
    }

    /// Sets whether slots of a device are given out: not while the device is missing or failed.
    pub fn set_open(&mut self, device: DeviceId, open: bool) {
        self.space.set_open(device, open);
        self.views[device.index()].free = self.space.free(device);
    }

    /// Sets the slots of a new or removed device as the superblock describes. The device must hold nothing.
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

    /// Takes `count` adjacent free slots of a device for metadata of a volume of `extents`. Returns the first
    /// slot.
    pub fn reserve_run(&mut self, device: DeviceId, count: u32, extents: u32) -> Option<u32> {
        let before = self.space.free(device);
        let first = self.space.reserve_run(device, count, extents)?;
        let view = &mut self.views[device.index()];
        view.free = self.space.free(device);
        view.slots -= before - view.free;
        Some(first)
    }

    /// Gives back slots taken by [`State::reserve_run`]: no metadata lies there any more.
    pub fn release_run(&mut self, device: DeviceId, first: u32, count: u32) {
        let before = self.space.free(device);
        self.space.release_run(device, first, count);
        let view = &mut self.views[device.index()];
        view.free = self.space.free(device);
        view.slots += view.free - before;
    }

    /// Gives back the slots of a device that held metadata before and hold none now.
    pub fn release_metadata(&mut self, before: &Superblock, now: &Superblock, device: DeviceId) {
        self.space.release_metadata(before, now, device);
        self.views[device.index()].free = self.space.free(device);
    }

    /// Slots of a device taken for other content than metadata, including slots not free again yet.
    pub fn held(&self, device: DeviceId) -> u32 {
        self.space.held(device)
    }

    pub(super) fn refresh(&mut self, slot: SlotNumber) {
        let device = self.space.locate(slot).expect("a slot that is taken or released exists").device;
        self.views[device.index()].free = self.space.free(device);
    }

    /// Recounts the free slots of all devices, after recovery has claimed the slots in use.
    pub fn refresh_all(&mut self) {
        for view in &mut self.views {
            view.free = self.space.free(view.id);
        }
    }

    /// Has the next commit clear these spans, unless a write comes before.
    pub fn clear_spans(&mut self, spans: Vec<SpanId>) {
        self.pending.cleared = spans;
    }

    /// Marks pages of the spans' table as older than the journal.
    pub fn mark_intents_stale(&mut self, spans: impl IntoIterator<Item = SpanId>) {
        self.stale_intents.extend(spans.into_iter().map(|span| span.0 / intent_page::SPANS_PER_PAGE));
    }

    /// Changed extents with the entry in the journal, now or after the running commit, and true if a copy may
    /// lack flushed bytes. A crash restores these entries.
    pub fn entries_of_journal(&self) -> impl Iterator<Item = (ExtentId, Entry, bool)> {
        let changed = self.pending.extents.iter().chain(&self.committing.extents);
        changed.map(|(&extent, before)| (extent, before.entry, before.was_behind))
    }

    /// Durable entry of an extent, by the journal and the map pages. Uncommitted changes do not count.
    pub fn durable_entry(&self, extent: ExtentId) -> Entry {
        if planted(Bug::PageAheadOfJournal) {
            return self.map.get(extent);
        }
        let before = self.committing.extents.get(&extent).or_else(|| self.pending.extents.get(&extent));
        before.map_or_else(|| self.map.get(extent), |before| before.entry)
    }

    /// Marks the map page of an extent as older than the journal.
    pub fn mark_stale(&mut self, extent: ExtentId) {
        if !self.map.is_of_adopted() {
            self.stale_pages.insert(extent.0 / map_page::extents_per_page(self.shape.copies));
        }
    }

    /// Marks all map pages on the devices, and the whole spans' table, as stale.
    pub fn mark_all_stale(&mut self, spans: u32) {
        if !self.map.is_of_adopted() {
            self.stale_pages.extend(self.groups.mark_all_stale());
        }
        self.mark_intents_stale((0..spans).map(SpanId));
    }

    /// Number of stale pages: of the map, its summary, the spans' table, and the cache tables.
    pub fn stale_pages(&self) -> usize {
        let of_map = self.stale_pages.len() + usize::from(self.groups.is_stale());
        of_map + self.stale_intents.len() + self.tables.stale_pages()
    }

    /// Takes all stale map pages for a checkpoint, with the whole of each group never written, and the
    /// summary to write afterwards, if any. Pages not written come back by [`State::put_back`].
    pub fn take_stale_pages(&mut self) -> (BTreeSet<u32>, Option<Summary>) {
        let mut pages = std::mem::take(&mut self.stale_pages);
        let summary = self.groups.begin(&mut pages);
        (pages, summary)
    }

    /// Takes all stale pages of the spans' table.
    pub fn take_stale_intents(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.stale_intents)
    }

    /// Marks pages as stale again.
    pub fn put_back(&mut self, pages: impl IntoIterator<Item = u32>, intents: impl IntoIterator<Item = u32>) {
        self.stale_pages.extend(pages);
        self.stale_intents.extend(intents);
    }

    /// Bytes of memory used by the tables.
    pub fn memory(&self) -> usize {
        self.map.memory() + self.extras.memory() + self.tables.memory() + self.behind.memory()
    }
}

/// True if an extent with two copies has another home than before, beside the same second copy.
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
