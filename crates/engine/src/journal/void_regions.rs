//! Regions that cannot be written, and that the volume can do without: they are given up without their
//! device.
//!
//! One image of the map, one table of spans, the double-write areas, and with two required copies one of the
//! journals, are there for the loss of a device alone. A bad place in one of them must not end all flushes
//! while every other place is sound. So the superblocks call the region *void* first: nothing in it counts
//! from then on, whatever it holds. Its slots stay taken. The region is made anew later
//! ([`Core::renew_regions`]). An image of a cache table becomes void if the other image of the same device
//! counts, and the pages of that one can go to a double-write area first.
//!
//! With two required copies the device is given up, as for any other write, if all that lies on it is
//! elsewhere. After a crash that is not so before a resync has ended.

use super::cache_table::cache_images;
use super::checkpoint::{images, only_journal, rings};
use crate::core::Core;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::superblock::{Features, Mapping, Region, RegionKind, Superblock};
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Core<R, D> {
    /// A place of a region could not be written: goes on without the region if that can be, else without the
    /// device.
    ///
    /// # Errors
    /// `error` itself if the volume cannot do without either.
    pub async fn spare_region(
        &self,
        kind: RegionKind,
        (device, offset): (DeviceId, Bytes),
        error: Error,
    ) -> Result<()> {
        let is_here = |region: &Region| (region.kind, region.device, region.offset) == (kind, device, offset);
        if self.shape.copies > 1 && self.survives(device) {
            return self.lose(device, error);
        }
        let named = self.devices.superblock().regions.iter().find(|r| is_here(r) && !r.void).copied();
        let Some(region) = named else {
            // A copy was to move there, or has just left. Who moves it looks whether the place is still
            // written.
            self.devices.beside.borrow_mut().retain(|region| !is_here(region));
            return Ok(());
        };
        if !self.can_spare(&region) {
            return self.lose(device, error);
        }
        tracing::warn!("{}: the {kind} there is given up, and made anew: {error}", self.describe(device));
        let give_up = |superblock: &mut Superblock| {
            superblock.features.incompat |= Features::VOID_REGIONS;
            superblock
                .regions
                .iter_mut()
                .filter(|other| **other == region)
                .for_each(|other| other.void = true);
        };
        // At once, and not when it is this task's turn to write superblocks: until they are written, the
        // device of the other copy must not be given up, nor that copy.
        give_up(&mut self.devices.superblock.borrow_mut());
        self.change_superblock(give_up).await?;
        if self.devices.beside.borrow().is_empty() {
            self.journal.set_places(self.rings_of(&self.devices.superblock()), None);
            self.note_only_journal();
        }
        self.jobs.wake();
        Ok(())
    }

    /// Whether every page of a structure is whole elsewhere at every instant, without this copy of it. The
    /// next opening reads nothing from a device that is being brought up to date.
    fn can_spare(&self, region: &Region) -> bool {
        let superblock = self.devices.superblock();
        let is_read = |region: &&Region| self.member(region.device).is_current();
        let has = |kind, copy| superblock.region(kind, copy).is_some_and(|r| r != region && is_read(&r));
        let has_area = (0..2).any(|copy| has(RegionKind::DoubleWrite, copy));
        match region.kind {
            // A single image is written by way of an area.
            RegionKind::Map | RegionKind::Intents => has_area && has(region.kind, 1 - region.copy),
            RegionKind::DoubleWrite => has_area || superblock.copies == 1 && has_pairs(&superblock),
            RegionKind::Journal => superblock.copies > 1 && has(region.kind, 1 - region.copy),
            RegionKind::CacheTable => has_area && cache_images(&superblock, region.device).len() == 2,
            _ => false,
        }
    }

    /// Whether a copy of each structure that is written page by page lies on another device that is current.
    pub fn pages_survive(&self, device: DeviceId) -> bool {
        let superblock = self.devices.superblock();
        let is_elsewhere =
            |&(other, _): &(DeviceId, Bytes)| other != device && self.member(other).is_current();
        paged(&superblock).all(|kind| images(&superblock, kind).iter().any(is_elsewhere))
    }

    /// Where the rings of the journal lie that are in use, as superblocks say that.
    pub fn rings_of(&self, superblock: &Superblock) -> Vec<(DeviceId, Bytes)> {
        rings(superblock, |device| self.member(device).is_current())
    }

    /// From now on slots wait for a checkpoint as the places of the journal and of the map's images ask.
    pub fn note_only_journal(&self) {
        let only = only_journal(&self.devices.superblock(), |device| self.member(device).is_current());
        self.state.borrow_mut().set_only_journal(only);
    }
}

/// Whether two copies of each structure count that is written in place, page by page.
fn has_pairs(superblock: &Superblock) -> bool {
    let has_both = |device: &DeviceId| matches!(cache_images(superblock, *device).len(), 0 | 2);
    paged(superblock)
        .filter(|kind| *kind != RegionKind::DoubleWrite)
        .all(|kind| images(superblock, kind).len() == 2)
        && (0..superblock.devices.len() as u16).map(DeviceId).all(|device| has_both(&device))
}

/// What a volume has of the structures that are written page by page, and the areas for that.
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
