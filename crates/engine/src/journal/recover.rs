//! Recovery: loads the map images and the cache tables, then replays the journal.
//!
//! Of two valid images of a page the newer counts. The whole ring is searched on every device with the
//! journal. The newest batch names the oldest batch to replay; every batch between must be found. So must all
//! batches up to the proof; a later batch was never promised. A record that a page already contains is not
//! replayed.
//!
//! Anything unproved is damage. An ordinary opening refuses damage. A repair keeps everything proved, and
//! marks other extents as lost ([`SlotNumber::LOST`]): they are listed, and read as errors until written
//! whole or discarded.

mod batches;
mod cache_table;
mod check_cache_tables;
mod cut_end;
mod damage;
mod forgetful;
mod input;
mod map_pages;
mod pages;
mod pending_log;
mod recent_blocks;
mod summary;
mod witnessed;

use crate::devices::Member;
use crate::epochs::PastState;
use crate::journal::{Gap, Ring, images, is_journal_lost, recent, rings};
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use batches::{Batches, FoundBatch};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::intent_page::Difference;
use braid_format::journal::{Extra, Record};
use braid_format::map_page::Entry;
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::{SlotNumber, SpanId};
use braid_runtime::Device;
pub(crate) use check_cache_tables::check_cache_tables;
pub(crate) use cut_end::lost_at_end;
use damage::Damage;
pub(crate) use forgetful::Forgetful;
pub(crate) use input::{Mode, RecoveryInput};
pub(crate) use pages::check_image;
pub(crate) use pending_log::LoggedChanges;
use std::collections::VecDeque;
use std::ops::Range;

/// Outcome of a recovery, besides the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Map pages that were valid and new in only one image.
    pub pages_from_one_image: u32,
    /// Journal batches that were replayed.
    pub batches: u64,
    /// Records in the replayed batches.
    pub records: u64,
    /// Spans whose second copies may differ.
    pub spans: u32,
    /// Cached copies that no longer count.
    pub extras_forgotten: u64,
    /// Set if the volume was recovered from the image disk alone: the past state of the volume.
    pub adopted: Option<PastState>,
    /// Ranges of an adopted disk that may be older than flushed data: their dirty data is lost.
    pub older: Vec<Range<Bytes>>,
    /// True if the adopted disk was changed elsewhere: only dirty data in its cache counts.
    pub changed_elsewhere: bool,
    /// Extents whose places a repair could not prove, in order.
    pub lost: Vec<ExtentId>,
    /// Of the lost extents, those on an excluded device.
    pub given_up: Vec<(DeviceId, ExtentId)>,
    /// Damage found, a sentence each.
    pub damage: Vec<String>,
    /// True if the daemon before died, and left a pending log that counted.
    pub has_log: bool,
    /// Number of extents and blocks that the pending log changed, beyond the journal.
    pub changes_of_log: u64,
    /// Reason why an existing pending log did not count.
    pub log_refused: Option<String>,
    /// True if a flush failed before that daemon died: the log is void, and the first flush of a guest fails.
    pub flush_had_failed: bool,
    /// Losses without known ranges: devices whose end is gone, missing promised batches. A sentence each.
    pub warnings: Vec<String>,
    /// Devices that lost acknowledged flushes: all their copies are rebuilt from the other devices.
    pub forgetful: Vec<DeviceId>,
}

/// Result of recovery for the volume.
pub(crate) struct Replayed {
    /// The ring as the newest batch left it.
    pub ring: Ring,
    /// Batches missing in one of the journals, oldest first.
    pub gaps: Vec<Gap>,
    pub recovery: Recovery,
    /// Number that follows all found and all promised batches.
    pub next_batch: u64,
    /// As `next_batch`, but from the journal alone, when the journal was read.
    pub found_next: u64,
    /// Extents in the replayed batches.
    pub changed: Vec<ExtentId>,
    /// Devices that lost durable data (two required copies): the result counts only without them.
    pub forgetful: Vec<Forgetful>,
}

