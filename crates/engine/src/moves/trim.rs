//! Trim: discards freed slots before their next use. An SSD then collects garbage with less work, and a
//! sparse file returns its room.
//!
//! A trim is only a hint: after a failure, or if room is short, slots become free without a discard. A
//! guest's large discard becomes many requests, one after the other. Waiting slots can be given to guests at
//! once, and slots freed meanwhile join the later requests.

use crate::core::{Store, Upkeep};
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_runtime::{Device, Runtime};

/// Longest request, or one slot. A device may serve nothing else during a discard: SATA SSDs and thin pools
/// take 10 to 100 ms for 256 MiB. A volume of 4 TiB takes 16,384 requests.
const LONGEST: Bytes = Bytes(256 << 20);

impl<R: Runtime, D: Device> Upkeep<R, D> {
    pub(super) async fn trim_freed(&self) {
        let most = (LONGEST / self.store.shape.extent_size).max(1) as usize;
        while !self.jobs.are_ending() {
            let due = || self.jobs.are_ending() || self.store.state.borrow().has_trims();
            self.jobs.wait_for(|| due().then_some(())).await;
            if self.jobs.are_ending() {
                return;
            }
            let run = self.store.state.borrow_mut().take_trims(most);
            self.trim(&run).await;
            let mut state = self.store.state.borrow_mut();
            run.iter().for_each(|&slot| state.end_trim(slot));
        }
    }

    async fn trim(&self, run: &[SlotNumber]) {
        let Some(&first) = run.first() else { return };
        let (member, start) = self.store.locate(first);
        if !member.is_written() {
            // A failed device keeps its bytes: one day, no other copy may be left.
            return;
        }
        // A newer opening may have taken the slots.
        if self.durable.confirm_before_write().await.is_err() {
            return;
        }
        // On the image disk, the bytes there belong to an epoch.
        let Some(_in_place) = self.extents.begin_in_place(member.id) else { return };
        let len = self.store.shape.extent_size * run.len() as u64;
        if let Err(error) = member.discard(start, len).await {
            member.stats.borrow_mut().last_error =
                Some(format!("discard of {len} at byte {}: {error}", start.0));
        }
    }
}

impl<D: Device> Store<D> {
    /// Frees the slots that wait for a trim, without a discard: a guest needs the room. False if none waits.
    pub fn release_trims(&self) -> bool {
        self.state.borrow_mut().release_trims()
    }
}
