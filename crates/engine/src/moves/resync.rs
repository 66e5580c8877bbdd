//! Resync: brings the copies that are behind up to date, span after span, while guests work. The same job after an unclean stop, after a
//! write that failed on one copy, and for a device that came back.
//!
//! A piece is copied under its extent's lock. Guests write to both copies meanwhile, so a span is done after one pass, unless a
//! copy missed another write in it.

use super::Mover;
use crate::Result;
use crate::copies::Other;
use crate::core::Core;
use braid_base::{Bytes, ExtentId, Nanos};
use braid_format::{SlotNumber, SpanId};
use braid_policy::{ByteRange, DeviceView, Move, Origin, Outcome};
use braid_runtime::{Device, Mode, Runtime, yield_now};
use std::rc::Rc;

/// How long a resync rests that could not do anything.
const REST: Nanos = Nanos::from_secs(5);
/// A span is called clean once guests have left it alone for so long.
const IDLE: Nanos = Nanos::from_secs(5);
/// So many idle spans are called clean in a second while guests write elsewhere: each costs a batch of the journal where they come back.
const CLEARED_AT_ONCE: usize = 16;

/// With one required copy nothing is resynchronised: what is called clean saves a part of a cache from a crash, and flushes all devices.
const REST_OF_CACHE: Nanos = Nanos::from_secs(30);
/// So many spans are called clean then.
const CLEARED_OF_CACHE: usize = 256;

/// Extents that a search passes over before it lets others run.
const EXTENTS_IN_A_ROW: u32 = 4096;

