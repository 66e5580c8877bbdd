//! Finds the devices of a volume. The superblock identifies a device; a path is a hint.
//!
//! ```text
//! 1. recorded paths              a path that leads to no device of the volume leads nowhere
//! 2. if a device lacks, or an    paths of other records, files beside recorded files, all block devices
//!    old copy is in its place    (places.rs)
//! 3. for each place one device   of several, the one at a recorded path, else the one that was in use last
//! ```
//!
//! A device found elsewhere than at a recorded path is taken only if it was in use last. An older copy stays
//! untouched: it may be a backup, and an opening would bring it up to date. The search only reads superblocks
//! and tables, takes no locks, and ends after two time limits. The engine judges whether the devices found
//! suffice.

pub(crate) mod disk;
mod places;
mod sightings;

use crate::device::look::{Look, look_at};
use crate::device::spec::Storage;
use crate::state::noted::noted;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_engine::KnownDisk;
use braid_format::superblock::{DeviceState, Layout};
use sightings::{Claim, Sightings};
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for recorded devices to answer: the limit of a request of an opening.
const RECORDED: Duration = Duration::from_secs(60);
/// Time limit for all other devices together: a sleeping disk needs some ten seconds.
const ELSEWHERE: Duration = Duration::from_secs(30);

/// The devices of a volume, found or missing.
pub(crate) struct Found {
    /// By place; without removed devices, and without an adopted disk.
    pub places: Vec<MemberPlace>,
    /// True if the volume has two copies of everything.
    pub is_mirrored: bool,
    /// The last policy of the volume.
    pub policy: Option<String>,
    /// Identity of an adopted disk in the superblocks.
    known_disk: Option<KnownDisk>,
}

/// The place of a device in a volume.
pub(crate) struct MemberPlace {
    pub id: DeviceId,
    pub state: Whereabouts,
    /// The path in the record, or a description if no path is known.
    pub recorded: String,
}

/// Where a device is.
pub(crate) enum Whereabouts {
    /// At a path, with the new device record.
    At(PathBuf, Box<DeviceRecord>),
    /// Missing, with the reason.
    Nowhere(Lack),
}

impl MemberPlace {
    /// Returns the path of the device, if the device is there.
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.state {
            Whereabouts::At(path, _) => Some(path),
            Whereabouts::Nowhere(_) => None,
        }
    }

    pub fn is_there(&self) -> bool {
        self.path().is_some()
    }
}

/// Reason for a missing device.
#[derive(Clone, Debug)]
pub(crate) enum Lack {
    /// Nothing, or another device, is at the recorded path.
    Away(String),
    /// The device at the recorded path holds no superblock.
    Blank(String),
    /// The device at the recorded path does not answer, or answers with errors.
    Unreadable(String),
}

impl Lack {
    /// Describes what was found in the place of the device.
    pub fn why(&self) -> &str {
        match self {
            Lack::Away(why) | Lack::Blank(why) | Lack::Unreadable(why) => why,
        }
    }
}

impl Found {
    /// Returns the paths of the devices that are there, by place.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.places.iter().filter_map(|place| place.path().cloned()).collect()
    }

    /// Returns the new records of the devices that are there.
    pub fn records(&self) -> Vec<(usize, DeviceRecord)> {
        let record = |place: &MemberPlace| match &place.state {
            Whereabouts::At(_, record) => Some((place.id.index(), (**record).clone())),
            Whereabouts::Nowhere(_) => None,
        };
        self.places.iter().filter_map(record).collect()
    }

    /// Returns the missing devices.
    pub fn lacking(&self) -> impl Iterator<Item = (&MemberPlace, &Lack)> {
        self.places.iter().filter_map(|place| match &place.state {
            Whereabouts::At(..) => None,
            Whereabouts::Nowhere(lack) => Some((place, lack)),
        })
    }
}

