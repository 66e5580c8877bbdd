//! Finds the adopted disk among several disks, before the volume is opened. An opening judges the disk again.
//!
//! | what is found | likeness |
//! |---|---|
//! | another size, or both disks have serial numbers and these differ | another |
//! | both disks have the same serial number | same |
//! | all known samples and marks are equal, and not all of them are blank | same |
//! | half of the samples differ, and no file system is the same | another |
//! | anything else: a disk that was changed, or of which too little is known | doubtful |

use super::{Survey, was_current};
use crate::Result;
use crate::adopted::{Disk, compare, read_table};
use braid_base::{Bytes, DeviceId};
use braid_format::Uuid;
use braid_format::fingerprint::NO_SERIAL;
use braid_format::sums::Sums;
use braid_format::superblock::{Phase, RegionKind, Superblock};
use braid_runtime::{Buf, Device};

/// The adopted disk of a volume, as described by the other devices.
#[derive(Clone)]
pub struct KnownDisk {
    superblock: Superblock,
    disk: DeviceId,
    table: Option<((DeviceId, Bytes), Option<Sums>)>,
}

/// Likeness of a disk to the adopted disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Likeness {
    /// The same serial number, or all known facts agree.
    Same,
    /// The disk was changed, or too little is known.
    Doubtful,
    /// Another disk.
    Another,
}

impl KnownDisk {
    /// Reads the description of the disk from the superblocks. `None` if the volume has no adopted disk, or
    /// no table of devices was found.
    pub fn of(survey: &Survey) -> Option<KnownDisk> {
        let superblock = survey.newest()?.clone();
        let disk = superblock.adopted()?;
        Some(KnownDisk { superblock, disk, table: None })
    }

    /// Id of the disk in the volume.
    pub fn device(&self) -> DeviceId {
        self.disk
    }

    /// Size of the disk.
    pub fn size(&self) -> Bytes {
        self.superblock.devices[self.disk.index()].size
    }

    /// The device that keeps the sums of the disk; `None` if the device is not current.
    pub fn record(&self) -> Option<DeviceId> {
        let device = self.superblock.region(RegionKind::Sums, 0)?.device;
        was_current(self.superblock.devices.get(device.index())?).then_some(device)
    }

    /// Reads the sums from their device.
    ///
    /// # Errors
    /// The errors of the device.
    pub async fn read_sums<D: Device>(&mut self, record: &D) -> Result<()> {
        let Some(region) = self.superblock.region(RegionKind::Sums, 0) else { return Ok(()) };
        let read = async |at: Bytes, into: &Buf| record.read(at, into).await;
        let table = read_table(self.superblock.volume, self.size(), region.offset, &read).await;
        let table = table.map_err(|e| crate::Error::io("the sums of the adopted disk", &e))?;
        self.table = Some(((region.device, region.offset), table));
        Ok(())
    }

    /// Compares a disk with the adopted disk. `serial` is its serial number, or [`NO_SERIAL`].
    ///
    /// # Errors
    /// The errors of the disk.
    pub async fn compare<D: Device>(&self, disk: &D, serial: Uuid) -> Result<Likeness> {
        let entry = &self.superblock.devices[self.disk.index()];
        let geometry = disk.geometry();
        let has_serials = ![entry.uuid, serial].contains(&NO_SERIAL);
        if geometry.size != entry.size || has_serials && entry.uuid != serial {
            return Ok(Likeness::Another);
        }
        if has_serials {
            return Ok(Likeness::Same);
        }
        let clean = self.superblock.phase == Phase::Closed;
        let read = async |at: Bytes, into: &Buf| disk.read(at, into).await;
        let disk = Disk { id: self.disk, size: geometry.size, alignment: geometry.alignment };
        let looked = compare(&self.superblock, self.table.clone(), clean, disk, false, &read).await?;
        Ok(match looked.is_another() {
            Some(_) => Likeness::Another,
            None if looked.is_as_known() && looked.is_telling() => Likeness::Same,
            None => Likeness::Doubtful,
        })
    }
}
