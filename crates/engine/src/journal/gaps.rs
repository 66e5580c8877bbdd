//! Gaps: batches that one journal has and the other one lacks.
//!
//! A power cut may come when a batch is on one of two devices. Recovery takes it as it is: a batch that was
//! written, and maybe promised. Later batches build on it, so the other journal must have it before them, or
//! it could not be replayed without the first device.

use crate::Result;
use crate::core::Core;
use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId};
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};

/// A batch that one journal lacks.
pub(crate) struct Gap {
    /// A device whose journal has it.
    pub from: DeviceId,
    /// The device whose journal lacks it.
    pub to: DeviceId,
    /// Where it lies in the ring.
    pub place: Bytes,
    /// Its room there.
    pub room: Bytes,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Gives each journal the batches that it lacks, oldest first: before a batch is written that builds on
    /// them.
    pub async fn fill_gaps(&self, gaps: &[Gap]) -> Result<()> {
        if planted(Bug::JournalGapLeft) {
            return Ok(());
        }
        for &Gap { from, to, place, room } in gaps {
            let batch = Arena::new(room).alloc(room).await;
            let at = |device| self.journal.offset_on(device) + place;
            self.device_read(self.member(from), at(from), &batch, Origin::Background).await?;
            let target = self.member(to);
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
