//! Cache tables in recovery: the block in each block slot at the last checkpoint, then the records of the
//! journal.
//!
//! An entry is dirty as of the batch that its page names. A record of a later batch changes the entry; a
//! record of the same or an earlier batch does not. A block that moved between block slots may be in both
//! pages until its records have been replayed.
//!
//! After a shutdown, all clean copies count, provided that no device is lacking. After an unclean stop only
//! clean copies in clean spans count: in a dirty span, a write may have reached only the home or only the
//! cached copy. The other copies are forgotten. A checkpoint makes the forgetting durable before the volume
//! serves; until then the spans still tell the next opening to forget.
//!
//! If the journal's device is lost, a dirty entry in the table of another SSD describes the last checkpoint
//! (`recent_blocks.rs`). On an adopted disk such an entry counts only in spans that the table of dirty spans
//! names.

use super::damage::Damage;
use super::pages::{DoubleWritten, GROUP, PAGE, read_group};
use super::{Mode, Recovery, RecoveryInput, corrupt};
use crate::Result;
use crate::buffer::buffer;
use crate::journal::{DirtySpans, cache_images};
use crate::map::{CachePage, State};
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Slot};
use braid_format::extra_directory::{self, Content};
use braid_format::extra_page::{self, CacheEntry};
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Region, RegionKind};
use braid_format::{Invalid, SlotNumber, SpanId, Uuid};
use braid_runtime::{Arena, Buf, Device};
use std::cell::RefCell;
use std::io;

/// Contents of the tables.
#[derive(Default)]
pub(super) struct LoadedTables {
    /// Newest journal batch that each page is known to contain, by device and page; 0 for a page never
    /// written.
    sequences: Vec<Vec<u64>>,
    /// Blocks that pages or records place in a missing slot, or in the place of another block.
    misplaced: Vec<BlockId>,
    /// Which clean copies count.
    trust: Trust,
    /// Number of copies that do not count.
    forgotten: u64,
}

/// Which clean cached copies count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Trust {
    #[default]
    None,
    /// Copies in clean spans.
    CleanSpans,
    All,
}

impl Trust {
    fn of<D: Device>(input: &RecoveryInput<'_, D>) -> Trust {
        let superblock = input.superblock;
        let is_recorded =
            superblock.features.incompat & Features::CLEAN_EXTRAS != 0 && superblock.has(RegionKind::Intents);
        match input.mode {
            Mode::Repair => Trust::None,
            // The copies come from a disk whose contents have changed.
            Mode::Strict if input.changed_elsewhere => Trust::None,
            Mode::Strict if input.members.iter().any(|member| member.is_lacking()) => Trust::None,
            Mode::Strict if input.clean || planted(Bug::CleanExtrasTrusted) => Trust::All,
            Mode::Strict if is_recorded => Trust::CleanSpans,
            Mode::Strict => Trust::None,
        }
    }
}

impl LoadedTables {
    /// Returns the newest batch that any page contains.
    pub fn newest(&self) -> u64 {
        self.sequences.iter().flatten().copied().max().unwrap_or(0)
    }
}

/// Entries of a page: extent slot, place in the slot, and contents.
type Entries = Vec<(Slot, u16, CacheEntry)>;

/// Reader of one device's table.
struct TableReader<'a, D> {
    input: &'a RecoveryInput<'a, D>,
    device: DeviceId,
    images: Vec<(DeviceId, Bytes)>,
    buffers: Vec<Buf>,
    /// Pages in the double-write areas, if the table has a single image, and the UUID of their seal.
    double_written: Option<(&'a DoubleWritten, Uuid)>,
    /// Error of a page that could not be read.
    unread: RefCell<Option<io::Error>>,
}

/// A valid image of a page, and its verified contents.
struct Valid<T> {
    sequence: u64,
    content: T,
}

/// Reads all tables into `state`.
pub(super) async fn load<D: Device>(
    input: &RecoveryInput<'_, D>,
    state: &mut State,
    double_written: &DoubleWritten,
    recovery: &mut Recovery,
    damage: &mut Damage,
) -> Result<LoadedTables> {
    let mut loaded = LoadedTables { trust: Trust::of(input), ..LoadedTables::default() };
    for member in input.members {
        let device = member.id;
        loaded.sequences.push(vec![0; state.tables.pages(device) as usize]);
        if !state.tables.has(device) {
            continue;
        }
        if !member.is_current() {
            // The other devices continued without this device. It holds no dirty copy: otherwise it could not
            // be lacking.
            state.tables.forget(device);
            continue;
        }
        let images = cache_images(input.superblock, device);
        let mut buffers = Vec::new();
        for _ in &images {
            buffers.push(buffer(Arena::LARGEST).await);
        }
        let unread = RefCell::default();
        // With a single image, pages went to a double-write area first.
        let double_written = (images.len() == 1).then_some((double_written, member.entry.uuid));
        let reader = TableReader { input, device, images, buffers, double_written, unread };
        reader.load_directory(state, damage).await?;
        reader.load_entries(state, recovery, damage, &mut loaded).await?;
    }
    Ok(loaded)
}