/// Loads map and cache tables and replays the journal. Claims every slot in use.
pub(crate) async fn recover<D: Device>(input: &RecoveryInput<'_, D>, state: &mut State) -> Result<Replayed> {
    let (mut recovery, mut damage) = (Recovery::default(), Damage::default());
    let mut double_written = pages::load_double_written(input).await;
    let pages = pages::load_map(input, &mut double_written, state, &mut recovery, &mut damage).await?;
    let mut tables = cache_table::load(input, state, &double_written, &mut recovery, &mut damage).await?;
    let mut spans = pages::load_intents(input, &double_written).await?;
    let mut batches = batches::find(input).await?;
    recovery.warnings.extend(batches.warning.take());
    let found_next = batches.next_sequence();
    let forgetful = match input.superblock.copies {
        1 => Vec::new(),
        _ => batches.forgetful(input.noted),
    };
    let listed = judge_witness(input, state, &pages, &mut tables, &mut batches, &mut recovery).await?;
    // Pages may be newer than a journal that was begun again.
    let newest_page = pages.newest().max(tables.newest()).max(spans.newest());
    let next_batch = batches.next_sequence();
    let ring = ring(input.superblock, newest_page, &mut batches);
    damage.of_journal(&batches);
    if input.mode == Mode::Strict
        && let Some(first) = damage.first()
    {
        return Err(corrupt(input.superblock, first));
    }
    let mut changed = Vec::new();
    for batch in &batches.live {
        recovery.batches += 1;
        for &record in &batch.records {
            recovery.records += 1;
            if let Record::Extent(extent, _) = record {
                changed.push(extent);
                damage.prove(extent, batch.sequence);
            }
            replay(input, state, &pages, &mut tables, &mut spans, batch.sequence, record)?;
        }
    }
    let shape = Shape::of(input.superblock);
    recovery.extras_forgotten = tables.forget(state, &shape, |span| spans.is_clean(span));
    let left = pending_log::replay(input, &ring, &spans, state, &mut recovery)?;
    let writes_back = state.extras.dirty() > 0 || batches.live.iter().any(FoundBatch::writes_back);
    recovery.lost = damage.give_up(input.superblock, state, &pages, writes_back);
    let is_new = |extent: &ExtentId| recovery.lost.binary_search(extent).is_err();
    let listed: Vec<ExtentId> = listed.into_iter().filter(is_new).collect();
    recovery.lost.extend(listed.into_iter().filter(|extent| state.map.get(*extent).home == SlotNumber::LOST));
    recovery.damage = damage.into_sentences();
    give_up_places(input, state, &mut recovery);
    give_up_ends(input, state, &mut recovery).await?;
    claim_slots(input, state, &mut recovery)?;
    pending_log::claim_left_slots(state, left);
    cache_table::claim(input, state, tables, &mut recovery)?;
    recovery.lost.sort_unstable();
    if state.map.is_of_adopted() {
        recovery.older = ranges_of(&shape, &std::mem::take(&mut recovery.lost));
    }
    if input.mode == Mode::Repair {
        state.tables.mark_all_stale();
    }
    recovery.spans = restore_spans(input, state, &spans);
    if !input.clean || input.members.iter().any(Member::is_lacking) {
        // Both copies of the table must get the spans' records before the journal forgets them.
        state.mark_intents_stale((0..input.superblock.spans()).map(SpanId));
    }
    state.refresh_all();
    let gaps = gaps(input, &batches);
    Ok(Replayed { ring, gaps, recovery, found_next, next_batch, changed, forgetful })
}

