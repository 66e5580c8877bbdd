//! Trim: tells a device which slots hold nothing any more, before they are used again. An SSD collects its
//! garbage with less work then, and a sparse file gives its room back.
//!
//! Only a hint: where it fails, or room is short, the slots are free without it. A large discard of a guest
//! becomes many requests, one after the other: what waits can be freed for a guest, and is told together with
//! what is freed meanwhile.

use crate::core::Core;
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_runtime::{Device, Runtime};

/// At most so much in one request, or one slot. A device may do nothing else until it has discarded that:
/// SATA SSDs and thin pools take 10 to 100 ms for 256 MiB. A volume of 4 TiB takes 16,384 requests.
const LONGEST: Bytes = Bytes(256 << 20);

impl<R: Runtime, D: Device> Core<R, D> {
    pub(super) async fn trim_freed(&self) {
        let most = (LONGEST / self.shape.extent_size).max(1) as usize;
        while !self.jobs.are_ending() {
            let due = || self.jobs.are_ending() || self.state.borrow().has_trims();
            self.jobs.wait_for(|| due().then_some(())).await;
            if self.jobs.are_ending() {
                return;
            }
            let run = self.state.borrow_mut().take_trims(most);
            self.trim(&run).await;
            let mut state = self.state.borrow_mut();
            run.iter().for_each(|&slot| state.end_trim(slot));
        }
    }

    async fn trim(&self, run: &[SlotNumber]) {
        let Some(&first) = run.first() else { return };
        let (member, start) = self.locate(first);
        if !member.is_written() {
            // A device that was given up stays as it is: it may be all that is left one day.
            return;
        }
        // Another opening may have got the slots since.
        if self.confirm_before_write().await.is_err() {
            return;
        }
        // What the disk that keeps epochs holds there is of one.
        let Some(_in_place) = self.begin_in_place(member.id) else { return };
        let len = self.shape.extent_size * run.len() as u64;
        if let Err(error) = member.discard(start, len).await {
            member.stats.borrow_mut().last_error =
                Some(format!("discard of {len} at byte {}: {error}", start.0));
        }
    }

    /// Frees what waits for its device to be told, untold: a guest needs the room. False if nothing waits.
    pub fn release_trims(&self) -> bool {
        self.state.borrow_mut().release_trims()
    }
}
