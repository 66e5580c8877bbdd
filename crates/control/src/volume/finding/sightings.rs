//! Devices of one volume that were found, and which of them has which place.

use crate::device::look::Look;
use crate::device::place::Place;
use crate::volume::state_dir::VolumeName;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, KIB};
use braid_engine::{Sighting, Standing, Survey, Wanted};
use braid_format::superblock::{DeviceEntry, Header};
use std::path::{Path, PathBuf};

/// A device that says to be one of the volume's.
pub(super) struct Claim {
    pub path: PathBuf,
    pub sighting: Sighting,
    lies: Place,
    /// The place that has this path in the record; none if the device was found elsewhere.
    recorded: Option<usize>,
    standing: Standing,
}

/// All devices of a volume that were found.
pub(super) struct Sightings {
    volume: String,
    claims: Vec<Claim>,
    survey: Option<Survey>,
}

impl Sightings {
    /// None yet, of a volume with this identity.
    pub fn new(volume: &str) -> Sightings {
        Sightings { volume: volume.to_owned(), claims: Vec::new(), survey: None }
    }

    /// Takes what was seen at a path, if it is a device of the volume. A device that was seen before has its
    /// first path.
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

    /// As [`Sightings::add`], of devices that are at no recorded path. Says how many this process may not
    /// read.
    pub fn add_all(&mut self, paths: &[PathBuf], looks: &[Look]) -> usize {
        paths.iter().zip(looks).for_each(|(path, look)| self.add(path, None, look));
        looks.iter().filter(|look| matches!(look, Look::Denied(_))).count()
    }

    /// Finds out what each device is, as the newest one says.
    pub fn survey(&mut self) {
        let seen: Vec<&Sighting> = self.claims.iter().map(|claim| &claim.sighting).collect();
        let survey = Survey::of(&seen);
        for claim in &mut self.claims {
            claim.standing = survey.standing(&claim.sighting);
        }
        self.survey = Some(survey);
    }

    /// The newest table of devices.
    pub fn devices(&self) -> Option<&[DeviceEntry]> {
        self.survey.as_ref().and_then(Survey::devices)
    }

    /// What is known of the disk that the volume adopted.
    pub fn wanted(&self) -> Option<Wanted> {
        self.survey.as_ref().and_then(Wanted::of)
    }

    /// The newest superblock.
    pub fn newest(&self) -> Option<&Header> {
        let headers = self.claims.iter().map(|claim| &claim.sighting.header);
        headers.max_by_key(|header| (header.epoch, header.sequence))
    }

    /// Whether any device has this place.
    pub fn has(&self, place: usize) -> bool {
        self.of(place).any(Claim::counts)
    }

    /// Whether the device that was in use last may be at another path: none has this place, or old copies
    /// alone do.
    pub fn lacks(&self, place: usize) -> bool {
        !self.of(place).any(|claim| claim.counts() && !claim.is_old())
    }

    fn of(&self, place: usize) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| claim.sighting.header.this_device.index() == place)
    }

    /// The device that has a place.
    ///
    /// # Errors
    /// `Invalid` if there are several, and nothing tells which one was in use last: names them.
    pub fn choose(&self, place: usize, volume: &VolumeName) -> Result<Option<&Claim>> {
        let mut claims: Vec<&Claim> = self.of(place).filter(|claim| claim.counts()).collect();
        // An old copy at a recorded path is not the device if the device is at another path.
        if claims.iter().any(|claim| !claim.is_old()) {
            claims.retain(|claim| !claim.is_old());
        }
        // A path of the record says which of several is meant, its own path above all.
        for is_meant in [
            |claim: &Claim, place| claim.recorded == Some(place),
            |claim: &Claim, _| claim.recorded.is_some(),
        ] {
            if claims.iter().any(|claim| is_meant(claim, place)) {
                claims.retain(|claim| is_meant(claim, place));
            }
        }
        // A disk seems to be the device, too, if the superblock at its end is that of its last partition.
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
                    "{one} and {two} are both device d{place} of volume '{volume}', one a copy of the other: take one of them away (nothing was changed)"
                );
                Err(Error::new(ErrorKind::Invalid, problem))
            }
        }
    }

    /// Why devices that say to have a place are not taken.
    pub fn refused(&self, place: usize) -> Vec<String> {
        let why = |claim: &Claim| match &claim.standing {
            Standing::Old(why) => Some(why.clone()),
            _ => None,
        };
        self.of(place).filter(|claim| !claim.counts()).filter_map(why).collect()
    }

    /// What a device is that is at a recorded path and not the one that was there.
    pub fn describe(&self, path: &str, sighting: &Sighting) -> String {
        let header = &sighting.header;
        match header.volume.to_string() == self.volume {
            true => format!("{path} is {} of the volume now, or was once", header.this_device),
            false => format!("{path} belongs to volume '{}' now", header.name),
        }
    }
}

impl Claim {
    /// Whether the device may be taken: one at a recorded path is for the engine to judge, unless another
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

    /// Whether the device is as large as the superblock says, but for what direct I/O cannot reach.
    fn has_its_size(&self) -> bool {
        let (has, had): (Bytes, Bytes) = (self.sighting.size(), self.sighting.header.device.size);
        has >= had && has - had < KIB * 4
    }
}
