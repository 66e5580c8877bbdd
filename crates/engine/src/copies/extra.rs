//! Extra copies: made on reads that a policy admits, kept up to date by writes, dirty under write-back,
//! dropped at will once clean.

use super::runs::Run;
use super::{Deadline, Member};
use crate::core::Core;
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{BlockId, Bytes, DeviceId};
use braid_format::journal::Extra;
use braid_format::{SlotNumber, SpanId};
use braid_policy::{Homes, Origin};
use braid_runtime::{Buf, Device, LockGuard, Runtime, join_all};
use std::ops::Range;
use std::rc::Rc;

/// Whether the extra copies have what was written to the home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Updated {
    All,
    /// A clean one could not be written, or does not count now and is not written.
    NotAll,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// The extra copy of a block. A clean one does not count on a device that was given up, or if a failed
    /// flush may have lost it, or what it was copied from.
    #[inline]
    pub fn extra_in(&self, state: &State, block: BlockId) -> Option<Extra> {
        state.extras.get(block).filter(|extra| self.counts(state, block, extra))
    }

    /// Whether the extra copy of a block counts ([`Core::extra_in`]).
    #[inline]
    pub(super) fn counts(&self, state: &State, block: BlockId, extra: &Extra) -> bool {
        let member = |slot| state.space.locate(slot).map(|place| self.member(place.device));
        let home = state.map.get(self.shape.range_of(block).extent).home;
        let is_sound = |member: &Member<D>| member.is_current() && !member.has_lost_writes();
        let has_lost = |home| self.devices.losses() > 0 && member(home).is_some_and(Member::has_lost_writes);
        extra.dirty || member(extra.slot).is_some_and(is_sound) && !has_lost(home)
    }

    /// Dirty extra copies of which the journal does not know may be gone with a failed flush. These are those
    /// of a piece, side by side from the first one on.
    ///
    /// # Errors
    /// If one may be.
    pub fn check_extra_kept(&self, piece: &Piece, first: &Extra) -> Result<()> {
        let member = self.locate(first.slot).0;
        let is_durable =
            |(block, place)| self.state.borrow().durable_extra(block) == Some(Extra { place, ..*first });
        let mut placed = self.blocks_of(piece).map(|(block, _)| block).zip(first.place..);
        match member.has_lost_writes() && !placed.all(is_durable) {
            true => Err(self.unproved(piece.extent, member)),
            false => Ok(()),
        }
    }

    /// Makes clean extra copies of the blocks of a piece that was just read, when the states of devices had
    /// changed so often before. The guard is the extent's, exclusive: guests wait for it, and no longer than
    /// the briefest deadline. A device that holds up others gets nothing.
    pub async fn promote(&self, piece: Piece, bytes: Buf, device: DeviceId, states: u64, guard: LockGuard) {
        let changes = self.policy.changes();
        if self.journal.commits.have_failed() || self.member(device).holds_up() {
            return;
        }
        let (runs, _room) = self.place_clean(&piece, device);
        let by = (Origin::Background, Deadline::Brief);
        let writes = runs.iter().map(|run| self.write_run(run, &piece, &bytes, by));
        for (run, written) in runs.iter().zip(join_all(writes).await) {
            // An error is counted by the device, and the home has the bytes; a policy that came meanwhile
            // asks itself; and a device that was given up meanwhile may have lost what was read from it.
            let counts =
                written.is_ok() && self.policy.changes() == changes && self.devices.changes() == states;
            for (block, slot, place) in self.places_of(run) {
                if counts {
                    self.change_extra(block, Some(Extra { slot, place, dirty: false }));
                    let mut background = self.background.borrow_mut();
                    background.promotions += 1;
                    background.promoted_bytes += self.shape.block_size.0;
                } else {
                    self.release_block(slot, place);
                }
            }
        }
        drop(guard);
    }

    /// Brings the extra copies of what was written to the home up to date. A clean copy that fails costs no
    /// guest an error: the caller must drop it before the guest hears of success. The caller must also drop a
    /// clean copy whose device holds up guests, which is not even asked, and a clean copy that does not
    /// count: a move of the home, or the return of a device, would make a copy count again that lacks this
    /// write.
    ///
    /// # Errors
    /// If a dirty one fails: with it is lost what only it held.
    pub async fn update_extras(&self, piece: &Piece, from: &Buf) -> Result<Updated> {
        let mut updated = Updated::All;
        if !self.state.borrow().map.has_extras(piece.extent) || planted(Bug::ExtraNotUpdated) {
            return Ok(updated);
        }
        let (runs, is_all) = self.runs_of(piece);
        if !is_all {
            updated = Updated::NotAll;
        }
        let writes = runs.iter().map(async |run| {
            let is_dirty = self.is_dirty(run);
            if !is_dirty && self.locate(run.slot).0.holds_up() {
                return Ok(Updated::NotAll);
            }
            let deadline = if is_dirty { Deadline::Only } else { Deadline::Brief };
            self.write_run(run, piece, from, (Origin::Guest, deadline)).await.map(|()| Updated::All)
        });
        for (run, written) in runs.iter().zip(join_all(writes).await) {
            match written {
                Ok(Updated::All) => {}
                Err(error) if self.is_dirty(run) => return Err(error),
                // The device counts the error.
                Ok(Updated::NotAll) | Err(_) => updated = Updated::NotAll,
            }
        }
        Ok(updated)
    }

    /// Writes a piece to extra copies alone, which are dirty then. False if there is no room for them, one
    /// may be lost, a clean or new one fails, or its device holds up guests: the caller must write it to the
    /// home.
    pub async fn write_extra(self: &Rc<Self>, piece: &Piece, from: &Buf, device: DeviceId) -> Result<bool> {
        if !self.member(device).is_filled() || self.member(device).holds_up() {
            return Ok(false);
        }
        let Some(_dirtying) = self.begin_dirtying(piece.extent).await else { return Ok(false) };
        let Some(runs) = self.place_dirty(piece, device) else { return Ok(false) };
        let writes = runs.iter().map(async |run| match run.is_new && !self.covers_blocks(run) {
            true => self.fill_block(run, piece, from).await,
            false => {
                let deadline = if self.is_dirty(run) { Deadline::Only } else { Deadline::Brief };
                self.write_run(run, piece, from, (Origin::Guest, deadline)).await
            }
        });
        let written = join_all(writes).await;
        let noted = match written.iter().any(Result::is_ok) {
            true => self.note_dirty_blocks().await,
            false => Ok(()),
        };
        let mut result = Ok(true);
        for (run, written) in runs.iter().zip(written) {
            // A device that has been given up meanwhile keeps nothing.
            let written = written.and(noted.clone()).and_then(|()| self.refuse_given_up(run.slot));
            for (block, slot, place) in self.places_of(run) {
                match &written {
                    Ok(()) => self.change_extra(block, Some(Extra { slot, place, dirty: true })),
                    Err(_) if run.is_new => self.release_block(slot, place),
                    Err(_) => {}
                }
            }
            match written {
                Ok(()) => {}
                Err(error) if self.is_dirty(run) => result = Err(error),
                Err(_) => result = result.and(Ok(false)),
            }
        }
        result
    }

    /// What lies on a device that has been given up is no copy.
    pub(super) fn refuse_given_up(&self, slot: SlotNumber) -> Result<()> {
        let member = self.locate(slot).0;
        match member.is_current() {
            true => Ok(()),
            false => {
                let text = format!("{} is {}", self.describe(member.id), member.state());
                Err(Error::new(ErrorKind::Degraded, text))
            }
        }
    }

    /// Fills a new block slot: what the guest wrote, and around it what the block held before.
    async fn fill_block(self: &Rc<Self>, run: &Run, piece: &Piece, from: &Buf) -> Result<()> {
        let range = &run.piece.range;
        let whole = self.shape.range_of(self.shape.block_of(piece.extent, range.start));
        let bytes = self.buffers.blocks.alloc(whole.len()).await;
        match planted(Bug::FilledWithZeros) {
            true => bytes.fill_zero(),
            false => self.read_copies(&whole, &bytes, Origin::Guest).await?,
        }
        let part = from.slice(range.start - piece.range.start..range.end - piece.range.start);
        bytes.copy_from(range.start - whole.range.start, &part);
        self.write_run(&run.of_all(&whole), &whole, &bytes, (Origin::Guest, Deadline::Brief)).await
    }

    /// Has the journal say that the span of a piece may differ, if a block that a write to it changes has a
    /// clean extra copy, or may have one after a crash: with that the write has begun, and ends by
    /// [`Core::end_differing`]. The caller holds the lock of the extent.
    pub async fn begin_differing(&self, piece: &Piece) -> Result<Option<SpanId>> {
        let has_clean = {
            let state = self.state.borrow();
            let changed = self.padded(piece, state.map.get(piece.extent).valid);
            state.map.has_extras(piece.extent)
                && state.has_clean_extra(self.blocks_of(&changed).map(|(b, _)| b))
        };
        if !has_clean || planted(Bug::ExtraIntentSkipped) {
            return Ok(None);
        }
        let span = self.shape.span_of(piece.extent);
        self.intend(span).await?;
        Ok(Some(span))
    }

    /// A write has ended, and what it left of its extra copies is known.
    pub fn end_differing(&self, span: Option<SpanId>) {
        if let Some(span) = span {
            self.state.borrow_mut().behind.end_write(span, None, self.rt.now());
        }
    }

    /// Before a range becomes zero: zeros what it covers of dirty extra copies at its edges, and drops the
    /// clean ones.
    pub async fn zero_extra_edges(&self, piece: &Piece) -> Result<()> {
        if !self.state.borrow().map.has_extras(piece.extent) || planted(Bug::EdgesOfExtrasKept) {
            return Ok(());
        }
        for (block, range) in self.blocks_of(piece) {
            let Some(extra) = self.state.borrow().extras.get(block) else { continue };
            if range == self.shape.range_of(block).range {
                continue;
            }
            if !extra.dirty {
                self.drop_extra(block);
                continue;
            }
            let edge = Piece { extent: piece.extent, range };
            let zeros = self.buffers.blocks.alloc(edge.len()).await;
            zeros.fill_zero();
            for run in self.runs_of(&edge).0 {
                self.write_run(&run, &edge, &zeros, (Origin::Guest, Deadline::Only)).await?;
            }
        }
        Ok(())
    }

    /// Whether the current bytes of a piece are on a device, among others, that holds up those who read them.
    pub fn is_held_up(&self, piece: &Piece) -> bool {
        if !self.devices.iter().any(Member::holds_up) {
            return false;
        }
        let state = self.state.borrow();
        let is_held_up = |(block, _)| {
            let extra = state.extras.get(block).filter(|extra| extra.dirty);
            extra.is_some_and(|extra| self.locate(extra.slot).0.holds_up())
        };
        state.map.has_extras(piece.extent) && self.blocks_of(piece).any(is_held_up)
    }

    /// Drops the extra copies of blocks that a range covers whole: at the same instant as the home's parts
    /// become invalid, or a commit in between would bring back what the home holds.
    pub fn drop_covered_extras(&self, piece: &Piece) {
        if !self.state.borrow().map.has_extras(piece.extent) || planted(Bug::DiscardKeepsExtras) {
            return;
        }
        for (block, range) in self.blocks_of(piece) {
            if range == self.shape.range_of(block).range {
                self.drop_extra(block);
            }
        }
    }

    /// Records that a change to a piece adds at most: one of its extent, and one of each block. A lost extent
    /// has no extra copies.
    pub fn most_records(&self, piece: &Piece) -> usize {
        let state = self.state.borrow();
        let entry = state.map.get(piece.extent);
        match entry.home == SlotNumber::LOST || entry.partly_lost && !state.map.has_extras(piece.extent) {
            true => 1,
            false => 1 + self.shape.blocks_touched(piece) as usize,
        }
    }

    /// Forgets an extra copy. The caller holds its extent's lock, exclusive.
    pub fn drop_extra(&self, block: BlockId) {
        let Some(extra) = self.state.borrow().extras.get(block) else { return };
        self.change_extra(block, None);
        self.state.borrow_mut().retire_block(block, extra);
    }

    /// The extra copy of a block is now this, or gone: the policy learns of it if that is news.
    pub(super) fn change_extra(&self, block: BlockId, now: Option<Extra>) {
        let before = self.state.borrow().extra(block);
        self.state.borrow_mut().set_extra(block, now);
        let now = self.state.borrow().extra(block);
        if now != before {
            self.policy.borrow_mut().extra_changed(block, before, now);
        }
    }

    /// The blocks that a piece touches, each with the range of the extent that it touches of it.
    pub fn blocks_of(&self, piece: &Piece) -> impl Iterator<Item = (BlockId, Range<Bytes>)> + use<R, D> {
        let (shape, piece) = (self.shape, piece.clone());
        let mut at = piece.range.start;
        std::iter::from_fn(move || {
            if at >= piece.range.end {
                return None;
            }
            let end = (at.align_down(shape.block_size) + shape.block_size).min(piece.range.end);
            let range = at..end;
            at = end;
            Some((shape.block_of(piece.extent, range.start), range))
        })
    }

    /// Whether all of a range is valid at the home: zeros need no extra copy.
    pub(super) fn is_written(&self, piece: &Piece, range: &Range<Bytes>) -> bool {
        let parts = self.shape.parts_touched(range);
        self.state.borrow().map.get(piece.extent).valid & parts == parts
    }
}
