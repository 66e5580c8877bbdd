//! Moves of extents: read the source, write the target, then switch the map. The next commit flushes the
//! target, then writes the record. Until then the old slot keeps its bytes.
//!
//! No lock is held while bytes are copied. A guest that writes to the extent meanwhile wins: the copy is
//! dropped, and the move stops. The policy may ask again.

use crate::Result;
use crate::copier::Mover;
use crate::core::Upkeep;
use crate::devices::Devices;
use crate::map::{Arrival, State};
use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::Outcome;
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Gives an extent its second required copy, on `target`.
    pub async fn mirror(&self, extent: ExtentId, target: DeviceId, mover: Mover) -> Result<Outcome> {
        let Some(_in_place) = self.extents.begin_in_place(target) else { return Ok(Outcome::Stopped) };
        let _room = self.durable.reserve(1).await?;
        let wanted = |entry: &Entry, home: DeviceId, _| {
            self.store.shape.copies > 1
                && entry.home != SlotNumber::NONE
                && entry.second == SlotNumber::NONE
                && home != target
        };
        let Some((before, slot)) = self.begin_copy(extent, target, wanted).await else {
            return Ok(Outcome::Stopped);
        };
        let states = self.store.devices.changes();
        let copied = self.copy_extent(extent, before, slot, mover).await;
        let _guard = self.locks.exclusive(extent).await;
        let whole = matches!(copied, Ok(Some(_))) && self.store.devices.changes() == states;
        let mut state = self.store.state.borrow_mut();
        if !self.store.devices.end_copy(&mut state, extent, target, slot, whole) {
            return copied.map(|_| Outcome::Stopped);
        }
        state.set_extent(extent, Entry { second: slot, ..before });
        let mut background = self.durable.background.borrow_mut();
        background.mirrors += 1;
        background.mirrored_bytes += copied.ok().flatten().unwrap_or_default().0;
        Ok(Outcome::Finished)
    }

    /// Takes a slot and begins to watch the extent, while no write is in flight. `None` if the move is no
    /// longer wanted, the extent is already watched, the target has no room, or a commit has failed.
    pub(super) async fn begin_copy(
        &self,
        extent: ExtentId,
        target: DeviceId,
        wanted: impl FnOnce(&Entry, DeviceId, Option<DeviceId>) -> bool,
    ) -> Option<(Entry, SlotNumber)> {
        let _guard = self.locks.exclusive(extent).await;
        if self.durable.journal.commits.have_failed() {
            return None;
        }
        let mut state = self.store.state.borrow_mut();
        let entry = state.map.get(extent);
        let durable = state.durable_entry(extent);
        if self.store.shape.copies > 1 && (durable.home, durable.second) != (entry.home, entry.second) {
            // See `State::prefer_what_stayed`: recovery must know which copy moved.
            return None;
        }
        let device = |slot: SlotNumber| state.space.locate(slot).map(|s| s.device);
        let home = device(entry.home)?;
        if !wanted(&entry, home, device(entry.second)) || !state.watch(extent) {
            return None;
        }
        match state.take_for(extent, target, Arrival::Moved) {
            Some(slot) => Some((entry, slot)),
            None => {
                state.unwatch(extent);
                self.durable.background.borrow_mut().migrations_stopped += 1;
                None
            }
        }
    }

    /// Copies the valid parts of an extent to another slot. Returns the bytes copied, or `None` if the plan
    /// had to yield before the end. With two required copies, an intent in the journal says that the copies
    /// may differ until the new copy is flushed: its device may fail before.
    pub(super) async fn copy_extent(
        &self,
        extent: ExtentId,
        entry: Entry,
        slot: SlotNumber,
        mover: Mover,
    ) -> Result<Option<Bytes>> {
        if self.store.shape.copies == 1 || planted(Bug::MoveWithoutIntent) {
            return self.copy_parts(extent, entry, slot, mover).await;
        }
        let _intended = self.durable.intend(self.store.shape.span_of(extent)).await?;
        self.copy_parts(extent, entry, slot, mover).await
    }
}

impl<D: Device> Devices<D> {
    /// Stops watching an extent. The caller holds the extent's lock. True if the copy counts: the copy is
    /// whole, no guest wrote meanwhile, and the target is still current. Otherwise the slot is released.
    pub fn end_copy(
        &self,
        state: &mut State,
        extent: ExtentId,
        target: DeviceId,
        slot: SlotNumber,
        whole: bool,
    ) -> bool {
        let disturbed = state.unwatch(extent);
        let counts = whole && !disturbed && self[target].is_current();
        if !counts {
            state.release(slot);
        }
        counts
    }
}
