//! Gaps: batches that one journal has and the other journal lacks.
//!
//! A power cut may come when a batch is on one of two devices only. Recovery accepts the batch: the batch was
//! written, and perhaps promised. Later batches build on earlier ones, so the other journal must receive the
//! missing batch before any later batch. Otherwise the other journal could not be replayed without the first
//! device.

use crate::Result;
use crate::core::Durable;
use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId};
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};

/// A batch that one journal lacks.
pub(crate) struct Gap {
    /// Device whose journal has the batch.
    pub from: DeviceId,
    /// Device whose journal lacks the batch.
    pub to: DeviceId,
    /// Offset of the batch in the ring.
    pub place: Bytes,
    /// Room of the batch in the ring.
    pub room: Bytes,
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Copies to each journal its missing batches, oldest first. Must end before any new batch is written,
    /// because new batches build on the missing ones.
    pub async fn fill_gaps(&self, gaps: &[Gap]) -> Result<()> {
        if planted(Bug::JournalGapLeft) {
            return Ok(());
        }
        for &Gap { from, to, place, room } in gaps {
            let batch = Arena::new(room).alloc(room).await;
            let at = |device| self.journal.offset_on(device) + place;
            self.device_read(self.store.member(from), at(from), &batch, Origin::Background).await?;
            let target = self.store.member(to);
            let written = async {
                self.device_write(target, at(to), &batch, Origin::Background).await?;
                self.flush_member(target, "a batch that its journal lacked").await
            };
            if let Err(error) = written.await {
                self.give_up(to, error).await?;
                return Ok(());
            }
        }
        Ok(())
    }
}