/// Finds the devices of a volume. Reads only, and does not wait for the ring.
///
/// # Errors
/// `Io` if this process may not read a recorded device. `Unsupported` if a newer version wrote a device.
/// `Invalid` if two devices claim one place, and nothing tells which device was in use last.
pub(crate) fn find(state: &StateDir, record: &VolumeRecord) -> Result<Found> {
    let mut recorded = record.paths()?;
    recorded.retain(|(place, _)| !record.devices[*place].adopted);
    let paths: Vec<PathBuf> = recorded.iter().map(|(_, path)| path.clone()).collect();
    let looks = look_at(&paths, RECORDED);
    for look in &looks {
        match look {
            Look::Denied(why) => return Err(Error::new(ErrorKind::Io, why.clone())),
            Look::Newer(why) => return Err(Error::new(ErrorKind::Unsupported, why.clone())),
            _ => {}
        }
    }
    let mut sightings = Sightings::new(&record.uuid);
    for ((place, path), look) in recorded.iter().zip(&looks) {
        sightings.add(path, Some(*place), look);
    }
    sightings.survey();
    let mut wanted = wanted(record, &sightings);
    // Old copies of all devices agree with each other: only this host's note reveals them.
    let is_older = sightings.newest().is_some_and(|header| header.epoch < noted(state, record).epoch);
    if is_older || wanted.iter().any(|&place| sightings.lacks(place)) {
        let elsewhere = places::elsewhere(state, record);
        let denied = sightings.add_all(&elsewhere, &look_at(&elsewhere, ELSEWHERE));
        if denied > 0 {
            tracing::warn!("{denied} devices of other users could not be inspected: no permission");
        }
        sightings.survey();
        wanted = self::wanted(record, &sightings);
    }
    let place = |place: usize| -> Result<MemberPlace> {
        let noted = record.devices.get(place).filter(|noted| !noted.removed);
        let at = recorded.iter().position(|(of, _)| *of == place);
        let state = match sightings.choose(place, &record.name)? {
            Some(claim) => Whereabouts::At(claim.path.clone(), Box::new(record_of(claim, noted))),
            None => Whereabouts::Nowhere(lack(&sightings, place, at.map(|at| (&paths[at], &looks[at])))),
        };
        let unknown = || "a device with an unknown path".to_owned();
        let recorded =
            noted.and_then(|noted| noted.path.as_ref()).map_or_else(unknown, |p| p.display().to_string());
        Ok(MemberPlace { id: DeviceId(place as u16), state, recorded })
    };
    let places = wanted.into_iter().map(place).collect::<Result<Vec<_>>>()?;
    Ok(Found {
        places,
        is_mirrored: sightings.newest().is_some_and(|header| header.copies > 1),
        policy: sightings.newest().map(|header| header.policy.clone()),
        known_disk: sightings.known_disk(),
    })
}

/// Returns the places with a device: by the newest table of devices, or by the record if there is no table.
fn wanted(record: &VolumeRecord, sightings: &Sightings) -> Vec<usize> {
    let is_noted =
        |place: usize| record.devices.get(place).is_some_and(|device| !device.removed && !device.adopted);
    let devices = sightings.devices();
    let count = record.devices.len().max(devices.map_or(0, <[_]>::len));
    let is_wanted = |&place: &usize| match devices.and_then(|devices| devices.get(place)) {
        // The superblock of a removed device is still to be erased.
        Some(entry) if entry.state == DeviceState::Removed => is_noted(place) && sightings.has(place),
        Some(entry) => entry.layout != Layout::Adopted,
        None => is_noted(place),
    };
    (0..count).filter(is_wanted).collect()
}

/// Returns the new record of a device that is there.
fn record_of(claim: &Claim, noted: Option<&DeviceRecord>) -> DeviceRecord {
    let entry = &claim.sighting.header.device;
    let new = || {
        let model = Some(entry.model.as_str()).filter(|model| !model.is_empty());
        DeviceRecord::new(&Storage::Path(claim.path.clone()), entry.class, model, entry.size.0)
    };
    DeviceRecord { path: Some(claim.path.clone()), missing: false, ..noted.cloned().unwrap_or_else(new) }
}

/// Describes why a device is missing.
fn lack(sightings: &Sightings, place: usize, recorded: Option<(&PathBuf, &Look)>) -> Lack {
    let older = sightings.refused(place);
    let with_older = |why: String| [&[why], &older[..]].concat().join("; ");
    let Some((path, look)) = recorded else {
        return Lack::Away(with_older(format!("d{place} has no known path")));
    };
    let shown = path.display();
    match look {
        Look::Unreadable(why) => Lack::Unreadable(with_older(why.clone())),
        Look::Blank(why) => Lack::Blank(with_older(why.clone())),
        Look::Device(sighting, _) => Lack::Away(with_older(sightings.describe(&shown.to_string(), sighting))),
        Look::Gone | Look::Denied(_) | Look::Newer(_) => {
            Lack::Away(with_older(format!("{shown} does not exist")))
        }
    }
}
