//! Copies that were reproduced for a lost device.
//!
//! The stale ranges of such an extent describe the lost copy, not the new copy, which is whole. But a crash
//! before the next commit restores the map entry with the lost copy. The ranges therefore stay until the map
//! is durable, and then end without a resync. Meanwhile the extent is watched: a guest's write may miss a
//! copy, and only a resync knows what the copy lacks.

use crate::Result;
use crate::core::Core;
use crate::map::Other;
use braid_base::{Bytes, ExtentId};
use braid_policy::Origin;
use braid_runtime::{Device, Mode, Runtime};

impl<R: Runtime, D: Device> Core<R, D> {
    /// Notes a reproduced copy. The caller holds the extent's lock, and the map names the copy.
    pub fn note_reproduced(&self, extent: ExtentId, doubts: u32) {
        if self.state.borrow_mut().watch(extent) {
            self.moves.drains.reproduced.note(extent, doubts);
        }
    }

    /// Makes the reproduced copies durable, and ends their stale ranges.
    pub async fn settle_reproduced(&self) -> Result<()> {
        let reproduced = &self.moves.drains.reproduced;
        if reproduced.is_empty() {
            return Ok(());
        }
        let states = self.devices.changes();
        let committed = self.commit(Origin::Background).await;
        while let Some((extent, doubts)) = reproduced.take_first() {
            let span = self.shape.span_of(extent);
            // As before a resync: extra copies read from a device that had lost writes go first.
            let is_sound = self.drop_suspects(span).await.is_ok();
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            let is_disturbed = self.state.borrow_mut().unwatch(extent);
            let is_suspect = !is_sound || self.state.borrow().suspect.contains(&span);
            let is_same = committed.is_ok() && self.devices.changes() == states && !is_disturbed;
            if is_same && !is_suspect && self.are_both_current(extent) {
                self.state.borrow_mut().behind.copied(span, self.shape.bytes_of(extent), doubts);
            }
        }
        committed.map(drop)
    }

    /// True if stale ranges have ended without a resync, and the journal still calls their spans behind.
    pub fn has_drain_settled(&self) -> bool {
        self.active_epochs().is_none() && !self.state.borrow().behind.caught_up().is_empty()
    }

    /// True if the map names two written copies of an extent, and a crash would restore none other.
    fn are_both_current(&self, extent: ExtentId) -> bool {
        let entry = self.state.borrow().map.get(extent);
        let is_there = matches!(self.copies_of(extent, &entry).other, Other::Behind(_) | Other::Equal(_));
        is_there && !self.is_older_needed(extent, &(Bytes::ZERO..self.shape.extent_size))
    }
}
