//! Moves of extra copies by range: promote, demote and write back, extent by extent, beside guests.

use crate::Result;
use crate::copier::{Mover, RUNS_AT_ONCE};
use crate::core::{Store, Upkeep};
use crate::devices::{Deadline, LARGEST_BUFFER};
use crate::shape::Shape;
use braid_base::{BlockId, Bytes, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::{ByteRange, Origin, Outcome};
use braid_runtime::{Device, Runtime, join_all};
use std::cell::RefCell;

impl Shape {
    /// Returns the end of a range named by a policy, cut at the end of the volume.
    fn end_of(&self, range: ByteRange) -> Bytes {
        range.end.min(self.volume_size)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Makes clean extra copies of the blocks that a range covers whole.
    pub(super) async fn promote_range(&self, range: ByteRange, target: DeviceId) -> Result<Outcome> {
        let (start, end) =
            (range.start.align_up(self.store.shape.block_size), self.store.shape.end_of(range));
        let mut at = start;
        while at < end {
            let in_extent = self.store.shape.extent_size - at % self.store.shape.extent_size;
            let len = in_extent.min(end - at).min(LARGEST_BUFFER);
            if len < self.store.shape.block_size || self.jobs.are_ending() {
                break;
            }
            let piece = self.store.shape.one_piece(at, len);
            let holds_up = || self.store.member(target).holds_up() || self.store.is_held_up(&piece);
            if holds_up() {
                return Ok(Outcome::Stopped);
            }
            let mut sources: Vec<DeviceId> = self
                .store
                .shape
                .blocks_in(&piece)
                .flat_map(|(block, _)| self.moves.budget.limited_of_block(&self.store, block))
                .collect();
            sources.sort_unstable();
            sources.dedup();
            self.rest(Mover::Plan, &sources).await;
            self.rest(Mover::Plan, &[target]).await;
            let bytes = self.extents.buffers.moves.alloc(len).await;
            let Some(guard) = self.durable.lock_briefly(piece.extent, Deadline::WARMTH).await else {
                return Ok(Outcome::Stopped);
            };
            if self.store.state.borrow().map.get(piece.extent).home != SlotNumber::NONE && !holds_up() {
                let states = self.store.devices.changes();
                let read = self.extents.read_copies(&piece, &bytes, Origin::Background);
                self.step(Mover::Plan, &sources, read).await?;
                self.step(Mover::Plan, &[target], self.extents.promote(piece, bytes, target, states, guard))
                    .await;
            }
            at += len;
        }
        Ok(self.outcome_of_range())
    }

    /// Drops the extra copies of the blocks that a range touches. Dirty copies are written back first.
    pub(super) async fn demote_range(&self, range: ByteRange) -> Result<Outcome> {
        let demote = async |blocks: &[BlockId]| self.demote(blocks, Mover::Plan).await;
        self.in_order(&self.store.extras_in(range, |_| true), Mover::Plan, demote).await
    }

    /// Brings the required copies of the dirty blocks in a range up to date.
    pub(super) async fn write_back_range(&self, range: ByteRange) -> Result<Outcome> {
        let write_back = async |blocks: &[BlockId]| self.write_back(blocks, Mover::Plan).await;
        self.in_order(&self.store.extras_in(range, |extra| extra.dirty), Mover::Plan, write_back).await
    }

    /// Runs `work` on blocks in address order: each call gets the blocks of one write-back, and several calls
    /// run at once.
    pub async fn in_order(
        &self,
        blocks: &[BlockId],
        mover: Mover,
        work: impl AsyncFn(&[BlockId]) -> Result<()>,
    ) -> Result<Outcome> {
        let queue = RefCell::new(self.durable.to_write_back(blocks));
        let next = || if self.jobs.are_ending() { None } else { queue.borrow_mut().next() };
        let run = async || {
            while let Some(blocks) = next() {
                work(blocks).await?;
            }
            Ok(())
        };
        // A device with a limit serves one move of the plan at a time; a range is one move.
        let is_one = mover == Mover::Plan && !self.moves.budget.limited().is_empty();
        let at_once = if is_one { 1 } else { RUNS_AT_ONCE };
        join_all((0..at_once).map(|_| run())).await.into_iter().collect::<Result<()>>()?;
        Ok(self.outcome_of_range())
    }

    fn outcome_of_range(&self) -> Outcome {
        if self.jobs.are_ending() { Outcome::Stopped } else { Outcome::Finished }
    }
}

impl<D: Device> Store<D> {
    /// Returns the blocks touched by a range with a wanted extra copy, in address order. Cost: the smaller of
    /// the number of blocks and the number of extra copies.
    fn extras_in(&self, range: ByteRange, is_wanted: impl Fn(&Extra) -> bool) -> Vec<BlockId> {
        let (state, size) = (self.state.borrow(), self.shape.block_size.0);
        let blocks = range.start.0 / size..self.shape.end_of(range).0.div_ceil(size);
        if blocks.end.saturating_sub(blocks.start) <= state.extras.len() as u64 {
            let is_wanted = |&block: &BlockId| state.extras.get(block).is_some_and(|extra| is_wanted(&extra));
            return blocks.map(BlockId).filter(is_wanted).collect();
        }
        let wanted =
            state.extras.all().filter(|(block, extra)| blocks.contains(&block.0) && is_wanted(extra));
        let mut all: Vec<BlockId> = wanted.map(|(block, _)| block).collect();
        all.sort_unstable();
        all
    }
}
