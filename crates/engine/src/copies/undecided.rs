//! Undecided ranges after a crash: the two copies of an extent differ at most by writes that were never
//! flushed, and either copy is good. After a guest's read of one copy and a flush, the guest may rely on the
//! bytes, even if the volume then loses the device. Therefore the copies are made equal before the first
//! request to such a range, and no guest waits for the rest of a resync.
//!
//! Nothing is written to an undecided range. The opening flushed both copies, so the later loss of a home
//! takes nothing from a second copy made from the home, unless the home has moved since.

use crate::copier::Mover;
use crate::core::{Extents, InCharge, Store, Upkeep};
use crate::devices::{Deadline, LARGEST_BUFFER, Member};
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use crate::{Error, Result};
use braid_base::{BlockId, Bytes, ExtentId, KIB, MIB, Nanos, Op};
use braid_format::map_page::Entry;
use braid_format::{SlotNumber, SpanId};
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Mode, Runtime};
use std::ops::Range;

/// Step of a copy, or a smaller whole extent, or a larger part of an extent.
const STEP: Bytes = MIB;
/// Step of a copy around a bad place: no device has larger sectors.
const SECTOR: Bytes = Bytes(4 * KIB.0);

/// What a copy does at a bad place of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnBadPlace {
    /// Fail.
    Fail,
    /// Continue sector by sector.
    GoOn,
}

