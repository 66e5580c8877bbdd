//! Copies that were reproduced for a lost device.
//!
//! The stale ranges of such an extent describe the lost copy, not the new copy, which is whole. But a crash
//! before the next commit restores the map entry with the lost copy. The ranges therefore stay until the map
//! is durable, and then end without a resync. Meanwhile the extent is watched: a guest's write may miss a
//! copy, and only a resync knows what the copy lacks.

use crate::Result;
use crate::core::{Store, Upkeep};
use crate::map::Other;
use crate::moves::Moves;
use braid_base::{Bytes, ExtentId};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Extents with a copy made for a lost device that the map does not name durably yet, and the doubts of their
/// spans before the copy.
#[derive(Default)]
pub(crate) struct Reproduced {
    extents: RefCell<BTreeMap<ExtentId, u32>>,
}

impl Reproduced {
    /// True if the stale ranges of an extent end without a resync.
    pub fn contains(&self, extent: ExtentId) -> bool {
        self.extents.borrow().contains_key(&extent)
    }

    pub fn is_empty(&self) -> bool {
        self.extents.borrow().is_empty()
    }

    pub fn note(&self, extent: ExtentId, doubts: u32) {
        self.extents.borrow_mut().insert(extent, doubts);
    }

    /// Takes the first extent, with the doubts.
    pub fn take_first(&self) -> Option<(ExtentId, u32)> {
        self.extents.borrow_mut().pop_first()
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Makes the reproduced copies durable, and ends their stale ranges.
    pub async fn settle_reproduced(&self) -> Result<()> {
        let reproduced = &self.moves.reproduced;
        if reproduced.is_empty() {
            return Ok(());
        }
        let states = self.store.devices.changes();
        let committed = self.durable.commit(Origin::Background).await;
        while let Some((extent, doubts)) = reproduced.take_first() {
            let span = self.store.shape.span_of(extent);
            // As before a resync: extra copies read from a device that had lost writes go first.
            let is_sound = self.drop_suspects(span).await.is_ok();
            let _guard = self.locks.exclusive(extent).await;
            let is_disturbed = self.store.state.borrow_mut().unwatch(extent);
            let is_suspect = !is_sound || self.store.state.borrow().suspect.contains(&span);
            let is_same = committed.is_ok() && self.store.devices.changes() == states && !is_disturbed;
            if is_same && !is_suspect && self.store.has_both_written(extent) {
                self.store.state.borrow_mut().behind.copied(span, self.store.shape.bytes_of(extent), doubts);
            }
        }
        committed.map(drop)
    }

    /// True if stale ranges have ended without a resync, and the journal still calls their spans behind.
    pub fn has_drain_settled(&self) -> bool {
        self.extents.active_epochs().is_none() && !self.store.state.borrow().behind.caught_up().is_empty()
    }
}

impl Moves {
    /// Notes a reproduced copy. The caller holds the extent's lock, and the map names the copy.
    pub fn note_reproduced<D: Device>(&self, store: &Store<D>, extent: ExtentId, doubts: u32) {
        if store.state.borrow_mut().watch(extent) {
            self.reproduced.note(extent, doubts);
        }
    }
}

impl<D: Device> Store<D> {
    /// True if the map names two written copies of an extent, and a crash would restore none other.
    fn has_both_written(&self, extent: ExtentId) -> bool {
        let entry = self.state.borrow().map.get(extent);
        let is_there = matches!(self.copies_of(extent, &entry).other, Other::Behind(_) | Other::Equal(_));
        is_there && !self.is_older_needed(extent, &(Bytes::ZERO..self.shape.extent_size))
    }
}
