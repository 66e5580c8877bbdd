//! Moves of extra copies by range: promote, demote and write back block by block, with guests in between.

use super::Mover;
use crate::Result;
use crate::core::Core;
use braid_base::{BlockId, Bytes, DeviceId};
use braid_format::SlotNumber;
use braid_policy::{ByteRange, Origin, Outcome};
use braid_runtime::{Device, Mode, Runtime};
use std::rc::Rc;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Makes clean extra copies of the blocks that a range covers whole.
    pub(super) async fn promote_range(
        self: &Rc<Self>,
        range: ByteRange,
        target: DeviceId,
    ) -> Result<Outcome> {
        let (start, end) = (range.start.align_up(self.shape.block_size), self.end_of(range));
        let mut at = start;
        while at < end {
            let in_extent = self.shape.extent_size - at % self.shape.extent_size;
            let len = in_extent.min(end - at).min(self.bounce_limit());
            if len < self.shape.block_size || self.jobs.are_ending() {
                break;
            }
            let piece = self.shape.one_piece(at, len);
            let mut sources: Vec<DeviceId> =
                self.blocks_of(&piece).flat_map(|(block, _)| self.limited_of_block(block)).collect();
            sources.sort_unstable();
            sources.dedup();
            self.rest(Mover::Plan, &sources).await;
            self.rest(Mover::Plan, &[target]).await;
            let bytes = self.buffers.moves.alloc(len).await;
            let guard = self.locks.lock(Self::lock_number(piece.extent), Mode::Exclusive).await;
            if self.state.borrow().map.get(piece.extent).home != SlotNumber::NONE {
                let states = self.devices.changes();
                let read = self.read_copies(&piece, &bytes, Origin::Background);
                self.step(Mover::Plan, &sources, read).await?;
                self.step(Mover::Plan, &[target], self.promote(piece, bytes, target, states, guard)).await;
            }
            at += len;
        }
        Ok(self.outcome_of_range())
    }

    /// Drops the extra copies of the blocks that a range touches, written back before if they are dirty.
    pub(super) async fn demote_range(self: &Rc<Self>, range: ByteRange) -> Result<Outcome> {
        for block in self.extras_in(range) {
            if self.jobs.are_ending() {
                break;
            }
            let devices = self.limited_of_block(block);
            self.rest(Mover::Plan, &devices).await;
            self.step(Mover::Plan, &devices, self.demote(block)).await?;
        }
        Ok(self.outcome_of_range())
    }

    /// Brings the required copies of the dirty blocks that a range touches up to date.
    pub(super) async fn write_back_range(self: &Rc<Self>, range: ByteRange) -> Result<Outcome> {
        for block in self.extras_in(range) {
            if self.jobs.are_ending() {
                break;
            }
            let devices = self.limited_of_block(block);
            self.rest(Mover::Plan, &devices).await;
            self.step(Mover::Plan, &devices, self.write_back(block)).await?;
        }
        Ok(self.outcome_of_range())
    }

    fn outcome_of_range(&self) -> Outcome {
        if self.jobs.are_ending() { Outcome::Stopped } else { Outcome::Finished }
    }

    /// The blocks with an extra copy that a range touches, in the order of their addresses. Costs as much as the range has
    /// blocks, or as there are extra copies, whichever is less.
    fn extras_in(&self, range: ByteRange) -> Vec<BlockId> {
        let (state, size) = (self.state.borrow(), self.shape.block_size.0);
        let blocks = range.start.0 / size..self.end_of(range).0.div_ceil(size);
        if blocks.end.saturating_sub(blocks.start) <= state.extras.len() as u64 {
            return blocks.map(BlockId).filter(|&block| state.extras.get(block).is_some()).collect();
        }
        let mut all: Vec<BlockId> = state.extras.all().map(|(block, _)| block).collect();
        all.retain(|block| blocks.contains(&block.0));
        all.sort_unstable();
        all
    }

    /// Where a range ends that a policy named: within the volume.
    fn end_of(&self, range: ByteRange) -> Bytes {
        range.end.min(self.shape.volume_size)
    }
}
