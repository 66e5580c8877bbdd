//! Execution of one sequence: the machine, its volumes, and each step.

use crate::blocks::{BLOCK, CLUSTER, CLUSTERS, Level};
use crate::host::{Host, Outcome, SIZE, file_name};
use crate::plan::{FILES, Kind, Plan, Step, Verb};
use crate::state::Saved;
use crate::volume::{Found, Volume, letter_of};
use rustix::process::Signal;
use std::time::Duration;

/// True if acknowledged writes outlive a killed daemon.
pub const DEATH_KEEPS_ACKNOWLEDGED: bool = true;

/// True if a truncated device counts as a device without data.
pub const CUTS_ARE_NOTICED: bool = true;

/// True if a volume with one copy is refused when only excluded devices are present, and the newer devices
/// are away.
pub const GIVEN_UP_IS_REMEMBERED: bool = true;

/// Counts of events over all sequences.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub served: usize,
    pub refused: usize,
    pub verified: usize,
    pub errors: usize,
    pub recovered: usize,
}

pub struct World {
    pub host: Host,
    pub volumes: Vec<Volume>,
    pub saved: Option<Saved>,
    pub counts: Counts,
}

impl World {
    /// Makes both volumes.
    pub fn new(kind: Kind) -> Outcome<World> {
        let volumes = vec![Volume::new(0, kind), Volume::new(1, Kind::Mirror)];
        let mut world = World { host: Host::new(), volumes, saved: None, counts: Counts::default() };
        (0..2).try_for_each(|index| world.create(index))?;
        Ok(world)
    }

    /// Runs a sequence. Afterwards brings all devices back, and checks that the volumes work again as far as
    /// possible.
    pub fn run(&mut self, plan: &Plan) -> Outcome {
        for step in &plan.steps {
            self.host.script.push(format!("# {step}"));
            self.step(step)?;
        }
        self.host.script.push("# all devices are back".into());
        for index in 0..2 {
            self.stop(index)?;
        }
        let away: Vec<char> = self.host.away.keys().copied().collect();
        away.into_iter().for_each(|letter| self.bring_back(letter));
        for index in 0..2 {
            self.force(index)?;
            if self.volumes[index].daemon.is_some() {
                self.settle(index)?;
                self.stop(index)?;
                self.check(index)?;
            }
        }
        Ok(())
    }

