//! Pending log of a dead daemon, applied after the journal. The log's changes are not in the journal: they
//! become pending again, on top of the journal's entries of extents and blocks. The opening commits the
//! changes before the volume serves.

use super::{Mode, Recovery, RecoveryInput, corrupt, pages};
use crate::Result;
use crate::journal::Ring;
use crate::map::State;
use crate::shape::Shape;
use braid_base::{BlockId, ExtentId};
use braid_format::SlotNumber;
use braid_format::intent_page::Difference;
use braid_format::journal::{Extra, Record};
use braid_format::map_page::Entry;
use braid_runtime::Device;
use std::collections::BTreeMap;

/// Changes of a log, in the order in which they were made.
pub(crate) struct LoggedChanges {
    pub records: Vec<Record>,
    /// Newest journal batch that was durable.
    pub newest: u64,
}

/// Last entry of the log for each extent and block. Clean cached copies do not count, because only the warmth
/// of the cache depends on them.
#[derive(Default)]
struct LastEntries {
    extents: BTreeMap<ExtentId, Entry>,
    blocks: BTreeMap<BlockId, Option<Extra>>,
}

/// Slots that the journal names and the log does not.
#[derive(Default)]
pub(super) struct LeftSlots(Vec<SlotNumber>);

/// Applies the log, if a log is there and counts, and reports the outcome.
pub(super) fn replay<D: Device>(
    input: &RecoveryInput<'_, D>,
    ring: &Ring,
    spans: &pages::Spans,
    state: &mut State,
    recovery: &mut Recovery,
) -> Result<LeftSlots> {
    let applied = match input.log {
        Some(log) if log.newest > ring.newest() => Err(format!(
            "the devices are older than the pending log: it follows journal batch {}, and their newest is {}",
            log.newest,
            ring.newest()
        )),
        Some(log) => apply(input, log, spans, state)?,
        None => return Ok(LeftSlots::default()),
    };
    match applied {
        Ok((changes, left)) => {
            (recovery.has_log, recovery.changes_of_log) = (true, changes);
            Ok(left)
        }
        Err(why) => {
            recovery.log_refused = Some(why);
            Ok(LeftSlots::default())
        }
    }
}

/// Applies a log to a map whose slots have not been claimed yet. Returns the number of changed extents and
/// blocks, or the reason why the log does not count.
fn apply<D: Device>(
    input: &RecoveryInput<'_, D>,
    changes: &LoggedChanges,
    spans: &pages::Spans,
    state: &mut State,
) -> Result<std::result::Result<(u64, LeftSlots), String>> {
    let shape = Shape::of(input.superblock);
    let last = match last(input, changes, state) {
        Ok(last) => last,
        Err(why) => return Ok(Err(why)),
    };
    let (mut count, mut left) = (0, LeftSlots::default());
    for (extent, entry) in last.extents {
        let before = state.map.get(extent);
        if before == entry {
            continue;
        }
        let was_behind = spans.is(shape.span_of(extent), Difference::Behind);
        let slots = [before.home, before.second].into_iter();
        let is_left = |slot: &SlotNumber| ![entry.home, entry.second, SlotNumber::NONE].contains(slot);
        left.0.extend(slots.filter(is_left).filter(|&slot| slot != SlotNumber::LOST));
        state.survive_extent(extent, entry, was_behind);
        count += 1;
    }
    for (block, extra) in last.blocks {
        match state.survive_block(block, extra) {
            Some(changed) => count += u64::from(changed),
            None if input.mode == Mode::Repair => {}
            None => {
                let text = format!("the pending log puts {block:?} into the place of another block");
                return Err(corrupt(input.superblock, text));
            }
        }
    }
    Ok(Ok((count, left)))
}

/// Keeps the slots that extents have left taken until the changes are durable.
pub(super) fn claim_left_slots(state: &mut State, LeftSlots(slots): LeftSlots) {
    for slot in slots {
        if state.space.claim(slot) {
            state.retire(slot);
        }
    }
}

fn last<D: Device>(
    input: &RecoveryInput<'_, D>,
    changes: &LoggedChanges,
    state: &State,
) -> std::result::Result<LastEntries, String> {
    let (superblock, shape) = (input.superblock, Shape::of(input.superblock));
    let mut last = LastEntries::default();
    let is_there = |extra: &Extra| {
        let slot = state.space.locate(extra.slot);
        slot.is_none_or(|slot| input.members[slot.device.index()].is_current())
    };
    for &record in &changes.records {
        match record {
            Record::Extent(extent, entry)
                if extent.0 < superblock.extents()
                    && !state.map.is_of_adopted()
                    && (superblock.copies > 1 || entry.second == SlotNumber::NONE) =>
            {
                last.extents.insert(extent, superblock.interpret(entry));
            }
            Record::Extra(block, extra) if block.0 < shape.blocks() => {
                last.blocks.insert(block, extra.filter(|extra| extra.dirty && is_there(extra)));
            }
            other => return Err(format!("the pending log has an impossible state of the volume: {other:?}")),
        }
    }
    Ok(last)
}