impl<D: Device> TableReader<'_, D> {
    async fn load_directory(&self, state: &mut State, damage: &mut Damage) -> Result<()> {
        let count = state.tables.directory_pages(self.device);
        for first in (0..count).step_by(GROUP as usize) {
            let pages = GROUP.min(count - first);
            let read = self.read(first, pages).await;
            for page in first..first + pages {
                let verify = |bytes: &[u8], seal: Uuid| {
                    let mut all = Vec::new();
                    let sequence =
                        extra_directory::decode(bytes, seal, page, |page, found| all.push((page, found)))?;
                    Ok((sequence, all))
                };
                let (best, differ) = self.best(first, page, page, &read, verify);
                let Some(Valid { content, .. }) = best else {
                    self.refuse_unread(format_args!("directory page {page} of the cache table"))?;
                    let described = extra_directory::PAGES_PER_PAGE;
                    let entries =
                        page * described..((page + 1) * described).min(state.tables.pages(self.device));
                    // Pages of entries without a directory were never written, or are lost with the
                    // directory.
                    if self.input.superblock.copies == 1 {
                        damage.cache_lost(self.device, entries.clone());
                    }
                    state.tables.mark_directory_stale(CachePage { device: self.device, page: entries.start });
                    continue;
                };
                if differ {
                    let page = page * extra_directory::PAGES_PER_PAGE;
                    state.tables.mark_directory_stale(CachePage { device: self.device, page });
                }
                for (page, content) in content {
                    state.tables.set_content(CachePage { device: self.device, page }, content);
                }
            }
        }
        Ok(())
    }

    async fn load_entries(
        &self,
        state: &mut State,
        recovery: &mut Recovery,
        damage: &mut Damage,
        loaded: &mut LoadedTables,
    ) -> Result<()> {
        let before = state.tables.directory_pages(self.device);
        let is_written = |state: &State, page: u32| {
            state.tables.content(CachePage { device: self.device, page }) != Content::Unwritten
        };
        let (count, mut first) = (state.tables.pages(self.device), 0);
        while first < count {
            if !is_written(state, first) {
                first += 1;
                continue;
            }
            let end = (first..count.min(first + GROUP)).find(|&page| !is_written(state, page));
            let end = end.unwrap_or(count.min(first + GROUP));
            let read = self.read(before + first, end - first).await;
            for page in first..end {
                let place = CachePage { device: self.device, page };
                let decode = |bytes: &[u8], seal| self.decode(bytes, seal, before, place, state);
                let (best, differ) = self.best(first, page, before + page, &read, decode);
                let Some(Valid { sequence, content, .. }) = best else {
                    self.refuse_unread(format_args!("page {page} of the cache table"))?;
                    if state.tables.content(place) == Content::Dirty && self.input.superblock.copies == 1 {
                        damage.cache_lost(self.device, page..page + 1);
                    }
                    state.tables.mark_stale(place);
                    continue;
                };
                if differ {
                    recovery.pages_from_one_image += 1;
                    state.tables.mark_stale(place);
                }
                loaded.sequences[self.device.index()][page as usize] = sequence;
                self.take(place, &content, state, loaded);
            }
            first = end;
        }
        Ok(())
    }

    /// Loads the entries of a page that count into `state`.
    fn take(&self, page: CachePage, entries: &Entries, state: &mut State, loaded: &mut LoadedTables) {
        let spans = dirty_spans_without_journal(self.input);
        let shape = Shape::of(self.input.superblock);
        let span_of = |block: BlockId| shape.span_of(shape.range_of(block).extent);
        for &(slot, place, CacheEntry { block, dirty }) in entries {
            let counts = match dirty {
                true => {
                    spans.is_none_or(|spans| spans.names(span_of(block))) || planted(Bug::DirtyWithoutJournal)
                }
                false => loaded.trust != Trust::None,
            };
            if !counts {
                loaded.forgotten += 1;
                state.tables.mark_stale(page);
                continue;
            }
            let slot = state.space.number(slot).expect("a page that was verified names slots that exist");
            if !state.extras.load(self.device, block, Extra { slot, place, dirty }) {
                loaded.misplaced.push(block);
            }
        }
    }

    /// Decodes a page: its sequence and entries. Fails unless all entries name slots of the device and blocks
    /// of the volume.
    fn decode(
        &self,
        bytes: &[u8],
        seal: Uuid,
        before: u32,
        page: CachePage,
        state: &State,
    ) -> std::result::Result<(u64, Entries), Invalid> {
        let superblock = self.input.superblock;
        let blocks = Shape::of(superblock).blocks();
        let (mut found, mut beyond) = (Vec::new(), None);
        let mut slots = state.tables.slots_of(page.page).enumerate();
        let sequence = extra_page::decode(bytes, seal, before + page.page, |number, entry| {
            let slot = slots.find(|(i, _)| *i == number as usize);
            let Some((_, (index, place))) = slot else { return };
            let slot = Slot { device: self.device, index };
            match state.space.number(slot) {
                Some(_) if entry.block.0 < blocks => found.push((slot, place, entry)),
                _ => beyond = Some(entry.block),
            }
        })?;
        match beyond {
            None => Ok((sequence, found)),
            Some(block) => Err(Invalid::Value(format!("a cache table names {block:?}, beyond the volume"))),
        }
    }

    async fn read(&self, first: u32, pages: u32) -> Vec<bool> {
        *self.unread.borrow_mut() = None;
        read_group(self.input, &self.images, &self.buffers, first, pages, &self.unread).await
    }

    /// Returns the newest valid image of a page, and true if any image differs or is not valid. Forgotten
    /// copies change a page without a new batch: of equal sequences image 0 is newer, because image 0 is
    /// written first. `number` is the page's own number.
    fn best<T: PartialEq>(
        &self,
        first: u32,
        page: u32,
        number: u32,
        read: &[bool],
        verify: impl Fn(&[u8], Uuid) -> std::result::Result<(u64, T), Invalid>,
    ) -> (Option<Valid<T>>, bool) {
        let volume = self.input.superblock.volume;
        let (mut best, mut differ): (Option<Valid<T>>, bool) = (None, false);
        for (image, &is_read) in read.iter().enumerate() {
            let verify = |bytes: &[u8]| verify(bytes, volume).ok();
            let verified = if is_read { self.with_page(image, page - first, verify) } else { None };
            let Some((sequence, content)) = verified else {
                differ = true;
                continue;
            };
            differ |= best.as_ref().is_some_and(|best| best.sequence != sequence || best.content != content);
            if best.as_ref().is_none_or(|best| best.sequence < sequence) {
                best = Some(Valid { sequence, content });
            }
        }
        if let Some((double_written, seal)) = self.double_written {
            for page in double_written.with_number(number) {
                if let Ok((sequence, content)) = verify(page, seal)
                    && best.as_ref().is_none_or(|best| best.sequence < sequence)
                {
                    (best, differ) = (Some(Valid { sequence, content }), true);
                }
            }
        }
        (best, differ)
    }

    fn with_page<T>(&self, image: usize, place: u32, look: impl FnOnce(&[u8]) -> T) -> T {
        let at = PAGE * u64::from(place);
        self.buffers[image].with_bytes(|bytes| look(&bytes[at.as_usize()..(at + PAGE).as_usize()]))
    }

    fn refuse_unread(&self, what: std::fmt::Arguments<'_>) -> Result<()> {
        match (self.input.mode, self.unread.borrow_mut().take()) {
            (Mode::Strict, Some(error)) => {
                let what = format_args!("{what} on {}", self.device);
                Err(super::unread(self.input.superblock, what, &error))
            }
            _ => Ok(()),
        }
    }
}

