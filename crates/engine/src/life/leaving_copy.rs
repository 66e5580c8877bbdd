//! Moves a required copy from one slot to another under the extent's lock: constant guest writes cannot stop
//! the move. The source is the leaving copy itself, for the same reason as in a migration: if a device has
//! lost writes, the source of the new copy is known. The copy of a lost device is made from the other copy.

use crate::Result;
use crate::core::Upkeep;
use crate::map::{Arrival, Other};
use braid_base::{DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_runtime::{Buf, Device, Runtime};

/// A required copy that leaves its slot.
pub(super) struct LeavingCopy {
    extent: ExtentId,
    before: Entry,
    leaves: SlotNumber,
    source: SlotNumber,
    slot: SlotNumber,
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Takes a slot on the first of the `targets` with room, and watches the extent: no other job moves it
    /// meanwhile. `leaves` tells which slots are left; `is_lost` if their device is lost. The caller holds
    /// the extent's lock. `None` if no copy leaves, a copy is behind, another job moves the extent, or no
    /// target has room.
    pub(super) fn begin_leaving_copy(
        &self,
        extent: ExtentId,
        leaves: impl Fn(SlotNumber) -> bool,
        is_lost: bool,
        mut targets: impl Iterator<Item = DeviceId>,
    ) -> Option<LeavingCopy> {
        let (before, durable) = {
            let state = self.store.state.borrow();
            (state.map.get(extent), state.durable_entry(extent))
        };
        let (left, stays) = match leaves(before.home) {
            true => (before.home, before.second),
            false => (before.second, before.home),
        };
        let other = self.store.copies_of(extent, &before).other;
        let is_sound = match is_lost {
            false => matches!(other, Other::None | Other::Equal(_)),
            // The remaining copy is current, and is the source of the new copy.
            true => other == Other::Away,
        };
        // The reason is in `Upkeep::begin_copy`.
        let has_moved = (durable.home, durable.second) != (before.home, before.second);
        if !leaves(left) || !is_sound || self.store.shape.copies > 1 && has_moved {
            return None;
        }
        let mut state = self.store.state.borrow_mut();
        if !state.watch(extent) {
            return None;
        }
        let slot = targets.find_map(|target| state.take_for(extent, target, Arrival::Moved));
        if slot.is_none() {
            state.unwatch(extent);
        }
        let source = if is_lost { stays } else { left };
        Some(LeavingCopy { extent, before, leaves: left, source, slot: slot? })
    }

    /// Copies the bytes, and switches the map if the copy counts. Returns true if the copy has moved.
    pub(super) async fn move_leaving_copy(&self, copy: LeavingCopy, bytes: &Buf) -> Result<bool> {
        let LeavingCopy { extent, before, leaves, source, slot } = copy;
        let states = self.store.devices.changes();
        let copied = self.copy_locked(extent, before, source, slot, bytes).await;
        let mut state = self.store.state.borrow_mut();
        let whole = copied.is_ok() && self.store.devices.changes() == states;
        let target = state.space.locate(slot).expect("a slot that was taken exists").device;
        if !self.store.devices.end_copy(&mut state, extent, target, slot, whole) {
            return copied.map(|_| false);
        }
        let after = match (source == leaves, leaves == before.home) {
            (true, true) => Entry { home: slot, ..before },
            (true, false) => Entry { second: slot, ..before },
            // The home is the remaining copy.
            (false, _) => Entry { home: source, second: slot, ..before },
        };
        state.set_extent(extent, after);
        state.retire(leaves);
        let copied = copied?;
        let mut background = self.durable.background.borrow_mut();
        background.migrations += 1;
        background.migrated_bytes += copied.0;
        Ok(true)
    }
}
