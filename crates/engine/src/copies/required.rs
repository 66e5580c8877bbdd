//! Required copies of an extent: the choice of the current copy, reads and writes.
//!
//! A write goes to both copies in parallel. The guest gets a success if a current copy has the write; before
//! the reply, the journal records a copy that missed the write as behind. If a read fails on one copy, the
//! other copy answers, and the bad place is rewritten.

use crate::core::{Extents, Store};
use crate::devices::Deadline;
use crate::map::Other;
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
    /// Slot with the current bytes.
    pub current: SlotNumber,
    pub other: Other,
}

/// When the second copy gets a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timing {
    /// Before the reply to the guest.
    Now,
    /// Later, by a resync that the policy plans; until then the second copy is behind. Written at once if
    /// more than the given bytes would be behind.
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

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Writes a piece to the required copies; `None` stands for zeros. The caller holds the extent's
    /// exclusive lock, or the shared lock and the range's lock. Returns the new entry: a home that could not
    /// be written is now the second copy.
    pub async fn write_required(
        self: &Rc<Self>,
        piece: &Piece,
        entry: Entry,
        from: Option<&Buf>,
        origin: Origin,
        timing: Timing,
    ) -> Result<Entry> {
        let &Piece { extent, ref range } = piece;
        if entry.second == SlotNumber::NONE {
            self.write_slot(entry.home, range, from, entry.valid, origin).await?;
            // A new extent is in no map yet, so its device may have been excluded meanwhile.
            return match self.store.shape.copies > 1 && !self.store.locate(entry.home).0.is_current() {
                true => Err(none_there(extent)),
                false => Ok(entry),
            };
        }
        let span = self.store.shape.span_of(extent);
        let is_move_pending = || self.store.state.borrow().is_move_pending(extent);
        let entry = match self.active_epochs().is_some() && is_move_pending() {
            true => self.complete_move(extent, entry, origin).await?,
            false => entry,
        };
        let both_current =
            || [entry.home, entry.second].into_iter().all(|slot| self.store.locate(slot).0.is_current());
        let keeps_epochs = self.active_epochs().is_some() && both_current();
        // Range in whole blocks that the second copy gets later.
        let deferred = match timing {
            _ if keeps_epochs => {
                let changed = self.store.shape.changed_by(piece, entry.valid);
                self.note_change(&changed).await?;
                self.begin_behind(span, changed.clone());
                Some(changed)
            }
            // While a move is pending, a failure of the former home's device makes the second copy current:
            // the second copy must have the write.
            Timing::Later(most) if both_current() && !is_move_pending() => {
                let changed = self.store.shape.changed_by(piece, entry.valid);
                let mut state = self.store.state.borrow_mut();
                let begun = state.behind.begin_deferred_write(span, changed.clone(), most);
                if begun {
                    state.behind.decided_by_write(self.store.shape.written_by(piece, entry.valid));
                }
                begun.then_some(changed)
            }
            Timing::Later(_) | Timing::Now => None,
        };
        let later = deferred.is_some();
        let begun = async {
            if later {
                self.durable.record_behind(span).await?;
            }
            self.durable.intend(span).await
        };
        if let Err(error) = begun.await {
            // With epochs, a later epoch brings the range in any case.
            if let Some(changed) = deferred.filter(|_| !keeps_epochs) {
                self.store.state.borrow_mut().behind.cancel_deferred_write(span, &changed);
            }
            return Err(error);
        }
        let forgotten = |slot: SlotNumber| slot == entry.second && planted(Bug::SecondCopyNotWritten);
        let wanted = |slot: SlotNumber| {
            self.store.locate(slot).0.is_written() && !(later && slot == entry.second) && !forgotten(slot)
        };
        let slots = [entry.home, entry.second].into_iter().filter(|&slot| wanted(slot));
        let deadline = if both_current() { Deadline::Copied } else { Deadline::Only };
        let writes = slots.map(async |slot| {
            (slot, self.write_slot_by(slot, range, from, entry.valid, origin, deadline).await)
        });
        let mut results = join_all(writes).await;
        if later && self.store.is_second_needed(piece, &entry, &results) {
            let written = async {
                self.leave_home(&entry, &results, keeps_epochs).await?;
                self.write_slot_by(entry.second, range, from, entry.valid, origin, Deadline::Only).await
            };
            results.push((entry.second, written.await));
        }
        let mut settled = self.store.settle(piece, entry, &results);
        if let Ok(now) = &settled
            && now.home == entry.second
            && self.store.state.borrow().behind.lacks_flushed(extent)
        {
            // The write brings the second copy the bytes that it lacked. A flush makes them durable before
            // the second copy replaces the home.
            let (member, device) = (self.store.locate(now.home).0, self.store.device_of(now.home));
            settled = match member.flush(&self.rt).await {
                Ok(_) => self.store.settle(piece, entry, &results),
                Err(error) => {
                    let error = Error::io(
                        format_args!("{} could not flush", self.store.member(device).describe()),
                        &error,
                    );
                    self.durable.lose(device, error.clone()).and(Err(error))
                }
            };
        }
        let missed = !later && results.len() < 2 && !planted(Bug::SecondCopyNotWritten)
            || results.iter().any(|(_, result)| result.is_err());
        let exchanged = {
            let mut state = self.store.state.borrow_mut();
            let known = state.map.get(extent);
            let exchanged =
                settled.as_ref().is_ok_and(|now| known.home == now.second && known.second == now.home);
            if let (true, Ok(now)) = (exchanged, &settled) {
                state.set_extent(extent, Entry { home: now.home, second: now.second, ..known });
                state.note_exchange(extent);
            }
            let lacks = || self.store.shape.changed_by(piece, entry.valid);
            deferred.into_iter().for_each(|changed| state.behind.end_deferred_write(changed));
            state.behind.end_write(span, missed.then(lacks), self.rt.now());
            if missed {
                state.behind.decided_by_write(self.store.shape.written_by(piece, entry.valid));
            }
            exchanged
        };
        if later && self.store.is_awakened() {
            self.jobs.wake();
        }
        let settled = match settled {
            Ok(settled) => settled,
            Err(error) => {
                if missed && both_current() {
                    // A guest may have waited for the write: its reads must come from a single copy.
                    self.durable.record_behind(span).await?;
                }
                return Err(error);
            }
        };
        if exchanged {
            self.store.forget_undecided_extras(&self.policy, extent);
            self.guests.cache.borrow_mut().remove(extent);
            // The commit comes before the journal says *behind*: after a crash in between, the stale copy
            // would count.
            self.durable.commit(origin).await?;
        }
        if missed && both_current() && !planted(Bug::MissedWriteUnrecorded) {
            self.durable.record_behind(span).await?;
        }
        self.lose_beyond_bound(entry.second, &results, timing)?;
        // The state of a device that is not current covers its missed writes.
        self.durable.record_states().await?;
        // A device may have been excluded meanwhile; the exclusion does not know of a new extent in no map.
        self.store.settle(piece, settled, &results)
    }

    /// Reads a range of an extent from a current required copy. The caller holds the extent's lock.
    pub async fn read_required(
        self: &Rc<Self>,
        extent: ExtentId,
        entry: &Entry,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let is_any_lost = || self.store.shape.parts_touched(&range) & !entry.valid != 0;
        if entry.home == SlotNumber::LOST || entry.partly_lost && is_any_lost() {
            return Err(lost(&self.store.shape, extent));
        }
        let copies = self.store.copies_of(extent, entry);
        let Other::Equal(other) = copies.other else {
            return self.read_current(extent, &copies, range, into, origin).await;
        };
        let (mut first, mut next) = self.rank(copies.current, other, origin);
        if self.store.check_kept(extent, first, &range).is_err()
            || self.store.lacks_beside(extent, first, next)
        {
            self.store.check_kept(extent, next, &range)?;
            (first, next) = (next, first);
        }
        match self.read_slot_copied(first, range.clone(), into, origin).await {
            // Checked again, as in `read_kept`.
            Ok(()) => self.store.check_kept(extent, first, &range),
            Err(error) if self.store.lacks_beside(extent, next, first) => Err(error),
            Err(_) => {
                self.read_kept(extent, next, range.clone(), into, origin).await?;
                // If the device is late, the place need not be bad.
                if !self.store.locate(first).0.is_late() {
                    self.repair_later(extent, first, range);
                }
                Ok(())
            }
        }
    }

    /// Reads a range from one copy. The copy must be proved before and after the read: a flush may fail
    /// meanwhile.
    pub(super) async fn read_kept(
        self: &Rc<Self>,
        extent: ExtentId,
        slot: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        self.store.check_kept(extent, slot, &range)?;
        self.read_slot(slot, range.clone(), into, origin).await?;
        self.store.check_kept(extent, slot, &range)
    }

    /// Reads a range of an extent about to move, from the current copy alone: if its device turns out to have
    /// lost writes, the source is known. A bad place is rewritten from the other copy for a later move. The
    /// bytes stay on the device's node. The range must be aligned to parts.
    pub async fn read_to_move(
        self: &Rc<Self>,
        extent: ExtentId,
        entry: &Entry,
        range: Range<Bytes>,
        into: &Buf,
    ) -> Result<()> {
        let Copies { current, other } = self.store.copies_of(extent, entry);
        self.store.check_kept(extent, current, &range)?;
        let (member, start) = self.store.locate(current);
        let read = self.durable.device_read_to_move(member, start + range.start, into).await;
        if read.is_err() && matches!(other, Other::Equal(_)) && !member.is_late() {
            self.repair_later(extent, current, range.clone());
        }
        read?;
        // If a flush failed during the read, older bytes may have been read.
        self.store.check_kept(extent, current, &range)
    }

    /// Returns the copies in the order of reads. A late device comes last. If one device is slow, the copy
    /// with the shorter expected wait comes first; else the policy decides.
    fn rank(&self, home: SlotNumber, second: SlotNumber, origin: Origin) -> (SlotNumber, SlotNumber) {
        let is_late = |slot| self.store.locate(slot).0.is_late();
        if is_late(home) != is_late(second) {
            return if is_late(home) { (second, home) } else { (home, second) };
        }
        if origin != Origin::Guest {
            return (home, second);
        }
        let copy = |slot, kind| CurrentCopy { device: self.store.device_of(slot), kind };
        let mut copies = [copy(home, CopyKind::Home), copy(second, CopyKind::Second)];
        let is_slow = |slot| self.store.locate(slot).0.is_slow();
        let one_is_slow = is_slow(home) != is_slow(second);
        self.with_policy(|policy, view| match one_is_slow {
            true => view.sort_by_read_wait(&mut copies),
            false => policy.rank_reads(&mut copies, view),
        });
        if copies[0].kind == CopyKind::Second { (second, home) } else { (home, second) }
    }

    /// True if a copy is expected to answer later than the home because the copy's device is slow.
    pub fn answers_later(&self, slot: SlotNumber, home: SlotNumber) -> bool {
        if !self.store.locate(slot).0.is_slow() || matches!(home, SlotNumber::NONE | SlotNumber::LOST) {
            return false;
        }
        let (device, other) = (self.store.device_of(slot), self.store.device_of(home));
        let wait = |view: &View, of: DeviceId| view.devices[of.index()].expected_read_wait();
        self.with_policy(|_, view| wait(view, other) < wait(view, device))
    }

    /// Commits the pending move of a home before the second copy misses a write. Returns the new entry: the
    /// copies are exchanged if the device that the home left has failed.
    async fn complete_move(&self, extent: ExtentId, entry: Entry, origin: Origin) -> Result<Entry> {
        self.durable.commit(origin).await?;
        let now = self.store.state.borrow().map.get(extent);
        let is_exchanged = (now.home, now.second) == (entry.second, entry.home);
        Ok(if is_exchanged { Entry { home: now.home, second: now.second, ..entry } } else { entry })
    }

    /// Excludes the device of a second copy that could not be written although the bound on stale bytes was
    /// reached. So the bound holds for all copies that count, and the policy's rule for a lacking device
    /// applies.
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
            Some(error) if self.store.state.borrow().behind.lacking() > most => {
                self.durable.lose(self.store.device_of(second), error.clone())
            }
            _ => Ok(()),
        }
    }
}