impl LoadedTables {
    /// Applies a record of a block, unless the affected pages contain the record already.
    pub fn replay(&mut self, state: &mut State, sequence: u64, block: BlockId, now: Option<Extra>) {
        let counts = |now: &Extra| now.dirty || self.trust != Trust::None;
        if let Some(ignored) = now.filter(|now| !counts(now)) {
            // The page must become newer than the record before the volume serves.
            self.forgotten += 1;
            let slot = state.space.locate(ignored.slot);
            if let Some(slot) = slot.filter(|&slot| state.tables.describes_place(slot, ignored.place)) {
                state.tables.mark_stale(state.tables.page_of(slot, ignored.place));
            }
        }
        let now = now.filter(counts);
        for place in state.extras.places_of(block) {
            let is_same = now.is_some_and(|now| (now.slot, now.place) == (place.slot, place.place));
            if !is_same && self.sequence_of(state.cache_page(&place)) < sequence {
                unload(state, &place);
            }
        }
        let Some(now) = now else { return };
        let slot = state.space.locate(now.slot);
        let Some(slot) = slot.filter(|&slot| state.tables.describes_place(slot, now.place)) else {
            return self.misplaced.push(block);
        };
        let page = state.tables.page_of(slot, now.place);
        if self.sequence_of(page) >= sequence {
            return;
        }
        state.tables.mark_stale(page);
        if !state.extras.load(slot.device, block, now) {
            self.misplaced.push(block);
        }
    }

