//! `braid create`: makes a volume on devices, and writes its record.

use crate::device::adopted;
use crate::device::open::{OpenDevice, Prepared, prepare, refuse_duplicates};
use crate::device::remote::{self, is_address};
use crate::device::room::over_committed_bytes;
use crate::device::spec::{DeviceSpec, Storage};
use crate::members::claims::{IntendedUse, refuse_claimed};
use crate::members::open::Member;
use crate::model::library::{self, OwnModels};
use crate::report::types::Durability;
use crate::state::lock::VolumeLock;
use crate::state::state_dir::{DeviceRecord, RECORD_VERSION, StateDir, VolumeName, VolumeRecord};
use crate::volume::policy::check_policy;
use crate::volume::ring::on_ring;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, KIB};
use braid_engine::{Adoption, CreateOptions, Fit, Left, RoomLeft};
use braid_format::Uuid;
use braid_format::superblock::{Layout, Superblock};
use braid_runtime::Device;
use braid_uring::Ring;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Settings of a new volume.
#[derive(Clone, PartialEq, Debug)]
pub struct NewVolume {
    /// Its name.
    pub name: VolumeName,
    /// Its devices, in the order of their places.
    pub devices: Vec<DeviceSpec>,
    /// Disk that becomes the volume with its content kept; all other devices are then SSDs.
    pub adopt: Option<DeviceSpec>,
    /// The policy, as `name,key=value,…`.
    pub policy: String,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent, 1 or 2.
    pub copies: u8,
    /// Size of the volume; `None` for all room of the devices, minus the room reserved for other policies.
    pub size: Option<Bytes>,
    /// Overwrite devices that hold something else.
    pub overwrite: bool,
}

impl NewVolume {
    /// Defaults: [`braid_policy::DEFAULT`], 128 KiB extents, 4 KiB blocks, one copy, and all room minus the
    /// room reserved for other policies.
    pub fn new(name: VolumeName, devices: Vec<DeviceSpec>) -> NewVolume {
        NewVolume {
            name,
            devices,
            adopt: None,
            policy: braid_policy::DEFAULT.to_owned(),
            extent_size: KIB * 128,
            block_size: KIB * 4,
            copies: 1,
            size: None,
            overwrite: false,
        }
    }
}

/// Result of making a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CreateReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Size that guests see.
    pub size_bytes: u64,
    /// The unit of placement.
    pub extent_bytes: u64,
    /// The policy with all its settings.
    pub policy: String,
    /// Bytes by which the volume could be larger under this policy. The policy uses that room meanwhile.
    #[serde(default)]
    pub left_bytes: u64,
    /// Policies that could become active later, with their default settings.
    #[serde(default)]
    pub fitting_policies: Vec<String>,
    /// Policies that could not become active.
    #[serde(default)]
    pub unfitting_policies: Vec<Unfitting>,
    /// Events that flushed writes survive.
    pub durability: Durability,
    /// Bytes by which the volume's files may outgrow the free space of their file systems.
    #[serde(default)]
    pub over_committed_bytes: u64,
    /// Its devices, by place.
    pub devices: Vec<DeviceRecord>,
}

/// A policy that does not fit a volume as the volume was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unfitting {
    /// The policy.
    pub policy: String,
    /// Size of a volume on these devices that the policy fits, the largest but for a few extents; null if the
    /// size is not the obstacle.
    pub fitting_bytes: Option<u64>,
    /// Required copies that the policy needs; null if the volume has enough.
    pub needed_copies: Option<u8>,
}

impl Unfitting {
    fn of(fit: &Fit) -> Unfitting {
        let Fit { policy, largest, copies, .. } = *fit;
        Unfitting {
            policy: policy.to_owned(),
            fitting_bytes: largest.map(|size| size.0),
            needed_copies: copies,
        }
    }
}

