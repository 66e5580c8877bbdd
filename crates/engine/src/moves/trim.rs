//! Trim: tells a device which slots hold nothing any more, before they are used again. An SSD collects its garbage with
//! less work then, and a sparse file gives its room back.
//!
//! Only a hint: where it fails, or room is short, the slots are free without it.

use crate::core::Core;
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Core<R, D> {
    pub(super) async fn trim_freed(&self) {
        while !self.jobs.are_ending() {
            let due = || self.jobs.are_ending() || self.state.borrow().has_trims();
            self.jobs.wait_for(|| due().then_some(())).await;
            let mut slots = self.state.borrow_mut().take_trims();
            slots.sort_unstable_by_key(|slot| slot.0);
            for run in slots.chunk_by(|a, b| b.0 == a.0 + 1 && self.device_of(*a) == self.device_of(*b)) {
                if !self.jobs.are_ending() {
                    self.trim(run).await;
                }
                let mut state = self.state.borrow_mut();
                run.iter().for_each(|&slot| state.end_trim(slot));
            }
        }
    }

    async fn trim(&self, run: &[SlotNumber]) {
        let (member, start) = self.locate(run[0]);
        if !member.is_written() {
            // A device that was given up stays as it is: it may be all that is left one day.
            return;
        }
        // What the disk that keeps epochs holds there is of one.
        let Some(_in_place) = self.begin_in_place(member.id) else { return };
        let len = Bytes(self.shape.extent_size.0 * run.len() as u64);
        if let Err(error) = member.discard(start, len).await {
            member.stats.borrow_mut().last_error =
                Some(format!("discard of {len} at byte {}: {error}", start.0));
        }
    }

    /// Frees what waits for its device to be told, untold: a guest needs the room. False where nothing waits.
    pub fn release_trims(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let slots = state.take_trims();
        slots.iter().for_each(|&slot| state.end_trim(slot));
        !slots.is_empty()
    }
}
