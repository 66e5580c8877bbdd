//! `braid import`: a volume is found from its devices alone, and its name noted here. And `braid forget`, the opposite.

use crate::device::claims::refuse_adopted;
use crate::device::open::look;
use crate::device::spec::{Storage, absolute};
use crate::model::library::{self, OwnModels};
use crate::report::resting::left_behind;
use crate::serve::ring::on_ring;
use crate::volume::check::CheckReport;
use crate::volume::create::remove_made;
use crate::volume::lock::VolumeLock;
use crate::volume::members::{Member, handles, names, open_paths};
use crate::volume::state_dir::{DeviceRecord, RECORD_VERSION, StateDir, VolumeName, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_engine::Report;
use braid_format::superblock::{DeviceEntry, Header, Mapping};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A volume that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    /// The name under which it is noted.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// What the guest sees.
    pub size_bytes: u64,
    /// The policy that it was left with.
    pub policy: String,
    /// Its devices, by place.
    pub devices: Vec<DeviceRecord>,
    /// What a check of it found.
    pub check: CheckReport,
}

/// Finds the volume on devices given in any order, checks it, and notes it under its own name or `name`. Where it is
/// known here already, its paths are those of now. Nothing on the devices changes. `models` are files of models that
/// its devices emulate and that are not kept here.
///
/// # Errors
/// If the devices are not all those of one volume, as at serving; `Invalid` if another volume has the name.
pub fn import(
    state: &StateDir,
    paths: &[PathBuf],
    name: Option<VolumeName>,
    models: &[PathBuf],
) -> Result<ImportReport> {
    let given = library::read_all(models)?;
    let paths = paths.iter().map(|path| absolute(path)).collect::<Result<Vec<_>>>()?;
    let (header, entries, found, ordered, own) = on_ring(async |ring| {
        // Before they are opened for this process alone.
        let mut headers = Vec::new();
        for path in &paths {
            headers.push(look(ring, path).await?);
        }
        let mut own = match headers.first() {
            Some(header) => known_models(state, header)?,
            None => OwnModels::new(),
        };
        own.extend(given);
        if let Some(header) = headers.iter().find(|header| header.mapping == Mapping::OwnAddress) {
            let problem = format!(
                "volume '{}' lies on an adopted disk, and this version does not import such a volume: copy its directory from the state \
                 directory of the machine that served it",
                header.name
            );
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        for (path, header) in paths.iter().zip(&headers) {
            refuse_adopted(state, path, &header.volume.to_string())?;
        }
        let (header, members) = open_paths(ring, &paths, &own).await?;
        let found = braid_engine::check(ring, handles(&members), &names(&members), None).await?;
        refuse_missing(&header, &members, &found)?;
        headers.retain(|header| !found.removed.contains(&header.this_device));
        let entries: Vec<(DeviceId, DeviceEntry)> =
            headers.into_iter().map(|header| (header.this_device, header.device)).collect();
        let ordered: Vec<(DeviceId, String)> =
            members.into_iter().map(|member| (member.id, member.name)).collect();
        Ok((header, entries, found, ordered, own))
    })?;
    let name = name.map_or_else(|| header.name.parse(), Ok)?;
    let mut record = record(&header, &entries, name.clone(), &ordered, own);
    if header.copies > 1 {
        // All devices are here: what they say together is so.
        let outdated: Vec<DeviceId> = found.not_current.iter().map(|(id, _)| *id).collect();
        record.set_outdated(&outdated);
    }
    let _lock = VolumeLock::take(state, &name, "imported")?;
    refuse_other(state, &record)?;
    state.save(&record)?;
    Ok(ImportReport {
        name: name.to_string(),
        uuid: record.uuid,
        size_bytes: header.volume_size.0,
        policy: header.policy,
        devices: record.devices,
        check: CheckReport::new(name.as_str(), found, &[]),
    })
}

/// The models that the record of this volume keeps, if it is known here under any name.
fn known_models(state: &StateDir, volume: &Header) -> Result<OwnModels> {
    let uuid = volume.volume.to_string();
    let mut records = state.names()?.into_iter().filter_map(|name| state.load(&name).ok());
    Ok(records.find(|record| record.uuid == uuid).map(|record| record.models).unwrap_or_default())
}

/// A volume is noted with all of its devices: one that is missing has no path yet.
fn refuse_missing(header: &Header, members: &[Member], found: &Report) -> Result<()> {
    let is_missing =
        |id: &DeviceId| !found.removed.contains(id) && members.iter().all(|member| member.id != *id);
    let all = (0..).map(DeviceId).zip(&found.classes).filter(|(id, _)| is_missing(id));
    let missing: Vec<String> = all.map(|(id, class)| format!("{id} ({class})")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "volume '{}' has {} devices, and these were not given: {}; name all of them",
        header.name,
        found.classes.len() - found.removed.len(),
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Degraded, problem))
}

