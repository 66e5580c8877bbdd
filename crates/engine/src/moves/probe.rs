//! Probes: one request to a device without guests' requests, to measure its speed.
//!
//! A read probe reads a random place among the slots. A write probe writes to a free slot, which is free
//! again afterwards: nothing can refer to its bytes.

use crate::Result;
use crate::copier::Mover;
use crate::core::Upkeep;
use braid_base::{Bytes, DeviceId};
use braid_policy::{Direction, Origin, Outcome};
use braid_runtime::{Arena, Device, Runtime};

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Measures a device, unless a guest uses the device.
    pub async fn probe(&self, device: DeviceId, direction: Direction, len: Bytes) -> Result<Outcome> {
        let member = self.store.member(device);
        let longest = self.store.shape.extent_size.min(Arena::LARGEST);
        let len = len.align_up(member.alignment).clamp(member.alignment, longest);
        if self.store.guests_of(member) > 0 || member.entry.slots == 0 || !member.is_current() {
            return Ok(Outcome::Stopped);
        }
        let bytes = self.extents.buffer(&self.extents.buffers.moves, len).await?;
        self.durable.background.borrow_mut().probes += 1;
        match direction {
            Direction::Read => {
                let index = self.moves.probe_rng.borrow_mut().below(u64::from(member.entry.slots)) as u32;
                // The last slot of an adopted disk may be short.
                let at = member.slot_offset(index, self.store.shape.extent_size);
                let last = (member.entry.size - len).align_down(member.alignment);
                let at = at.min(last);
                let read = self.durable.device_read(member, at, &bytes, Origin::Probe);
                self.step(Mover::Plan, &[device], read).await?;
            }
            Direction::Write | Direction::Flush => {
                let Some(slot) = self.store.state.borrow_mut().take_first(device) else {
                    return Ok(Outcome::Stopped);
                };
                bytes.fill_zero();
                let at = self.store.locate(slot).1;
                let write = self.durable.device_write(member, at, &bytes, Origin::Probe);
                let written = self.step(Mover::Plan, &[device], write).await;
                self.store.state.borrow_mut().release(slot);
                written?;
            }
        }
        Ok(Outcome::Finished)
    }
}
