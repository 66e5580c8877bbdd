//! State of a host and its loss: the state directory, imports, recoveries, and checks of volumes at rest.

use crate::host::{Outcome, file_name};
use crate::plan::{Kind, Verb};
use crate::volume::{Found, Volume, letter_of};
use crate::world::World;
use std::collections::BTreeMap;

/// A copy of the state directory: for each volume the name, the letters of its places, and its last opening.
pub struct Saved(Vec<SavedVolume>);

struct SavedVolume {
    name: Option<String>,
    noted: BTreeMap<usize, Option<char>>,
    opening: u64,
}

impl World {
    pub fn state_step(&mut self, verb: Verb) {
        match verb {
            Verb::SaveState => {
                self.host.shell("rm -rf saved; cp -a state saved".into());
                let save = |volume: &Volume| SavedVolume {
                    name: volume.name.clone(),
                    noted: volume.places.iter().map(|(&index, place)| (index, place.noted)).collect(),
                    opening: volume.openings,
                };
                self.saved = Some(Saved(self.volumes.iter().map(save).collect()));
            }
            Verb::LoadState if self.saved.is_some() => {
                self.host.shell("rm -rf state; cp -a saved state".into());
                let Some(Saved(saved)) = &self.saved else { return };
                for (volume, saved) in self.volumes.iter_mut().zip(saved) {
                    volume.name = saved.name.clone();
                    volume.doubt |= saved.opening != volume.openings;
                    for (index, place) in &mut volume.places {
                        place.noted = saved.noted.get(index).copied().flatten();
                    }
                }
            }
            Verb::LoseState => {
                self.host.shell("rm -rf state; mkdir state".into());
                for volume in &mut self.volumes {
                    (volume.name, volume.doubt) = (None, true);
                    volume.places.values_mut().for_each(|place| place.noted = None);
                }
            }
            _ => {}
        }
    }

    /// Imports all files of a volume; with `number`, under another name; with `without`, without lost
    /// devices.
    pub fn import(&mut self, index: usize, number: Option<u32>, without: bool) -> Outcome {
        let volume = &self.volumes[index];
        let of_it = |file: &crate::host::File| file.owner.as_ref().is_some_and(|owner| owner.0 == index);
        let letters: Vec<char> =
            self.host.files.iter().filter(|(_, file)| of_it(file)).map(|(&letter, _)| letter).collect();
        // A removed device has no superblock.
        let letters: Vec<char> =
            letters.into_iter().filter(|&letter| self.host.has_superblock(letter)).collect();
        let lacking = volume.places_that(&self.host, |_, found| found == Found::Gone);
        let whole = volume.places_that(&self.host, |_, found| found != Found::Intact).is_empty();
        let strangers = letters.len() > volume.places.len();
        // An adopted disk has no superblock.
        if letters.is_empty() || volume.kind.is_adopted() {
            return Ok(());
        }
        let mut words = vec!["import".to_owned()];
        words.extend(letters.iter().map(|&letter| file_name(letter)));
        if let Some(number) = number {
            words.extend(["--as".into(), format!("{}{}", letter_of(index), number % 3)]);
        }
        if without {
            words.extend(lacking.iter().flat_map(|place| ["--without".into(), format!("d{place}")]));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.host.changed();
        let ended = self.host.braid(&words)?;
        self.judge_untouched("an import")?;
        let volume = &mut self.volumes[index];
        if let Some(kind) = ended.kind() {
            // A known volume needs no import.
            let must = whole
                && !strangers
                && !volume.in_flux
                && volume.name.is_none()
                && !volume.apart
                && !volume.dead;
            return match must {
                true => Err(format!("all devices are there, and not imported: {kind}: {}", ended.message())),
                false => Ok(()),
            };
        }
        volume.name = ended.report["name"].as_str().map(str::to_owned);
        volume.doubt |= !whole;
        for (&place, about) in &mut volume.places {
            let path = ended.report["devices"][place]["path"].as_str().unwrap_or_default();
            about.noted = self.host.letter(path);
        }
        Ok(())
    }

    pub fn forget(&mut self, index: usize) -> Outcome {
        let Some(name) = self.volumes[index].name.clone() else { return Ok(()) };
        let ended = self.host.braid(&["forget", &name])?;
        let volume = &mut self.volumes[index];
        if ended.status != 0 {
            return match volume.kind.is_adopted() {
                true => Ok(()),
                false => Err(format!("not forgotten: {}", ended.message())),
            };
        }
        (volume.name, volume.doubt) = (None, true);
        Ok(())
    }

    /// Recovers the volume from the disk with epochs; true if the recovery was done.
    pub fn recover(&mut self, index: usize) -> Outcome<bool> {
        let volume = &self.volumes[index];
        let Some(name) = volume.name.clone() else { return Ok(false) };
        let found = |is_ssd: bool, holds: fn(Found) -> bool| {
            volume
                .places_that(&self.host, |place, found| place.is_ssd == is_ssd && place.good && holds(found))
        };
        let ssds = found(true, |_| true);
        let ssd_is_gone = !ssds.is_empty() && found(true, |found| found == Found::Gone) == ssds;
        let disk_is_there = !found(false, |found| found == Found::Intact).is_empty();
        let on_disk =
            volume.on_disk.filter(|_| disk_is_there && !volume.in_flux && !volume.apart && !volume.doubt);
        let must = volume.kind == Kind::Epochs && on_disk.is_some() && ssd_is_gone && !volume.lossy;
        let confusing = volume
            .places_that(&self.host, |_, found| matches!(found, Found::Old | Found::Doubled | Found::Cut));
        let ended = self.host.braid(&["recover", &name])?;
        let volume = &mut self.volumes[index];
        if ended.status != 0 {
            return match must && confusing.is_empty() && volume.recovered.is_none() {
                true => Err(format!("the disk has all, and is not recovered: {}", ended.message())),
                false => Ok(false),
            };
        }
        self.counts.recovered += 1;
        volume.openings += 1;
        for letter in self.host.changed() {
            let file = self.host.files.get_mut(&letter).ok_or("no such file")?;
            file.opening = volume.openings;
        }
        volume.recovered = Some(on_disk.unwrap_or_default());
        volume.apart = true;
        (volume.settled, volume.doubt) = (false, false);
        volume.blocks.devices_changed();
        volume.places.values_mut().for_each(|place| place.good = !place.is_ssd);
        Ok(true)
    }

    /// Checks a volume at rest: a volume that can be served completely has no damage with loss.
    pub fn check(&mut self, index: usize) -> Outcome {
        let Some(name) = self.volumes[index].name.clone() else { return Ok(()) };
        let volume = &self.volumes[index];
        let must_be_well = volume.expected(&self.host).must_open && !volume.lossy;
        self.host.changed();
        let ended = self.host.braid(&["check", &name])?;
        self.judge_untouched("a check")?;
        let is_list_empty = |field: &str| ended.report[field].as_array().is_some_and(Vec::is_empty);
        let is_well = ended.kind().is_none() && is_list_empty("fatal") && is_list_empty("lost");
        match must_be_well && !is_well {
            true => Err(format!("a sound volume is called damaged: {}", ended.report)),
            false => Ok(()),
        }
    }

    /// Requests the status: of the volume if served, otherwise of all volumes.
    pub fn look(&mut self, index: usize) -> Outcome {
        if self.volumes[index].daemon.is_some() {
            return self.status(index).map(drop);
        }
        let ended = self.host.braid(&["status"])?;
        match ended.status {
            0 => Ok(()),
            _ => Err(format!("no status of all volumes: {}", ended.report)),
        }
    }
}