fn record(
    header: &Header,
    entries: &[(DeviceId, DeviceEntry)],
    name: VolumeName,
    paths: &[(DeviceId, String)],
    mut models: OwnModels,
) -> VolumeRecord {
    let uuid = header.volume.to_string();
    models.retain(|name, _| entries.iter().any(|(_, entry)| library::is_own(&entry.model, name)));
    let mut record =
        VolumeRecord { version: RECORD_VERSION, name, uuid, temporary: false, devices: Vec::new(), models };
    for (id, path) in paths {
        let Some((_, entry)) = entries.iter().find(|(of, _)| of == id) else { continue };
        let model = Some(entry.model.as_str()).filter(|model| !model.is_empty());
        let storage = Storage::Path(PathBuf::from(path));
        record.set_device(id.index(), DeviceRecord::new(&storage, entry.class, model, entry.size.0));
    }
    record
}

fn refuse_other(state: &StateDir, record: &VolumeRecord) -> Result<()> {
    if !state.knows(&record.name) {
        return Ok(());
    }
    let (name, known) = (&record.name, state.load(&record.name)?);
    if known.uuid == record.uuid {
        return Ok(());
    }
    let problem = format!(
        "another volume is called '{name}' here already ({}): import this one ({}) by another name with --as NAME",
        known.uuid, record.uuid
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// Forgets a volume's name and paths. Its devices stay as they are: [`import`] finds it again. Only what was
/// temporary goes, with the files that were made for it and that no other volume has taken since. The disk
/// that a volume adopted is a plain disk again;
/// `forced` gives up what an SSD may hold that the disk lacks.
///
/// # Errors
/// `Busy` while another command works on it, `Invalid` if there is none.
pub fn forget(state: &StateDir, name: &VolumeName, forced: bool) -> Result<()> {
    if !state.knows(name) {
        return state.load(name).map(drop);
    }
    let _lock = VolumeLock::take(state, name, "forgotten")?;
    refuse_left_behind(state, name)?;
    if let Ok(record) = state.load(name) {
        forget_adopted(state, &record, forced)?;
    }
    // A record that cannot be read is one more reason to forget it.
    if let Ok(mut record) = state.load(name)
        && record.temporary
    {
        record.devices = still_its_own(record.devices, &record.uuid)?;
        remove_made(&record);
    }
    state.remove(name)
}

/// Without the name, no command would find what a killed daemon left behind.
fn refuse_left_behind(state: &StateDir, name: &VolumeName) -> Result<()> {
    let (devices, mounts) = left_behind(state, name);
    let Some(first) = devices.iter().chain(&mounts).next() else { return Ok(()) };
    let problem = format!(
        "the daemon of volume '{name}' ended and left {} behind, where every request fails: braid detach {name}, then forget it",
        first.display()
    );
    Err(Error::new(ErrorKind::Busy, problem))
}

/// The record of a volume on an adopted disk goes with its name, once no SSD holds what the disk lacks.
fn forget_adopted(state: &StateDir, record: &VolumeRecord, forced: bool) -> Result<()> {
    let Some((_, disk)) = record.adopted() else { return Ok(()) };
    let name = &record.name;
    let is_ssd = |device: &DeviceRecord| !device.removed && device.class == DeviceClass::Ssd.to_string();
    if let Some(place) = record.devices.iter().position(is_ssd).filter(|_| !forced) {
        let problem = format!(
            "d{place} of volume '{name}' may hold what {} lacks: braid serve {name}, braid device remove {name} d{place}, and when it is removed \
             braid stop {name} and forget it; if the SSD is lost, or another volume's now, and the disk is to be as it is: braid forget {name} --force",
            disk.name()
        );
        return Err(Error::new(ErrorKind::Degraded, problem));
    }
    let file = state.record_of_adopted(name);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format_args!("cannot remove {}", file.display()), &error))
        }
        _ => Ok(()),
    }
}

/// The devices that still say that they belong to a volume: a file may have been given to another one, which may be at work.
fn still_its_own(devices: Vec<DeviceRecord>, uuid: &str) -> Result<Vec<DeviceRecord>> {
    on_ring(async |ring| {
        let mut own = Vec::new();
        for device in devices {
            let Some(path) = device.path.as_ref() else { continue };
            match look(ring, path).await {
                Ok(superblock) if superblock.volume.to_string() == uuid => own.push(device),
                Ok(superblock) => {
                    tracing::warn!(
                        "{} stays: it belongs to volume '{}' now",
                        path.display(),
                        superblock.name
                    );
                }
                Err(error) => tracing::warn!("{} stays: {error}", path.display()),
            }
        }
        Ok(own)
    })
}