/// Compares the journal with the notes of host and witness. Returns, in order, extents lost with the journal.
async fn judge_witness<D: Device>(
    input: &RecoveryInput<'_, D>,
    state: &mut State,
    pages: &pages::Loaded,
    tables: &mut cache_table::LoadedTables,
    batches: &mut Batches,
    recovery: &mut Recovery,
) -> Result<Vec<ExtentId>> {
    let superblock = input.superblock;
    let is_current = |device: DeviceId| input.members[device.index()].is_current();
    let all = images(superblock, RegionKind::Journal);
    let used = rings(superblock, is_current);
    let (Some(&(first, _)), Some(&(journal, _))) = (all.first(), used.first()) else { return Ok(Vec::new()) };
    if all.iter().all(|(device, _)| is_current(*device)) || superblock.copies == 1 && is_current(first) {
        let found = witnessed::read(input, |device| used.iter().any(|(ring, _)| *ring == device)).await;
        let newest = batches.next_sequence() - 1;
        let promised =
            witnessed::refuse_lost_batches(input, journal, newest, witnessed::newest(&found), recovery)?;
        batches.go_on_beyond(promised);
        witnessed::refuse_lost_witness(input, journal, batches.witnessed, &found, recovery)?;
        return Ok(Vec::new());
    }
    batches.go_on_beyond(input.noted);
    if !is_journal_lost(superblock, is_current) {
        return Ok(Vec::new());
    }
    let (found, warning) = witnessed::read_without_journal(input).await?;
    recovery.warnings.extend(warning);
    let Some((device, witness)) = found else { return Ok(Vec::new()) };
    if !planted(Bug::NumbersOfLostTaken) {
        batches.go_on_beyond(witness.listed);
    }
    let contents = recent::read(input, device, &witness).await;
    let sequence_of = |extent| pages.sequence_of(extent);
    let mut lost = recent::restore(input, &witness, contents.as_ref(), state, sequence_of);
    lost.extend(tables.restore(input, &witness, contents.as_ref(), state));
    lost.sort_unstable();
    lost.dedup();
    Ok(lost)
}

/// Refuses an opening that has taken the devices over with its own number and owner, if a third opening has
/// taken them over since. The contents of the journal may then be inconsistent.
pub(crate) fn refuse_third(superblock: &Superblock, epoch: u64, owner: u64) -> Result<()> {
    if (superblock.epoch, superblock.owner) == (epoch, owner) {
        return Ok(());
    }
    let text = format!(
        "volume '{}' was meanwhile opened by another daemon (opening {}, this is {epoch}): {FIND_OUT}",
        superblock.name, superblock.epoch
    );
    Err(Error::new(ErrorKind::Busy, text))
}

/// Refuses an opening that has taken the devices over, if the daemon before has written batches meanwhile.
/// `before` and `now` are the numbers of the next batch, at the first and the second reading.
pub(crate) fn refuse_later(superblock: &Superblock, before: u64, now: u64) -> Result<()> {
    if now <= before {
        return Ok(());
    }
    let text = format!(
        "another daemon serves volume '{}' and has just written to the volume ({} batches); this opening has stopped that daemon: {FIND_OUT}, and \
         serve the volume again",
        superblock.name,
        now - before
    );
    Err(Error::new(ErrorKind::Busy, text))
}

const FIND_OUT: &str =
    "find the other user of the devices (a loop device over a file, a disk that two hosts see)";

/// Returns the batches that the journal of a current device lacks.
fn gaps<D: Device>(input: &RecoveryInput<'_, D>, batches: &Batches) -> Vec<Gap> {
    let is_current = |device: DeviceId| input.members[device.index()].is_current();
    let replicas = rings(input.superblock, is_current).into_iter().map(|(device, _)| device);
    let current: Vec<DeviceId> = replicas.filter(|device| is_current(*device)).collect();
    let of_batch = |batch: &FoundBatch| {
        let lacking = current.iter().filter(|device| !batch.on.contains(device));
        let gap = |&to| Gap { from: batch.on[0], to, place: batch.place, room: batch.room() };
        lacking.map(gap).collect::<Vec<_>>()
    };
    batches.live.iter().flat_map(of_batch).collect()
}

/// Converts runs of extents to ranges of the volume.
fn ranges_of(shape: &Shape, extents: &[ExtentId]) -> Vec<Range<Bytes>> {
    let runs = extents.chunk_by(|a, b| a.0 + 1 >= b.0);
    let range = |run: &[ExtentId]| {
        let end = shape.bytes_of(run[run.len() - 1]).end.min(shape.volume_size);
        shape.bytes_of(run[0]).start..end
    };
    runs.map(range).collect()
}

