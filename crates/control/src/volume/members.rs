//! The devices of a volume that exists: found by their paths, known by their superblocks, opened as what they are.

use crate::device::adopted;
use crate::device::open::{OpenDevice, look, refuse_duplicates};
use crate::device::spec::Storage;
use crate::model::library::{self, OwnModels};
use crate::volume::lasting::Lasting;
use crate::volume::state_dir::{DeviceRecord, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_engine::{AdoptedDisk, OpenOptions};
use braid_format::Uuid;
use braid_format::superblock::Header;
use braid_uring::Ring;
use std::io;
use std::path::{Path, PathBuf};

/// A device as the daemon holds it, beside what the engine knows of it.
#[derive(Clone)]
pub(crate) struct Member {
    /// Its place in the volume.
    pub id: DeviceId,
    /// None while it is missing.
    pub device: Option<OpenDevice>,
    /// Its path, or `memory`.
    pub name: String,
    /// What an adopted disk is known by.
    pub adopted: Option<Uuid>,
}

/// Opens the devices of a volume, in the order of their places. Those that are missing are members without a device: whether the volume
/// can do without them is for the engine to judge; [`with_paths`] says where they were.
///
/// # Errors
/// `Degraded` if no path leads anywhere, `Invalid` if the devices there are of another volume.
pub(crate) async fn open_members(ring: &Ring, record: &VolumeRecord) -> Result<Vec<Member>> {
    open_members_but(ring, record, None).await
}

/// The same for a repair, which gives up what nothing proves: each device that is there and is not in `given_up` must be readable.
pub(crate) async fn open_members_to_repair(
    ring: &Ring,
    record: &VolumeRecord,
    given_up: &[DeviceId],
) -> Result<Vec<Member>> {
    open_members_but(ring, record, Some(given_up)).await
}

async fn open_members_but(
    ring: &Ring,
    record: &VolumeRecord,
    given_up: Option<&[DeviceId]>,
) -> Result<Vec<Member>> {
    let (there, missing) = look_for(record)?;
    let (there, missing) = without_lost(ring, record, (there, missing), given_up).await;
    let found = open_paths(ring, &there, &record.models).await?;
    let members = with_missing(record, found, missing)?;
    with_adopted(record, members, |storage, device| {
        let model = device.model.as_deref();
        let model =
            model.map(|model| library::reopen(DeviceClass::Hdd, model, &record.models)).transpose()?;
        OpenDevice::open(ring, storage, DeviceClass::Hdd, model.as_ref(), None, u64::MAX)
    })
}

/// The same for reading alone: needs no right to write to any of them.
pub(crate) async fn open_members_to_read(ring: &Ring, record: &VolumeRecord) -> Result<Vec<Member>> {
    let (there, missing) = look_for(record)?;
    let (there, missing) = without_lost(ring, record, (there, missing), None).await;
    let found = open_paths_to_read(ring, &there).await?;
    let members = with_missing(record, found, missing)?;
    with_adopted(record, members, |storage, _| match storage {
        Storage::Path(path) => OpenDevice::open_to_read(ring, path, DeviceClass::Hdd),
        Storage::Memory => Err(Error::new(ErrorKind::Invalid, "memory is no disk that was there before")),
    })
}

/// The devices of a volume but for one, whose place another device is to take.
pub(crate) async fn open_others(ring: &Ring, record: &VolumeRecord, but: DeviceId) -> Result<Vec<Member>> {
    let (there, missing) = look_for(record)?;
    let left_out = record.devices[but.index()].path.as_deref();
    let there: Vec<PathBuf> = there.into_iter().filter(|path| Some(path.as_path()) != left_out).collect();
    let found = open_paths(ring, &there, &record.models).await?;
    with_missing(record, found, missing.into_iter().filter(|&place| place != but.index()).collect())
}

/// The same, but devices that do not answer, or say nothing of a volume any more, are missing, too, if the volume may do without
/// them: SSDs before an adopted disk, for no start waits for a cache, and devices of one that has two copies of everything; of these only what is `given_up`, if that is said.
async fn without_lost(
    ring: &Ring,
    record: &VolumeRecord,
    (there, mut missing): (Vec<PathBuf>, Vec<usize>),
    given_up: Option<&[DeviceId]>,
) -> (Vec<PathBuf>, Vec<usize>) {
    let mut looked = Vec::new();
    for path in there {
        let header = look(ring, &path).await;
        looked.push((path, header));
    }
    let is_mirror = |header: &Header| header.volume.to_string() == record.uuid && header.copies > 1;
    let is_mirrored = looked.iter().any(|(_, header)| header.as_ref().is_ok_and(is_mirror));
    let may_lack = |place: usize| match record.adopted() {
        Some(_) => record.devices[place].class == DeviceClass::Ssd.to_string(),
        None => is_mirrored && given_up.is_none_or(|given_up| given_up.contains(&DeviceId(place as u16))),
    };
    let mut left = Vec::new();
    for (path, header) in looked {
        let place = record.devices.iter().position(|device| device.path.as_ref() == Some(&path));
        let is_denied =
            std::fs::File::open(&path).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        let is_lost = |kind| matches!(kind, ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Io);
        match (place.filter(|&place| may_lack(place)), header) {
            (Some(place), Err(error)) if is_lost(error.kind()) && !is_denied => {
                tracing::error!("d{place} of volume '{}' is lost: {error}", record.name);
                missing.push(place);
            }
            _ => left.push(path),
        }
    }
    (left, missing)
}

/// Adds the disk that the volume adopted, which has no superblock.
fn with_adopted(
    record: &VolumeRecord,
    mut members: Vec<Member>,
    open: impl FnOnce(&Storage, &DeviceRecord) -> Result<OpenDevice>,
) -> Result<Vec<Member>> {
    let Some((place, device)) = record.adopted() else { return Ok(members) };
    let (Some(path), name) = (device.path.clone(), device.name()) else { return Ok(members) };
    let id = DeviceId(place as u16);
    if std::fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        members.push(Member { id, device: None, name, adopted: None });
    } else {
        let identity = adopted::identity(&path)?;
        adopted::refuse_used(&path)?;
        let opened = open(&Storage::Path(path), device)?;
        members.push(Member { id, device: Some(opened), name, adopted: Some(identity) });
    }
    members.sort_by_key(|member| member.id);
    Ok(members)
}

