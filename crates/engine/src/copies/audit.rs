//! Audit of a volume at rest: copies must be equal, and slots in use must match the map.

use crate::core::{Extents, Store, Upkeep};
use crate::devices::LARGEST_BUFFER;
use crate::map::{Other, State};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos, Slot};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};
use std::collections::BTreeMap;

/// How often the slots are counted while background moves still hold some, every 20 ms.
const PATIENCE: u32 = 200;

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Compares all required copies that are not stale, compares clean extra copies with the required copy,
    /// then counts the slots in use, once no move holds a slot.
    pub async fn audit(&self) -> Result<()> {
        self.moves.auditing.set(true);
        let result = self.audit_at_rest().await;
        self.moves.auditing.set(false);
        self.jobs.wake();
        result
    }

    async fn audit_at_rest(&self) -> Result<()> {
        for extent in (0..self.store.shape.extents()).map(ExtentId) {
            let _guard = self.locks.exclusive(extent).await;
            match self.extents.compare_copies(extent).await {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    // A failing flush may have lost a write before the flush reports the error. The commit
                    // reveals the failure, and the device is no longer current.
                    self.durable.commit(Origin::Background).await?;
                    self.extents.compare_copies(extent).await?;
                }
                compared => compared?,
            }
            if self
                .extents
                .compare_extras(extent)
                .await
                .is_err_and(|error| error.kind() == ErrorKind::Corrupt)
            {
                // A failing flush may have lost a write before the flush reports the error. In such a case no
                // commit succeeds any more.
                self.durable.commit(Origin::Background).await?;
                self.extents.compare_extras(extent).await?;
            }
        }
        for _ in 0..PATIENCE {
            if self.store.count_slots().is_ok() {
                return Ok(());
            }
            self.rt.sleep(Nanos::from_millis(20)).await;
        }
        // Unfinished moves and discards hold slots: a difference proves nothing.
        let moving = self.moves.moving.get() > 0 || self.store.state.borrow().trimming() > 0;
        if moving { Ok(()) } else { self.store.count_slots() }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    async fn compare_copies(&self, extent: ExtentId) -> Result<()> {
        let entry = self.store.state.borrow().map.get(extent);
        let copies = self.store.copies_of(extent, &entry);
        match copies.other {
            Other::Equal(other) => self.compare(extent, &entry, copies.current, other).await,
            _ => Ok(()),
        }
    }

    async fn compare(
        &self,
        extent: ExtentId,
        entry: &Entry,
        one: SlotNumber,
        other: SlotNumber,
    ) -> Result<()> {
        let mut at = Bytes::ZERO;
        while at < self.store.shape.extent_size {
            let limit = (at + LARGEST_BUFFER).min(self.store.shape.extent_size);
            let (valid, end) = self.store.shape.run(entry.valid, at, limit);
            if valid {
                let (first, second) =
                    (self.buffers.moves.alloc(end - at).await, self.buffers.blocks.alloc(end - at).await);
                self.read_slot(one, at..end, &first, Origin::Background).await?;
                self.read_slot(other, at..end, &second, Origin::Background).await?;
                let equal =
                    first.with_bytes(|a| second.with_bytes(|b| a.iter().zip(b).position(|(a, b)| a != b)));
                if let Some(place) = equal {
                    let text = format!(
                        "the copies of {extent:?} in {one:?} and {other:?} differ at byte {}",
                        at.0 + place as u64
                    );
                    return Err(Error::new(ErrorKind::Corrupt, text));
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Compares the clean extra copies of an extent with the current required copy.
    async fn compare_extras(&self, extent: ExtentId) -> Result<()> {
        if !self.store.state.borrow().map.has_extras(extent) {
            return Ok(());
        }
        let entry = self.store.state.borrow().map.get(extent);
        for block in self.store.shape.blocks_of(extent) {
            let extra = self.store.extra_in(&self.store.state.borrow(), block);
            let Some(extra) = extra.filter(|extra| !extra.dirty) else { continue };
            let range = self.store.shape.range_of(block).range;
            let start = self.store.shape.block_size * u64::from(extra.place);
            let (cached, required) = (
                self.buffers.moves.alloc(range.end - range.start).await,
                self.buffers.blocks.alloc(range.end - range.start).await,
            );
            let current = self.store.copies_of(extent, &entry).current;
            self.read_slot(current, range.clone(), &required, Origin::Background).await?;
            let place = start..start + (range.end - range.start);
            self.read_slot(extra.slot, place, &cached, Origin::Background).await?;
            if !cached.with_bytes(|a| required.with_bytes(|b| a == b)) {
                let text =
                    format!("the clean extra copy of {block:?} in {:?} differs from its home", extra.slot);
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
        }
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// Checks that each slot in use belongs to an extent, extra copies or metadata, or waits to become free.
    fn count_slots(&self) -> Result<()> {
        let state = self.state.borrow();
        let mut wanted: BTreeMap<DeviceId, u32> = BTreeMap::new();
        let on = |slot: SlotNumber| state.space.locate(slot).map(|s| s.device);
        for (extent, Entry { home, second, .. }) in state.map.iter() {
            for Slot { device, index } in [home, second].into_iter().filter_map(|s| state.space.locate(s)) {
                if state.space.keeps_addresses(device) && index != extent.0 {
                    let text = format!("{extent:?} lies in slot {index} of {device}, which keeps addresses");
                    return Err(Error::new(ErrorKind::Corrupt, text));
                }
                *wanted.entry(device).or_default() += 1;
            }
        }
        for slot in state.waiting_slots() {
            *wanted.entry(on(slot).expect("a slot that was freed exists")).or_default() += 1;
        }
        if !state.is_exposed_counted() {
            let text = "the counters of what the loss of each device would cost differ from the map";
            return Err(Error::new(ErrorKind::Corrupt, text.to_owned()));
        }
        let metadata = State::new(&self.shape, &self.devices.superblock());
        for member in self.devices.iter() {
            let id = member.id;
            let wanted =
                wanted.get(&id).copied().unwrap_or(0) + state.extras.divided(id) + metadata.space.used(id);
            let used = state.space.used(id);
            if used != wanted {
                let text = format!("{used} slots of {id} are taken, {wanted} are in use");
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
        }
        Ok(())
    }
}