    fn create(&mut self, index: usize) -> Outcome {
        let (_, devices, options) = self.volumes[index].kind.options();
        let mut words = vec!["create".to_owned(), letter_of(index).to_string()];
        for (option, letter) in devices.iter().zip(FILES[index].chars()) {
            let (option, more) = option.split_once(',').unwrap_or((option, ""));
            let size = format!("{},size={SIZE},{more}", file_name(letter));
            let path = match option {
                "--adopt" => {
                    self.host.fill(letter, self.volumes[index].blocks_within(SIZE));
                    file_name(letter)
                }
                _ => size.trim_end_matches(',').to_owned(),
            };
            words.extend([option.into(), path]);
        }
        words.extend(options.iter().map(|word| (*word).to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let made = self.host.braid(&words)?;
        if made.status != 0 {
            return Err(format!("not created: {}", made.message()));
        }
        self.volumes[index].size = made.report["size_bytes"].as_u64().unwrap_or_default();
        for (option, letter) in devices.iter().zip(FILES[index].chars()) {
            self.host.add_file(letter, option.contains("tail") || option.contains("adopt"));
            self.host.files.get_mut(&letter).unwrap().owner = Some((index, String::new()));
        }
        // A first opening tells the UUID of each device.
        let daemon = self.host.serve(&["serve", &letter_of(index).to_string()])?;
        let daemon = daemon.map_err(|refused| format!("a new volume is refused: {}", refused.message()))?;
        self.volumes[index].daemon = Some(daemon);
        self.refresh(index, &FILES[index].chars().collect::<Vec<_>>())?;
        self.stop(index)
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let Step { verb, whom, other, number } = *step;
        if verb.is_of_file() {
            return match self.is_busy(whom) || self.is_busy(other) {
                true => Ok(()),
                false => self.file_step(verb, whom, other, number),
            };
        }
        let index = if whom == 'w' { 1 } else { 0 };
        let is_served = self.volumes[index].daemon.is_some();
        match verb {
            Verb::Status => return self.look(index),
            Verb::Serve if !is_served => return self.serve(index).map(drop),
            Verb::Force if !is_served => return self.force(index),
            Verb::Replace if !is_served => return self.replace_at_rest(index, number),
            _ => {}
        }
        match (is_served, verb) {
            (true, Verb::Stop) => self.stop(index),
            (true, Verb::Kill) => self.kill(index),
            (true, Verb::Burst) => self.burst(index, number),
            (true, Verb::Write) => self.write(index, number),
            (true, Verb::Flush) => self.flush(index),
            (true, Verb::Settle) => self.settle(index),
            (true, Verb::Add | Verb::Remove | Verb::Fail | Verb::Return | Verb::Replace) => {
                self.change_devices(index, verb, number)
            }
            (false, Verb::Check) => self.check(index),
            (false, Verb::Recover) => self.recover(index).map(drop),
            (false, Verb::Import) => self.import(index, None, false),
            (false, Verb::ImportAs) => self.import(index, Some(number), false),
            (false, Verb::Forget) => self.forget(index),
            (_, Verb::Back) => {
                let away: Vec<char> = self.host.away.keys().copied().collect();
                let letter = away.get(number as usize % away.len().max(1)).copied();
                letter.into_iter().for_each(|letter| self.bring_back(letter));
                Ok(())
            }
            (_, Verb::SaveState | Verb::LoadState | Verb::LoseState) => {
                if self.volumes.iter().all(|volume| volume.daemon.is_none()) {
                    self.state_step(verb);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// True if the file's volume is served.
    fn is_busy(&self, letter: char) -> bool {
        let owner = self.host.files.get(&letter).and_then(|file| file.owner.as_ref());
        owner.is_some_and(|(volume, _)| self.volumes[*volume].daemon.is_some())
    }

    fn file_step(&mut self, verb: Verb, file: char, other: char, number: u32) -> Outcome {
        if verb == Verb::Restore {
            let copies: Vec<char> = self.host.copies.keys().copied().collect();
            let copy = copies.get(number as usize % copies.len().max(1)).copied();
            if let Some(copy) = copy.filter(|copy| !self.is_busy(*copy) && !self.is_of_adopted_disk(*copy)) {
                self.host.lay_copy(copy, copy);
                self.note_copy(copy, copy);
            }
            return Ok(());
        }
        if verb == Verb::Beside {
            let free = ('A'..='E').find(|letter| !self.host.files.contains_key(letter));
            if let Some(free) =
                free.filter(|_| self.host.copies.contains_key(&file) && !self.is_of_adopted_disk(file))
            {
                self.host.lay_copy(file, free);
                self.note_copy(file, free);
            }
            return Ok(());
        }
        let host = &mut self.host;
        let Some(about) = host.files.get(&file) else { return Ok(()) };
        match verb {
            Verb::Swap if file != other && host.files.contains_key(&other) => host.swap(file, other),
            Verb::Rename if !host.files.contains_key(&other) => host.rename(file, other),
            Verb::Cut if CUTS_ARE_NOTICED && !about.tail => host.cut(file),
            Verb::Blank => host.blank(file),
            Verb::Wipe if !about.tail && about.owner.is_some() => host.wipe(file),
            Verb::Away if !host.away.contains_key(&file) => host.take_away(file),
            Verb::Copy => host.copy(file),
            _ => {}
        }
        Ok(())
    }

    /// True for a copy of an adopted disk: Braid may not notice a small change of an adopted disk without a
    /// mount.
    fn is_of_adopted_disk(&self, copy: char) -> bool {
        let Some((volume, uuid)) = &self.host.copies[&copy].owner else { return false };
        self.volumes[*volume].places.values().any(|place| place.is_adopted && place.uuid == *uuid)
    }

    /// Marks a restored copy as the device itself if the device is gone and was not used since the copy.
    fn note_copy(&mut self, of: char, at: char) {
        let copy = self.host.copies[&of].clone();
        let Some((volume, _)) = &copy.owner else { return };
        let same = |file: &crate::host::File| file.live && file.owner == copy.owner;
        let is_there = self.host.files.values().chain(self.host.away.values()).any(same);
        let is_newest = copy.opening == self.volumes[*volume].openings && !copy.cut;
        self.host.files.get_mut(&at).unwrap().live = is_newest && !is_there;
    }

    fn bring_back(&mut self, letter: char) {
        if !self.host.files.contains_key(&letter) {
            self.host.bring_back(letter);
        }
    }

    pub fn stop(&mut self, index: usize) -> Outcome {
        let Some(status) = self.end(index, Signal::TERM)? else { return Ok(()) };
        if status != Some(0) {
            return Err(format!("the daemon ended with {status:?}"));
        }
        let volume = &mut self.volumes[index];
        volume.clean = true;
        volume.blocks.flushed();
        volume.blocks.closed(true);
        self.look_at_disk(index)
    }

    fn kill(&mut self, index: usize) -> Outcome {
        self.end(index, Signal::KILL)?;
        let kept = DEATH_KEEPS_ACKNOWLEDGED && self.host.is_in_memory();
        self.volumes[index].blocks.closed(kept);
        self.look_at_disk(index)
    }

    /// Checks that an adopted disk has all flushed data, unless a write-back cache may hold newer data.
    fn look_at_disk(&mut self, index: usize) -> Outcome {
        let volume = &self.volumes[index];
        let disk = volume.places.values().find(|place| place.is_adopted).and_then(|place| place.noted);
        let Some(letter) = disk.filter(|_| volume.kind == Kind::Adopted) else { return Ok(()) };
        let bytes = std::fs::read(self.host.path(&file_name(letter))).map_err(|error| error.to_string())?;
        let seen = (0..CLUSTERS * CLUSTER).map(|block| {
            let at = volume.offset(block / CLUSTER) as usize + block % CLUSTER * BLOCK;
            volume.blocks.recognize(block, &bytes[at..at + BLOCK])
        });
        let wrong = volume.blocks.wrong(&seen.collect::<Vec<_>>(), Level::Exact);
        if wrong.is_empty() { Ok(()) } else { Err(format!("on the disk itself: {}", wrong.join("; "))) }
    }

    fn end(&mut self, index: usize, signal: Signal) -> Outcome<Option<Option<i32>>> {
        let volume = &mut self.volumes[index];
        volume.client = None;
        let Some(daemon) = volume.daemon.take() else { return Ok(None) };
        self.host.script.push(format!("kill -{} %braid; wait", signal.as_raw()));
        let log = daemon.log();
        let status = daemon.end(signal).map_err(|text| format!("{text}: {log}"))?;
        self.judge_changes(index)?;
        Ok(Some(status))
    }

    /// Kills the daemon while writes are in flight.
    fn burst(&mut self, index: usize, number: u32) -> Outcome {
        let volume = &mut self.volumes[index];
        for i in 0..4 {
            let cluster = (number as usize + i) % CLUSTERS;
            let (stamp, bytes) = volume.blocks.draw(cluster * CLUSTER, CLUSTER);
            let offset = volume.offset(cluster);
            volume.blocks.tried(cluster * CLUSTER, CLUSTER, stamp);
            let Some(client) = &mut volume.client else { return Ok(()) };
            self.host
                .script
                .push(format!("# write of {stamp}, unanswered, to {} bytes at {offset}", bytes.len()));
            client.write_unanswered(offset, &bytes).map_err(|error| format!("a write: {error}"))?;
        }
        volume.settled &= !volume.is_pass();
        std::thread::sleep(Duration::from_micros(u64::from(number) * 30));
        self.kill(index)
    }

    fn write(&mut self, index: usize, number: u32) -> Outcome {
        let volume = &mut self.volumes[index];
        let (cluster, first) = (number as usize % CLUSTERS, number as usize / 8 % 4);
        let count = [1, 2, CLUSTER - first][number as usize % 3];
        let block = cluster * CLUSTER + first;
        let (stamp, bytes) = volume.blocks.draw(block, count);
        let offset = volume.offset(cluster) + (first * BLOCK) as u64;
        self.host.script.push(format!("# write of {stamp} to {} bytes at {offset}", bytes.len()));
        let Some(client) = &mut volume.client else { return Ok(()) };
        volume.settled &= !matches!(volume.kind, Kind::Pass | Kind::Epochs);
        let reply = client.write(offset, &bytes);
        let log = || volume.daemon.as_ref().map(|daemon| daemon.log()).unwrap_or_default();
        match reply.map_err(|error| format!("a write at {offset}: {error}: {}", log()))? {
            Ok(()) => volume.blocks.written(block, count, stamp),
            Err(_) if volume.lossy => volume.blocks.tried(block, count, stamp),
            Err(error) => return Err(format!("a write at {offset} failed with {error}: {}", log())),
        }
        Ok(())
    }

    pub fn flush(&mut self, index: usize) -> Outcome {
        self.host.script.push("# flush".into());
        let volume = &mut self.volumes[index];
        let Some(client) = &mut volume.client else { return Ok(()) };
        let reply = client.flush();
        let log = || volume.daemon.as_ref().map(|daemon| daemon.log()).unwrap_or_default();
        match reply.map_err(|error| format!("a flush: {error}: {}", log()))? {
            Ok(()) => volume.blocks.flushed(),
            Err(error) => return Err(format!("a flush failed with {error}: {}", log())),
        }
        Ok(())
    }

    fn change_devices(&mut self, index: usize, verb: Verb, number: u32) -> Outcome {
        let Some(name) = self.volumes[index].name.clone() else { return Ok(()) };
        let places: Vec<usize> = self.volumes[index].places.keys().copied().collect();
        let place = places[number as usize % places.len()];
        let (device, free) = (format!("d{place}"), self.free_letter());
        let is_ssd = self.volumes[index].places[&place].is_ssd;
        let Some(free) = free else { return Ok(()) };
        let new = format!("{},size={SIZE}", file_name(free));
        let words = match verb {
            Verb::Add => vec!["add", &name, if is_ssd { "--ssd" } else { "--hdd" }, &new],
            Verb::Remove => vec!["remove", &name, &device],
            Verb::Fail => vec!["fail", &name, &device],
            Verb::Return => vec!["return", &name, &device],
            _ => vec!["replace", &name, &device, &new],
        };
        let ended = self.host.braid(&[&["device"], &words[..]].concat())?;
        if self.host.path(&file_name(free)).exists() {
            self.host.add_file(free, false);
        }
        if ended.status == 0 {
            let volume = &mut self.volumes[index];
            (volume.settled, volume.in_flux) = (false, volume.in_flux || verb != Verb::Fail);
            self.refresh(index, &[free])?;
        }
        if ended.status == 0 && verb == Verb::Fail && self.volumes[index].is_mirrored() {
            self.wait_for_note(index, |outdated| outdated)?;
        }
        Ok(())
    }

    /// Letter of a later device that no file uses.
    fn free_letter(&self) -> Option<char> {
        let host = &self.host;
        FILES[2].chars().find(|letter| !host.files.contains_key(letter) && !host.away.contains_key(letter))
    }

    fn replace_at_rest(&mut self, index: usize, number: u32) -> Outcome {
        let (Some(free), Some(name)) = (self.free_letter(), self.volumes[index].name.clone()) else {
            return Ok(());
        };
        let volume = &self.volumes[index];
        let lacking = volume.places_that(&self.host, |_, found| found == Found::Gone);
        let places: Vec<usize> = volume.places.keys().copied().collect();
        let place = lacking.first().copied().unwrap_or(places[number as usize % places.len()]);
        let new = format!("{},size={SIZE}", file_name(free));
        let ended = self.host.braid(&["device", "replace", &name, &format!("d{place}"), &new])?;
        if self.host.path(&file_name(free)).exists() {
            self.host.add_file(free, false);
        }
        if ended.status != 0 {
            return Ok(());
        }
        let volume = &mut self.volumes[index];
        (volume.settled, volume.in_flux) = (false, false);
        volume.openings += 1;
        for letter in self.host.changed() {
            let file = self.host.files.get_mut(&letter).ok_or("no such file")?;
            file.opening = volume.openings;
        }
        let uuid = format!("new in d{place}");
        let file = self.host.files.get_mut(&free).ok_or("the new device was not made")?;
        (file.owner, file.live, file.opening) = (Some((index, uuid.clone())), true, volume.openings);
        let about = volume.places.get_mut(&place).ok_or("no such place")?;
        (about.uuid, about.good, about.noted) = (uuid, false, Some(free));
        Ok(())
    }
}