impl Shape {
    /// Range of the volume decided together with a piece, within the piece's extent.
    fn undecided_around(&self, piece: &Piece) -> Range<Bytes> {
        let (bytes, step) = (self.bytes_of(piece.extent), STEP.max(self.part_size));
        let (from, to) = (piece.range.start.align_down(step), piece.range.end.align_up(step));
        bytes.start + from..(bytes.start + to).min(bytes.end)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Makes both copies of a piece and its surroundings equal before a guest's request. If the second copy
    /// cannot be written, the home counts from now on, and the journal says *behind*. The caller holds no
    /// lock.
    ///
    /// # Errors
    /// `Io` if neither copy can be read, unless the request overwrites the bytes; if a device fails
    /// meanwhile; while the volume closes.
    pub async fn decide(&self, piece: &Piece, request: Op) -> Result<()> {
        let (span, around) =
            (self.store.shape.span_of(piece.extent), self.store.shape.undecided_around(piece));
        let sectors = self.store.shape.sectors_of(piece);
        let Some(_job) = self.jobs.begin_for_guest() else {
            return if self.store.is_left_undecided(&sectors) { Err(Error::closing()) } else { Ok(()) };
        };
        if self.extents.active_epochs().is_some() {
            self.store.state.borrow_mut().behind.end_undecided_in(span, &around);
        } else if self.store.is_left_undecided(&sectors) {
            let is_alike = !self.store.is_second_held_up(piece)
                && self.make_alike(&around, OnBadPlace::Fail).await == Ok(true);
            if !is_alike && self.store.is_left_undecided(&sectors) {
                // Only the requested sectors: the rest waits until the devices answer.
                let is_overwritten = request != Op::Read && sectors == self.store.shape.bytes_of_piece(piece);
                self.decide_sectors(piece, &sectors, is_overwritten).await?;
                self.store.state.borrow_mut().behind.end_undecided_in(span, &sectors);
            }
        }
        match self.durable.record_behind(span).await {
            // No flush will succeed any more, so no flush promises the bytes read.
            Err(_) if self.durable.journal.commits.have_failed() => Ok(()),
            recorded => recorded,
        }
    }

    /// Finds a readable copy of the sectors of a piece. If the sectors are undecided afterwards, the home
    /// counts: the home is readable there, or neither copy is and a write brings new bytes.
    async fn decide_sectors(
        &self,
        piece: &Piece,
        sectors: &Range<Bytes>,
        is_overwritten: bool,
    ) -> Result<()> {
        let home = || self.store.state.borrow().map.get(piece.extent).home;
        let is_late = || self.store.is_second(piece, Member::is_late);
        let mut has_waited = false;
        while self.store.is_left_undecided(sectors) {
            let before = home();
            if self.store.is_second_held_up(piece) {
                // The home is read before a write, too: until the write is done, a crash would leave an
                // unreadable home as the copy that counts.
                let read = self.extents.read_undecided_home(piece.extent, sectors).await;
                if read.is_err() && is_overwritten && is_late() && !has_waited {
                    has_waited = true;
                    self.extents.wait_while(|| is_late() && self.store.is_left_undecided(sectors)).await;
                    continue;
                }
                if read.is_ok() || is_late() {
                    return read;
                }
            }
            let alike = self.make_alike(sectors, OnBadPlace::GoOn).await;
            let Err(error) = alike else { return Ok(()) };
            // The home is replaced at most once: the other copy is read, or late, too.
            let goes_on = home() != before || is_overwritten && is_late() && !has_waited;
            if !goes_on && self.store.is_left_undecided(sectors) {
                return if is_overwritten { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// Copies the undecided bytes in a range of an extent. Returns false if some remain undecided.
    async fn make_alike(&self, range: &Range<Bytes>, on_bad_place: OnBadPlace) -> Result<bool> {
        let is_alike = self.resync_for_guest(range, on_bad_place).await?;
        // Changes that a crash would undo keep the copies from being equal: commit, then copy again.
        if !is_alike && self.durable.commit(Origin::Guest).await.is_ok() {
            return self.resync_for_guest(range, on_bad_place).await;
        }
        Ok(is_alike)
    }

    /// Makes undecided bytes in a range of an extent equal before a guest's request, without a turn. Returns
    /// false if some remain undecided.
    async fn resync_for_guest(&self, range: &Range<Bytes>, on_bad_place: OnBadPlace) -> Result<bool> {
        let (mut at, mut all) = (range.start, Ok(true));
        loop {
            let next = self.store.state.borrow().behind.next_undecided(&(at..range.end));
            let Some(next) = next else { return all };
            let piece = next.start..next.end.min(next.start + LARGEST_BUFFER);
            // Nothing is copied before suspect clean copies are dropped. If the journal accepts no record,
            // the home counts.
            let _told =
                self.drop_suspects(self.store.shape.span_of(self.store.shape.extent_of(piece.start))).await;
            let bytes = self.extents.buffer(&self.extents.buffers.runs, piece.end - piece.start).await?;
            match self.resync_piece(&piece, bytes, Mover::Engine, on_bad_place).await {
                Err(error) if on_bad_place == OnBadPlace::Fail => return Err(error),
                Err(error) => all = all.and(Err(error)),
                Ok(is_alike) => all = all.map(|all| all && is_alike),
            }
            at = piece.end;
        }
    }

    /// Makes unreadable homes readable while the volume closes, for at most `limit`.
    ///
    /// The journal calls whole spans behind, so at the next opening the homes there count, even in ranges
    /// that are undecided now. An unreadable home gets the bytes of the second copy. If the home's device is
    /// stale in the span, the second copy may become the home
    /// ([`crate::map::State::prefer_what_lacks_nothing`]), and must be readable, too. Remaining ranges stay
    /// undecided after the limit, or if a device is late.
    pub async fn mend_undecided_homes(&self, limit: Nanos) {
        let end = self.rt.now() + limit;
        let of_journal = {
            let behind = &self.store.state.borrow().behind;
            let spans = behind.behind_spans().into_iter();
            spans.filter(|span| !behind.is_span_undecided(*span)).collect::<Vec<SpanId>>()
        };
        for extent in of_journal.into_iter().flat_map(|span| self.store.shape.extents_of(span)) {
            let bytes = self.store.shape.bytes_of(extent);
            let (mut at, mut step) = (bytes.start, STEP);
            loop {
                let next = self.store.state.borrow().behind.next_undecided(&(at..bytes.end));
                let Some(next) = next else { break };
                let part = next.start..next.end.min((next.start + Bytes(1)).align_up(step));
                let entry = self.store.state.borrow().map.get(extent);
                if self.rt.now() >= end || self.store.is_any_copy_late(&entry) {
                    return;
                }
                let can_be_read = self.extents.read_undecided_home(extent, &part).await.is_ok()
                    && (!self.store.lacks_in_span(extent, entry.home)
                        || self
                            .extents
                            .read_undecided_copy(extent, &part, |entry| entry.second)
                            .await
                            .is_ok());
                if !can_be_read && step > SECTOR {
                    (at, step) = (part.start, SECTOR);
                    continue;
                }
                if !can_be_read {
                    // Bytes that neither copy gives are lost already.
                    let _left = self.resync_for_guest(&part, OnBadPlace::GoOn).await;
                }
                at = part.end;
                if at.is_aligned(STEP) {
                    step = STEP;
                }
            }
        }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// True if a read of a piece must wait: until the range is decided, or until the journal says which copy
    /// is behind.
    #[inline]
    pub fn must_decide(&self, piece: &Piece) -> bool {
        let behind = &self.store.state.borrow().behind;
        behind.any_behind()
            && (behind.is_undecided(&self.store.shape.undecided_around(piece))
                // While the volume closes, no flush promises the bytes read.
                || !self.jobs.are_ending()
                    && behind.is_unrecorded(self.store.shape.span_of(piece.extent))
                    && behind.ranges().intersects(&self.store.shape.bytes_of_piece(piece)))
    }

    /// Waits while a condition on a device holds, for at most `Devices::longest_silence`. By then the device
    /// has answered, or was excluded.
    async fn wait_while(&self, is_so: impl Fn() -> bool) {
        let over = async {
            while is_so() && !self.jobs.are_ending() {
                self.rt.sleep(Deadline::WARMTH).await;
            }
        };
        let _in_time = self.durable.within(self.store.devices.longest_silence(), over).await;
    }

    /// Reads a range of the volume from the home. An error if the home cannot be read there.
    async fn read_undecided_home(&self, extent: ExtentId, range: &Range<Bytes>) -> Result<()> {
        self.read_undecided_copy(extent, range, |entry| entry.home).await
    }

    async fn read_undecided_copy(
        &self,
        extent: ExtentId,
        range: &Range<Bytes>,
        which: impl Fn(&Entry) -> SlotNumber,
    ) -> Result<()> {
        let start = self.store.shape.bytes_of(extent).start;
        let (mut at, end) = (range.start - start, range.end - start);
        let bytes = self.buffer(&self.buffers.runs, STEP.min(end - at)).await?;
        let _guard = self.locks.lock(extent, Mode::Shared).await;
        let entry = self.store.state.borrow().map.get(extent);
        let slot = which(&entry);
        if matches!(slot, SlotNumber::NONE | SlotNumber::LOST) {
            return Ok(());
        }
        let is_only =
            entry.second == SlotNumber::NONE || self.store.is_device_of(entry.second, Member::is_late);
        while at < end {
            let (valid, until) = self.store.shape.run(entry.valid, at, end.min(at + STEP));
            if valid {
                let part = bytes.slice(Bytes::ZERO..until - at);
                let range = at..until;
                match is_only {
                    true => self.read_slot(slot, range.clone(), &part, Origin::Guest).await?,
                    false => self.read_slot_copied(slot, range.clone(), &part, Origin::Guest).await?,
                }
                self.store.check_kept(extent, slot, &range)?;
            }
            at = until;
        }
        Ok(())
    }

    /// Makes an undecided piece equal: with the home's bytes, or with the second copy's bytes if the home
    /// cannot be read. The caller holds the extent's exclusive lock.
    pub async fn copy_undecided(
        &self,
        piece: &Piece,
        entry: Entry,
        bytes: &Buf,
        on_bad_place: OnBadPlace,
    ) -> Result<()> {
        let &Piece { extent, ref range } = piece;
        let copied = match self.read_undecided(extent, entry.home, range, bytes).await {
            Ok(()) => self.write_undecided(extent, entry.home, entry.second, range, bytes).await,
            failed => failed,
        };
        match copied {
            Err(error) if on_bad_place == OnBadPlace::GoOn => {
                self.copy_undecided_sectors(piece, entry, bytes, error).await
            }
            copied => copied,
        }
    }

    /// Like [`Extents::copy_undecided`], sector by sector: the two copies need not have bad places in common.
    /// If the second copy cannot be written, the home counts. Sectors that neither copy gives stay undecided.
    async fn copy_undecided_sectors(
        &self,
        piece: &Piece,
        entry: Entry,
        bytes: &Buf,
        error: Error,
    ) -> Result<()> {
        let &Piece { extent, ref range } = piece;
        let (span, start) = (self.store.shape.span_of(extent), self.store.shape.bytes_of(extent).start);
        let doubts = self.store.state.borrow().behind.doubts(span);
        let (home, second) = (entry.home, entry.second);
        let (mut at, mut result) = (range.start, Ok(()));
        let mut unwritable: Vec<Range<Bytes>> = Vec::new();
        while at < range.end {
            let sector = at..(at + SECTOR).min(range.end);
            at = sector.end;
            let part = bytes.slice(Bytes::ZERO..sector.end - sector.start);
            let of_volume = start + sector.start..start + sector.end;
            // With a late device each request would have to wait, and a late write may still use the buffer.
            if self.store.locate(second).0.is_late() {
                return Err(error);
            }
            if self.store.locate(home).0.is_late() {
                self.leave_home_unread(extent, entry, &unwritable, &error).await?;
                return Err(error);
            }
            if self.read_undecided(extent, home, &sector, &part).await.is_ok() {
                if let Err(error) = self.write_undecided(extent, home, second, &sector, &part).await {
                    if self.store.locate(second).0.is_late() {
                        return Err(error);
                    }
                    self.store.state.borrow_mut().behind.end_undecided_in(span, &of_volume);
                    result = Err(error);
                    continue;
                }
            } else if let Err(error) = self.read_undecided(extent, second, &sector, &part).await {
                result = Err(error);
                continue;
            } else {
                self.forget_copies_of(extent);
                // A move in flight may hold the former bytes of the home.
                self.store.state.borrow_mut().disturb(extent);
                if let Err(error) = self.write_undecided(extent, second, home, &sector, &part).await {
                    if self.store.locate(home).0.is_late() {
                        self.leave_home_unread(extent, entry, &unwritable, &error).await?;
                        return Err(error);
                    }
                    unwritable.push(of_volume);
                    continue;
                }
            }
            self.store.state.borrow_mut().behind.copied(span, of_volume, doubts);
        }
        if !unwritable.is_empty() {
            self.leave_home_unread(extent, entry, &unwritable, &error).await?;
            return Err(error);
        }
        result
    }

    /// Exchanges the copies if the home does not answer, or has sectors that can be neither read nor written.
    /// Fails if the second copy lacks flushed writes. Undecided ranges outside of `unwritable` stay
    /// undecided.
    async fn leave_home_unread(
        &self,
        extent: ExtentId,
        entry: Entry,
        unwritable: &[Range<Bytes>],
        error: &Error,
    ) -> Result<()> {
        if self.store.state.borrow().behind.lacks_flushed(extent) {
            return Err(error.clone());
        }
        self.forget_copies_of(extent);
        if self.active_epochs().is_some() {
            return self.lose_copy(extent, entry, entry.home, error).await;
        }
        let span = self.store.shape.span_of(extent);
        {
            let mut state = self.store.state.borrow_mut();
            state.disturb(extent);
            state.set_extent(extent, Entry { home: entry.second, second: entry.home, ..entry });
            state.note_exchange(extent);
        }
        // The commit comes before the journal says *behind*. After a crash in between, the copy that counts
        // would otherwise have the bad place.
        self.durable.commit(Origin::Background).await?;
        {
            let behind = &mut self.store.state.borrow_mut().behind;
            behind.end_deferred_in(extent);
            unwritable.iter().for_each(|range| behind.mark_behind(span, range.clone()));
        }
        self.durable.record_behind(span).await?;
        self.durable.commit(Origin::Background).await
    }

    /// Drops clean extra copies and memory cache of an extent: bytes read from a home must not outlive the
    /// home.
    fn forget_copies_of(&self, extent: ExtentId) {
        let whole = Piece { extent, range: Bytes::ZERO..self.store.shape.extent_size };
        self.store.drop_clean_extras(&self.policy, &whole);
        self.guests.cache.borrow_mut().remove(extent);
    }

    async fn read_undecided(
        &self,
        extent: ExtentId,
        slot: SlotNumber,
        range: &Range<Bytes>,
        bytes: &Buf,
    ) -> Result<()> {
        self.read_slot_copied(slot, range.clone(), bytes, Origin::Background).await?;
        // If a flush failed during the read, older bytes may have been read.
        self.store.check_kept(extent, slot, range)
    }

    async fn write_undecided(
        &self,
        extent: ExtentId,
        from: SlotNumber,
        to: SlotNumber,
        range: &Range<Bytes>,
        bytes: &Buf,
    ) -> Result<()> {
        self.store.refuse_given_up(from)?;
        let durable = self.store.state.borrow().durable_entry(extent);
        if from != durable.home && from != durable.second {
            // The copy has moved since the opening, so the opening's flush does not prove its bytes.
            self.store.note_source(extent, from);
        }
        if !planted(Bug::UndecidedNotCopied) {
            let origin = Origin::Background;
            self.write_slot_by(to, range, Some(bytes), u16::MAX, origin, Deadline::Copied).await?;
        }
        self.durable.background.borrow_mut().resynced_bytes += (range.end - range.start).0;
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// Drops clean extra copies of undecided blocks after the copies were exchanged: they were made from the
    /// former home. No guest reads them before the blocks are decided.
    pub(super) fn forget_undecided_extras(&self, policy: &InCharge, extent: ExtentId) {
        let is_undecided = |block: &BlockId| {
            let state = self.state.borrow();
            let range = self.shape.bytes_of_piece(&self.shape.range_of(*block));
            state.extras.get(*block).is_some_and(|extra| !extra.dirty) && state.behind.is_undecided(&range)
        };
        let any = {
            let state = self.state.borrow();
            state.map.has_extras(extent) && state.behind.is_undecided(&self.shape.bytes_of(extent))
        };
        let blocks = self.shape.blocks_of(extent).filter(|_| any);
        blocks.filter(is_undecided).for_each(|block| self.drop_extra(policy, block));
    }

    /// True if any of a piece and its surroundings is undecided.
    #[inline]
    pub fn is_undecided(&self, piece: &Piece) -> bool {
        let state = self.state.borrow();
        state.behind.any_undecided() && state.behind.is_undecided(&self.shape.undecided_around(piece))
    }

    /// True if any of a range of the volume is undecided.
    pub fn is_left_undecided(&self, range: &Range<Bytes>) -> bool {
        self.state.borrow().behind.is_undecided(range)
    }

    /// True if the second copy's device is slow or late: guests must not wait for the device if the home has
    /// the bytes.
    fn is_second_held_up(&self, piece: &Piece) -> bool {
        self.is_second(piece, Member::holds_up)
    }

    fn is_second(&self, piece: &Piece, is: impl FnOnce(&Member<D>) -> bool) -> bool {
        let second = self.state.borrow().map.get(piece.extent).second;
        self.is_device_of(second, is)
    }

    /// True if a copy of an extent lies on a late device.
    pub fn is_any_copy_late(&self, entry: &Entry) -> bool {
        [entry.home, entry.second].into_iter().any(|slot| self.is_device_of(slot, Member::is_late))
    }

    /// True if a slot has a device with the given property.
    fn is_device_of(&self, slot: SlotNumber, is: impl FnOnce(&Member<D>) -> bool) -> bool {
        let place = self.state.borrow().space.locate(slot);
        place.is_some_and(|place| is(self.member(place.device)))
    }

    /// True if the device of a slot holds a stale second copy in the span of an extent.
    fn lacks_in_span(&self, extent: ExtentId, slot: SlotNumber) -> bool {
        let state = self.state.borrow();
        let on = |slot| state.space.locate(slot).map(|place| place.device);
        let lacks = |other| state.behind.lacks_flushed(other) && on(state.map.get(other).second) == on(slot);
        self.shape.extents_of(self.shape.span_of(extent)).any(lacks)
    }
}
