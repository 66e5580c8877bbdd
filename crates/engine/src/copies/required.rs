//! The required copies of an extent: which of them is current, and reading and writing them.
//!
//! A write goes to both copies at the same time. As long as one that is current has it, the guest hears of
//! success: before that, the journal says that the other is behind. A read that fails on one copy is answered
//! by the other, and the bad place is written again.

use super::{Deadline, Member};
use crate::core::Core;
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::intent_page::Difference;
use braid_format::map_page::Entry;
use braid_policy::{CopyKind, CurrentCopy, Origin, Second, View};
use braid_runtime::{Arena, Buf, Device, Runtime, join_all};
use std::ops::Range;
use std::rc::Rc;

/// The required copies of an extent at one moment.
pub(crate) struct Copies {
    /// Holds the current bytes.
    pub current: SlotNumber,
    pub other: Other,
}

/// What a second required copy is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Other {
    /// There is none.
    None,
    /// It holds the same bytes.
    Equal(SlotNumber),
    /// It lacks a write: it is written, and not read.
    Behind(SlotNumber),
    /// Its device is not there.
    Away,
}

/// When the second copy gets a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timing {
    /// Before the guest is answered.
    Now,
    /// Later, by a resync that the policy asks for: until then it is behind. At once, if then more than this
    /// would be.
    Later(Bytes),
}

