//! Serving a volume: a sound volume is served, each block reads as the model predicts, and files of other
//! volumes stay unchanged.

use crate::blocks::{BLOCK, CLUSTER, CLUSTERS, Level, Seen};
use crate::client::Client;
use crate::host::{Ended, Outcome};
use crate::plan::Kind;
use crate::volume::{Found, Place};
use crate::world::World;
use serde_json::Value;
use std::time::{Duration, Instant};

impl World {
    /// Serves a volume without options; true if the volume is served.
    pub fn serve(&mut self, index: usize) -> Outcome<bool> {
        let expected = self.volumes[index].expected(&self.host);
        let found = self.describe(index);
        match self.try_to_serve(index, &[], expected.level)? {
            Ok(()) => Ok(true),
            Err(refused) if expected.must_open => {
                Err(format!("must be served, {found}; refused: {}", refused.message()))
            }
            Err(_) => Ok(false),
        }
    }

    /// Serves a volume, with all options that messages of refusals advise.
    pub fn force(&mut self, index: usize) -> Outcome {
        if self.volumes[index].name.is_none() {
            self.import(index, None, true)?;
        }
        if self.volumes[index].name.is_none() || self.serve(index)? {
            return Ok(());
        }
        let volume = &self.volumes[index];
        let lacking = volume.places_that(&self.host, |place, found| place.good && found != Found::Intact);
        let doubtful = volume.places_that(&self.host, |place, found| {
            (place.good && found != Found::Intact)
                || matches!(found, Found::Old | Found::Cut | Found::Doubled)
                || (volume.apart && !place.good)
        });
        let is_double = !volume.places_that(&self.host, |_, found| found == Found::Doubled).is_empty();
        let is_enough = lacking.is_empty() || (lacking.len() == 1 && volume.may_lack(lacking[0]));
        let must_open =
            is_enough && volume.is_mirrored() && !volume.dead && !is_double && !doubtful.is_empty();
        let level = match volume.recovered {
            Some(from) if lacking.is_empty() => Level::Instant(from),
            _ if is_enough => Level::Exact,
            _ => Level::Older,
        };
        let found = self.describe(index);
        let wants_disk = volume.kind == Kind::Epochs && !volume.openings.is_multiple_of(3);
        if wants_disk && self.recover(index)? {
            return self.serve(index).map(drop);
        }
        let mut doubtful = doubtful;
        doubtful
            .extend(Some(2).filter(|_| self.volumes[index].doubt && self.volumes[index].kind.is_adopted()));
        let places: Vec<String> = doubtful.iter().map(|place| format!("d{place}")).collect();
        let words: Vec<&str> = places.iter().flat_map(|place| ["--distrust", place]).collect();
        if let Err(refused) = self.try_to_serve(index, &words, level)? {
            if must_open {
                return Err(format!(
                    "must be served with {words:?}, {found}; refused: {}",
                    refused.message()
                ));
            }
            if self.recover(index)? {
                return self.serve(index).map(drop);
            }
            return Ok(());
        }
        let volume = &mut self.volumes[index];
        volume.apart |= !lacking.is_empty();
        volume.lossy |= level != Level::Exact;
        Ok(())
    }

    fn try_to_serve(&mut self, index: usize, more: &[&str], level: Level) -> Outcome<Result<(), Ended>> {
        let Some(name) = self.volumes[index].name.clone() else {
            return Ok(Err(Ended { status: 1, report: Value::Null, stderr: String::new() }));
        };
        self.host.changed();
        let words = [&["serve", &name], more].concat();
        let daemon = match self.host.serve(&words)? {
            Ok(daemon) => daemon,
            Err(refused) => {
                self.counts.refused += 1;
                self.judge_untouched("a refused opening")?;
                return Ok(Err(refused));
            }
        };
        self.counts.served += 1;
        let was_whole =
            self.volumes[index].places_that(&self.host, |_, found| found != Found::Intact).is_empty();
        let volume = &mut self.volumes[index];
        let client = Client::open(&daemon.socket, &daemon.export);
        volume.client = Some(client.map_err(|error| format!("no connection: {error}: {}", daemon.log()))?);
        volume.daemon = Some(daemon);
        volume.openings += 1;
        volume.settled &= volume.clean && was_whole;
        volume.on_disk = volume.on_disk.filter(|_| was_whole);
        volume.apart |= level == Level::Older;
        volume.lossy |= level == Level::Older;
        if !was_whole {
            volume.blocks.devices_changed();
        }
        self.refresh(index, &[])?;
        self.judge_changes(index)?;
        self.verify(index, level)?;
        let volume = &mut self.volumes[index];
        (volume.doubt, volume.recovered, volume.clean) = (false, None, false);
        if !volume.is_mirrored() {
            volume.blocks.collapse();
        }
        Ok(Ok(()))
    }

