//! The devices found for one volume, and the choice of a device for each place.

use crate::device::look::Look;
use crate::device::place::Place;
use crate::state::state_dir::VolumeName;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, KIB};
use braid_engine::{KnownDisk, Sighting, Standing, Survey};
use braid_format::superblock::{DeviceEntry, Header};
use std::path::{Path, PathBuf};

/// A device whose superblock claims a place in the volume.
pub(super) struct Claim {
    pub path: PathBuf,
    pub sighting: Sighting,
    lies: Place,
    /// The place with this path in the record; `None` if the device was found elsewhere.
    recorded: Option<usize>,
    standing: Standing,
}

/// All devices found for a volume.
pub(super) struct Sightings {
    volume: String,
    claims: Vec<Claim>,
    survey: Option<Survey>,
}

impl Sightings {
    /// Returns an empty set for the volume with this UUID.
    pub fn new(volume: &str) -> Sightings {
        Sightings { volume: volume.to_owned(), claims: Vec::new(), survey: None }
    }

    /// Adds a look at a path, if the look found a device of the volume. A device found again elsewhere keeps
    /// its first path.
    pub fn add(&mut self, path: &Path, recorded: Option<usize>, look: &Look) {
        let Look::Device(sighting, lies) = look else { return };
        let is_known = |claim: &Claim| claim.lies == *lies && recorded.is_none();
        if sighting.header.volume.to_string() != self.volume || self.claims.iter().any(is_known) {
            return;
        }
        self.claims.push(Claim {
            path: path.to_owned(),
            sighting: (**sighting).clone(),
            lies: lies.clone(),
            recorded,
            standing: Standing::Member,
        });
    }

    /// Adds looks at paths outside the record, as [`Sightings::add`]. Returns the number of paths that this
    /// process may not read.
    pub fn add_all(&mut self, paths: &[PathBuf], looks: &[Look]) -> usize {
        paths.iter().zip(looks).for_each(|(path, look)| self.add(path, None, look));
        looks.iter().filter(|look| matches!(look, Look::Denied(_))).count()
    }

    /// Judges each device by the newest device.
    pub fn survey(&mut self) {
        let seen: Vec<&Sighting> = self.claims.iter().map(|claim| &claim.sighting).collect();
        let survey = Survey::of(&seen);
        for claim in &mut self.claims {
            claim.standing = survey.standing(&claim.sighting);
        }
        self.survey = Some(survey);
    }

    /// Returns the newest table of devices.
    pub fn devices(&self) -> Option<&[DeviceEntry]> {
        self.survey.as_ref().and_then(Survey::devices)
    }

    /// Returns the known identity of the disk that the volume adopted.
    pub fn known_disk(&self) -> Option<KnownDisk> {
        self.survey.as_ref().and_then(KnownDisk::of)
    }

    /// Returns the newest superblock.
    pub fn newest(&self) -> Option<&Header> {
        let headers = self.claims.iter().map(|claim| &claim.sighting.header);
        headers.max_by_key(|header| (header.epoch, header.sequence))
    }

    /// True if any device has this place.
    pub fn has(&self, place: usize) -> bool {
        self.of(place).any(Claim::counts)
    }

    /// True if the device that was in use last may be at another path: no device has this place, or only old
    /// copies do.
    pub fn lacks(&self, place: usize) -> bool {
        !self.of(place).any(|claim| claim.counts() && !claim.is_old())
    }

    fn of(&self, place: usize) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| claim.sighting.header.this_device.index() == place)
    }

    /// Returns the device of a place.
    ///
    /// # Errors
    /// `Invalid` if several devices have the place, and nothing tells which was in use last: names them.
    pub fn choose(&self, place: usize, volume: &VolumeName) -> Result<Option<&Claim>> {
        let mut claims: Vec<&Claim> = self.of(place).filter(|claim| claim.counts()).collect();
        // An old copy at a recorded path does not count if the device is at another path.
        if claims.iter().any(|claim| !claim.is_old()) {
            claims.retain(|claim| !claim.is_old());
        }
        // Among several devices, a recorded path decides: first the path of this place, then the path of any
        // place.
        for is_meant in [
            |claim: &Claim, place| claim.recorded == Some(place),
            |claim: &Claim, _| claim.recorded.is_some(),
        ] {
            if claims.iter().any(|claim| is_meant(claim, place)) {
                claims.retain(|claim| is_meant(claim, place));
            }
        }
        // A whole disk looks like its last partition if the superblock at its end belongs to the partition.
        if claims.iter().any(|claim| claim.has_its_size()) {
            claims.retain(|claim| claim.has_its_size());
        }
        let newest = claims.iter().map(|claim| claim.age()).max();
        claims.retain(|claim| Some(claim.age()) == newest);
        let Some((first, others)) = claims.split_first() else { return Ok(None) };
        match others.iter().find(|other| other.lies != first.lies) {
            None => Ok(Some(first)),
            Some(other) => {
                let (one, two) = (first.path.display(), other.path.display());
                let problem = format!(
                    "{one} and {two} are both device d{place} of volume '{volume}', one a copy of the \
                     other: detach one of them (nothing was changed)"
                );
                Err(Error::new(ErrorKind::Invalid, problem))
            }
        }
    }

    /// Explains why devices that claim a place are refused.
    pub fn refused(&self, place: usize) -> Vec<String> {
        let why = |claim: &Claim| match &claim.standing {
            Standing::Old(why) => Some(why.clone()),
            _ => None,
        };
        self.of(place).filter(|claim| !claim.counts()).filter_map(why).collect()
    }

    /// Describes another device at a recorded path.
    pub fn describe(&self, path: &str, sighting: &Sighting) -> String {
        let header = &sighting.header;
        match header.volume.to_string() == self.volume {
            true => format!("{path} is {} of the volume now, or was once", header.this_device),
            false => format!("{path} belongs to volume '{}' now", header.name),
        }
    }
}

impl Claim {
    /// True if the device may be used. A device at a recorded path is left to the engine, unless another
    /// device has its place.
    fn counts(&self) -> bool {
        match self.standing {
            Standing::Member => true,
            Standing::Old(_) | Standing::Removed => self.recorded.is_some(),
            Standing::Replaced => false,
        }
    }

    fn is_old(&self) -> bool {
        matches!(self.standing, Standing::Old(_))
    }

    fn age(&self) -> (u64, u64) {
        (self.sighting.header.epoch, self.sighting.header.sequence)
    }

    /// True if the device has the size in its superblock, except for a tail that direct I/O cannot reach.
    fn has_its_size(&self) -> bool {
        let (has, had): (Bytes, Bytes) = (self.sighting.size(), self.sighting.header.device.size);
        has >= had && has - had < KIB * 4
    }
}
