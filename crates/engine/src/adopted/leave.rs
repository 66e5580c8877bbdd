//! Removal of an SSD: the journal moves from the SSD to the record.

use crate::core::Durable;
use crate::devices::Devices;
use crate::journal::images;
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::superblock::{RegionKind, Superblock};
use braid_runtime::{Device, Permit, Runtime};

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Moves the journal to another device, if the journal lies on this device. No batch is written until the
    /// permit is dropped. Before that, the superblocks must say that the device is removed.
    pub async fn move_journal_off(&self, device: DeviceId) -> Result<Option<Permit>> {
        if !self.journal.is_on(device) {
            return Ok(None);
        }
        let others = images(&self.store.devices.superblock(), RegionKind::Journal);
        let other =
            others.into_iter().find(|(other, _)| *other != device && self.store.member(*other).is_current());
        let Some(place) = other else {
            return Err(Error::new(ErrorKind::Invalid, format!("the journal is on {device} alone")));
        };
        self.restart_journal(place).await.map(Some)
    }
}

impl<D: Device> Devices<D> {
    /// Refuses to remove a device of a volume on an adopted disk, unless another current device has a journal
    /// and a proof.
    pub fn refuse_without_record(&self, device: DeviceId) -> Result<()> {
        let superblock = self.superblock();
        let is_elsewhere = |kind| {
            let others = images(&superblock, kind).into_iter().filter(|(other, _)| *other != device);
            others.into_iter().any(|(other, _)| self[other].is_current())
        };
        if [RegionKind::Journal, RegionKind::Proof].into_iter().all(is_elsewhere) {
            return Ok(());
        }
        let text = format!(
            "device {device} of volume '{}' cannot be removed: no other attached device holds the journal; \
             bring the record back first",
            superblock.name
        );
        Err(Error::new(ErrorKind::Invalid, text))
    }
}

/// Drops the regions and the table of a device from the superblock. If one of two copies of a region is left,
/// the copy becomes the first.
pub(crate) fn remove_metadata(superblock: &mut Superblock, device: DeviceId) {
    superblock.regions.retain(|region| region.device != device);
    superblock.tables.retain(|table| table.device != device);
    for i in 0..superblock.regions.len() {
        let region = superblock.regions[i];
        // Each SSD has two images of its own cache table.
        if region.copy == 1
            && region.kind != RegionKind::CacheTable
            && superblock.region(region.kind, 0).is_none()
        {
            superblock.regions[i].copy = 0;
        }
    }
}
