//! `braid import`: finds a volume from its devices alone, and writes its record here. `braid forget` removes
//! the record.

use crate::device::look::{Look, look_at};
use crate::device::open::look;
use crate::device::remote::is_address;
use crate::device::spec::{Storage, absolute, quoted};
use crate::device::ublk::waiting;
use crate::members::claims::refuse_adopted;
use crate::members::open::{Member, handles, names, open_paths, open_paths_to_read};
use crate::members::pool::with_images_of_pools;
use crate::model::library::{self, OwnModels};
use crate::report::resting::left_behind;
use crate::state::lock::VolumeLock;
use crate::state::noted::{self, noted, noted_log};
use crate::state::state_dir::{DeviceRecord, RECORD_VERSION, StateDir, VolumeName, VolumeRecord};
use crate::volume::check::CheckReport;
use crate::volume::create::remove_made;
use crate::volume::ring::on_ring;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_engine::{Export, Past, Report, Survey};
use braid_format::superblock::{DeviceEntry, DeviceState, Header, Mapping};
use braid_uring::Ring;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Result of an import.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    /// The name in the record.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Size that guests see.
    pub size_bytes: u64,
    /// The last policy of the volume.
    pub policy: String,
    /// Its devices, by place.
    pub devices: Vec<DeviceRecord>,
    /// Result of a check of the volume.
    pub check: CheckReport,
}

/// Settings of an import.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// Devices of the volume, in any order.
    pub paths: Vec<PathBuf>,
    /// The name for the record; `None` for the volume's own name.
    pub name: Option<VolumeName>,
    /// Files of models that devices emulate and that have no copy here.
    pub models: Vec<PathBuf>,
    /// Missing devices to be recorded as missing.
    pub without: Vec<DeviceId>,
}

/// Findings on the given devices.
struct Given {
    header: Header,
    /// The table of devices, if a device with a table was read.
    table: Vec<DeviceEntry>,
    /// Devices with their paths.
    devices: Vec<(DeviceEntry, DeviceId, String)>,
    found: Report,
    models: OwnModels,
}

/// Finds a volume on its devices, checks the volume, and writes its record under its own name or another
/// name. If the volume has a record here already, the record gets the present paths, and the new name if one
/// is given. Nothing on the devices changes.
///
/// # Errors
/// Errors as at serving if the devices do not belong to one volume. `Degraded` if a device is missing and not
/// listed in `without`. `Invalid` if another volume has the name, or this volume has another name here.
pub fn import(state: &StateDir, import: &Import) -> Result<ImportReport> {
    let given = library::read_all(&import.models)?;
    let paths = with_images_of_pools(&import.paths)?;
    let paths = paths.iter().map(|path| absolute(path)).collect::<Result<Vec<_>>>()?;
    let given = on_ring(async |ring| given_on(ring, state, &paths, given).await)?;
    let missing = missing(&given);
    refuse_missing(&given, &missing, import, &paths)?;
    let name = import.name.clone().map_or_else(|| given.header.name.parse(), Ok)?;
    let uuid = given.header.volume.to_string();
    refuse_renaming(state, &uuid, &name, import, &paths)?;
    let _lock = VolumeLock::take(state, &name, "imported")?;
    let noted = note(state, &given, &missing, &name);
    let (record, others) = noted.inspect_err(|_| {
        if !state.knows(&name) {
            drop(state.remove(&name));
        }
    })?;
    for (other, lock) in others {
        state.remove(&other)?;
        drop(lock);
    }
    let outdated = if missing.is_empty() { Vec::new() } else { record.outdated() };
    Ok(ImportReport {
        name: name.to_string(),
        uuid: record.uuid,
        size_bytes: given.header.volume_size.0,
        policy: given.header.policy,
        devices: record.devices,
        check: CheckReport::new(name.as_str(), given.found, &outdated),
    })
}