    /// Forgets clean copies that do not count. Returns the number of all forgotten copies.
    pub fn forget(&mut self, state: &mut State, shape: &Shape, is_clean: impl Fn(SpanId) -> bool) -> u64 {
        let mut from = 0;
        while self.trust == Trust::CleanSpans
            && let Some((next, block, extra)) = state.extras.next(from)
        {
            from = next;
            if !extra.dirty && !is_clean(shape.span_of(shape.range_of(block).extent)) {
                match planted(Bug::ForgottenExtrasLeft) {
                    true => state.extras.unload(extra.slot, extra.place),
                    false => unload(state, &extra),
                }
                self.forgotten += 1;
            }
        }
        self.forgotten
    }

    pub fn sequence_of(&self, CachePage { device, page }: CachePage) -> u64 {
        self.sequences[device.index()][page as usize]
    }
}

/// True if the device with the only journal is lost.
fn lacks_journal<D: Device>(input: &RecoveryInput<'_, D>) -> bool {
    let is_lost = |region: &Region| !input.members[region.device.index()].is_current();
    input.superblock.copies == 1 && input.superblock.journal().is_some_and(is_lost)
}

/// Returns the spans in which dirty entries count, if no journal tells which blocks are dirty. None if all
/// entries count.
fn dirty_spans_without_journal<'a, D: Device>(input: &RecoveryInput<'a, D>) -> Option<&'a DirtySpans> {
    input.dirty_spans.filter(|spans| spans.is_there() && lacks_journal(input))
}

/// Claims the extent slots of cached copies, after the slots of extents. A cached copy is damage in a place
/// used twice, in an extent without a home, or as the second copy of its block. A repair marks such an extent
/// as lost.
pub(super) fn claim<D: Device>(
    input: &RecoveryInput<'_, D>,
    state: &mut State,
    loaded: LoadedTables,
    recovery: &mut Recovery,
) -> Result<()> {
    let (mut wrong, shape) = (loaded.misplaced, Shape::of(input.superblock));
    // If the journal is lost with its device, pages may be of different times: a copy that another page
    // contradicts does not count.
    let may_differ = lacks_journal(input);
    let slots = state.extras.divided_slots();
    let is_claimed: Vec<bool> = slots.iter().map(|&slot| state.space.claim(slot)).collect();
    for (&slot, &is_claimed) in slots.iter().zip(&is_claimed) {
        for (block, extra) in state.extras.blocks_in(slot) {
            let extent = shape.range_of(block).extent;
            match state.map.get(extent).home {
                // No block of a lost extent can be written back: its cached copies are lost too.
                SlotNumber::LOST => unload(state, &extra),
                SlotNumber::NONE if may_differ => unload(state, &extra),
                SlotNumber::NONE => {
                    wrong.push(block);
                    unload(state, &extra);
                }
                _ if may_differ && (!is_claimed || state.extras.places_of(block).len() > 1) => {
                    unload(state, &extra);
                }
                _ => {
                    if !is_claimed || state.extras.places_of(block).len() > 1 {
                        wrong.push(block);
                    }
                    state.map.add_extra(extent);
                }
            }
        }
    }
    let what = |block: &BlockId| {
        format!("the extra copy of {block:?} lies in a place that does not exist or is used twice")
    };
    if let (Mode::Strict, Some(block)) = (input.mode, wrong.first()) {
        return Err(corrupt(input.superblock, what(block)));
    }
    wrong.sort_unstable();
    wrong.dedup();
    for block in wrong {
        recovery.damage.push(what(&block));
        lose(&shape, state, recovery, shape.range_of(block).extent);
    }
    for (slot, is_claimed) in slots.into_iter().zip(is_claimed) {
        if is_claimed && state.extras.is_unused(slot) {
            state.space.release(slot);
        }
    }
    state.extras.finish_loading();
    Ok(())
}

/// Marks an extent whose newest bytes are lost, if the extent has a home, and drops all its copies. On an
/// adopted disk the extent keeps its home.
fn lose(shape: &Shape, state: &mut State, recovery: &mut Recovery, extent: ExtentId) {
    let Entry { home, second, .. } = state.map.get(extent);
    if home == SlotNumber::NONE || home == SlotNumber::LOST {
        return;
    }
    for block in shape.blocks_of(extent) {
        for extra in state.extras.places_of(block) {
            unload(state, &extra);
            state.map.remove_extra(extent);
        }
    }
    recovery.lost.push(extent);
    if state.map.is_of_adopted() {
        return;
    }
    [home, second]
        .into_iter()
        .filter(|&slot| slot != SlotNumber::NONE)
        .for_each(|slot| state.space.release(slot));
    state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
    state.mark_stale(extent);
}

/// Empties a block slot whose contents do not count.
fn unload(state: &mut State, extra: &Extra) {
    state.extras.unload(extra.slot, extra.place);
    let page = state.cache_page(extra);
    state.tables.mark_stale(page);
}
