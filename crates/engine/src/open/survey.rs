//! Devices of a volume, by the statements of the devices found. A search reads superblocks and tables of many
//! devices, and opens no device for itself. Nothing here changes a device or refuses a volume: only an
//! opening does.

use super::candidate::Candidate;
use super::cut::End;
use super::given::newest_of;
use super::superblock::{FoundSuperblock, read_superblock, read_table};
use super::verdict::{NEVER, judge};
use crate::{ErrorKind, Result};
use braid_base::Bytes;
use braid_format::superblock::{DeviceEntry, DeviceState, DeviceTable, Header, Superblock};
use braid_runtime::{Buf, Device, Geometry};
use std::cmp::Reverse;
use std::io;
use std::rc::Rc;

/// A device found, with its superblock and its tables of devices.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// Name of the device in messages: its path.
    pub name: String,
    /// Superblock of the device.
    pub header: Header,
    geometry: Geometry,
    end: End,
    tables: std::result::Result<Vec<DeviceTable>, String>,
}

impl Sighting {
    /// Reads the superblock of a device, and the tables on this device that the superblock names.
    ///
    /// # Errors
    /// As [`crate::identify`], but without a limit of time.
    pub async fn read<D: Device>(device: &D, name: &str) -> Result<Sighting> {
        let FoundSuperblock { header, end, .. } = read_superblock(device, name).await?;
        let (mut tables, mut problem) = (Vec::new(), None);
        for &place in header.tables.iter().filter(|place| place.device == header.this_device) {
            match read_table(device, place, header.volume).await {
                Ok(valid) => tables.extend(valid),
                Err(why) => problem = Some(why),
            }
        }
        tables.sort_by_key(|table| Reverse(table.sequence));
        let tables = match problem {
            Some(problem) if tables.is_empty() => Err(problem),
            _ => Ok(tables),
        };
        Ok(Sighting { name: name.to_owned(), header, geometry: device.geometry(), end, tables })
    }

    /// Size of the device.
    pub fn size(&self) -> Bytes {
        self.geometry.size
    }

    fn candidate(&self) -> Candidate<'_, Seen> {
        Candidate {
            device: Rc::new(Seen(self.geometry)),
            name: &self.name,
            header: self.header.clone(),
            end: self.end,
            tables: self.tables.clone(),
        }
    }
}

/// Newest superblock among some devices of one volume.
pub struct Survey {
    newest: Option<Superblock>,
}

/// Relation of a device to the volume, by the newest superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// As far as known, the device is in its place: an opening judges the device.
    Member,
    /// The device was cut, is an older copy of the current device, or is older than the recorded differences.
    /// The string is the reason.
    Old(String),
    /// By the other devices, the device was removed.
    Removed,
    /// Another device has this place now.
    Replaced,
}

impl Survey {
    /// Compares devices of one volume. Several devices may claim one place.
    pub fn of(sightings: &[&Sighting]) -> Survey {
        let mut found: Vec<Candidate<'_, Seen>> =
            sightings.iter().map(|sighting| sighting.candidate()).collect();
        // Among several devices for one place, the newest has the table of the newest superblock.
        found.sort_by_key(|candidate| Reverse((candidate.header.epoch, candidate.header.sequence)));
        let mut headers: Vec<&Header> = found.iter().map(|candidate| &candidate.header).collect();
        headers.sort_by_key(|header| Reverse((header.epoch, header.sequence)));
        let newest = newest_of(&found, &headers, &[]).ok().and_then(Result::ok);
        Survey { newest }
    }

    pub(crate) fn newest(&self) -> Option<&Superblock> {
        self.newest.as_ref()
    }

    /// Devices of the volume by place, including removed devices; none if no table of devices was found.
    pub fn devices(&self) -> Option<&[DeviceEntry]> {
        self.newest.as_ref().map(|newest| &newest.devices[..])
    }

    /// Returns the relation of a device to its volume.
    pub fn standing(&self, sighting: &Sighting) -> Standing {
        let Some(newest) = &self.newest else { return Standing::Member };
        let entry = newest.devices.get(sighting.header.this_device.index());
        let is_same = |entry: &&DeviceEntry| entry.uuid == sighting.header.device.uuid;
        match entry.filter(is_same).map(|entry| entry.state) {
            None => return Standing::Replaced,
            Some(DeviceState::Removed) => return Standing::Removed,
            Some(_) => {}
        }
        match judge(newest, &sighting.candidate()) {
            // A new device that was never in step lacks everything, but is no old copy.
            Ok(judged) if judged.lacks_all && sighting.header.device.in_step != NEVER => Standing::Old(
                format!("{} is an older copy of {}", sighting.name, sighting.header.this_device),
            ),
            Err(error) if error.kind() == ErrorKind::Invalid => Standing::Old(error.to_string()),
            // An opening refuses devices that were used apart, by name.
            Ok(_) | Err(_) => Standing::Member,
        }
    }
}

/// A device with its superblock and tables already read: no further request is valid.
struct Seen(Geometry);

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a device opened read-only for inspection")
}

impl Device for Seen {
    fn geometry(&self) -> Geometry {
        self.0
    }

    async fn read(&self, _: Bytes, _: &Buf) -> io::Result<()> {
        Err(refused())
    }

    async fn write(&self, _: Bytes, _: &Buf) -> io::Result<()> {
        Err(refused())
    }

    async fn flush(&self) -> io::Result<()> {
        Err(refused())
    }

    async fn discard(&self, _: Bytes, _: Bytes) -> io::Result<()> {
        Err(refused())
    }
}
