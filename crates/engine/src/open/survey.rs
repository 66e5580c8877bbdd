//! Which devices a volume has, as the devices say that were found. The search for devices reads superblocks
//! and tables of many devices, and opens
//! none of these for itself. Nothing here changes a device, and nothing here refuses a volume: an opening
//! does.

use super::assemble::newest_of;
use super::candidate::Candidate;
use super::cut::End;
use super::judge::{NEVER, judge};
use super::superblock::{Found, read_superblock, read_table};
use crate::{ErrorKind, Result};
use braid_base::Bytes;
use braid_format::superblock::{DeviceEntry, DeviceState, DeviceTable, Header, Superblock};
use braid_runtime::{Buf, Device, Geometry};
use std::cmp::Reverse;
use std::io;
use std::rc::Rc;

/// A device that was found, and what its superblock and its tables of devices say.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// What to call the device in messages: its path.
    pub name: String,
    /// Its superblock.
    pub header: Header,
    geometry: Geometry,
    end: End,
    tables: std::result::Result<Vec<DeviceTable>, String>,
}

impl Sighting {
    /// Reads the superblock of a device, and the tables that the superblock says to lie there.
    ///
    /// # Errors
    /// As [`crate::identify`], but without a limit of time.
    pub async fn read<D: Device>(device: &D, name: &str) -> Result<Sighting> {
        let Found { header, end, .. } = read_superblock(device, name).await?;
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

    /// How large the device is.
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

/// What the newest superblock among some devices of one volume says.
pub struct Survey {
    newest: Option<Superblock>,
}

/// What a device is to the volume, as the newest superblock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The device is in its place, as far as is known: an opening judges it.
    Member,
    /// The device is an older copy of the one that was in use last, is older than the known differences reach
    /// back, or was cut: why.
    Old(String),
    /// The others say that the device was removed.
    Removed,
    /// Another device has this place now.
    Replaced,
}

impl Survey {
    /// Compares devices of one volume. There may be several for one place.
    pub fn of(sightings: &[&Sighting]) -> Survey {
        let mut found: Vec<Candidate<'_, Seen>> =
            sightings.iter().map(|sighting| sighting.candidate()).collect();
        // Of several for one place, the newest has the table that belongs to the newest superblock.
        found.sort_by_key(|candidate| Reverse((candidate.header.epoch, candidate.header.sequence)));
        let mut headers: Vec<&Header> = found.iter().map(|candidate| &candidate.header).collect();
        headers.sort_by_key(|header| Reverse((header.epoch, header.sequence)));
        let newest = newest_of(&found, &headers, &[]).ok().and_then(Result::ok);
        Survey { newest }
    }

    pub(crate) fn newest(&self) -> Option<&Superblock> {
        self.newest.as_ref()
    }

    /// The devices of the volume by place, removed ones too; none if no table of devices was found.
    pub fn devices(&self) -> Option<&[DeviceEntry]> {
        self.newest.as_ref().map(|newest| &newest.devices[..])
    }

    /// What a device of the same volume is.
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
            // A new device that has been in step with no other yet lacks all, and is no copy.
            Ok(judged) if judged.lacks_all && sighting.header.device.in_step != NEVER => Standing::Old(
                format!("{} is an older copy of {}", sighting.name, sighting.header.this_device),
            ),
            Err(error) if error.kind() == ErrorKind::Invalid => Standing::Old(error.to_string()),
            // Devices that were used apart are for an opening to refuse, by name.
            Ok(_) | Err(_) => Standing::Member,
        }
    }
}

/// A device whose superblock and tables have been read: there is nothing more to ask it for.
struct Seen(Geometry);

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a device that was only looked at")
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