impl Shape {
    /// Range of the volume that a write changes on a device, padding included.
    fn written_by(&self, piece: &Piece, valid: u16) -> Range<Bytes> {
        self.bytes_of_piece(&self.padded(piece, valid))
    }

    /// Range of the volume that a write changes, in whole blocks.
    fn changed_by(&self, piece: &Piece, valid: u16) -> Range<Bytes> {
        let (written, block) = (self.written_by(piece, valid), self.block_size);
        let is_short = planted(Bug::BehindRangeShort) && written.end.align_down(block) > written.start;
        let end = if is_short { written.end.align_down(block) } else { written.end.align_up(block) };
        written.start.align_down(block)..end
    }
}

impl<D: Device> Store<D> {
    /// Returns the current copy of an extent and the state of the other. If only the second copy's device is
    /// current, the second copy is current; else the home is. If both devices are current, the second copy
    /// equals the home unless the extent is behind. A deferred write in flight makes no copy stale.
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

    /// Returns an error if a failed flush may have lost the bytes of a range. Not proved on a device with a
    /// failed flush: a slot that the journal does not name for the extent, a part that the journal does not
    /// call valid, and a block with newer bytes in an extra copy according to the journal.
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
            || self.shape.blocks_in(&piece).all(|(block, _)| !state.was_written_back(block));
        if is_named && durable.valid & parts == parts && is_newest {
            Ok(())
        } else {
            Err(member.error_of_unproved(extent))
        }
    }

    /// True if a copy may lack writes that the other copy has: a failed flush lost writes of its device, and
    /// the journal does not call the copies equal. The lost writes may include a resync.
    pub(super) fn lacks_beside(&self, extent: ExtentId, slot: SlotNumber, other: SlotNumber) -> bool {
        self.devices.losses() > 0
            && self.locate(slot).0.has_lost_writes()
            && !self.locate(other).0.has_lost_writes()
            && self.state.borrow().behind.durable(self.shape.span_of(extent)) != Difference::None
    }

    /// Returns the entry after a write to both copies; an error if no current copy has the write.
    fn settle(&self, piece: &Piece, entry: Entry, results: &[(SlotNumber, Result<()>)]) -> Result<Entry> {
        let extent = piece.extent;
        // Another write may have exchanged the copies. A new extent is not in the map yet.
        let now = self.state.borrow().map.get(extent);
        let entry = match now.home == entry.second {
            true => Entry { home: entry.second, second: entry.home, ..entry },
            false => entry,
        };
        // The target of a deferred write is the copy that serves the extent at the end of the write.
        let copies = self.copies_of(extent, &entry);
        // A new extent is in no map yet, so both of its devices may have been excluded.
        if !self.locate(copies.current).0.is_current() {
            return Err(none_there(extent));
        }
        let result = |slot: SlotNumber| results.iter().find(|(s, _)| *s == slot).map(|(_, result)| result);
        // If undecided outside of the range, either copy is good there.
        let is_enough = |other| {
            let is_equal = copies.other == Other::Equal(other);
            is_equal || self.locate(other).0.is_current() && !self.lacks_flushed_beside(extent, &piece.range)
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

    /// True if the second copy lacks flushed or read bytes of the extent outside of a range.
    pub(super) fn lacks_flushed_beside(&self, extent: ExtentId, range: &Range<Bytes>) -> bool {
        let start = self.shape.bytes_of(extent).start;
        self.state.borrow().behind.lacks_flushed_beside(extent, &(start + range.start..start + range.end))
    }

    /// Notes a slot as the source of a copy. The next flush of its device proves the source. If the extent
    /// has just moved to the slot, a flush of the former home's device is needed, too.
    pub fn note_source(&self, extent: ExtentId, slot: SlotNumber) {
        self.locate(slot).0.note_source();
        let (left, now) = {
            let state = self.state.borrow();
            (state.durable_entry(extent).home, state.map.get(extent))
        };
        // If the durable home is one of the current copies, the extent has not left its device.
        let was_left = left != now.home && left != now.second;
        if was_left && left != SlotNumber::NONE && left != SlotNumber::LOST {
            self.locate(left).0.note_source();
        }
    }
}

/// Error of a write to an extent without a current device.
#[cold]
fn none_there(extent: ExtentId) -> Error {
    Error::new(ErrorKind::Degraded, format!("no device with a copy of {extent:?} is present"))
}

/// Error of a read of lost bytes, or of a write to less than a lost part: the rest of the part would become
/// zeros.
#[cold]
pub(crate) fn lost(shape: &Shape, extent: ExtentId) -> Error {
    let part = shape.part_size;
    // Frontends split writes longer than a buffer, so no write covers such a part.
    let remedy = match part > Arena::LARGEST {
        true => "discard all of it".to_owned(),
        false => format!("write it in whole parts of {part}, or discard all of it"),
    };
    let text = format!(
        "{extent:?} was lost: a repair could not prove the place of its bytes, or their device was excluded; {remedy}, and restore its content from \
         a backup"
    );
    Error::new(ErrorKind::Corrupt, text)
}