/// What a pass over an extent came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Its copies are alike.
    Alike,
    /// The device of a copy is not there.
    Waits,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Brings what is behind up to date until the volume closes.
    pub(super) async fn resync(self: &Rc<Self>) {
        while !self.jobs.are_ending() {
            let (mut progress, mut failed) = (false, false);
            let spans = self.state.borrow().behind.behind_spans();
            for span in spans {
                match self.resync_span(span, Mover::Engine).await {
                    Ok(done) => progress |= done,
                    // Counted by the device that failed; tried again after a rest.
                    Err(_) => failed = true,
                }
                if self.jobs.are_ending() {
                    return;
                }
            }
            if progress {
                // With that the sources are proved, and may fail. A failure is remembered, and told to every flush from now on.
                failed |= self.commit(Origin::Background).await.is_err();
            }
            if !failed && let Err(error) = self.welcome_returned().await {
                tracing::warn!(%error, "devices that came back stay out of use");
            }
            failed |= self.complete_all().await.is_err();
            let waits = failed || !progress;
            let begin = if waits { self.rt.now() + REST } else { self.rt.now() };
            let any = || !waits && self.state.borrow().behind.any_behind();
            self.pause(begin.max(self.rt.now() + Nanos::from_millis(1)), any).await;
        }
    }

    /// Brings what a policy wanted behind up to date in a range, in the order of addresses.
    pub(super) async fn resync_range(self: &Rc<Self>, range: ByteRange) -> Result<Outcome> {
        let end = range.end.min(self.shape.volume_size);
        if range.start >= end {
            return Ok(Outcome::Finished);
        }
        let first = self.shape.span_of(self.shape.extent_of(range.start));
        let last = self.shape.span_of(self.shape.extent_of(end - Bytes(1)));
        for span in (first.0..=last.0).map(SpanId) {
            if self.jobs.are_ending() {
                return Ok(Outcome::Stopped);
            }
            if self.state.borrow().behind.is_any_behind(span) {
                self.resync_span(span, Mover::Plan).await?;
            }
        }
        // With that the sources are proved, and may fail.
        self.commit(Origin::Background).await?;
        Ok(Outcome::Finished)
    }

    /// Resynchronises all extents of a span. False if a device is missing for that.
    async fn resync_span(self: &Rc<Self>, span: SpanId, mover: Mover) -> Result<bool> {
        let missed = self.state.borrow().behind.missed(span);
        self.drop_suspects(span).await?;
        let mut all = true;
        for extent in self.shape.extents_of(span) {
            if self.jobs.are_ending() {
                return Ok(false);
            }
            all &= self.resync_extent(extent, mover).await? == Pass::Alike;
        }
        let shape = self.shape;
        Ok(all && self.state.borrow_mut().behind.end_resync(span, missed, |extent| shape.span_of(extent)))
    }

    /// Drops the clean extra copies in a span that may have been read from a device after it had lost writes.
    async fn drop_suspects(&self, span: SpanId) -> Result<()> {
        let missed = self.state.borrow().behind.missed(span);
        if !self.state.borrow().suspect.contains(&span) {
            return Ok(());
        }
        for extent in self.shape.extents_of(span) {
            for block in self.shape.blocks_of(extent) {
                if self.state.borrow().extras.get(block).is_none() {
                    continue;
                }
                let _room = self.reserve(1).await?;
                let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
                self.drop_extra(block);
            }
        }
        // Another device may have been given up meanwhile.
        if self.state.borrow().behind.missed(span) == missed {
            self.state.borrow_mut().suspect.remove(&span);
        }
        Ok(())
    }

    async fn resync_extent(self: &Rc<Self>, extent: ExtentId, mover: Mover) -> Result<Pass> {
        let mut at = Bytes::ZERO;
        while at < self.shape.extent_size {
            let entry = self.state.borrow().map.get(extent);
            if let Other::Behind(_) = self.copies_of(extent, &entry).other {
                self.rest(mover, &self.limited_of_extent(extent)).await;
                for slot in [entry.home, entry.second] {
                    self.give_way(mover, self.device_of(slot), self.bounce_limit()).await;
                }
            }
            let bytes =
                self.buffer(&self.buffers.moves, self.bounce_limit().min(self.shape.extent_size)).await?;
            // Only the lock tells: the first write to an extent may be under way, which is in no map yet.
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            let entry = self.state.borrow().map.get(extent);
            if entry.home == SlotNumber::NONE || entry.home == SlotNumber::LOST {
                return Ok(Pass::Alike);
            }
            let copies = self.copies_of(extent, &entry);
            let target = match copies.other {
                Other::Away => return Ok(Pass::Waits),
                Other::None | Other::Equal(_) => return Ok(Pass::Alike),
                Other::Behind(target) => target,
            };
            let limit = (at + bytes.len()).min(self.shape.extent_size);
            let (valid, end) = self.shape.run(entry.valid, at, limit);
            if valid {
                let part = bytes.slice(Bytes::ZERO..end - at);
                let range = at..end;
                let (source, start) = (self.device_of(copies.current), self.rt.now());
                self.check_kept(extent, copies.current, &range)?;
                let read = self.read_slot(copies.current, range.clone(), &part, Origin::Background);
                self.step(mover, &[source], read).await?;
                self.count(mover, source, start);
                self.note_source(extent, copies.current);
                let (target_device, start) = (self.device_of(target), self.rt.now());
                let write = self.write_slot(target, &range, Some(&part), u16::MAX, Origin::Background);
                self.step(mover, &[target_device], write).await?;
                self.count(mover, target_device, start);
                self.background.borrow_mut().resynced_bytes += (end - at).0;
            }
            at = end;
        }
        Ok(Pass::Alike)
    }

    /// Gives extents the second copy that they could not have while a device was missing.
    async fn complete_all(self: &Rc<Self>) -> Result<()> {
        if !self.moves.incomplete.get() || self.devices.iter().any(|member| !member.is_current()) {
            return Ok(());
        }
        self.moves.incomplete.set(false);
        for extent in (0..self.shape.extents()).map(ExtentId) {
            if self.jobs.are_ending() || self.moves.auditing.get() {
                self.moves.incomplete.set(true);
                return Ok(());
            }
            if extent.0 % EXTENTS_IN_A_ROW == 0 {
                yield_now().await;
            }
            let entry = self.state.borrow().map.get(extent);
            let single =
                entry.second == SlotNumber::NONE && self.state.borrow().space.locate(entry.home).is_some();
            if !single {
                continue;
            }
            let not = self.device_of(entry.home);
            let room = |device: &&DeviceView| device.id != not && device.free > 0;
            let roomiest = self.state.borrow().views.iter().filter(room).max_by_key(|d| d.free).map(|d| d.id);
            if let Some(target) = roomiest {
                self.run_move(Move::Mirror { extent, target }, Mover::Engine).await?;
            }
            // A guest's write wins over the copy; then it is tried again.
            let entry = self.state.borrow().map.get(extent);
            let still = entry.second == SlotNumber::NONE && entry.home != SlotNumber::NONE;
            self.moves.incomplete.set(self.moves.incomplete.get() || still);
        }
        Ok(())
    }

    /// Calls spans clean that guests have left alone, a few at a time: the next commit flushes both copies and says so.
    pub(super) async fn clear_idle_spans(&self) {
        while !self.jobs.are_ending() {
            let (rest, at_once) = match self.shape.copies {
                1 => (REST_OF_CACHE, CLEARED_OF_CACHE),
                _ => (Nanos::from_secs(1), CLEARED_AT_ONCE),
            };
            self.pause(self.rt.now() + rest, || false).await;
            let before = self.rt.now().saturating_sub(IDLE);
            let mut state = self.state.borrow_mut();
            let most = if state.behind.is_idle_since(before) { usize::MAX } else { at_once };
            // They are records of the next commit, for which no request has reserved room.
            let room = self.journal.unreserved().saturating_sub(state.pending());
            let idle = state.behind.idle_since(before, most.min(room));
            if !idle.is_empty() {
                state.clear_spans(idle);
            }
        }
    }
}