/// The paths that exist, and the places of those that do not; that of an adopted disk is neither.
fn look_for(record: &VolumeRecord) -> Result<(Vec<PathBuf>, Vec<usize>)> {
    let is_missing =
        |path: &Path| std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let mut paths = record.paths()?;
    paths.retain(|(place, _)| !record.devices[*place].adopted);
    let (missing, there): (Vec<_>, Vec<_>) = paths.into_iter().partition(|(_, path)| is_missing(path));
    let missing: Vec<usize> = missing.into_iter().map(|(place, _)| place).collect();
    if there.is_empty() {
        return Err(lacks(record, &missing));
    }
    Ok((there.into_iter().map(|(_, path)| path).collect(), missing))
}

/// Adds the devices that are missing, if these are devices of this volume.
fn with_missing(
    record: &VolumeRecord,
    (header, mut members): (Header, Vec<Member>),
    missing: Vec<usize>,
) -> Result<Vec<Member>> {
    if header.volume.to_string() != record.uuid {
        let name = &record.name;
        let problem = format!(
            "{} belongs to volume '{}' ({}), not to '{name}' ({}): bring the devices of '{name}' back, or braid import \
             them under their paths of today",
            members[0].name, header.name, header.volume, record.uuid
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    for place in missing {
        let name = record.devices[place].name();
        tracing::error!(
            "device d{place} of volume '{}' is missing: {name} does not exist, or is lost",
            record.name
        );
        members.push(Member { id: DeviceId(place as u16), device: None, name, adopted: None });
    }
    members.sort_by_key(|member| member.id);
    Ok(members)
}

/// What the engine says of a volume; of one that lacks devices, with the paths that lead nowhere.
pub(crate) fn with_paths(error: braid_engine::Error, members: &[Member]) -> Error {
    let missing = members.iter().filter(|member| member.device.is_none());
    let paths: Vec<&str> = missing.map(|member| member.name.as_str()).collect();
    if error.kind() != braid_engine::ErrorKind::Degraded || paths.is_empty() {
        return error.into();
    }
    let problem = format!(
        "{error}; {} does not exist, or holds nothing of it any more: where the devices have other paths now, name all of them: braid import PATH…",
        paths.join(", ")
    );
    Error::new(ErrorKind::Degraded, problem)
}

/// Says of all paths that lead nowhere at once what was there.
fn lacks(record: &VolumeRecord, missing: &[usize]) -> Error {
    let describe = |&place: &usize| {
        let device = &record.devices[place];
        format!("d{place} ({}, {})", device.class, device.name())
    };
    let described: Vec<String> = missing.iter().map(describe).collect();
    let VolumeRecord { name, .. } = record;
    let problem = format!(
        "volume '{name}' lacks {} of its {} devices: {} does not exist; bring it back, or, where the devices have other \
         paths now, name all of them: braid import PATH… (nothing was changed)",
        missing.len(),
        record.devices.iter().filter(|device| !device.removed).count(),
        described.join(", ")
    );
    Error::new(ErrorKind::Degraded, problem)
}

/// Opens whatever lies on these devices, in the order of their places; with what the superblock of the first says. `own` are
/// the texts of models that are not of the library.
pub(crate) async fn open_paths(
    ring: &Ring,
    paths: &[PathBuf],
    own: &OwnModels,
) -> Result<(Header, Vec<Member>)> {
    open_each(ring, paths, |storage, _, header| {
        let (entry, place) = (&header.device, header.this_device);
        let model = Some(entry.model.as_str()).filter(|model| !model.is_empty());
        let model = model.map(|model| library::reopen(entry.class, model, own)).transpose();
        let model = model.map_err(|e| Error::new(e.kind(), format!("{}: {e}", storage.name())))?;
        OpenDevice::open(ring, storage, entry.class, model.as_ref(), None, u64::from(place.0))
    })
    .await
}

/// The same for reading alone.
async fn open_paths_to_read(ring: &Ring, paths: &[PathBuf]) -> Result<(Header, Vec<Member>)> {
    open_each(ring, paths, |_, path, header| OpenDevice::open_to_read(ring, path, header.device.class)).await
}

async fn open_each(
    ring: &Ring,
    paths: &[PathBuf],
    open: impl Fn(&Storage, &Path, &Header) -> Result<OpenDevice>,
) -> Result<(Header, Vec<Member>)> {
    refuse_duplicates(paths.iter().map(PathBuf::as_path))?;
    let (mut first, mut members) = (None, Vec::new());
    for path in paths {
        let header = look(ring, path).await?;
        let storage = Storage::Path(path.clone());
        let device = open(&storage, path, &header)?;
        members.push(Member {
            id: header.this_device,
            device: Some(device),
            name: storage.name(),
            adopted: None,
        });
        first.get_or_insert(header);
    }
    members.sort_by_key(|member| member.id);
    let first = first
        .ok_or_else(|| Error::new(ErrorKind::Usage, "no device was given: name the volume's devices"))?;
    Ok((first, members))
}

/// How a volume is opened on the devices that are there.
pub(crate) fn open_options(record: &VolumeRecord, members: &[Member], lasting: &Lasting) -> OpenOptions {
    let (adopted, outdated, memory) = (adopted_disk(members), record.outdated(), lasting.memory());
    OpenOptions { adopted, outdated, memory, ..OpenOptions::new(names(members)) }
}

/// Which of the devices that are there is a disk that the volume adopted.
pub(crate) fn adopted_disk(members: &[Member]) -> Option<AdoptedDisk> {
    let mut there = members.iter().filter(|member| member.device.is_some()).enumerate();
    there.find_map(|(place, member)| {
        member.adopted.map(|identity| AdoptedDisk { place, identity, force: false })
    })
}

/// Names of the devices that are there, for the engine's messages.
pub(crate) fn names(members: &[Member]) -> Vec<String> {
    members.iter().filter(|member| member.device.is_some()).map(|member| member.name.clone()).collect()
}

/// The devices that are there: handles.
pub(crate) fn handles(members: &[Member]) -> Vec<OpenDevice> {
    members.iter().filter_map(|member| member.device.clone()).collect()
}