impl Timing {
    pub fn of(second: Second) -> Timing {
        match second {
            Second::Behind { most, .. } => Timing::Later(most),
            Second::None | Second::Sync(_) => Timing::Now,
        }
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Which copy of an extent is current, and what of the other. A device that is not current decides; else
    /// the home is current, and it alone in an extent that is behind. A deferred write that has only begun
    /// makes no copy older.
    pub fn copies_of(&self, extent: ExtentId, entry: &Entry) -> Copies {
        let Entry { home, second, .. } = *entry;
        if second == SlotNumber::NONE {
            return Copies { current: home, other: Other::None };
        }
        let (first, last) = (self.locate(home).0, self.locate(second).0);
        let behind = |slot, written| if written { Other::Behind(slot) } else { Other::Away };
        match (first.is_current(), last.is_current()) {
            (true, true)
                if self.state.borrow().behind.lacks_completed(extent) && !planted(Bug::BehindIsRead) =>
            {
                Copies { current: home, other: Other::Behind(second) }
            }
            (true, true) => Copies { current: home, other: Other::Equal(second) },
            (false, true) => Copies { current: second, other: behind(home, first.is_written()) },
            (_, false) => Copies { current: home, other: behind(second, last.is_written()) },
        }
    }

    /// Reads a range of an extent from a required copy that is current. The caller holds the extent's lock.
    pub async fn read_required(
        self: &Rc<Self>,
        extent: ExtentId,
        entry: &Entry,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let is_any_lost = || self.shape.parts_touched(&range) & !entry.valid != 0;
        if entry.home == SlotNumber::LOST || entry.partly_lost && is_any_lost() {
            return Err(lost(&self.shape, extent));
        }
        let copies = self.copies_of(extent, entry);
        let Other::Equal(other) = copies.other else {
            return self.read_current(extent, &copies, range, into, origin).await;
        };
        let (mut first, mut next) = self.rank(copies.current, other, origin);
        if self.check_kept(extent, first, &range).is_err() || self.lacks_beside(extent, first, next) {
            self.check_kept(extent, next, &range)?;
            (first, next) = (next, first);
        }
        match self.read_slot_copied(first, range.clone(), into, origin).await {
            // As in `read_kept`.
            Ok(()) => self.check_kept(extent, first, &range),
            Err(error) if self.lacks_beside(extent, next, first) => Err(error),
            Err(_) => {
                self.read_kept(extent, next, range.clone(), into, origin).await?;
                // A place whose device does not answer need not be bad.
                if !self.locate(first).0.is_late() {
                    self.repair_later(extent, first, range);
                }
                Ok(())
            }
        }
    }

    /// Reads a range from a place that holds the bytes before and after the read: a flush may fail meanwhile.
    pub(super) async fn read_kept(
        self: &Rc<Self>,
        extent: ExtentId,
        slot: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        self.check_kept(extent, slot, &range)?;
        self.read_slot(slot, range.clone(), into, origin).await?;
        self.check_kept(extent, slot, &range)
    }

    /// A device whose flush failed may lack what was written since the last good one: then a place that the
    /// journal does not name for the extent, or a part of it that it does not call valid, holds what lay
    /// there before. A block of which the journal says that newer bytes lie in an extra copy holds what is
    /// older than these.
    pub fn check_kept(&self, extent: ExtentId, slot: SlotNumber, range: &Range<Bytes>) -> Result<()> {
        if self.devices.losses() == 0 || planted(Bug::LostWritesRead) {
            return Ok(());
        }
        let member = self.locate(slot).0;
        if !member.has_lost_writes() {
            return Ok(());
        }
        let state = self.state.borrow();
        let durable = state.durable_entry(extent);
        let parts = self.shape.parts_touched(range);
        let is_named = durable.home == slot || durable.second == slot;
        let piece = Piece { extent, range: range.clone() };
        let is_newest = !state.map.has_extras(extent)
            || self.blocks_of(&piece).all(|(block, _)| !state.was_written_back(block));
        if is_named && durable.valid & parts == parts && is_newest {
            Ok(())
        } else {
            Err(self.unproved(extent, member))
        }
    }

    /// Whether a copy may lack what the other one of an extent has kept: its device lost writes when a flush
    /// failed, and the journal does not say that the two are alike. A resync may have been among these
    /// writes.
    pub(super) fn lacks_beside(&self, extent: ExtentId, slot: SlotNumber, other: SlotNumber) -> bool {
        self.devices.losses() > 0
            && self.locate(slot).0.has_lost_writes()
            && !self.locate(other).0.has_lost_writes()
            && self.state.borrow().behind.durable(self.shape.span_of(extent)) != Difference::None
    }

    /// What a device holds of an extent may be another one's.
    #[cold]
    pub(super) fn unproved(&self, extent: ExtentId, member: &Member<D>) -> Error {
        let text = format!(
            "{} lost writes when a flush failed, and what was written of {extent:?} may be among them: stop the volume and start it \
             again, and it reads as at its last good flush",
            self.describe(member.id)
        );
        Error::new(ErrorKind::Io, text)
    }

    /// Reads a range of an extent that moves, from the home and nothing else: if that device turns out to
    /// have lost writes, it is known where the new copy came from. A bad place is written again from the
    /// other copy, and then it can move. The bytes stay on the device's node, and the range is aligned: parts
    /// of an extent are.
    pub async fn read_to_move(
        self: &Rc<Self>,
        extent: ExtentId,
        entry: &Entry,
        range: Range<Bytes>,
        into: &Buf,
    ) -> Result<()> {
        let Copies { current, other } = self.copies_of(extent, entry);
        self.check_kept(extent, current, &range)?;
        let (member, start) = self.locate(current);
        let read = self.device_read_to_move(member, start + range.start, into).await;
        if read.is_err() && matches!(other, Other::Equal(_)) && !member.is_late() {
            self.repair_later(extent, current, range.clone());
        }
        read?;
        // A flush may have failed meanwhile: what it lost was not read, but what lay there before.
        self.check_kept(extent, current, &range)
    }

    /// The copy that is read first, and the other: one on a device that is late comes last; if one device is
    /// slow, that comes first which is expected to answer first; else as the policy says.
    fn rank(&self, home: SlotNumber, second: SlotNumber, origin: Origin) -> (SlotNumber, SlotNumber) {
        let is_late = |slot| self.locate(slot).0.is_late();
        if is_late(home) != is_late(second) {
            return if is_late(home) { (second, home) } else { (home, second) };
        }
        if origin != Origin::Guest {
            return (home, second);
        }
        let copy = |slot, kind| CurrentCopy { device: self.device_of(slot), kind };
        let mut copies = [copy(home, CopyKind::Home), copy(second, CopyKind::Second)];
        let is_slow = |slot| self.locate(slot).0.is_slow();
        let one_is_slow = is_slow(home) != is_slow(second);
        self.with_policy(|policy, view| match one_is_slow {
            true => view.sort_by_read_wait(&mut copies),
            false => policy.rank_reads(&mut copies, view),
        });
        if copies[0].kind == CopyKind::Second { (second, home) } else { (home, second) }
    }

    /// Whether a copy is expected to answer later than the home does, because its device is slow.
    pub fn answers_later(&self, slot: SlotNumber, home: SlotNumber) -> bool {
        if !self.locate(slot).0.is_slow() || matches!(home, SlotNumber::NONE | SlotNumber::LOST) {
            return false;
        }
        let (device, other) = (self.device_of(slot), self.device_of(home));
        let wait = |view: &View, of: DeviceId| view.devices[of.index()].expected_read_wait();
        self.with_policy(|_, view| wait(view, other) < wait(view, device))
    }

    /// Writes a range to the required copies of an extent; no buffer stands for zeros. The caller holds the
    /// extent's lock, alone or with the range's. Gives the entry as it is afterwards: a home that could not
    /// be written is the second copy then.
    pub async fn write_required(
        self: &Rc<Self>,
        extent: ExtentId,
        entry: Entry,
        range: &Range<Bytes>,
        (from, origin): (Option<&Buf>, Origin),
        timing: Timing,
    ) -> Result<Entry> {
        if entry.second == SlotNumber::NONE {
            self.write_slot(entry.home, range, from, entry.valid, origin).await?;
            // A new extent is in no map yet, so its device may have been excluded meanwhile.
            return match self.shape.copies > 1 && !self.locate(entry.home).0.is_current() {
                true => Err(none_there(extent)),
                false => Ok(entry),
            };
        }
        let span = self.shape.span_of(extent);
        let is_move_pending = || self.state.borrow().is_move_pending(extent);
        let entry = match self.active_epochs().is_some() && is_move_pending() {
            true => self.complete_move(extent, entry, origin).await?,
            false => entry,
        };
        let both_current =
            || [entry.home, entry.second].into_iter().all(|slot| self.locate(slot).0.is_current());
        let keeps_epochs = self.active_epochs().is_some() && both_current();
        // What the second copy gets later, of the whole blocks of the volume.
        let deferred = match timing {
            _ if keeps_epochs => {
                let changed = self.changed_by(extent, range, entry.valid);
                self.note_change(&changed).await?;
                self.begin_behind(span, changed.clone());
                Some(changed)
            }
            // If the former home's device fails, the second copy counts, and must have this write.
            Timing::Later(most) if both_current() && !is_move_pending() => {
                let changed = self.changed_by(extent, range, entry.valid);
                let mut state = self.state.borrow_mut();
                let begun = state.behind.begin_deferred_write(span, changed.clone(), most);
                if begun {
                    state.behind.decided_by_write(self.written_by(extent, range, entry.valid));
                }
                begun.then_some(changed)
            }
            Timing::Later(_) | Timing::Now => None,
        };
        let later = deferred.is_some();
        let begun = async {
            if later {
                self.record_behind(span).await?;
            }
            self.intend(span).await
        };
        if let Err(error) = begun.await {
            // What an epoch was to bring, one still brings.
            if let Some(changed) = deferred.filter(|_| !keeps_epochs) {
                self.state.borrow_mut().behind.cancel_deferred_write(span, &changed);
            }
            return Err(error);
        }
        let forgotten = |slot: SlotNumber| slot == entry.second && planted(Bug::SecondCopyNotWritten);
        let wanted = |slot: SlotNumber| {
            self.locate(slot).0.is_written() && !(later && slot == entry.second) && !forgotten(slot)
        };
        let slots = [entry.home, entry.second].into_iter().filter(|&slot| wanted(slot));
        let deadline = if both_current() { Deadline::Copied } else { Deadline::Only };
        let writes = slots.map(async |slot| {
            (slot, self.write_slot_by(slot, range, from, entry.valid, (origin, deadline)).await)
        });
        let mut results = join_all(writes).await;
        if later && self.is_second_needed((extent, range), &entry, &results) {
            let written = async {
                self.leave_home(&entry, &results, keeps_epochs).await?;
                self.write_slot_by(entry.second, range, from, entry.valid, (origin, Deadline::Only)).await
            };
            results.push((entry.second, written.await));
        }
        let mut settled = self.settle((extent, range), entry, &results);
        if let Ok(now) = &settled
            && now.home == entry.second
            && self.state.borrow().behind.lacks_flushed(extent)
        {
            // This write brings the second copy what it lacked: before the home gives way, that is durable.
            let (member, device) = (self.locate(now.home).0, self.device_of(now.home));
            settled = match member.flush(&self.rt).await {
                Ok(_) => self.settle((extent, range), entry, &results),
                Err(error) => {
                    let error = Error::io(format_args!("{} could not flush", self.describe(device)), &error);
                    self.lose(device, error.clone()).and(Err(error))
                }
            };
        }
        let missed = !later && results.len() < 2 && !planted(Bug::SecondCopyNotWritten)
            || results.iter().any(|(_, result)| result.is_err());
        let exchanged = {
            let mut state = self.state.borrow_mut();
            let known = state.map.get(extent);
            let exchanged =
                settled.as_ref().is_ok_and(|now| known.home == now.second && known.second == now.home);
            if let (true, Ok(now)) = (exchanged, &settled) {
                state.set_extent(extent, Entry { home: now.home, second: now.second, ..known });
                state.note_exchange(extent);
            }
            let lacks = || self.changed_by(extent, range, entry.valid);
            deferred.into_iter().for_each(|changed| state.behind.end_deferred_write(changed));
            state.behind.end_write(span, missed.then(lacks), self.rt.now());
            if missed {
                state.behind.decided_by_write(self.written_by(extent, range, entry.valid));
            }
            exchanged
        };
        if later {
            self.note_behind();
        }
        let settled = match settled {
            Ok(settled) => settled,
            Err(error) => {
                if missed && both_current() {
                    // A guest that waited for this write reads one copy of what it left.
                    self.record_behind(span).await?;
                }
                return Err(error);
            }
        };
        if exchanged {
            self.forget_undecided_extras(extent);
            self.guests.cache.borrow_mut().remove(extent);
            // Before the journal says *behind*: after a crash in between, the stale copy would count.
            self.commit(origin).await?;
        }
        if missed && both_current() && !planted(Bug::MissedWriteUnrecorded) {
            self.record_behind(span).await?;
        }
        self.lose_beyond_bound(entry.second, &results, timing)?;
        // What a device lacks that is not current, its state says.
        self.record_states().await?;
        // A device may have been given up since, which does not know of an extent that is in no map yet.
        self.settle((extent, range), settled, &results)
    }

    /// Makes the move of a home durable before the second copy comes to lack a write. Gives the entry as it
    /// is afterwards: the copies are exchanged if the device failed that the home left.
    async fn complete_move(&self, extent: ExtentId, entry: Entry, origin: Origin) -> Result<Entry> {
        self.commit(origin).await?;
        let now = self.state.borrow().map.get(extent);
        let is_exchanged = (now.home, now.second) == (entry.second, entry.home);
        Ok(if is_exchanged { Entry { home: now.home, second: now.second, ..entry } } else { entry })
    }

    /// A second copy that was to be written at once, since more may not be behind, and could not be: its
    /// device is given up. So the bound holds for all that counts, and what the policy does without such a
    /// device applies.
    fn lose_beyond_bound(
        &self,
        second: SlotNumber,
        results: &[(SlotNumber, Result<()>)],
        timing: Timing,
    ) -> Result<()> {
        let Timing::Later(most) = timing else { return Ok(()) };
        let failed =
            results.iter().find(|(slot, _)| *slot == second).and_then(|(_, result)| result.as_ref().err());
        match failed {
            Some(error) if self.state.borrow().behind.lacking() > most => {
                self.lose(self.device_of(second), error.clone())
            }
            _ => Ok(()),
        }
    }

    /// The bytes of the volume that a write changes on a device.
    fn written_by(&self, extent: ExtentId, range: &Range<Bytes>, valid: u16) -> Range<Bytes> {
        self.bytes_of_piece(&self.padded(&Piece { extent, range: range.clone() }, valid))
    }

    /// The same in whole blocks.
    fn changed_by(&self, extent: ExtentId, range: &Range<Bytes>, valid: u16) -> Range<Bytes> {
        let (written, block) = (self.written_by(extent, range, valid), self.shape.block_size);
        let is_short = planted(Bug::BehindRangeShort) && written.end.align_down(block) > written.start;
        let end = if is_short { written.end.align_down(block) } else { written.end.align_up(block) };
        written.start.align_down(block)..end
    }

    /// What a write to both copies came to: an error if no copy has it that was current.
    fn settle(
        &self,
        (extent, range): (ExtentId, &Range<Bytes>),
        entry: Entry,
        results: &[(SlotNumber, Result<()>)],
    ) -> Result<Entry> {
        // Another write may have exchanged the copies meanwhile. A new extent is not in the map yet.
        let now = self.state.borrow().map.get(extent);
        let entry = match now.home == entry.second {
            true => Entry { home: entry.second, second: entry.home, ..entry },
            false => entry,
        };
        // A deferred write under way goes to the copy that serves the extent when the write ends.
        let copies = self.copies_of(extent, &entry);
        // A new extent is in no map yet: nothing keeps both of its devices from being given up meanwhile.
        if !self.locate(copies.current).0.is_current() {
            return Err(none_there(extent));
        }
        let result = |slot: SlotNumber| results.iter().find(|(s, _)| *s == slot).map(|(_, result)| result);
        // Elsewhere in the extent either copy is as good, if it is undecided there.
        let is_enough = |other| {
            let is_equal = copies.other == Other::Equal(other);
            is_equal || self.locate(other).0.is_current() && !self.lacks_flushed_beside(extent, range)
        };
        match (result(copies.current), copies.other) {
            (Some(Ok(())), _) => Ok(entry),
            (_, Other::Equal(other) | Other::Behind(other))
                if result(other).is_some_and(Result::is_ok) && is_enough(other) =>
            {
                Ok(Entry { home: other, second: copies.current, ..entry })
            }
            (Some(Err(error)), _) => Err(error.clone()),
            (None, _) => Err(none_there(extent)),
        }
    }

    /// Whether the second copy lacks anything that was flushed or read, beside a range of an extent.
    pub(super) fn lacks_flushed_beside(&self, extent: ExtentId, range: &Range<Bytes>) -> bool {
        let start = self.shape.bytes_of(extent).start;
        self.state.borrow().behind.lacks_flushed_beside(extent, &(start + range.start..start + range.end))
    }

    /// What was read from a slot is about to be written over another copy, which lacks it: whether the slot
    /// has it, the next flush of its device proves; and if the extent has just moved there, that of the
    /// device that it left.
    pub fn note_source(&self, extent: ExtentId, slot: SlotNumber) {
        self.locate(slot).0.note_source();
        let (left, now) = {
            let state = self.state.borrow();
            (state.durable_entry(extent).home, state.map.get(extent))
        };
        // The home that is read again from the second copy has not been left.
        let was_left = left != now.home && left != now.second;
        if was_left && left != SlotNumber::NONE && left != SlotNumber::LOST {
            self.locate(left).0.note_source();
        }
    }
}

/// A write to an extent whose devices were given up.
#[cold]
fn none_there(extent: ExtentId) -> Error {
    Error::new(ErrorKind::Degraded, format!("no device that holds {extent:?} is there"))
}

/// A read of what is lost, or a write to a bit of a part that is lost. What a write does not cover would
/// become zeros.
#[cold]
pub(crate) fn lost(shape: &Shape, extent: ExtentId) -> Error {
    let part = shape.part_size;
    // Frontends cut the writes of guests.
    let remedy = match part > Arena::LARGEST {
        true => "discard all of it".to_owned(),
        false => format!("write it in whole parts of {part}, or discard all of it"),
    };
    let text = format!(
        "{extent:?} was lost: a repair could not prove where its bytes lie, or their device was given up; {remedy}, and restore its content from a backup"
    );
    Error::new(ErrorKind::Corrupt, text)
}
