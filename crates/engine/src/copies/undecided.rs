//! What a crash left undecided: the two copies of an extent differ at most by writes that were never flushed,
//! and either is as good. A guest that reads one of them may count on it from its next flush on, and a volume
//! that lost the other must still have it. So before the first request to such a range, both copies are made
//! alike, and no guest waits for the rest of a resync.
//!
//! Nothing is written to a range that is undecided. What the copies hold of it was flushed by the opening, so
//! a home that is lost later takes nothing away from the second copy that was made from it, unless it has
//! moved since.

use super::{Deadline, Member};
use crate::core::Core;
use crate::moves::Mover;
use crate::planted::{Bug, planted};
use crate::request::is_closed;
use crate::shape::Piece;
use crate::{Error, Result};
use braid_base::{BlockId, Bytes, ExtentId, KIB, MIB, Nanos, Op};
use braid_format::map_page::Entry;
use braid_format::{SlotNumber, SpanId};
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Mode, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// So much is copied at a time, or an extent that is smaller, or a part of an extent that is larger.
const STEP: Bytes = MIB;
/// And so much where one of the copies has a bad place: no device has larger sectors.
const SECTOR: Bytes = Bytes(4 * KIB.0);

/// What becomes of a copy where a place of a device is bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnBadPlace {
    /// It fails.
    Fail,
    /// It goes on sector by sector.
    GoOn,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether it is undecided which copy of a piece counts.
    #[inline]
    pub fn is_undecided(&self, piece: &Piece) -> bool {
        let state = self.state.borrow();
        state.behind.any_undecided() && state.behind.is_undecided(&self.undecided_around(piece))
    }

    /// Whether a read of a piece waits: until it is decided which copy counts, or the journal says which one
    /// does not.
    #[inline]
    pub fn must_decide(&self, piece: &Piece) -> bool {
        let behind = &self.state.borrow().behind;
        behind.any_behind()
            && (behind.is_undecided(&self.undecided_around(piece))
                // Of a volume that closes no flush promises what is read.
                || !self.jobs.are_ending()
                    && behind.is_unrecorded(self.shape.span_of(piece.extent))
                    && behind.ranges().intersects(&self.bytes_of_piece(piece)))
    }

    /// Makes both copies of a piece alike, with what lies around it, before a guest's request to it. Where
    /// the second copy cannot be written the home counts from now on, as the journal says then. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// `Io` where neither copy can be read, if the request leaves the bytes as they are; if a device fails
    /// meanwhile; and while the volume closes.
    pub async fn decide(self: &Rc<Self>, piece: &Piece, request: Op) -> Result<()> {
        let (span, around) = (self.shape.span_of(piece.extent), self.undecided_around(piece));
        let sectors = self.sectors_of(piece);
        let Some(_job) = self.jobs.begin_for_guest() else {
            return if self.is_left_undecided(&sectors) { Err(is_closed()) } else { Ok(()) };
        };
        if self.active_epochs().is_some() {
            self.state.borrow_mut().behind.end_undecided_in(span, &around);
        } else if self.is_left_undecided(&sectors) {
            let is_alike = !self.is_second_held_up(piece)
                && self.make_alike(&around, OnBadPlace::Fail).await == Ok(true);
            if !is_alike && self.is_left_undecided(&sectors) {
                // No more than the guest asks for: the rest waits for better times.
                let is_overwritten = request != Op::Read && sectors == self.bytes_of_piece(piece);
                self.decide_sectors(piece, &sectors, is_overwritten).await?;
                self.state.borrow_mut().behind.end_undecided_in(span, &sectors);
            }
        }
        match self.record_behind(span).await {
            // No flush will succeed any more, so none promises what is read now.
            Err(_) if self.journal.commits.have_failed() => Ok(()),
            recorded => recorded,
        }
    }

    /// Finds a copy of the sectors of a piece that can be read. Where they are undecided afterwards the home
    /// counts: it can be read there, or neither copy can, and a write brings new bytes.
    async fn decide_sectors(
        self: &Rc<Self>,
        piece: &Piece,
        sectors: &Range<Bytes>,
        is_overwritten: bool,
    ) -> Result<()> {
        let home = || self.state.borrow().map.get(piece.extent).home;
        let is_late = || self.is_second(piece, Member::is_late);
        let mut has_waited = false;
        while self.is_left_undecided(sectors) {
            let before = home();
            if self.is_second_held_up(piece) {
                // Before a write, too: until that is done, a crash would leave a home that cannot be read as
                // the copy that counts.
                let read = self.read_undecided_home(piece.extent, sectors).await;
                if read.is_err() && is_overwritten && is_late() && !has_waited {
                    has_waited = true;
                    self.wait_while(|| is_late() && self.is_left_undecided(sectors)).await;
                    continue;
                }
                if read.is_ok() || is_late() {
                    return read;
                }
            }
            let alike = self.make_alike(sectors, OnBadPlace::GoOn).await;
            let Err(error) = alike else { return Ok(()) };
            // A home that gives way, does so once: the other one is read, or late too.
            let goes_on = home() != before || is_overwritten && is_late() && !has_waited;
            if !goes_on && self.is_left_undecided(sectors) {
                return if is_overwritten { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// Waits while that is so of a device, for a minute at most: by then it has answered, or was given up.
    async fn wait_while(&self, is_so: impl Fn() -> bool) {
        let over = async {
            while is_so() && !self.jobs.are_ending() {
                self.rt.sleep(Deadline::WARMTH).await;
            }
        };
        let _in_time = self.within(Deadline::LONGEST, over).await;
    }

    /// Copies what is undecided in a range of an extent. False if something is left.
    async fn make_alike(self: &Rc<Self>, range: &Range<Bytes>, on_bad_place: OnBadPlace) -> Result<bool> {
        let is_alike = self.resync_for_guest(range, on_bad_place).await?;
        // What a crash would bring back keeps it from being alike.
        if !is_alike && self.commit(Origin::Guest).await.is_ok() {
            return self.resync_for_guest(range, on_bad_place).await;
        }
        Ok(is_alike)
    }

    /// Makes copies alike that are undecided in a range of an extent, before a request of a guest, and so in
    /// no turn. False if something is left.
    async fn resync_for_guest(
        self: &Rc<Self>,
        range: &Range<Bytes>,
        on_bad_place: OnBadPlace,
    ) -> Result<bool> {
        let (mut at, mut all) = (range.start, Ok(true));
        loop {
            let next = self.state.borrow().behind.next_undecided(&(at..range.end));
            let Some(next) = next else { return all };
            let piece = next.start..next.end.min(next.start + self.bounce_limit());
            // Else nothing is copied. Where the journal takes no record the home counts.
            let _told = self.drop_suspects(self.shape.span_of(self.shape.extent_of(piece.start))).await;
            let bytes = self.buffer(&self.buffers.runs, piece.end - piece.start).await?;
            match self.resync_piece(&piece, bytes, (Mover::Engine, on_bad_place)).await {
                Err(error) if on_bad_place == OnBadPlace::Fail => return Err(error),
                Err(error) => all = all.and(Err(error)),
                Ok(is_alike) => all = all.map(|all| all && is_alike),
            }
            at = piece.end;
        }
    }

    /// Whether something of a range of the volume is undecided.
    pub fn is_left_undecided(&self, range: &Range<Bytes>) -> bool {
        self.state.borrow().behind.is_undecided(range)
    }

    /// Whether guests must not wait for the device of the second copy if the home has what they ask for.
    fn is_second_held_up(&self, piece: &Piece) -> bool {
        self.is_second(piece, Member::holds_up)
    }

    fn is_second(&self, piece: &Piece, is: impl FnOnce(&Member<D>) -> bool) -> bool {
        let second = self.state.borrow().map.get(piece.extent).second;
        self.is_device_of(second, is)
    }

    /// Whether a copy of an extent lies on a device that is late.
    pub fn is_any_copy_late(&self, entry: &Entry) -> bool {
        [entry.home, entry.second].into_iter().any(|slot| self.is_device_of(slot, Member::is_late))
    }

    /// Whether a slot has a device, and that is so.
    fn is_device_of(&self, slot: SlotNumber, is: impl FnOnce(&Member<D>) -> bool) -> bool {
        let place = self.state.borrow().space.locate(slot);
        place.is_some_and(|place| is(self.member(place.device)))
    }

    /// Whether the home of an extent can be read in a range of the volume.
    async fn read_undecided_home(&self, extent: ExtentId, range: &Range<Bytes>) -> Result<()> {
        self.read_undecided_copy(extent, range, |entry| entry.home).await
    }

    async fn read_undecided_copy(
        &self,
        extent: ExtentId,
        range: &Range<Bytes>,
        which: impl Fn(&Entry) -> SlotNumber,
    ) -> Result<()> {
        let start = self.shape.bytes_of(extent).start;
        let (mut at, end) = (range.start - start, range.end - start);
        let bytes = self.buffer(&self.buffers.runs, STEP.min(end - at)).await?;
        let _guard = self.locks.lock(Self::lock_number(extent), Mode::Shared).await;
        let entry = self.state.borrow().map.get(extent);
        let slot = which(&entry);
        if matches!(slot, SlotNumber::NONE | SlotNumber::LOST) {
            return Ok(());
        }
        let is_only = entry.second == SlotNumber::NONE || self.is_device_of(entry.second, Member::is_late);
        while at < end {
            let (valid, until) = self.shape.run(entry.valid, at, end.min(at + STEP));
            if valid {
                let part = bytes.slice(Bytes::ZERO..until - at);
                let range = at..until;
                match is_only {
                    true => self.read_slot(slot, range.clone(), &part, Origin::Guest).await?,
                    false => self.read_slot_copied(slot, range.clone(), &part, Origin::Guest).await?,
                }
                self.check_kept(extent, slot, &range)?;
            }
            at = until;
        }
        Ok(())
    }

    /// For a volume that closes. The journal calls whole spans behind, so at the next opening the homes there
    /// count in what is undecided now: one that cannot be read gets what the second copy has. If the home's
    /// device lacks something in the span, the second copy may become the home
    /// ([`crate::map::State::prefer_what_lacks_nothing`]), and must be readable, too. What is left when the
    /// time is over, or no device answers, stays as it is.
    pub async fn mend_undecided_homes(self: &Rc<Self>, limit: Nanos) {
        let end = self.rt.now() + limit;
        let of_journal = {
            let behind = &self.state.borrow().behind;
            let spans = behind.behind_spans().into_iter();
            spans.filter(|span| !behind.is_span_undecided(*span)).collect::<Vec<SpanId>>()
        };
        for extent in of_journal.into_iter().flat_map(|span| self.shape.extents_of(span)) {
            let bytes = self.shape.bytes_of(extent);
            let (mut at, mut step) = (bytes.start, STEP);
            loop {
                let next = self.state.borrow().behind.next_undecided(&(at..bytes.end));
                let Some(next) = next else { break };
                let part = next.start..next.end.min((next.start + Bytes(1)).align_up(step));
                let entry = self.state.borrow().map.get(extent);
                if self.rt.now() >= end || self.is_any_copy_late(&entry) {
                    return;
                }
                let can_be_read = self.read_undecided_home(extent, &part).await.is_ok()
                    && (!self.lacks_in_span(extent, entry.home)
                        || self.read_undecided_copy(extent, &part, |entry| entry.second).await.is_ok());
                if !can_be_read && step > SECTOR {
                    (at, step) = (part.start, SECTOR);
                    continue;
                }
                if !can_be_read {
                    // What neither copy gives is lost already.
                    let _left = self.resync_for_guest(&part, OnBadPlace::GoOn).await;
                }
                at = part.end;
                if at.is_aligned(STEP) {
                    step = STEP;
                }
            }
        }
    }

    /// Whether the device of a slot lacks something in the span of an extent.
    fn lacks_in_span(&self, extent: ExtentId, slot: SlotNumber) -> bool {
        let state = self.state.borrow();
        let on = |slot| state.space.locate(slot).map(|place| place.device);
        let lacks = |other| state.behind.lacks_flushed(other) && on(state.map.get(other).second) == on(slot);
        self.shape.extents_of(self.shape.span_of(extent)).any(lacks)
    }

    /// What of an extent is decided with a piece of it.
    fn undecided_around(&self, piece: &Piece) -> Range<Bytes> {
        let (bytes, step) = (self.shape.bytes_of(piece.extent), STEP.max(self.shape.part_size));
        let (from, to) = (piece.range.start.align_down(step), piece.range.end.align_up(step));
        bytes.start + from..(bytes.start + to).min(bytes.end)
    }

    /// The sectors that a piece touches.
    fn sectors_of(&self, piece: &Piece) -> Range<Bytes> {
        let bytes = self.shape.bytes_of(piece.extent);
        let (from, to) = (piece.range.start.align_down(SECTOR), piece.range.end.align_up(SECTOR));
        bytes.start + from..(bytes.start + to).min(bytes.end)
    }

    pub(super) fn bytes_of_piece(&self, piece: &Piece) -> Range<Bytes> {
        let start = self.shape.bytes_of(piece.extent).start;
        start + piece.range.start..start + piece.range.end
    }

    /// Makes a range of an extent alike that is undecided: as the home has it, or where that cannot be read,
    /// as the second copy has it. The caller holds the extent's lock, exclusive.
    pub async fn copy_undecided(
        self: &Rc<Self>,
        (extent, entry): (ExtentId, Entry),
        range: &Range<Bytes>,
        bytes: &Buf,
        on_bad_place: OnBadPlace,
    ) -> Result<()> {
        let copied = match self.read_undecided(extent, entry.home, range, bytes).await {
            Ok(()) => self.write_undecided(extent, (entry.home, entry.second), range, bytes).await,
            failed => failed,
        };
        match copied {
            Err(error) if on_bad_place == OnBadPlace::GoOn => {
                self.copy_undecided_sectors((extent, entry), range, bytes, error).await
            }
            copied => copied,
        }
    }

    /// Sector by sector: the bad places of the two copies need not be the same. Where the second copy cannot
    /// be written the home counts; what neither copy gives stays undecided.
    async fn copy_undecided_sectors(
        self: &Rc<Self>,
        (extent, entry): (ExtentId, Entry),
        range: &Range<Bytes>,
        bytes: &Buf,
        error: Error,
    ) -> Result<()> {
        let (span, start) = (self.shape.span_of(extent), self.shape.bytes_of(extent).start);
        let doubts = self.state.borrow().behind.doubts(span);
        let (home, second) = (entry.home, entry.second);
        let (mut at, mut result) = (range.start, Ok(()));
        let mut unwritable: Vec<Range<Bytes>> = Vec::new();
        while at < range.end {
            let sector = at..(at + SECTOR).min(range.end);
            at = sector.end;
            let part = bytes.slice(Bytes::ZERO..sector.end - sector.start);
            let of_volume = start + sector.start..start + sector.end;
            // Each request would have to wait, and a write that is late may use the buffer still.
            if self.locate(second).0.is_late() {
                return Err(error);
            }
            if self.locate(home).0.is_late() {
                self.leave_home_unread(extent, entry, &unwritable, &error).await?;
                return Err(error);
            }
            if self.read_undecided(extent, home, &sector, &part).await.is_ok() {
                if let Err(error) = self.write_undecided(extent, (home, second), &sector, &part).await {
                    if self.locate(second).0.is_late() {
                        return Err(error);
                    }
                    self.state.borrow_mut().behind.end_undecided_in(span, &of_volume);
                    result = Err(error);
                    continue;
                }
            } else if let Err(error) = self.read_undecided(extent, second, &sector, &part).await {
                result = Err(error);
                continue;
            } else {
                self.forget_copies_of(extent);
                // A move under way may have what the home held.
                self.state.borrow_mut().disturb(extent);
                if let Err(error) = self.write_undecided(extent, (second, home), &sector, &part).await {
                    if self.locate(home).0.is_late() {
                        self.leave_home_unread(extent, entry, &unwritable, &error).await?;
                        return Err(error);
                    }
                    unwritable.push(of_volume);
                    continue;
                }
            }
            self.state.borrow_mut().behind.copied(span, of_volume, doubts);
        }
        if !unwritable.is_empty() {
            self.leave_home_unread(extent, entry, &unwritable, &error).await?;
            return Err(error);
        }
        result
    }

    /// A home that does not answer, or can neither be read nor written in some sectors, is the second copy
    /// from now on, unless the second copy lacks something that the home has. What is undecided beside that
    /// stays so.
    async fn leave_home_unread(
        self: &Rc<Self>,
        extent: ExtentId,
        entry: Entry,
        unwritable: &[Range<Bytes>],
        error: &Error,
    ) -> Result<()> {
        if self.state.borrow().behind.lacks_flushed(extent) {
            return Err(error.clone());
        }
        self.forget_copies_of(extent);
        if self.active_epochs().is_some() {
            return self.lose_copy(extent, entry, entry.home, error).await;
        }
        let span = self.shape.span_of(extent);
        {
            let mut state = self.state.borrow_mut();
            state.disturb(extent);
            state.set_extent(extent, Entry { home: entry.second, second: entry.home, ..entry });
            state.note_exchange(extent);
        }
        // Before the journal says behind: after a crash in between, the bad place would be in the copy that
        // counts.
        self.commit(Origin::Background).await?;
        {
            let behind = &mut self.state.borrow_mut().behind;
            behind.end_deferred_in(extent);
            unwritable.iter().for_each(|range| behind.mark_behind(span, range.clone()));
        }
        self.record_behind(span).await?;
        self.commit(Origin::Background).await
    }

    /// What was made from a home must not outlive it.
    fn forget_copies_of(&self, extent: ExtentId) {
        let whole = Piece { extent, range: Bytes::ZERO..self.shape.extent_size };
        self.drop_clean_extras(&whole);
        self.guests.cache.borrow_mut().remove(extent);
    }

    /// Clean extra copies that were made of what is undecided, from a home that is the second copy now. No
    /// guest reads them before it is decided.
    pub(super) fn forget_undecided_extras(&self, extent: ExtentId) {
        let is_undecided = |block: &BlockId| {
            let state = self.state.borrow();
            let range = self.bytes_of_piece(&self.shape.range_of(*block));
            state.extras.get(*block).is_some_and(|extra| !extra.dirty) && state.behind.is_undecided(&range)
        };
        let any = {
            let state = self.state.borrow();
            state.map.has_extras(extent) && state.behind.is_undecided(&self.shape.bytes_of(extent))
        };
        let blocks = self.shape.blocks_of(extent).filter(|_| any);
        blocks.filter(is_undecided).for_each(|block| self.drop_extra(block));
    }

    async fn read_undecided(
        &self,
        extent: ExtentId,
        slot: SlotNumber,
        range: &Range<Bytes>,
        bytes: &Buf,
    ) -> Result<()> {
        self.read_slot_copied(slot, range.clone(), bytes, Origin::Background).await?;
        // If a flush has failed meanwhile, what it lost was not read, but what lay there before.
        self.check_kept(extent, slot, range)
    }

    async fn write_undecided(
        &self,
        extent: ExtentId,
        (from, to): (SlotNumber, SlotNumber),
        range: &Range<Bytes>,
        bytes: &Buf,
    ) -> Result<()> {
        self.refuse_given_up(from)?;
        let durable = self.state.borrow().durable_entry(extent);
        if from != durable.home && from != durable.second {
            // It has moved since the opening.
            self.note_source(extent, from);
        }
        if !planted(Bug::UndecidedNotCopied) {
            let by = (Origin::Background, Deadline::Copied);
            self.write_slot_by(to, range, Some(bytes), u16::MAX, by).await?;
        }
        self.background.borrow_mut().resynced_bytes += (range.end - range.start).0;
        Ok(())
    }
}