/// Reads and checks the content of the devices.
async fn given_on(ring: &Ring, state: &StateDir, paths: &[PathBuf], given: OwnModels) -> Result<Given> {
    // Look at the headers before the devices are opened exclusively.
    let mut headers = Vec::new();
    for path in paths {
        headers.push(look(ring, path).await?);
    }
    let mut models = match headers.first() {
        Some(header) => known_models(state, header)?,
        None => OwnModels::new(),
    };
    models.extend(given);
    if let Some(header) = headers.iter().find(|header| header.mapping == Mapping::OwnAddress) {
        if let Some(known) = state.names_of(&header.volume.to_string())?.first() {
            let disk = state.load(known)?.adopted().map_or(0, |(place, _)| place);
            let problem = format!(
                "volume '{known}' is known here, is on an adopted disk, and finds its devices by itself: \
                 braid serve {known}; if its disk is in another directory: braid device return {known} \
                 d{disk} PATH"
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let problem = format!(
            "volume '{}' is on an adopted disk, and this version does not import such a volume: copy its \
             directory from the state directory of the machine that served the volume",
            header.name
        );
        return Err(Error::new(ErrorKind::Unsupported, problem));
    }
    for (path, header) in paths.iter().zip(&headers) {
        refuse_adopted(state, path, &header.volume.to_string())?;
    }
    // Another host may serve the volume on remote devices.
    let (header, members) = match paths.iter().any(|path| is_address(path)) {
        true => open_paths_to_read(ring, paths).await?,
        false => open_paths(ring, paths, &models, false).await?,
    };
    let found = match braid_engine::check(ring, handles(&members), &names(&members), None).await {
        Err(error) if error.kind() == braid_engine::ErrorKind::Degraded => {
            as_image(ring, paths, &members).await.ok_or(error)?
        }
        found => found?,
    };
    headers.retain(|header| !found.removed.contains(&header.this_device));
    let device = |member: &Member| {
        let header = headers.iter().find(|header| header.this_device == member.id)?;
        Some((header.device.clone(), member.id, member.name.clone()))
    };
    let devices = members.iter().filter_map(device).collect();
    Ok(Given { header, table: found.devices.clone(), devices, found, models })
}

/// Returns a report for a volume that cannot be checked without its missing devices, if its disk alone is a
/// state of the volume: the volume can continue after a recovery.
async fn as_image(ring: &Ring, paths: &[PathBuf], members: &[Member]) -> Option<Report> {
    let (past, _) = Past::open(ring, handles(members), &names(members)).await.ok()?;
    let looks = look_at(paths, LOOK);
    let sightings: Vec<_> = looks.iter().filter_map(Look::sighting).collect();
    let survey = Survey::of(&sightings);
    let devices = survey.devices()?.to_vec();
    let ids = (0..).map(DeviceId).zip(&devices);
    let is_away = |id: &DeviceId| members.iter().all(|member| member.id != *id);
    let removed: Vec<DeviceId> =
        ids.clone().filter(|(_, entry)| entry.state == DeviceState::Removed).map(|(id, _)| id).collect();
    let not_current = ids.map(|(id, _)| id).filter(|id| is_away(id) && !removed.contains(id));
    let not_current = not_current.map(|id| (id, DeviceState::Missing)).collect();
    Some(Report { volume_size: past.size(), devices, removed, not_current, ..Report::default() })
}

/// Time limit for a look at the given devices.
const LOOK: Duration = Duration::from_secs(60);

/// Returns the models kept in this volume's record, if the volume has a record here under any name.
fn known_models(state: &StateDir, volume: &Header) -> Result<OwnModels> {
    let uuid = volume.volume.to_string();
    let mut records = state.names()?.into_iter().filter_map(|name| state.load(&name).ok());
    Ok(records.find(|record| record.uuid == uuid).map(|record| record.models).unwrap_or_default())
}

/// Returns the devices that were not given.
fn missing(given: &Given) -> Vec<DeviceId> {
    let is_missing =
        |id: &DeviceId| !given.found.removed.contains(id) && given.devices.iter().all(|(_, of, _)| of != id);
    (0..given.table.len() as u16).map(DeviceId).filter(is_missing).collect()
}

/// Refuses missing devices that the administrator has not listed in `without`. No note of outdated devices
/// came along: the given devices may be older than the missing devices.
fn refuse_missing(given: &Given, missing: &[DeviceId], import: &Import, paths: &[PathBuf]) -> Result<()> {
    let name = &given.header.name;
    if let Some(there) = import.without.iter().find(|id| !missing.contains(id)) {
        let problem = match given.devices.iter().find(|(_, id, _)| id == there) {
            Some((.., path)) => {
                format!("{there} of volume '{name}' was given, it is {path}: leave --without {there} out")
            }
            None => format!("volume '{name}' has no device {there}: leave --without {there} out"),
        };
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    let unnamed: Vec<&DeviceId> = missing.iter().filter(|id| !import.without.contains(id)).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    let describe = |id: &&DeviceId| {
        let entry = &given.table[id.index()];
        format!("{id} ({}, {})", entry.class, entry.size)
    };
    let described: Vec<String> = unnamed.iter().map(describe).collect();
    let command = Import { without: missing.to_vec(), ..import.clone() }.command(paths);
    let consequence = match given.header.copies {
        1 => "data on the missing devices alone is lost then",
        _ => {
            "if a missing device was in use last without the given devices, these are older, and nothing \
             here can tell"
        }
    };
    let problem = format!(
        "volume '{name}' has {} devices, and these were not given: {}; name all devices, or if these are \
         lost: {command} ({consequence})",
        given.table.len() - given.found.removed.len(),
        described.join(", ")
    );
    Err(Error::new(ErrorKind::Degraded, problem))
}

/// Refuses to rename a volume without an explicit name: a volume has only one record.
fn refuse_renaming(
    state: &StateDir,
    uuid: &str,
    name: &VolumeName,
    import: &Import,
    paths: &[PathBuf],
) -> Result<()> {
    let known = state.names_of(uuid)?;
    let Some(other) = known.iter().find(|other| *other != name) else { return Ok(()) };
    if import.name.is_some() {
        return Ok(());
    }
    let keep = Import { name: Some(other.clone()), ..import.clone() }.command(paths);
    let rename = Import { name: Some(name.clone()), ..import.clone() }.command(paths);
    let problem = format!(
        "this volume is known here as '{other}', and finds its devices by itself: braid serve {other}; to \
         record these devices: {keep}; to give the volume this name: {rename}"
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// Other records of the volume, each with its lock.
type Others = Vec<(VolumeName, VolumeLock)>;

/// Writes the record. The caller removes the other records, whose locks are held.
fn note(
    state: &StateDir,
    given: &Given,
    missing: &[DeviceId],
    name: &VolumeName,
) -> Result<(VolumeRecord, Others)> {
    let mut record = record(given, missing, name.clone());
    refuse_other(state, &record)?;
    let (mut others, mut known) = (Vec::new(), Vec::new());
    let notes = |record: &VolumeRecord| (noted(state, record), noted_log(state, record).flatten());
    let mut promised = notes(&record);
    for other in state.names_of(&record.uuid)? {
        if other != *name {
            let lock = VolumeLock::take(state, &other, "renamed")?;
            others.push((other.clone(), lock));
        }
        let record = state.load(&other)?;
        let there = notes(&record);
        if (there.0.epoch, there.0.batch) > (promised.0.epoch, promised.0.batch) {
            promised = there;
        }
        known.push(record);
    }
    if given.header.copies > 1 {
        // The complete set of devices is authoritative. If a device is missing, earlier notes still count.
        let mut outdated: Vec<DeviceId> = given.found.not_current.iter().map(|(id, _)| *id).collect();
        if !missing.is_empty() {
            outdated.retain(|id| !missing.contains(id));
            outdated.extend(known_outdated(&known, missing));
        }
        record.set_outdated(&outdated);
    }
    state.save(&record)?;
    let (promised, log) = promised;
    if promised.epoch > 0 {
        noted::note(state, name, &record.uuid, promised, log.as_ref())?;
    }
    Ok((record, others))
}

/// Returns the devices that known records call outdated. If there are several records, one may lack a note
/// that another has: a missing device may then be the newest, whatever the records say.
fn known_outdated(known: &[VolumeRecord], missing: &[DeviceId]) -> Vec<DeviceId> {
    let counts = |id: &DeviceId| known.len() == 1 || !missing.contains(id);
    known.iter().flat_map(VolumeRecord::outdated).filter(counts).collect()
}

fn record(given: &Given, missing: &[DeviceId], name: VolumeName) -> VolumeRecord {
    let Given { header, table, devices, models, .. } = given;
    let (uuid, mut models) = (header.volume.to_string(), models.clone());
    models.retain(|name, _| table.iter().any(|entry| library::is_own(&entry.model, name)));
    let mut record =
        VolumeRecord { version: RECORD_VERSION, name, uuid, temporary: false, devices: Vec::new(), models };
    let model = |entry: &DeviceEntry| Some(entry.model.clone()).filter(|model| !model.is_empty());
    for (entry, id, path) in devices {
        let storage = Storage::Path(PathBuf::from(path));
        let device = DeviceRecord::new(&storage, entry.class, model(entry).as_deref(), entry.size.0);
        record.set_device(id.index(), device);
    }
    for id in missing {
        let entry = &table[id.index()];
        let device = DeviceRecord::missing(entry.class, model(entry).as_deref(), entry.size.0);
        record.set_device(id.index(), device);
    }
    record
}

impl Import {
    /// Returns this import as a command line.
    fn command(&self, paths: &[PathBuf]) -> String {
        let mut words = vec!["braid import".to_owned()];
        words.extend(paths.iter().map(|path| quoted(path)));
        words.extend(self.without.iter().map(|id| format!("--without {id}")));
        words.extend(self.name.iter().map(|name| format!("--as {name}")));
        words.extend(self.models.iter().map(|path| format!("--model {}", quoted(path))));
        words.join(" ")
    }
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
        "the name '{name}' belongs to another volume here ({}): import this one ({}) by another name with \
         --as NAME",
        known.uuid, record.uuid
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// Forgets a volume's name and paths. The devices stay unchanged: [`import`] finds the volume again.
///
/// Files made for a temporary volume are removed, unless another volume has taken a file since. An adopted
/// disk becomes a plain disk again; `forced` discards data that an SSD may hold and the disk lacks.
///
/// # Errors
/// `Busy` while another command works on the volume, or if a killed daemon left devices or mounts behind.
/// `Degraded` if an SSD may hold data that the adopted disk lacks. `Invalid` if there is no such volume.
pub fn forget(state: &StateDir, name: &VolumeName, forced: bool) -> Result<()> {
    if !state.knows(name) {
        return state.load(name).map(drop);
    }
    let _lock = VolumeLock::take(state, name, "forgotten")?;
    refuse_left_behind(state, name)?;
    if let Ok(record) = state.load(name) {
        forget_adopted(state, &record, forced)?;
    }
    // A record that cannot be read is one more reason to forget the volume.
    if let Ok(mut record) = state.load(name)
        && record.temporary
    {
        record.devices = still_its_own(record.devices, &record.uuid)?;
        remove_made(&record);
    }
    state.remove(name)
}

/// Refuses to forget a volume with remains of a killed daemon: without the name, no command would find them.
fn refuse_left_behind(state: &StateDir, name: &VolumeName) -> Result<()> {
    let uuid = state.load(name).map(|record| record.uuid);
    if let Some(device) = uuid.ok().and_then(|uuid| waiting(&uuid).pop()) {
        let problem = format!(
            "{} of volume '{name}' waits for a daemon: braid detach {name}, then forget the volume",
            device.path().display()
        );
        return Err(Error::new(ErrorKind::Busy, problem));
    }
    let (devices, mounts) = left_behind(state, name);
    let Some(first) = devices.iter().chain(&mounts).next() else { return Ok(()) };
    let problem = format!(
        "the daemon of volume '{name}' ended and left {} behind, where every request fails: braid detach \
         {name}, then forget the volume",
        first.display()
    );
    Err(Error::new(ErrorKind::Busy, problem))
}

/// Removes the record file of a volume on an adopted disk. Refused while an SSD may hold data that the disk
/// lacks, unless `forced`.
fn forget_adopted(state: &StateDir, record: &VolumeRecord, forced: bool) -> Result<()> {
    let Some((_, disk)) = record.adopted() else { return Ok(()) };
    let name = &record.name;
    let is_ssd = |device: &DeviceRecord| !device.removed && device.class == DeviceClass::Ssd.to_string();
    if let Some(place) = record.devices.iter().position(is_ssd).filter(|_| !forced) {
        let problem = format!(
            "d{place} of volume '{name}' may hold data that {} lacks: braid serve {name}, braid device \
             remove {name} d{place}, and after the removal braid stop {name} and forget the volume; if the \
             SSD is lost, or belongs to another volume now, and the disk may stay as it is: braid forget \
             {name} --force",
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

/// Returns the devices that still name this volume in their superblock: a file may have been given to another
/// volume, which may be in use.
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
