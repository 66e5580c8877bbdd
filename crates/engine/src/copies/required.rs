//! Required copies of an extent: the choice of the current copy, and reads. If a read fails on one copy, the
//! other copy answers, and the bad place is rewritten. A second copy that is stale in some ranges may answer
//! outside of these ranges.

use crate::core::{Extents, Store};
use crate::map::Other;
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::intent_page::Difference;
use braid_format::map_page::Entry;
use braid_policy::{CopyKind, CurrentCopy, Origin, View};
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::ops::Range;

/// The required copies of an extent at one moment.
pub(crate) struct Copies {
    /// Slot with the current bytes.
    pub current: SlotNumber,
    pub other: Other,
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Reads a range of an extent from a current required copy. The caller holds the extent's lock.
    pub async fn read_required(
        &self,
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

    /// Reads a range of an extent without an equal second copy. If the other copy has equal bytes in the
    /// range, the other copy may answer: first if only the current copy's device is late, else after a failed
    /// read.
    async fn read_current(
        &self,
        extent: ExtentId,
        copies: &Copies,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        if let Other::Behind(other) = copies.other
            && self.store.lacks_beside(extent, copies.current, other)
        {
            return self.read_apart(extent, copies.current, other, range, into, origin).await;
        }
        let Other::Behind(other) = copies.other else {
            return self.read_kept(extent, copies.current, range, into, origin).await;
        };
        let is_alike = || self.store.is_alike(extent, copies.current, other, &range);
        if !is_alike() {
            return self.read_kept(extent, copies.current, range, into, origin).await;
        }
        let is_late = |slot| self.store.locate(slot).0.is_late();
        let (first, next) = match is_late(copies.current) && !is_late(other) {
            true => (other, copies.current),
            false => (copies.current, other),
        };
        let read = async {
            self.store.check_kept(extent, first, &range)?;
            self.read_slot_copied(first, range.clone(), into, origin).await?;
            self.store.check_kept(extent, first, &range)
        };
        let read = read.await;
        // During the read a guest may have written to the range, or a device may have been excluded.
        let counts = |slot| {
            let is_current = |slot| self.store.locate(slot).0.is_current();
            slot == copies.current || is_alike() || !is_current(copies.current) && is_current(other)
        };
        if read.is_ok() && counts(first) || !counts(next) {
            return read;
        }
        let instead = self.read_kept(extent, next, range.clone(), into, origin).await;
        match counts(next) {
            true => instead.map_err(|error| read.err().unwrap_or(error)),
            false => read,
        }
    }

    /// Reads a range if the current copy may have lost writes and the other copy has not. Only ranges in
    /// which the other copy is stale are read from the current copy.
    async fn read_apart(
        &self,
        extent: ExtentId,
        current: SlotNumber,
        other: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let start = self.store.shape.bytes_of(extent).start;
        let mut at = range.start;
        while at < range.end {
            let behind = self.store.state.borrow().behind.next(start + at);
            let behind = behind.map_or(range.end..range.end, |next| next.start - start..next.end - start);
            let (slot, end) = if behind.start <= at { (current, behind.end) } else { (other, behind.start) };
            let part = at..end.min(range.end);
            let bytes = into.slice(part.start - range.start..part.end - range.start);
            at = part.end;
            self.read_kept(extent, slot, part, &bytes, origin).await?;
        }
        Ok(())
    }

    /// Reads a range from one copy. The copy must be proved before and after the read: a flush may fail
    /// meanwhile.
    pub async fn read_kept(
        &self,
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
        &self,
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

    /// True if a copy that is stale elsewhere in the extent equals the current copy in a range.
    fn is_alike(
        &self,
        extent: ExtentId,
        current: SlotNumber,
        other: SlotNumber,
        range: &Range<Bytes>,
    ) -> bool {
        let (first, last) = (self.locate(current).0, self.locate(other).0);
        let start = self.shape.bytes_of(extent).start;
        let bytes = start + range.start..start + range.end;
        first.is_current()
            && last.is_current()
            && !self.lacks_beside(extent, other, current)
            && !self.state.borrow().behind.ranges().intersects(&bytes)
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
    fn lacks_beside(&self, extent: ExtentId, slot: SlotNumber, other: SlotNumber) -> bool {
        self.devices.losses() > 0
            && self.locate(slot).0.has_lost_writes()
            && !self.locate(other).0.has_lost_writes()
            && self.state.borrow().behind.durable(self.shape.span_of(extent)) != Difference::None
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