    /// Requests the status of a served volume.
    pub fn status(&mut self, index: usize) -> Outcome<Value> {
        let name = self.volumes[index].name.clone().unwrap_or_default();
        let ended = self.host.braid(&["status", &name])?;
        match ended.kind() {
            None => Ok(ended.report),
            Some(kind) => Err(format!("no status of '{name}', which is served: {kind}: {}", ended.message())),
        }
    }

    /// Updates the places of a served volume from its status. `new`: files of possible new devices.
    pub fn refresh(&mut self, index: usize, new: &[char]) -> Outcome<Value> {
        let report = self.status(index)?;
        let before = std::mem::take(&mut self.volumes[index].places);
        for device in report["devices"].as_array().into_iter().flatten() {
            let text = |field: &str| device[field].as_str().unwrap_or_default();
            let place: usize = text("device")[1..].parse().map_err(|_| format!("no place: {device}"))?;
            let (uuid, is_used) = (text("uuid").to_owned(), !matches!(text("state"), "missing" | "failed"));
            let letter = self.host.letter(text("path"));
            if text("path").ends_with("/record") {
                continue;
            }
            if is_used {
                let letter =
                    letter.ok_or_else(|| format!("d{place} is in use at an unknown path: {device}"))?;
                let owner = Some((index, uuid.clone()));
                let opening = self.volumes[index].openings;
                let tail = device["keeps_addresses"] == true;
                let file = self.host.files.get_mut(&letter).ok_or("no such file")?;
                let is_new = file.owner == Some((index, format!("new in d{place}")));
                if file.owner != owner && !is_new && !new.contains(&letter) {
                    return Err(format!("d{place} is said to be {letter}, which is {file:?}"));
                }
                (file.owner, file.live, file.opening, file.tail) = (owner.clone(), true, opening, tail);
                let others = self.host.files.iter_mut().chain(&mut self.host.away);
                others
                    .filter(|(at, file)| **at != letter && file.owner == owner)
                    .for_each(|(_, f)| f.live = false);
            }
            let good = matches!(text("state"), "active" | "slow" | "draining");
            let noted = letter.or_else(|| before.get(&place).and_then(|place| place.noted));
            let (is_ssd, is_adopted) = (text("class") == "ssd", device["adopted"] == true);
            self.volumes[index].places.insert(place, Place { uuid, is_ssd, is_adopted, good, noted });
        }
        Ok(report)
    }

    /// Fails if a file has changed, except files of served volumes.
    pub fn judge_untouched(&mut self, by: &str) -> Outcome {
        for letter in self.host.changed() {
            let owner = self.host.files[&letter].owner.as_ref();
            if owner.is_none_or(|(volume, _)| self.volumes[*volume].daemon.is_none()) {
                return Err(format!("{by} has changed {letter}.img"));
            }
        }
        Ok(())
    }

    /// Fails if a file has changed, except devices of this volume and of other served volumes.
    pub fn judge_changes(&mut self, index: usize) -> Outcome {
        for letter in self.host.changed() {
            let file = &self.host.files[&letter];
            let is_served = |volume: usize| volume == index || self.volumes[volume].daemon.is_some();
            if !file.live || file.owner.as_ref().is_none_or(|(volume, _)| !is_served(*volume)) {
                return Err(format!(
                    "{letter}.img has changed, and is none of the volume's devices: {file:?}"
                ));
            }
        }
        Ok(())
    }

