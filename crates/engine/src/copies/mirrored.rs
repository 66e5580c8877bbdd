//! Writes to the required copies of an extent.
//!
//! A write goes to both copies in parallel. The guest gets a success if a current copy has the write; before
//! the reply, the journal records a copy that missed the write as behind. The second copy of a *deferred*
//! write follows later.

use crate::core::{Extents, Store};
use crate::devices::Deadline;
use crate::map::Other;
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{Origin, Second};
use braid_runtime::{Buf, Device, Runtime, join_all};
use std::ops::Range;

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

/// Write to two required copies, with its intent durable.
struct MirroredWrite<'a> {
    piece: &'a Piece,
    /// Bytes; `None` stands for zeros.
    from: Option<&'a Buf>,
    origin: Origin,
    /// Entry at the start of the write.
    entry: Entry,
    /// True if an epoch brings the second copy, in an image, up to date.
    keeps_epochs: bool,
    /// Range in whole blocks that the second copy gets later.
    deferred: Option<Range<Bytes>>,
}

/// Attempted write to one slot, with the result.
pub(super) struct Written {
    pub slot: SlotNumber,
    pub result: Result<()>,
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Writes a piece to the required copies; `None` stands for zeros. The caller holds the extent's
    /// exclusive lock, or the shared lock and the range's lock. Returns the new entry: a home that could not
    /// be written is now the second copy.
    pub async fn write_required(
        &self,
        piece: &Piece,
        entry: Entry,
        from: Option<&Buf>,
        origin: Origin,
        timing: Timing,
    ) -> Result<Entry> {
        if entry.second == SlotNumber::NONE {
            self.write_slot(entry.home, &piece.range, from, entry.valid, origin).await?;
            // A new extent is in no map yet, so its device may have been excluded meanwhile.
            return match self.store.shape.copies > 1 && !self.store.locate(entry.home).0.is_current() {
                true => Err(none_there(piece.extent)),
                false => Ok(entry),
            };
        }
        let write = self.begin_mirrored_write(piece, entry, from, origin, timing).await?;
        let results = self.write_both(&write).await;
        let settled = self.settle_flushed(&write, &results).await;
        let missed = write.is_missed(&results);
        let exchanged = self.store.end_mirrored_write(&write, &settled, missed, self.rt.now());
        if write.deferred.is_some() && self.store.is_awakened() {
            self.jobs.wake();
        }
        let settled = self.record_missed(&write, settled, missed, exchanged).await?;
        self.lose_beyond_bound(write.entry.second, &results, timing)?;
        // The state of a device that is not current covers its missed writes.
        self.durable.record_states().await?;
        // A device may have been excluded meanwhile; the exclusion does not know of a new extent in no map.
        self.store.settle(piece, settled, &results)
    }