/// Makes a volume and writes its record. On an error, files made here are removed again.
///
/// # Errors
/// `Invalid` if the name is taken, a device holds something, or the volume does not fit; `Usage` for memory.
pub fn create(state: &StateDir, new: &NewVolume) -> Result<CreateReport> {
    if new.devices.iter().any(|device| device.storage == Storage::Memory) {
        let problem = "a device in memory ends with its daemon: use braid serve --temporary, or a path";
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    let all: Vec<DeviceSpec> = new.devices.iter().chain(&new.adopt).cloned().collect();
    check_policy(&new.policy, &all)?;
    let _lock = VolumeLock::take(state, &new.name, "created")?;
    refuse_known(state, &new.name)?;
    // From here on no volume owns the name or the content of its directory.
    let (superblock, record) =
        make_named(state, new).inspect_err(|_| drop(state.remove_unmade(&new.name)))?;
    let emulated = record.devices.iter().any(|device| device.model.is_some());
    let RoomLeft { left, policies } = braid_engine::room_left(&superblock);
    let (fitting, unfitting): (Vec<&Fit>, Vec<&Fit>) = policies.iter().partition(|fit| fit.fits);
    Ok(CreateReport {
        name: new.name.to_string(),
        uuid: record.uuid,
        size_bytes: superblock.volume_size.0,
        extent_bytes: superblock.extent_size.0,
        policy: superblock.policy,
        left_bytes: left.0,
        fitting_policies: fitting.into_iter().map(|fit| fit.policy.to_owned()).collect(),
        unfitting_policies: unfitting.into_iter().map(Unfitting::of).collect(),
        durability: if emulated { Durability::DaemonCrash } else { Durability::PowerCut },
        over_committed_bytes: over_committed_bytes(record.devices.iter().filter_map(|d| d.path.as_deref())),
        devices: record.devices,
    })
}

/// Makes the volume and its record.
fn make_named(state: &StateDir, new: &NewVolume) -> Result<(Superblock, VolumeRecord)> {
    if let Some(disk) = &new.adopt {
        check_disk(disk)?;
    }
    let (members, superblock, mut record) = on_ring(async |ring| make(ring, state, new, false).await)?;
    drop(members);
    let saved = name_record(state, &mut record).and_then(|()| state.save(&record));
    saved.inspect_err(|_| remove_made(&record))?;
    Ok((superblock, record))
}

/// Renames the record of an adopted disk to its final name, now that the volume is made. A file left by an
/// interrupted creation has another name.
fn name_record(state: &StateDir, record: &mut VolumeRecord) -> Result<()> {
    if record.adopted().is_none() {
        return Ok(());
    }
    let (unmade, named) = (state.unmade_record(&record.name), state.record_of_adopted(&record.name));
    std::fs::rename(&unmade, &named)
        .map_err(|e| Error::io(format_args!("cannot make {}", named.display()), &e))?;
    let is_unmade = |device: &&mut DeviceRecord| device.path.as_ref() == Some(&unmade);
    record.devices.iter_mut().filter(is_unmade).for_each(|device| device.path = Some(named.clone()));
    Ok(())
}

/// Makes the volume on its devices, and leaves the devices open. On an error, files made here are removed
/// again.
pub(crate) async fn make(
    ring: &Ring,
    state: &StateDir,
    new: &NewVolume,
    temporary: bool,
) -> Result<(Vec<Member>, Superblock, VolumeRecord)> {
    let identity = Uuid(uuid::Uuid::new_v4().into_bytes());
    let uuid = identity.to_string();
    let mut record = VolumeRecord {
        version: RECORD_VERSION,
        name: new.name.clone(),
        uuid,
        temporary,
        models: OwnModels::new(),
        devices: Vec::new(),
    };
    let made = write_volume(ring, state, new, identity, &mut record).await;
    let (members, superblock) = made.inspect_err(|_| remove_made(&record))?;
    Ok((members, superblock, record))
}

/// Opens the devices, notes each in the record, and writes the volume's metadata to them.
async fn write_volume(
    ring: &Ring,
    state: &StateDir,
    new: &NewVolume,
    identity: Uuid,
    record: &mut VolumeRecord,
) -> Result<(Vec<Member>, Superblock)> {
    refuse_others(state, new)?;
    let (mut members, mut stored_models) = (Vec::new(), Vec::new());
    for (place, spec) in new.devices.iter().chain(&new.adopt).enumerate() {
        let storage = absolute(&spec.storage)?;
        let spec = DeviceSpec { storage, ..spec.clone() };
        let model = spec.model.as_deref().map(|model| library::find(spec.class, model)).transpose()?;
        let prepared = prepare(&spec)?;
        let stored = model.as_ref().map(|model| model.stored.as_str());
        record.devices.push(DeviceRecord {
            made: prepared == Prepared::Made,
            ..DeviceRecord::new(&spec.storage, spec.class, stored, 0)
        });
        stored_models.push(stored.unwrap_or_default().to_owned());
        if let Some((name, text)) = model.as_ref().and_then(|model| model.own.clone()) {
            library::keep(&mut record.models, name, text)?;
        }
        refuse_duplicates(record.devices.iter().filter_map(|device| device.path.as_deref()))?;
        let (model, seed) = (model.map(|model| model.spec), place as u64);
        let device =
            OpenDevice::open(ring, &spec.storage, spec.class, model.as_ref(), spec.size, seed).await?;
        record.devices[place].size_bytes = device.geometry().size.0;
        let is_adopted = place == new.devices.len();
        record.devices[place].adopted = is_adopted;
        let adopted = match &spec.storage {
            Storage::Path(path) if is_adopted => Some(adopted::identity(path)?),
            _ => None,
        };
        let id = DeviceId(place as u16);
        members.push(Member { id, device: Some(device), name: spec.name(), adopted });
    }
    let options = CreateOptions {
        size: new.size,
        left: Left::ForPolicies,
        extent_size: new.extent_size,
        block_size: new.block_size,
        copies: new.copies,
        policy: new.policy.clone(),
        models: stored_models,
        layouts: new.devices.iter().map(|device| device.layout.unwrap_or(Layout::Head)).collect(),
        overwrite: new.overwrite,
        ..CreateOptions::new(new.name.to_string(), identity)
    };
    let options = match &new.adopt {
        Some(disk) => add_record(ring, state, options, disk, &mut members, record).await?,
        None => options,
    };
    let superblock = braid_engine::create(&crate::members::open::handles(&members), &options).await;
    let superblock = superblock.map_err(|error| name_devices(error.into(), &members))?;
    Ok((members, superblock))
}

/// Refuses devices in use by another owner, and one device under two paths, before any device is opened.
fn refuse_others(state: &StateDir, new: &NewVolume) -> Result<()> {
    let forced = new.overwrite;
    let all = new.devices.iter().map(|device| (device, IntendedUse::Overwrite { forced }));
    let all = all.chain(new.adopt.iter().map(|disk| (disk, IntendedUse::Adopt { forced })));
    let paths: Vec<(&Path, IntendedUse)> = all
        .filter_map(|(device, intended)| match &device.storage {
            Storage::Path(path) => Some((path.as_path(), intended)),
            Storage::Memory => None,
        })
        .collect();
    refuse_duplicates(paths.iter().map(|(path, _)| *path))?;
    paths.into_iter().try_for_each(|(path, intended)| refuse_claimed(state, path, intended))
}

/// Checks that a disk can be adopted: the disk exists, has whole sectors, and is not in use.
fn check_disk(disk: &DeviceSpec) -> Result<()> {
    let Storage::Path(path) = &disk.storage else {
        return Err(Error::new(
            ErrorKind::Usage,
            "an adopted disk needs a path: memory holds no earlier data",
        ));
    };
    if is_address(path) {
        let problem = format!(
            "--adopt {}: an adopted disk is attached to this machine, so that it can be used without Braid: \
             use the remote device as a device, and copy the data",
            path.display()
        );
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    if disk.size.is_some() || disk.layout.is_some() {
        let problem = format!(
            "--adopt {}: an adopted disk keeps its size, and Braid writes no metadata to it",
            path.display()
        );
        return Err(Error::new(ErrorKind::Usage, format!("{problem}: leave size= and layout= out")));
    }
    adopted::refuse_used(path)?;
    let len = std::fs::metadata(path).map_err(|e| Error::io(path.display(), &e))?.len();
    if len % braid_base::SECTOR.0 != 0 {
        let problem = format!(
            "{} has {len} bytes, not a multiple of 512, the sector size: make it a little longer",
            path.display()
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    Ok(())
}

/// Adds the record of a volume on an adopted disk: a file in the state directory, and the last device.
async fn add_record(
    ring: &Ring,
    state: &StateDir,
    options: CreateOptions,
    disk: &DeviceSpec,
    members: &mut Vec<Member>,
    record: &mut VolumeRecord,
) -> Result<CreateOptions> {
    let adopted = members.last().expect("the adopted disk is the last so far");
    let size = adopted.device.as_ref().map_or(Bytes::ZERO, |device| device.geometry().size);
    if let Storage::Path(path) = &disk.storage {
        let len = std::fs::metadata(path).map_err(|e| Error::io(path.display(), &e))?.len();
        if len > 0 && len != size.0 {
            let problem = format!(
                "{} has {len} bytes, and direct I/O reaches only {} of them: make its length a multiple of \
                 4096 bytes",
                path.display(),
                size.0
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
    }
    let (place, id) = (members.len(), DeviceId(members.len() as u16));
    let adoption = Adoption {
        disk: place - 1,
        identity: adopted.adopted.expect("an adopted disk is known by something"),
        record: place,
    };
    let path = state.unmade_record(&record.name);
    let len = braid_engine::record_len(size, place + 1, &options);
    adopted::make_record(&path, len.0)
        .map_err(|e| Error::io(format_args!("cannot make {}", path.display()), &e))?;
    let storage = Storage::Path(path);
    let device = DeviceRecord { made: true, ..DeviceRecord::new(&storage, DeviceClass::Hdd, None, len.0) };
    record.devices.push(device);
    let opened = OpenDevice::open(ring, &storage, DeviceClass::Hdd, None, None, place as u64).await?;
    members.push(Member { id, device: Some(opened), name: storage.name(), adopted: None });
    Ok(CreateOptions { adoption: Some(adoption), ..options })
}

/// Makes a path absolute: the record keeps paths for use from any directory.
pub(crate) fn absolute(storage: &Storage) -> Result<Storage> {
    match storage {
        Storage::Path(path) => Ok(Storage::Path(crate::device::spec::absolute(path)?)),
        Storage::Memory => Ok(Storage::Memory),
    }
}

/// Adds the paths of devices to an error message. The engine knows the devices of a new volume by place only.
fn name_devices(error: Error, members: &[Member]) -> Error {
    let message = error.to_string();
    let names = members.iter().enumerate().map(|(place, member)| (format!("d{place}"), &member.name));
    let words: Vec<&str> = message.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let named: Vec<String> = names
        .filter(|(id, _)| words.contains(&id.as_str()))
        .map(|(id, name)| format!("{id} is {name}"))
        .collect();
    match named.is_empty() {
        true => error,
        false => Error::new(error.kind(), format!("{message} ({})", named.join(", "))),
    }
}

/// Removes the files and images that were made for a volume.
pub(crate) fn remove_made(record: &VolumeRecord) {
    let made: Vec<&PathBuf> =
        record.devices.iter().filter(|d| d.made).filter_map(|d| d.path.as_ref()).collect();
    for path in made {
        if let Err(error) = remote::remove_made(path) {
            tracing::warn!("{} could not be removed: {error}", path.display());
        }
    }
}

/// Refuses a name that a volume has already.
pub(crate) fn refuse_known(state: &StateDir, name: &VolumeName) -> Result<()> {
    if !state.knows(name) {
        return Ok(());
    }
    let problem = format!(
        "volume '{name}' exists already, see braid status {name}: choose another name, or braid forget {name}"
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}