    /// Reads all blocks, and compares the values with the model.
    pub fn verify(&mut self, index: usize, level: Level) -> Outcome {
        let mut seen = Vec::new();
        for cluster in 0..CLUSTERS {
            let offset = self.volumes[index].offset(cluster);
            match self.read(index, offset, BLOCK * CLUSTER)? {
                Some(bytes) => {
                    let blocks = bytes.chunks(BLOCK).enumerate();
                    let volume = &self.volumes[index].blocks;
                    seen.extend(blocks.map(|(i, bytes)| volume.recognize(cluster * CLUSTER + i, bytes)));
                }
                None => {
                    for i in 0..CLUSTER {
                        let bytes = self.read(index, offset + (i * BLOCK) as u64, BLOCK)?;
                        let blocks = &self.volumes[index].blocks;
                        let block = cluster * CLUSTER + i;
                        seen.push(bytes.map_or(Seen::Error, |bytes| blocks.recognize(block, &bytes)));
                    }
                }
            }
        }
        self.counts.verified += 1;
        self.counts.errors += seen.iter().filter(|seen| **seen == Seen::Error).count();
        let log = self.volumes[index].daemon.as_ref().map(|daemon| daemon.log()).unwrap_or_default();
        self.volumes[index].blocks.verify(&seen, level).map_err(|text| format!("{level:?}: {text}\n{log}"))
    }

    fn read(&mut self, index: usize, offset: u64, length: usize) -> Outcome<Option<Vec<u8>>> {
        let volume = &mut self.volumes[index];
        let Some(client) = &mut volume.client else { return Err("not served".into()) };
        let log = || volume.daemon.as_ref().map(|daemon| daemon.log()).unwrap_or_default();
        let reply = client.read(offset, length as u32);
        reply.map(Result::ok).map_err(|error| format!("a read at {offset}: {error}: {}", log()))
    }

    /// Waits until all copies of a served volume are up to date.
    pub fn settle(&mut self, index: usize) -> Outcome {
        self.flush(index)?;
        let begun = Instant::now();
        let zero = |report: &Value, field: &str| matches!(report[field].as_u64(), None | Some(0));
        loop {
            let report = self.refresh(index, &[])?;
            let devices = report["devices"].as_array().cloned().unwrap_or_default();
            let has = |state: &str| devices.iter().any(|device| device["state"] == state);
            let fields = ["behind_bytes", "deferred_bytes", "unapplied_bytes"];
            let is_current = fields.iter().all(|field| zero(&report, field));
            let keeps_epochs = self.volumes[index].kind == Kind::Epochs && devices.len() > 1;
            if has("missing") || has("failed") || report["policy_lacks"].is_string() {
                return self.verify(index, Level::Exact);
            }
            let is_image = !keeps_epochs || !report["epoch"].is_null();
            if is_current && is_image && !has("returning") && !has("draining") {
                break;
            }
            if begun.elapsed() > Duration::from_secs(40) {
                return Err(format!("the volume does not settle: {report}"));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        self.verify(index, Level::Exact)?;
        self.flush(index)?;
        let volume = &mut self.volumes[index];
        (volume.settled, volume.in_flux) = (true, false);
        volume.on_disk = Some(volume.blocks.time());
        self.wait_for_note(index, |outdated| !outdated)
    }

    /// Waits until `holds` accepts the state of the record; its argument is true if any device is outdated.
    pub fn wait_for_note(&mut self, index: usize, holds: impl Fn(bool) -> bool) -> Outcome {
        let name = self.volumes[index].name.clone().unwrap_or_default();
        let path = self.host.path(&format!("state/{name}/volume.json"));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let record: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
            let devices = record["devices"].as_array().cloned().unwrap_or_default();
            if holds(devices.iter().any(|device| device["outdated"] == true)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the record does not learn which devices are outdated".into())
    }

    fn describe(&self, index: usize) -> String {
        let volume = &self.volumes[index];
        let about = |(&place, about): (&usize, &Place)| {
            let standing = if about.good { "good" } else { "outdated" };
            format!("d{place} {standing} {:?}", volume.found(place, &self.host))
        };
        let places: Vec<String> = volume.places.iter().map(about).collect();
        format!("places [{}], settled {}, in flux {}", places.join(", "), volume.settled, volume.in_flux)
    }
}
