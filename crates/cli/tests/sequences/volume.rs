//! What the model knows of a volume: its places, which devices have all of it, and what an opening must do.

use crate::blocks::{Blocks, Level};
use crate::client::Client;
use crate::host::{Daemon, Host};
use crate::plan::Kind;
use crate::world::GIVEN_UP_IS_REMEMBERED;
use std::collections::BTreeMap;

/// A place in the volume's table of devices that has a device.
#[derive(Clone, Debug)]
pub struct Place {
    pub uuid: String,
    pub is_ssd: bool,
    /// Whether it is the disk that was adopted, which is looked for at its path alone.
    pub is_adopted: bool,
    /// Whether the device had all that it should when the volume was used last.
    pub good: bool,
    /// The letter of the path in the record.
    pub noted: Option<char>,
}

/// What became of the device of a place since it was used last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It is there, under whatever name.
    Intact,
    /// It is there, and a copy of it takes its place, or may.
    Doubled,
    /// An older copy is there alone.
    Old,
    /// It was cut, and has its size again.
    Cut,
    /// It is not there.
    Gone,
}

/// A volume.
pub struct Volume {
    pub index: usize,
    pub kind: Kind,
    /// By which name the state directory knows it.
    pub name: Option<String>,
    pub size: u64,
    pub places: BTreeMap<usize, Place>,
    /// Whether all copies were seen up to date, and nothing has changed that since.
    pub settled: bool,
    /// Whether devices were coming or leaving.
    pub in_flux: bool,
    pub clean: bool,
    /// Whether the state directory may know less of the devices than it did.
    pub doubt: bool,
    /// Whether a device that had all was given up, so that the others were used apart from it.
    pub apart: bool,
    /// Whether some of it was given up, and reads as errors.
    pub lossy: bool,
    /// Whether nothing opens it any more, and rightly.
    pub dead: bool,
    /// The disk was made the volume, which is as it was after this instant.
    pub recovered: Option<usize>,
    /// At this instant the disk that keeps epochs had all.
    pub on_disk: Option<usize>,
    pub openings: u64,
    pub blocks: Blocks,
    pub daemon: Option<Daemon>,
    pub client: Option<Client>,
}

/// What an opening must do, and what the volume must read as if it succeeds.
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

    /// Where a cluster of blocks lies.
    pub fn offset(&self, cluster: usize) -> u64 {
        let stride = self.size / crate::blocks::CLUSTERS as u64;
        stride / 4096 * 4096 * cluster as u64
    }

    /// Where the blocks lie in a volume of this size.
    pub fn blocks_within(&mut self, size: u64) -> Vec<u64> {
        self.size = size;
        (0..crate::blocks::CLUSTERS).map(|cluster| self.offset(cluster)).collect()
    }

    /// What became of the device of a place.
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

    /// Places with this finding.
    pub fn places_that(&self, host: &Host, holds: impl Fn(&Place, Found) -> bool) -> Vec<usize> {
        let places = self.places.iter().map(|(&index, place)| (index, place));
        places
            .filter(|&(index, place)| holds(place, self.found(index, host)))
            .map(|(index, _)| index)
            .collect()
    }

    /// What an opening without options must do.
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
        // With one copy, a device that was given up may be taken for the newest when it is back.
        let given_up = self.places_that(host, |place, found| !place.good && found == Found::Intact);
        let is_used_again = intact.is_empty() || (self.apart && !given_up.is_empty());
        let is_forgotten = !GIVEN_UP_IS_REMEMBERED && !self.is_mirrored() && is_used_again;
        let is_enough = lacking.is_empty() || (lacking.len() == 1 && self.may_lack(lacking[0]));
        // Of a disk that was adopted the state directory alone tells.
        let is_told = !self.doubt || (absent.is_empty() && !self.kind.is_adopted());
        let must_open = self.name.is_some() && !self.dead && is_enough && is_told && confusing.is_empty();
        let level = match self.recovered {
            Some(from) => Level::Instant(from),
            // Nothing is there that tells of anything newer.
            None if intact.is_empty() && (self.doubt || has_old) => Level::Older,
            None if is_forgotten => Level::Older,
            None if self.doubt && !lacking.is_empty() => Level::Older,
            None => Level::Exact,
        };
        Expected { must_open, level }
    }

    /// Whether the volume has all without the device of this place.
    pub fn may_lack(&self, place: usize) -> bool {
        if self.kind == Kind::Adopted {
            return self.places[&place].is_ssd && !self.in_flux && !self.doubt;
        }
        if !self.is_mirrored() || self.in_flux || self.places.values().filter(|place| place.good).count() < 2
        {
            return false;
        }
        match (self.kind, self.places[&place].is_ssd) {
            // The SSDs always have all.
            (Kind::Pass | Kind::Epochs, false) => true,
            // That a copy has caught up may not be in the journal yet when the daemon dies.
            (Kind::Pass, true) => self.settled && self.clean,
            // The disk is made the volume by name.
            (Kind::Epochs, true) => false,
            _ => self.settled,
        }
    }
}

/// The letter of a volume.
pub fn letter_of(index: usize) -> char {
    ['v', 'w'][index]
}
