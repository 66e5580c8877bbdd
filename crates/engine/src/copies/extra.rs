//! Extra copies: made by reads that a policy admits, updated by writes, dirty under write-back, and evicted
//! at any time once clean.

use super::runs::BlockRun;
use crate::core::{Extents, InCharge, Store};
use crate::devices::{Deadline, Member};
use crate::map::{IntendedWrite, State};
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{BlockId, Bytes, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::{Homes, Origin};
use braid_runtime::{Buf, Device, LockGuard, Runtime, join_all};
use std::ops::Range;

/// Whether the extra copies hold a write to the home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Updated {
    All,
    /// A clean copy could not be written, or does not count and was not written.
    NotAll,
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Makes clean extra copies of the blocks of a piece after a read.
    ///
    /// `states` is the number of device changes before the read: if the number has changed since, no copy is
    /// recorded. `guard` is the extent's exclusive lock. Guests wait for the lock, at most for the briefest
    /// deadline. A slow or late device gets no copies.
    pub async fn promote(&self, piece: Piece, bytes: Buf, device: DeviceId, states: u64, guard: LockGuard) {
        let changes = self.policy.changes();
        if self.durable.journal.commits.have_failed() || self.store.member(device).holds_up() {
            return;
        }
        let (runs, _room) = self.place_clean(&piece, device);
        let write = |run| self.write_run(run, &piece, &bytes, Origin::Background, Deadline::Brief);
        let writes = runs.iter().map(write);
        for (run, written) in runs.iter().zip(join_all(writes).await) {
            // After an error the copy is dropped: the device counts the error, and the home has the bytes. A
            // new policy admits blocks by its own rules. A device that failed meanwhile may have lost the
            // bytes read.
            let counts =
                written.is_ok() && self.policy.changes() == changes && self.store.devices.changes() == states;
            for (block, slot, place) in self.store.shape.places_of(run) {
                if counts {
                    self.store.change_extra(&self.policy, block, Some(Extra { slot, place, dirty: false }));
                    let mut background = self.durable.background.borrow_mut();
                    background.promotions += 1;
                    background.promoted_bytes += self.store.shape.block_size.0;
                } else {
                    self.store.release_block(slot, place);
                }
            }
        }
        drop(guard);
    }

    /// Writes to the extra copies what was written to the home.
    ///
    /// A failing clean copy causes no guest an error. After [`Updated::NotAll`] the caller must drop three
    /// kinds of clean copies before the reply to the guest:
    /// - a copy whose write failed;
    /// - a copy on a slow or late device: no write was sent;
    /// - a copy that does not count. A move of the home or the return of a device would let the copy count
    ///   again, without the write.
    ///
    /// # Errors
    /// The error of a dirty copy: bytes that only the copy held are lost.
    pub async fn update_extras(&self, piece: &Piece, from: &Buf) -> Result<Updated> {
        let mut updated = Updated::All;
        if !self.store.state.borrow().map.has_extras(piece.extent) || planted(Bug::ExtraNotUpdated) {
            return Ok(updated);
        }
        let (runs, is_all) = self.store.runs_of(piece);
        if !is_all {
            updated = Updated::NotAll;
        }
        let writes = runs.iter().map(async |run| {
            let is_dirty = self.store.is_dirty(run);
            if !is_dirty && self.store.locate(run.slot).0.holds_up() {
                return Ok(Updated::NotAll);
            }
            let deadline = if is_dirty { Deadline::Only } else { Deadline::Brief };
            self.write_run(run, piece, from, Origin::Guest, deadline).await.map(|()| Updated::All)
        });
        for (run, written) in runs.iter().zip(join_all(writes).await) {
            match written {
                Ok(Updated::All) => {}
                Err(error) if self.store.is_dirty(run) => return Err(error),
                // The device has counted the error.
                Ok(Updated::NotAll) | Err(_) => updated = Updated::NotAll,
            }
        }
        Ok(updated)
    }

    /// Writes a piece to extra copies alone and marks the copies dirty. Returns false if the caller must
    /// write to the home instead: no room, a copy that may be lost, a failed write to a clean or new copy, or
    /// a slow or late device.
    pub async fn write_extra(&self, piece: &Piece, from: &Buf, device: DeviceId) -> Result<bool> {
        if !self.store.member(device).is_filled() || self.store.member(device).holds_up() {
            return Ok(false);
        }
        let Some(_dirtying) = self.durable.begin_dirtying(piece.extent).await else { return Ok(false) };
        let Some(runs) = self.place_dirty(piece, device) else { return Ok(false) };
        let writes = runs.iter().map(async |run| match run.is_new && !self.store.shape.covers_blocks(run) {
            true => self.fill_block(run, piece, from).await,
            false => {
                let deadline = if self.store.is_dirty(run) { Deadline::Only } else { Deadline::Brief };
                self.write_run(run, piece, from, Origin::Guest, deadline).await
            }
        });
        let written = join_all(writes).await;
        let noted = match written.iter().any(Result::is_ok) {
            true => self.durable.note_dirty_blocks().await,
            false => Ok(()),
        };
        let mut result = Ok(true);
        for (run, written) in runs.iter().zip(written) {
            // A device excluded during the write holds no copy.
            let written = written.and(noted.clone()).and_then(|()| self.store.refuse_given_up(run.slot));
            for (block, slot, place) in self.store.shape.places_of(run) {
                match &written {
                    Ok(()) => {
                        self.store.change_extra(&self.policy, block, Some(Extra { slot, place, dirty: true }))
                    }
                    Err(_) if run.is_new => self.store.release_block(slot, place),
                    Err(_) => {}
                }
            }
            match written {
                Ok(()) => {}
                Err(error) if self.store.is_dirty(run) => result = Err(error),
                Err(_) => result = result.and(Ok(false)),
            }
        }
        result
    }

    /// Fills a new block slot with the guest's bytes, and with the block's earlier bytes around the guest's
    /// range.
    async fn fill_block(&self, run: &BlockRun, piece: &Piece, from: &Buf) -> Result<()> {
        let range = &run.piece.range;
        let whole = self.store.shape.range_of(self.store.shape.block_of(piece.extent, range.start));
        let bytes = self.buffers.blocks.alloc(whole.len()).await;
        match planted(Bug::FilledWithZeros) {
            true => bytes.fill_zero(),
            false => self.read_copies(&whole, &bytes, Origin::Guest).await?,
        }
        let part = from.slice(range.start - piece.range.start..range.end - piece.range.start);
        bytes.copy_from(range.start - whole.range.start, &part);
        self.write_run(&run.of_all(&whole), &whole, &bytes, Origin::Guest, Deadline::Brief).await
    }

    /// Records in the journal that the copies in the piece's span may differ, if a changed block has a clean
    /// extra copy, or may have one after a crash.
    ///
    /// The caller holds the extent's lock, and drops the intent once the state of the extra copies is known.
    pub async fn begin_differing(&self, piece: &Piece) -> Result<Option<IntendedWrite<'_, R>>> {
        let has_clean = {
            let state = self.store.state.borrow();
            let changed = self.store.shape.padded(piece, state.map.get(piece.extent).valid);
            state.map.has_extras(piece.extent)
                && state.has_clean_extra(self.store.shape.blocks_in(&changed).map(|(b, _)| b))
        };
        if !has_clean || planted(Bug::ExtraIntentSkipped) {
            return Ok(None);
        }
        self.durable.intend(self.store.shape.span_of(piece.extent)).await.map(Some)
    }

    /// Prepares the edges of a range about to become zero: zeros the covered bytes of dirty extra copies, and
    /// drops clean copies.
    pub async fn zero_extra_edges(&self, piece: &Piece) -> Result<()> {
        if !self.store.state.borrow().map.has_extras(piece.extent) || planted(Bug::EdgesOfExtrasKept) {
            return Ok(());
        }
        for (block, range) in self.store.shape.blocks_in(piece) {
            let Some(extra) = self.store.state.borrow().extras.get(block) else { continue };
            if range == self.store.shape.range_of(block).range {
                continue;
            }
            if !extra.dirty {
                self.store.drop_extra(&self.policy, block);
                continue;
            }
            let edge = Piece { extent: piece.extent, range };
            let zeros = self.buffers.blocks.alloc(edge.len()).await;
            zeros.fill_zero();
            for run in self.store.runs_of(&edge).0 {
                self.write_run(&run, &edge, &zeros, Origin::Guest, Deadline::Only).await?;
            }
        }
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// Drops clean extra copies after a write that failed, or that did not reach all copies: they may differ
    /// from the required copies. The caller holds the extent's lock, exclusive.
    pub fn drop_clean_extras(&self, policy: &InCharge, piece: &Piece) {
        let blocks: Vec<BlockId> = self.shape.blocks_in(piece).map(|(block, _)| block).collect();
        for block in blocks {
            if self.state.borrow().extras.get(block).is_some_and(|e| !e.dirty) {
                self.drop_extra(policy, block);
            }
        }
    }

    /// Drops the extra copies of all blocks that a range covers whole. The home's parts must become invalid
    /// at the same instant: a commit in between would bring the home's older bytes back.
    pub fn drop_covered_extras(&self, policy: &InCharge, piece: &Piece) {
        if !self.state.borrow().map.has_extras(piece.extent) || planted(Bug::DiscardKeepsExtras) {
            return;
        }
        for (block, range) in self.shape.blocks_in(piece) {
            if range == self.shape.range_of(block).range {
                self.drop_extra(policy, block);
            }
        }
    }

    /// Forgets an extra copy. The caller holds the extent's exclusive lock.
    pub fn drop_extra(&self, policy: &InCharge, block: BlockId) {
        let Some(extra) = self.state.borrow().extras.get(block) else { return };
        self.change_extra(policy, block, None);
        self.state.borrow_mut().retire_block(block, extra);
    }

    /// Sets or removes the extra copy of a block, and tells the policy about a change.
    pub(super) fn change_extra(&self, policy: &InCharge, block: BlockId, now: Option<Extra>) {
        let before = self.state.borrow().extra(block);
        self.state.borrow_mut().set_extra(block, now);
        let now = self.state.borrow().extra(block);
        if now != before {
            policy.borrow_mut().extra_changed(block, before, now);
        }
    }

    /// Returns the extra copy of a block, if the copy counts. A clean copy does not count on an excluded
    /// device, or if a failed flush may have lost the copy or its source.
    #[inline]
    pub fn extra_in(&self, state: &State, block: BlockId) -> Option<Extra> {
        state.extras.get(block).filter(|extra| self.counts(state, block, extra))
    }

    /// True if the extra copy of a block counts ([`Store::extra_in`]).
    #[inline]
    pub(super) fn counts(&self, state: &State, block: BlockId, extra: &Extra) -> bool {
        let member = |slot| state.space.locate(slot).map(|place| self.member(place.device));
        let home = state.map.get(self.shape.range_of(block).extent).home;
        let is_sound = |member: &Member<D>| member.is_current() && !member.has_lost_writes();
        let has_lost = |home| self.devices.losses() > 0 && member(home).is_some_and(Member::has_lost_writes);
        extra.dirty || member(extra.slot).is_some_and(is_sound) && !has_lost(home)
    }

    /// Checks that dirty extra copies were not lost by a failed flush: each copy must be in the journal. The
    /// copies are those of the blocks of `piece`, in adjacent places from `first` on.
    ///
    /// # Errors
    /// `Io` if a copy may be lost.
    pub fn check_extra_kept(&self, piece: &Piece, first: &Extra) -> Result<()> {
        let member = self.locate(first.slot).0;
        let is_durable =
            |(block, place)| self.state.borrow().durable_extra(block) == Some(Extra { place, ..*first });
        let mut placed = self.shape.blocks_in(piece).map(|(block, _)| block).zip(first.place..);
        match member.has_lost_writes() && !placed.all(is_durable) {
            true => Err(member.error_of_unproved(piece.extent)),
            false => Ok(()),
        }
    }

    /// Returns an error if the device of a slot is excluded: its bytes do not count.
    pub(super) fn refuse_given_up(&self, slot: SlotNumber) -> Result<()> {
        let member = self.locate(slot).0;
        match member.is_current() {
            true => Ok(()),
            false => {
                let text = format!("{} is {}", member.describe(), member.state());
                Err(Error::new(ErrorKind::Degraded, text))
            }
        }
    }

    /// True if a slow or late device holds current bytes of a piece as a dirty extra copy.
    pub fn is_held_up(&self, piece: &Piece) -> bool {
        if !self.devices.iter().any(Member::holds_up) {
            return false;
        }
        let state = self.state.borrow();
        let is_held_up = |(block, _)| {
            let extra = state.extras.get(block).filter(|extra| extra.dirty);
            extra.is_some_and(|extra| self.locate(extra.slot).0.holds_up())
        };
        state.map.has_extras(piece.extent) && self.shape.blocks_in(piece).any(is_held_up)
    }

    /// Largest number of records that a change to a piece adds: one for the extent and one for each block. A
    /// lost extent has no extra copies.
    pub fn most_records(&self, piece: &Piece) -> usize {
        let state = self.state.borrow();
        let entry = state.map.get(piece.extent);
        match entry.home == SlotNumber::LOST || entry.partly_lost && !state.map.has_extras(piece.extent) {
            true => 1,
            false => 1 + self.shape.blocks_touched(piece) as usize,
        }
    }

    /// True if all of a range is valid at the home. Zeros need no extra copy.
    pub(super) fn is_written(&self, piece: &Piece, range: &Range<Bytes>) -> bool {
        let parts = self.shape.parts_touched(range);
        self.state.borrow().map.get(piece.extent).valid & parts == parts
    }
}
