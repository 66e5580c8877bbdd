//! Inspection: bytes that a policy asks for, read in the background as guests would read the bytes.

use crate::Result;
use crate::copier::Mover;
use crate::core::Upkeep;
use braid_base::Bytes;
use braid_policy::{ByteRange, LONGEST_INSPECTED, Origin, Outcome};
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Shows the policy a range of the volume. Each extent is read separately, so a guest's write may fall
    /// between two extents.
    pub(super) async fn inspect(&self, asked: ByteRange) -> Result<Outcome> {
        if asked.len() > LONGEST_INSPECTED {
            return Ok(Outcome::Stopped);
        }
        let end = asked.end.min(self.store.shape.volume_size);
        let range = ByteRange { start: asked.start.min(end), end };
        let changes = self.policy.changes();
        let bytes = self.extents.buffer(&self.extents.buffers.moves, range.len().max(Bytes(1))).await?;
        for piece in self.store.shape.pieces(range.start, range.len()) {
            let devices = self.moves.budget.limited_of_extent(&self.store, piece.extent);
            self.rest(Mover::Plan, &devices).await;
            if self.jobs.are_ending() || self.policy.changes() != changes {
                return Ok(Outcome::Stopped);
            }
            let start =
                self.store.shape.extent_size * u64::from(piece.extent.0) + piece.range.start - range.start;
            let part = bytes.slice(start..start + piece.len());
            // Exclusive: a write in flight may have reached only one copy, and must not be read yet.
            let _guard = self.locks.exclusive(piece.extent).await;
            let read = self.extents.read_copies(&piece, &part, Origin::Background);
            self.step(Mover::Plan, &devices, read).await?;
        }
        if self.policy.changes() != changes {
            return Ok(Outcome::Stopped);
        }
        let whole = bytes.slice(Bytes::ZERO..range.len());
        whole.with_bytes(|bytes| {
            self.extents.with_policy(|policy, view| policy.inspected(asked, bytes, view))
        });
        Ok(Outcome::Finished)
    }
}
