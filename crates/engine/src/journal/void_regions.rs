//! Void regions: regions that cannot be written and that the volume can spare. They are excluded without
//! their device.
//!
//! One image of the map, one table of spans, the double-write areas, and with two required copies one of the
//! journals only protect against the loss of a device. A bad place in such a region must not end all flushes
//! while every other place is sound. The superblocks first call the region *void*: from then on its contents
//! do not count. The slots of the region stay taken. The region is made again later
//! ([`Upkeep::renew_regions`]). An image of a cache table becomes void if the other image on the same device
//! counts, and if pages of the other image can go to a double-write area first.
//!
//! With two required copies the device fails, as after any failed write, if all its data is elsewhere. After
//! a crash that holds only once a resync has ended.

use super::cache_table::cache_images;
use super::checkpoint::{images, only_journal, rings};
use crate::core::{Durable, Store};
use crate::devices::Devices;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::superblock::{Features, Mapping, Region, RegionKind, Superblock};
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Excludes a region with a place that could not be written; if the volume needs the region, excludes the
    /// device.
    ///
    /// # Errors
    /// `error` itself if the volume needs both.
    pub async fn spare_region(
        &self,
        kind: RegionKind,
        device: DeviceId,
        offset: Bytes,
        error: Error,
    ) -> Result<()> {
        let is_here = |region: &Region| (region.kind, region.device, region.offset) == (kind, device, offset);
        if self.store.shape.copies > 1 && self.survives(device) {
            return self.lose(device, error);
        }
        let named = self.store.devices.superblock().regions.iter().find(|r| is_here(r) && !r.void).copied();
        let Some(region) = named else {
            // A copy was to move to the region, or has just left the region. The move itself checks whether
            // the place is still written.
            self.store.devices.beside.borrow_mut().retain(|region| !is_here(region));
            return Ok(());
        };
        if !self.store.devices.can_spare(&region) {
            return self.lose(device, error);
        }
        tracing::warn!(
            "{}: the {kind} there is void, and is rebuilt: {error}",
            self.store.member(device).describe()
        );
        let give_up = |superblock: &mut Superblock| {
            superblock.features.incompat |= Features::VOID_REGIONS;
            superblock
                .regions
                .iter_mut()
                .filter(|other| **other == region)
                .for_each(|other| other.void = true);
        };
        // Marked in memory at once, before this task's turn to write superblocks. Until the superblocks are
        // written, neither the other copy nor its device may be excluded.
        give_up(&mut self.store.devices.superblock.borrow_mut());
        self.change_superblock(give_up).await?;
        if self.store.devices.beside.borrow().is_empty() {
            self.journal.set_places(self.store.devices.rings_of(&self.store.devices.superblock()), None);
            self.store.note_only_journal();
        }
        self.jobs.wake();
        Ok(())
    }
}

impl<D: Device> Devices<D> {
    /// True if every page of a structure is whole elsewhere at every instant, without this copy of the
    /// structure. The next opening reads nothing from a device under resync.
    fn can_spare(&self, region: &Region) -> bool {
        let superblock = self.superblock();
        let is_read = |region: &&Region| self[region.device].is_current();
        let has = |kind, copy| superblock.region(kind, copy).is_some_and(|r| r != region && is_read(&r));
        let has_area = (0..2).any(|copy| has(RegionKind::DoubleWrite, copy));
        match region.kind {
            // The remaining image is written through a double-write area.
            RegionKind::Map | RegionKind::Intents => has_area && has(region.kind, 1 - region.copy),
            RegionKind::DoubleWrite => has_area || superblock.copies == 1 && has_pairs(&superblock),
            RegionKind::Journal => superblock.copies > 1 && has(region.kind, 1 - region.copy),
            RegionKind::CacheTable => has_area && cache_images(&superblock, region.device).len() == 2,
            _ => false,
        }
    }

    /// True if another current device has a copy of each structure that is written page by page.
    pub fn pages_survive(&self, device: DeviceId) -> bool {
        let superblock = self.superblock();
        let is_elsewhere = |&(other, _): &(DeviceId, Bytes)| other != device && self[other].is_current();
        paged(&superblock).all(|kind| images(&superblock, kind).iter().any(is_elsewhere))
    }

    /// Returns the places of the rings in use, according to `superblock`.
    pub fn rings_of(&self, superblock: &Superblock) -> Vec<(DeviceId, Bytes)> {
        rings(superblock, |device| self[device].is_current())
    }
}

impl<D: Device> Store<D> {
    /// Updates which freed slots wait for a checkpoint, after a change of the places of journal and map
    /// images.
    pub fn note_only_journal(&self) {
        let only = only_journal(&self.devices.superblock(), |device| self.member(device).is_current());
        self.state.borrow_mut().set_only_journal(only);
    }
}

/// True if each structure that is written in place, page by page, has two valid copies.
fn has_pairs(superblock: &Superblock) -> bool {
    let has_both = |device: &DeviceId| matches!(cache_images(superblock, *device).len(), 0 | 2);
    paged(superblock)
        .filter(|kind| *kind != RegionKind::DoubleWrite)
        .all(|kind| images(superblock, kind).len() == 2)
        && (0..superblock.devices.len() as u16).map(DeviceId).all(|device| has_both(&device))
}

/// Returns the kinds of structures of a volume that are written page by page, double-write areas included.
fn paged(superblock: &Superblock) -> impl Iterator<Item = RegionKind> {
    let is_dense = superblock.mapping() == Mapping::Dense;
    let has_spans = superblock.has(RegionKind::Intents);
    let kinds = [
        (RegionKind::Map, is_dense),
        (RegionKind::Intents, has_spans),
        (RegionKind::DoubleWrite, is_dense || has_spans),
    ];
    kinds.into_iter().filter(|(_, is_there)| *is_there).map(|(kind, _)| kind)
}
