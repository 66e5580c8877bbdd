//! Model of a volume: its places, devices with complete data, and the expected result of an opening.

use crate::blocks::{Blocks, Level};
use crate::client::Client;
use crate::host::{Daemon, Host};
use crate::plan::Kind;
use crate::world::GIVEN_UP_IS_REMEMBERED;
use std::collections::BTreeMap;

/// A place with a device in the volume's table of devices.
#[derive(Clone, Debug)]
pub struct Place {
    pub uuid: String,
    pub is_ssd: bool,
    /// True for the adopted disk; Braid looks for an adopted disk only at its path.
    pub is_adopted: bool,
    /// True if the device had all its data at the last use of the volume.
    pub good: bool,
    /// Letter of the path in the record.
    pub noted: Option<char>,
}

/// State of a place's device since its last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The device is present, under any name.
    Intact,
    /// The device is present, and a copy takes its place, or may.
    Doubled,
    /// Only an older copy is present.
    Old,
    /// The device was truncated, and has its size again.
    Cut,
    /// The device is absent.
    Gone,
}

/// A volume.
pub struct Volume {
    pub index: usize,
    pub kind: Kind,
    /// Name of the volume in the state directory.
    pub name: Option<String>,
    pub size: u64,
    pub places: BTreeMap<usize, Place>,
    /// True if all copies were seen up to date, without a relevant change since.
    pub settled: bool,
    /// True if devices were being added or removed.
    pub in_flux: bool,
    pub clean: bool,
    /// True if the state directory may have lost knowledge about the devices.
    pub doubt: bool,
    /// True if a device with all data was excluded, and the other devices continued without the device.
    pub apart: bool,
    /// True if some data was discarded, and reads as errors.
    pub lossy: bool,
    /// True if the volume can rightly not be opened any more.
    pub dead: bool,
    /// Set if the volume was recovered from the disk alone: its state is not older than this instant.
    pub recovered: Option<usize>,
    /// Instant at which the disk with epochs had all data.
    pub on_disk: Option<usize>,
    pub openings: u64,
    pub blocks: Blocks,
    pub daemon: Option<Daemon>,
    pub client: Option<Client>,
}

/// Expected result of an opening, and strictness of reads after a successful opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    pub must_open: bool,
    pub level: Level,
}

impl Volume {
    pub fn new(index: usize, kind: Kind) -> Volume {
        Volume {
            index,
            kind,
            name: Some(letter_of(index).to_string()),
            size: 0,
            places: BTreeMap::new(),
            settled: true,
            in_flux: false,
            clean: true,
            doubt: false,
            apart: false,
            lossy: false,
            dead: false,
            recovered: None,
            on_disk: None,
            openings: 0,
            blocks: Blocks::new(0xb7a1_0000 + index as u32),
            daemon: None,
            client: None,
        }
    }

    pub fn is_mirrored(&self) -> bool {
        matches!(self.kind, Kind::Mirror | Kind::Raid1 | Kind::Three) || self.is_pass()
    }

    pub fn is_pass(&self) -> bool {
        matches!(self.kind, Kind::Pass | Kind::Epochs)
    }

    /// Offset of a cluster of blocks.
    pub fn offset(&self, cluster: usize) -> u64 {
        let stride = self.size / crate::blocks::CLUSTERS as u64;
        stride / 4096 * 4096 * cluster as u64
    }

    /// Sets the size of the volume; returns the offsets of all clusters.
    pub fn blocks_within(&mut self, size: u64) -> Vec<u64> {
        self.size = size;
        (0..crate::blocks::CLUSTERS).map(|cluster| self.offset(cluster)).collect()
    }

    /// State of a place's device.
    pub fn found(&self, place: usize, host: &Host) -> Found {
        let Place { uuid, noted, is_adopted, .. } = &self.places[&place];
        let of_it = |file: &&crate::host::File| {
            file.owner.as_ref().is_some_and(|(volume, device)| *volume == self.index && device == uuid)
        };
        let is_seen = |letter: &char| !is_adopted || *noted == Some(*letter);
        let here = host.files.iter().filter(|(letter, file)| of_it(file) && is_seen(letter));
        let here: Vec<_> = here.collect();
        let Some((letter, live)) = here.iter().find(|(_, file)| file.live) else {
            return if here.is_empty() { Found::Gone } else { Found::Old };
        };
        let is_noted = *noted == Some(**letter);
        let confuses = |(copy, file): &&(&char, &crate::host::File)| {
            !file.live && (*noted == Some(**copy) || (!is_noted && file.opening == live.opening))
        };
        match () {
            () if live.cut => Found::Cut,
            () if here.iter().any(|entry| confuses(&entry)) => Found::Doubled,
            () => Found::Intact,
        }
    }

    /// Places that meet `holds`.
    pub fn places_that(&self, host: &Host, holds: impl Fn(&Place, Found) -> bool) -> Vec<usize> {
        let places = self.places.iter().map(|(&index, place)| (index, place));
        places
            .filter(|&(index, place)| holds(place, self.found(index, host)))
            .map(|(index, _)| index)
            .collect()
    }

    /// Expected result of an opening without options.
    pub fn expected(&self, host: &Host) -> Expected {
        let lacking = self.places_that(host, |place, found| place.good && found != Found::Intact);
        let intact = self.places_that(host, |place, found| place.good && found == Found::Intact);
        let absent = self.places_that(host, |_, found| found == Found::Gone);
        let confusing = self.places_that(host, |place, found| match found {
            Found::Intact => self.apart && !place.good,
            Found::Gone => false,
            Found::Doubled | Found::Old | Found::Cut => true,
        });
        let has_old = !self.places_that(host, |_, found| found == Found::Old).is_empty();
        // With one copy, an excluded device may be taken for the newest after its return.
        let given_up = self.places_that(host, |place, found| !place.good && found == Found::Intact);
        let is_used_again = intact.is_empty() || (self.apart && !given_up.is_empty());
        let is_forgotten = !GIVEN_UP_IS_REMEMBERED && !self.is_mirrored() && is_used_again;
        let is_enough = lacking.is_empty() || (lacking.len() == 1 && self.may_lack(lacking[0]));
        // Only the state directory has knowledge of an adopted disk.
        let is_told = !self.doubt || (absent.is_empty() && !self.kind.is_adopted());
        let must_open = self.name.is_some() && !self.dead && is_enough && is_told && confusing.is_empty();
        let level = match self.recovered {
            Some(from) => Level::Instant(from),
            // No present device has knowledge of newer data.
            None if intact.is_empty() && (self.doubt || has_old) => Level::Older,
            None if is_forgotten => Level::Older,
            None if self.doubt && !lacking.is_empty() => Level::Older,
            None => Level::Exact,
        };
        Expected { must_open, level }
    }

    /// True if the volume has all data without the device of this place.
    pub fn may_lack(&self, place: usize) -> bool {
        if self.kind == Kind::Adopted {
            return self.places[&place].is_ssd && !self.in_flux && !self.doubt;
        }
        if !self.is_mirrored() || self.in_flux || self.places.values().filter(|place| place.good).count() < 2
        {
            return false;
        }
        match (self.kind, self.places[&place].is_ssd) {
            // The SSDs always have all data.
            (Kind::Pass | Kind::Epochs, false) => true,
            // After a kill, the journal may not yet contain the end of a copy's resync.
            (Kind::Pass, true) => self.settled && self.clean,
            // Only `braid recover` makes the disk the volume.
            (Kind::Epochs, true) => false,
            _ => self.settled,
        }
    }
}

/// Letter of a volume.
pub fn letter_of(index: usize) -> char {
    ['v', 'w'][index]
}