    /// Begins a write to both copies: decides when the second copy gets the write, and records the intent.
    async fn begin_mirrored_write<'a>(
        &self,
        piece: &'a Piece,
        entry: Entry,
        from: Option<&'a Buf>,
        origin: Origin,
        timing: Timing,
    ) -> Result<MirroredWrite<'a>> {
        let (extent, span) = (piece.extent, self.store.shape.span_of(piece.extent));
        let is_move_pending = || self.store.state.borrow().is_move_pending(extent);
        let entry = match self.active_epochs().is_some() && is_move_pending() {
            true => self.complete_move(extent, entry, origin).await?,
            false => entry,
        };
        let keeps_epochs = self.active_epochs().is_some() && self.store.are_both_current(&entry);
        let deferred = match timing {
            _ if keeps_epochs => {
                let changed = self.store.shape.changed_by(piece, entry.valid);
                self.note_change(&changed).await?;
                self.begin_behind(span, changed.clone());
                Some(changed)
            }
            // While a move is pending, a failure of the former home's device makes the second copy current:
            // the second copy must have the write.
            Timing::Later(most) if self.store.are_both_current(&entry) && !is_move_pending() => {
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
        let begun = async {
            if deferred.is_some() {
                self.durable.record_behind(span).await?;
            }
            self.durable.begin_write(span).await
        };
        if let Err(error) = begun.await {
            // With epochs, a later epoch brings the range in any case.
            if let Some(changed) = deferred.filter(|_| !keeps_epochs) {
                self.store.state.borrow_mut().behind.cancel_deferred_write(span, &changed);
            }
            return Err(error);
        }
        Ok(MirroredWrite { piece, from, origin, entry, keeps_epochs, deferred })
    }

    /// Writes the copies in parallel; the second copy of a deferred write only if the home fails.
    async fn write_both(&self, write: &MirroredWrite<'_>) -> Vec<Written> {
        let &MirroredWrite { piece, from, origin, entry, keeps_epochs, ref deferred } = write;
        let later = deferred.is_some();
        let forgotten = |slot: SlotNumber| slot == entry.second && planted(Bug::SecondCopyNotWritten);
        let wanted = |slot: SlotNumber| {
            self.store.locate(slot).0.is_written() && !(later && slot == entry.second) && !forgotten(slot)
        };
        let slots = [entry.home, entry.second].into_iter().filter(|&slot| wanted(slot));
        let deadline = if self.store.are_both_current(&entry) { Deadline::Copied } else { Deadline::Only };
        let writes = slots.map(async |slot| {
            let result = self.write_slot_by(slot, &piece.range, from, entry.valid, origin, deadline).await;
            Written { slot, result }
        });
        let mut results = join_all(writes).await;
        if later && self.store.is_second_needed(piece, &entry, &results) {
            let (slot, deadline) = (entry.second, Deadline::Only);
            let written = async {
                self.leave_home(&entry, &results, keeps_epochs).await?;
                self.write_slot_by(slot, &piece.range, from, entry.valid, origin, deadline).await
            };
            let result = written.await;
            results.push(Written { slot, result });
        }
        results
    }

    /// Settles which copy is the home after a write.
    async fn settle_flushed(&self, write: &MirroredWrite<'_>, results: &[Written]) -> Result<Entry> {
        let &MirroredWrite { piece, entry, .. } = write;
        let settled = self.store.settle(piece, entry, results)?;
        if settled.home != entry.second || !self.store.state.borrow().behind.lacks_flushed(piece.extent) {
            return Ok(settled);
        }
        // The write brings the second copy the bytes that it lacked. A flush makes them durable before the
        // second copy replaces the home.
        let member = self.store.locate(settled.home).0;
        match member.flush(&self.rt).await {
            Ok(_) => self.store.settle(piece, entry, results),
            Err(error) => {
                let error = Error::io(format_args!("{} could not flush", member.describe()), &error);
                self.durable.lose(member.id, error.clone()).and(Err(error))
            }
        }
    }

    /// Records an exchange of the copies, and a copy that missed the write, before the reply.
    async fn record_missed(
        &self,
        write: &MirroredWrite<'_>,
        settled: Result<Entry>,
        missed: bool,
        exchanged: bool,
    ) -> Result<Entry> {
        let (extent, span) = (write.piece.extent, self.store.shape.span_of(write.piece.extent));
        let both_current = || self.store.are_both_current(&write.entry);
        if settled.is_err() {
            if missed && both_current() {
                // A guest may have waited for the write: its reads must come from a single copy.
                self.durable.record_behind(span).await?;
            }
            return settled;
        }
        if exchanged {
            self.store.forget_undecided_extras(&self.policy, extent);
            self.guests.cache.borrow_mut().remove(extent);
            // The commit comes before the journal says *behind*: after a crash in between, the stale copy
            // would count.
            self.durable.commit(write.origin).await?;
        }
        if missed && both_current() && !planted(Bug::MissedWriteUnrecorded) {
            self.durable.record_behind(span).await?;
        }
        settled
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
    fn lose_beyond_bound(&self, second: SlotNumber, results: &[Written], timing: Timing) -> Result<()> {
        let Timing::Later(most) = timing else { return Ok(()) };
        let written = results.iter().find(|written| written.slot == second);
        let failed = written.and_then(|written| written.result.as_ref().err());
        match failed {
            Some(error) if self.store.state.borrow().behind.lacking() > most => {
                self.durable.lose(self.store.device_of(second), error.clone())
            }
            _ => Ok(()),
        }
    }
}

impl MirroredWrite<'_> {
    /// True if a copy missed the write. A deferred write misses no copy unless the write fails.
    fn is_missed(&self, results: &[Written]) -> bool {
        self.deferred.is_none() && results.len() < 2 && !planted(Bug::SecondCopyNotWritten)
            || results.iter().any(|written| written.result.is_err())
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
    /// True if the devices of both copies are current.
    fn are_both_current(&self, entry: &Entry) -> bool {
        [entry.home, entry.second].into_iter().all(|slot| self.locate(slot).0.is_current())
    }

    /// Returns the entry after a write to both copies; an error if no current copy has the write.
    fn settle(&self, piece: &Piece, entry: Entry, results: &[Written]) -> Result<Entry> {
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
        let result = |slot: SlotNumber| {
            results.iter().find(|written| written.slot == slot).map(|written| &written.result)
        };
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

    /// Ends a write to both copies in the state. Returns true if the copies are exchanged: the home missed
    /// the write.
    fn end_mirrored_write(
        &self,
        write: &MirroredWrite<'_>,
        settled: &Result<Entry>,
        missed: bool,
        now: Nanos,
    ) -> bool {
        let &MirroredWrite { piece, entry, ref deferred, .. } = write;
        let (extent, span) = (piece.extent, self.shape.span_of(piece.extent));
        let mut state = self.state.borrow_mut();
        let known = state.map.get(extent);
        let exchanged =
            settled.as_ref().is_ok_and(|now| known.home == now.second && known.second == now.home);
        if let (true, Ok(now)) = (exchanged, settled) {
            state.set_extent(extent, Entry { home: now.home, second: now.second, ..known });
            state.note_exchange(extent);
        }
        deferred.iter().for_each(|changed| state.behind.end_deferred_write(changed.clone()));
        let lacks = || self.shape.changed_by(piece, entry.valid);
        state.behind.end_write(span, missed.then(lacks), now);
        if missed {
            state.behind.decided_by_write(self.shape.written_by(piece, entry.valid));
        }
        exchanged
    }
}

/// Error of a write to an extent without a current device.
#[cold]
fn none_there(extent: ExtentId) -> Error {
    Error::new(ErrorKind::Degraded, format!("no device with a copy of {extent:?} is present"))
}