pub(super) fn corrupt(superblock: &Superblock, what: impl std::fmt::Display) -> Error {
    let name = &superblock.name;
    let text = format!(
        "volume '{name}' is damaged: {what}; run braid check {name}, then braid check {name} --repair"
    );
    Error::new(ErrorKind::Corrupt, text)
}

/// Error for a device that cannot be read now: not damage yet. A repair excludes the unreadable contents.
pub(super) fn unread(superblock: &Superblock, what: impl std::fmt::Display, error: &std::io::Error) -> Error {
    let name = &superblock.name;
    let error = Error::io(format_args!("{what} of volume '{name}' could not be read"), error);
    let text = format!(
        "{error} (nothing was changed); if another attempt fails, run braid check {name}, then braid check {name} --repair, which lists the losses"
    );
    Error::new(error.kind(), text)
}

/// Applies one record, unless the page of the record contains it already.
fn replay<D: Device>(
    input: &RecoveryInput<'_, D>,
    state: &mut State,
    pages: &pages::Loaded,
    tables: &mut cache_table::LoadedTables,
    spans: &mut pages::Spans,
    sequence: u64,
    record: Record,
) -> Result<()> {
    let superblock = input.superblock;
    let shape = Shape::of(superblock);
    let beyond =
        |what: String| Err(corrupt(superblock, format!("the journal names {what}, beyond the volume")));
    match record {
        Record::Extent(extent, _) if extent.0 >= superblock.extents() => {
            return beyond(format!("{extent:?}"));
        }
        Record::Extent(extent, _) if state.map.is_of_adopted() => {
            return beyond(format!("a home of {extent:?}, whose home cannot move"));
        }
        Record::Extent(extent, entry) if superblock.copies == 1 && entry.second != SlotNumber::NONE => {
            return beyond(format!("a second copy of {extent:?}"));
        }
        Record::Extent(extent, entry) if pages.sequence_of(extent) < sequence => {
            state.map.set(extent, superblock.interpret(entry));
            state.mark_stale(extent);
        }
        Record::Extra(block, _) if block.0 >= shape.blocks() => {
            return beyond(format!("{block:?}"));
        }
        Record::Extra(block, extra) => {
            let is_there = |extra: &Extra| {
                let slot = state.space.locate(extra.slot);
                slot.is_none_or(|slot| input.members[slot.device.index()].is_current())
            };
            // A copy that lay only on an excluded device is lost with the device.
            tables.replay(state, sequence, block, extra.filter(is_there));
        }
        Record::Intent(span, _) if span.0 >= superblock.spans() => return beyond(format!("{span:?}")),
        Record::Intent(span, difference) => spans.replay(span, sequence, difference),
        Record::Extent(..) | Record::Device(..) | Record::Epoch(_) => {}
    }
    Ok(())
}

/// Returns the ring as the newest batch left it, or empty. A ring without room for a checkpoint could never
/// be freed, and is damage. A repair needs no batch of such a ring: a repair writes all pages.
fn ring(superblock: &Superblock, newest_page: u64, batches: &mut Batches) -> Ring {
    let len = superblock.journal().expect("a superblock that was verified names its journal").len;
    let live: VecDeque<_> = batches.live.iter().map(|b| (b.sequence, b.place, b.room())).collect();
    let next = batches.next_sequence().max(newest_page + 1);
    let ring = Ring::new(len, live, next);
    if ring.keeps_room() {
        return ring;
    }
    let problem = "the order of the journal's batches leaves no room for another batch";
    batches.problem.get_or_insert(problem.to_owned());
    Ring::new(len, VecDeque::new(), next)
}

/// With one required copy, marks extents on an excluded device as lost.
fn give_up_places<D: Device>(input: &RecoveryInput<'_, D>, state: &mut State, recovery: &mut Recovery) {
    if input.superblock.copies > 1 || !input.members.iter().any(Member::is_lacking) {
        return;
    }
    let gone_from = |entry: &Entry| {
        let slot = state.space.locate(entry.home);
        slot.map(|slot| slot.device).filter(|device| !input.members[device.index()].is_current())
    };
    let gone: Vec<(DeviceId, ExtentId)> =
        state.map.iter().filter_map(|(extent, entry)| Some((gone_from(&entry)?, extent))).collect();
    for &(_, extent) in &gone {
        state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
        state.mark_stale(extent);
    }
    recovery.lost.extend(gone.iter().map(|(_, extent)| *extent));
    recovery.given_up = gone;
    recovery.given_up.sort_unstable();
}

/// With one required copy, a repair marks extents at the end of a cut device as lost.
async fn give_up_ends<D: Device>(
    input: &RecoveryInput<'_, D>,
    state: &mut State,
    recovery: &mut Recovery,
) -> Result<()> {
    let shape = Shape::of(input.superblock);
    let is_kept = |id: &DeviceId| shape.copies == 1 && input.members[id.index()].is_current();
    for (id, _) in input.cut.iter().filter(|(id, _)| input.mode == Mode::Repair && is_kept(id)) {
        for extent in lost_at_end(&input.members[id.index()], &shape, state).await? {
            state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
            state.mark_stale(extent);
            recovery.lost.push(extent);
        }
    }
    Ok(())
}

/// Marks every slot in use. A slot used twice is damage: the extent with the lower number keeps the slot.
fn claim_slots<D>(input: &RecoveryInput<'_, D>, state: &mut State, recovery: &mut Recovery) -> Result<()> {
    let mut doubled = Vec::new();
    for (extent, Entry { home, second, .. }) in state.map.iter().filter(|(_, e)| e.home != SlotNumber::LOST) {
        let mut slots = [home, second].into_iter().filter(|&s| s != SlotNumber::NONE);
        if !slots.all(|slot| state.space.claim_for(extent, slot)) {
            doubled.push(extent);
        }
    }
    if let Some(extent) = doubled.first()
        && input.mode == Mode::Strict
    {
        let slot = state.map.get(*extent).home;
        return Err(corrupt(
            input.superblock,
            format!("{slot:?} of {extent:?} does not exist or is used twice"),
        ));
    }
    for extent in doubled {
        // Which of the two extents owns the slot is unknown.
        recovery.damage.push(format!("{extent:?} lies in a slot that does not exist or is used twice"));
        recovery.lost.push(extent);
        state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
        state.mark_stale(extent);
    }
    Ok(())
}

/// Restores recorded spans. After a shutdown only behind and undecided spans are left. Otherwise copies in
/// all dirty spans may differ: such spans become undecided, except extents with a copy on a missing device,
/// which are behind. With one required copy only cached copies could differ, and these are forgotten: spans
/// become clean after a while.
fn restore_spans<D: Device>(input: &RecoveryInput<'_, D>, state: &mut State, spans: &pages::Spans) -> u32 {
    let mut count = 0;
    for (span, recorded) in spans.iter() {
        match (input.superblock.copies, recorded) {
            // A page that is valid nowhere counts as dirty again until written.
            (1, _) => state.behind.restore(span, Difference::Dirty, Difference::Dirty),
            _ if planted(Bug::NoResync) || input.clean && planted(Bug::UndecidedClosed) => {
                state.behind.restore(span, recorded, recorded)
            }
            (_, Difference::Dirty) => state.behind.restore_undecided(span),
            (_, Difference::None | Difference::Behind) => {
                state.behind.restore(span, recorded, Difference::Behind)
            }
        }
        count += u32::from(input.superblock.copies > 1);
    }
    let lacking = input.members.iter().filter(|member| member.is_lacking());
    let shape = Shape::of(input.superblock);
    for extent in lacking.flat_map(|member| state.extents_on(member.id)).collect::<Vec<ExtentId>>() {
        if state.behind.is_undecided(&shape.bytes_of(extent)) {
            state.behind.doubt_extent(extent);
        }
    }
    if input.superblock.copies > 1 && input.members.iter().any(Member::lacks_all) {
        // Records of other spans stay: they tell which copies were current.
        for span in (0..input.superblock.spans()).map(SpanId) {
            if state.behind.durable(span) == Difference::None {
                state.behind.restore(span, Difference::None, Difference::Behind);
            }
        }
        count = input.superblock.spans();
    }
    count
}
