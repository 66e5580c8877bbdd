//! The opened devices of an existing volume. Devices are found by their superblocks, whatever their paths
//! are.

use crate::device::adopted;
use crate::device::open::{OpenDevice, look, refuse_duplicates, wait_for_late_requests};
use crate::device::protected::write_protection;
use crate::device::spec::{Storage, quoted};
use crate::members::finding::disk::{Disk, find_disk};
use crate::members::finding::{Found, Lack, MemberPlace, Whereabouts, find};
use crate::model::library::{self, OwnModels};
use crate::state::lasting::Lasting;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_engine::{AdoptedDisk, OpenOptions};
use braid_format::Uuid;
use braid_format::layout::MOST_DEVICES;
use braid_format::superblock::Header;
use braid_uring::Ring;
use std::path::{Path, PathBuf};

/// A device as the daemon holds it, beside the engine's own state.
#[derive(Clone)]
pub(crate) struct Member {
    /// Its place in the volume.
    pub id: DeviceId,
    /// `None` while the device is missing.
    pub device: Option<OpenDevice>,
    /// Its path, or `memory`.
    pub name: String,
    /// Identity of an adopted disk.
    pub adopted: Option<Uuid>,
}

/// The opened devices of a volume.
pub(crate) struct Members {
    /// All devices by place. A missing device is a member without an open device: the engine judges whether
    /// the volume can do without the device.
    pub list: Vec<Member>,
    /// New device records for the devices that were found, by place.
    pub records: Vec<(usize, DeviceRecord)>,
    /// Why the other devices are missing.
    lacks: Vec<String>,
    /// Why an adopted disk is missing, with the remedy.
    disk_lack: Option<String>,
    /// True if the volume has adopted a disk: `braid import` then finds no devices.
    has_adopted: bool,
}

/// Purpose of an opening, and the devices that the opening may lack although they are attached.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Normal use, without the content of these devices.
    Use(&'a [DeviceId]),
    /// As `Use`, and another host that uses the volume is shut out.
    TakeOver(&'a [DeviceId]),
    /// Repair, which discards data without proof. Every attached device not in this list must be readable.
    Repair(&'a [DeviceId]),
    /// Continue from the disk that keeps epochs. This disk's own metadata is enough.
    Recovery,
}

/// Finds the devices of a volume and opens them.
///
/// # Errors
/// `Degraded` if no device is there; `Usage` if an excluded place does not exist in the volume; and all
/// errors of
/// [`find`].
pub(crate) async fn open_members(
    ring: &Ring,
    state: &StateDir,
    record: &VolumeRecord,
    purpose: Purpose<'_>,
) -> Result<Members> {
    let found = find(state, record)?;
    refuse_unknown(record, &found, purpose)?;
    refuse_unreadable(record, &found, purpose)?;
    refuse_two_records(state, record, &found, purpose)?;
    let takes_over = matches!(purpose, Purpose::TakeOver(_));
    let opened = open_found(ring, record, &found, None, takes_over).await?;
    with_adopted(state, record, &found, opened, async |storage, device| {
        let model = device.model.as_deref();
        let model =
            model.map(|model| library::reopen(DeviceClass::Hdd, model, &record.models)).transpose()?;
        OpenDevice::open(ring, storage, DeviceClass::Hdd, model.as_ref(), None, u64::MAX).await
    })
    .await
}

/// Finds and opens the devices only for reading: needs no write permission.
pub(crate) async fn open_members_to_read(
    ring: &Ring,
    state: &StateDir,
    record: &VolumeRecord,
) -> Result<Members> {
    let found = find(state, record)?;
    refuse_unreadable(record, &found, Purpose::Use(&[]))?;
    let (first, list) = open_paths_to_read(ring, &there(record, &found)?).await?;
    let opened = with_missing(record, &found, &first, list, None)?;
    with_adopted(state, record, &found, opened, async |storage, _| match storage {
        Storage::Path(path) => OpenDevice::open_to_read(ring, path, DeviceClass::Hdd).await,
        Storage::Memory => Err(Error::new(ErrorKind::Invalid, "memory cannot be an adopted disk")),
    })
    .await
}

/// Opens all devices of a volume but `but`, whose place a new device is to take. Returns the members and the
/// path or name of `but`.
pub(crate) async fn open_others(
    ring: &Ring,
    state: &StateDir,
    record: &VolumeRecord,
    but: DeviceId,
) -> Result<(Members, String)> {
    let found = find(state, record)?;
    refuse_two_records(state, record, &found, Purpose::Use(&[]))?;
    let Some(old) = found.places.iter().find(|place| place.id == but) else {
        return Err(no_device(record, &found, but));
    };
    let name = match &old.state {
        Whereabouts::At(path, _) => path.display().to_string(),
        Whereabouts::Nowhere(_) => old.recorded.clone(),
    };
    Ok((open_found(ring, record, &found, Some(but), false).await?, name))
}

/// Opens the devices that were found, except `but`.
async fn open_found(
    ring: &Ring,
    record: &VolumeRecord,
    found: &Found,
    but: Option<DeviceId>,
    takes_over: bool,
) -> Result<Members> {
    let kept = found.places.iter().filter(|place| Some(place.id) != but);
    let paths: Vec<PathBuf> = kept.filter_map(|place| place.path().cloned()).collect();
    if paths.is_empty() {
        return Err(lacks_all(record, found));
    }
    let (first, list) = open_paths(ring, &paths, &record.models, takes_over).await?;
    with_missing(record, found, &first, list, but)
}

/// Returns the paths of the devices that are there.
///
/// # Errors
/// `Degraded` if no device is there: the message says what was found in their places.
fn there(record: &VolumeRecord, found: &Found) -> Result<Vec<PathBuf>> {
    let paths = found.paths();
    if paths.is_empty() { Err(lacks_all(record, found)) } else { Ok(paths) }
}

/// Refuses to exclude a place that does not exist in the volume.
fn refuse_unknown(record: &VolumeRecord, found: &Found, purpose: Purpose<'_>) -> Result<()> {
    let given_up = purpose.given_up();
    match given_up.iter().find(|&&device| !has_device(record, found, device)) {
        None => Ok(()),
        Some(&device) => Err(no_device(record, found, device)),
    }
}

fn has_device(record: &VolumeRecord, found: &Found, device: DeviceId) -> bool {
    let is_adopted = record.devices.get(device.index()).is_some_and(|device| device.adopted);
    is_adopted || found.places.iter().any(|place| place.id == device)
}

fn no_device(record: &VolumeRecord, found: &Found, device: DeviceId) -> Error {
    let places = (0..=u16::MAX).map(DeviceId).take(MOST_DEVICES);
    let known: Vec<String> =
        places.filter(|&id| has_device(record, found, id)).map(|id| id.to_string()).collect();
    let problem = format!("volume '{}' has no device {device}: it has {}", record.name, known.join(", "));
    Error::new(ErrorKind::Usage, problem)
}

/// Refuses an unreadable device unless the volume may do without it. A device that answers with errors, or
/// not at all, counts as missing only in these cases: an SSD before an adopted disk, since no start waits for
/// a cache; a device of a volume with two copies of everything; and an excluded device.
fn refuse_unreadable(record: &VolumeRecord, found: &Found, purpose: Purpose<'_>) -> Result<()> {
    let may_lack = |place: &MemberPlace| match record.adopted() {
        _ if purpose.given_up().contains(&place.id) => true,
        Some(_) => record.devices[place.id.index()].class == DeviceClass::Ssd.to_string(),
        None => found.is_mirrored && !matches!(purpose, Purpose::Repair(_)),
    };
    for (place, lack) in found.lacking() {
        let is_refused = match lack {
            Lack::Unreadable(_) => !may_lack(place),
            Lack::Blank(_) => matches!(purpose, Purpose::Repair(_)) && !may_lack(place),
            Lack::Away(_) => false,
        };
        if is_refused {
            let problem = format!("{} of volume '{}': {}", place.id, record.name, lack.why());
            let kind = if matches!(lack, Lack::Blank(_)) { ErrorKind::Invalid } else { ErrorKind::Io };
            return Err(Error::new(kind, problem));
        }
    }
    Ok(())
}

/// Refuses a mirrored volume with missing devices if this host has two records of the volume.
///
/// Outdated devices are noted in the record used for serving, and the notes in the other record may be newer.
/// All devices together tell which devices are outdated.
fn refuse_two_records(
    state: &StateDir,
    record: &VolumeRecord,
    found: &Found,
    purpose: Purpose<'_>,
) -> Result<()> {
    let Some(other) = state.names_of(&record.uuid)?.into_iter().find(|name| *name != record.name) else {
        return Ok(());
    };
    let name = &record.name;
    tracing::warn!(
        "volume '{name}' is known here as '{other}', too: braid import all of its devices --as {name} \
         merges the two records"
    );
    if !found.is_mirrored || matches!(purpose, Purpose::Recovery) {
        return Ok(());
    }
    let Some((place, lack)) = found.lacking().next() else { return Ok(()) };
    let paths: Vec<String> = found.paths().iter().map(|path| quoted(path)).collect();
    let without: Vec<String> = found.lacking().map(|(place, _)| format!(" --without {}", place.id)).collect();
    let problem = format!(
        "volume '{name}' is known here as '{other}', too, and lacks {} ({}): which record knows the \
         outdated devices is unknown; bring {} back, or continue without: braid import {}{} --as {name} \
         (nothing was changed)",
        place.id,
        lack.why(),
        place.id,
        paths.join(" "),
        without.concat()
    );
    Err(Error::new(ErrorKind::Degraded, problem))
}

/// Adds the disk that the volume adopted, which has no superblock.
async fn with_adopted(
    state: &StateDir,
    record: &VolumeRecord,
    found: &Found,
    mut members: Members,
    open: impl AsyncFnOnce(&Storage, &DeviceRecord) -> Result<OpenDevice>,
) -> Result<Members> {
    let Some(disk) = find_disk(state, record, found)? else { return Ok(members) };
    let Disk { id, record: device, is_there, lack } = disk;
    let (Some(path), name) = (device.path.clone(), device.name()) else { return Ok(members) };
    members.disk_lack = lack;
    if is_there {
        let identity = adopted::identity(&path)?;
        adopted::refuse_used(&path)?;
        let opened = open(&Storage::Path(path), &device).await?;
        members.list.push(Member { id, device: Some(opened), name, adopted: Some(identity) });
        members.records.push((id.index(), device));
    } else {
        members.list.push(Member { id, device: None, name, adopted: None });
    }
    members.list.sort_by_key(|member| member.id);
    Ok(members)
}

/// Adds the missing devices. Fails with `Io` if the opened devices are no longer the devices that were found.
fn with_missing(
    record: &VolumeRecord,
    found: &Found,
    first: &Header,
    mut list: Vec<Member>,
    but: Option<DeviceId>,
) -> Result<Members> {
    let is_found =
        |member: &Member| found.places.iter().any(|place| place.id == member.id && place.is_there());
    if first.volume.to_string() != record.uuid || !list.iter().all(is_found) {
        let problem =
            format!("the devices of volume '{}' changed while they were opened: try again", record.name);
        return Err(Error::new(ErrorKind::Io, problem));
    }
    let mut lacks = Vec::new();
    for (place, lack) in found.lacking().filter(|(place, _)| Some(place.id) != but) {
        tracing::error!("device {} of volume '{}' is missing: {}", place.id, record.name, lack.why());
        lacks.push(format!("{}: {}", place.id, lack.why()));
        list.push(Member { id: place.id, device: None, name: place.recorded.clone(), adopted: None });
    }
    list.sort_by_key(|member| member.id);
    let has_adopted = record.adopted().is_some();
    Ok(Members { list, records: found.records(), lacks, disk_lack: None, has_adopted })
}

impl Members {
    /// Refuses a write-protected adopted disk: the volume cannot do without the disk. The opening itself
    /// writes only to the SSDs, and does not notice.
    pub fn refuse_protected_disk(&self, name: &VolumeName) -> Result<()> {
        let disk = self.list.iter().find(|member| member.adopted.is_some() && member.device.is_some());
        let why = disk.and_then(|disk| Some((disk, write_protection(Path::new(&disk.name))?)));
        let Some((disk, why)) = why else { return Ok(()) };
        let problem = format!(
            "{why}: {} is the disk that volume '{name}' adopted, and each write to it would fail (nothing \
             was changed)",
            disk.id
        );
        Err(Error::new(ErrorKind::Io, problem))
    }

    /// Returns the devices of a volume that was just made: the record knows these devices already.
    pub fn made(list: Vec<Member>) -> Members {
        Members { list, records: Vec::new(), lacks: Vec::new(), disk_lack: None, has_adopted: false }
    }

    /// Refuses to report a volume as sound if another disk is in the place of the adopted disk. Checks of the
    /// other devices tell nothing about the disk.
    ///
    /// # Errors
    /// `Degraded`: names what is in the disk's place, and the remedy.
    pub fn refuse_other_disk(&self, record: &VolumeRecord) -> Result<()> {
        let Some(lack) = &self.disk_lack else { return Ok(()) };
        let problem = format!("volume '{}' lacks the disk that it adopted: {lack}", record.name);
        Err(Error::new(ErrorKind::Degraded, problem))
    }

    /// Converts an engine error. If the volume lacks devices, the message says what was found in their
    /// places.
    pub fn explain(&self, error: braid_engine::Error) -> Error {
        let is_degraded = error.kind() == braid_engine::ErrorKind::Degraded;
        let is_of_disk = is_degraded || error.kind() == braid_engine::ErrorKind::Invalid;
        let mut reasons: Vec<&str> = self.disk_lack.as_deref().filter(|_| is_of_disk).into_iter().collect();
        if is_degraded && !self.lacks.is_empty() {
            reasons.extend(self.lacks.iter().map(String::as_str));
            reasons.push(match self.has_adopted {
                true => BESIDE,
                false => "devices in other directories: name all of them with braid import PATH…",
            });
        }
        if reasons.is_empty() {
            return error.into();
        }
        let problem = format!("{error}; {}", reasons.join("; "));
        Error::new(Error::from(error).kind(), problem)
    }
}

impl Purpose<'_> {
    fn given_up(&self) -> &[DeviceId] {
        match self {
            Purpose::Use(given_up) | Purpose::TakeOver(given_up) | Purpose::Repair(given_up) => given_up,
            Purpose::Recovery => &[],
        }
    }
}

/// Remedy for a volume that has adopted a disk: `braid import` does not find its devices.
const BESIDE: &str = "a device in another directory is found if it is moved or linked beside its old path";

/// Returns the error for a volume without any device: says of each device what was found in its place.
pub(crate) fn lacks_all(record: &VolumeRecord, found: &Found) -> Error {
    let describe = |(place, lack): (&MemberPlace, &Lack)| {
        let class = record.devices.get(place.id.index()).map_or("", |device| &device.class);
        format!("{} ({class}): {}", place.id, lack.why())
    };
    let described: Vec<String> = found.lacking().map(describe).collect();
    let elsewhere = match record.adopted() {
        Some(_) => BESIDE,
        None => "if the devices are in another directory now, name all of them: braid import PATH…",
    };
    let problem = format!(
        "volume '{}' lacks all of its {} devices: {}; bring them back; {elsewhere} (nothing was changed)",
        record.name,
        described.len(),
        described.join("; ")
    );
    Error::new(ErrorKind::Degraded, problem)
}

/// Opens the devices at these paths, sorted by place, and returns them with the first device's header. `own`
/// holds the texts of models outside the library. With `takes_over`, another host that uses a remote device
/// is shut out.
pub(crate) async fn open_paths(
    ring: &Ring,
    paths: &[PathBuf],
    own: &OwnModels,
    takes_over: bool,
) -> Result<(Header, Vec<Member>)> {
    let opened = open_each(ring, paths, async |storage, _, header| {
        let (entry, place) = (&header.device, header.this_device);
        let model = Some(entry.model.as_str()).filter(|model| !model.is_empty());
        let model = model.map(|model| library::reopen(entry.class, model, own)).transpose();
        let model = model.map_err(|e| Error::new(e.kind(), format!("{}: {e}", storage.name())))?;
        OpenDevice::open_member(ring, storage, entry.class, model.as_ref(), u64::from(place.0), takes_over)
            .await
    })
    .await?;
    wait_for_late_requests(ring, opened.1.iter().filter_map(|member| member.device.as_ref())).await;
    Ok(opened)
}

/// Opens the devices at these paths only for reading.
pub(crate) async fn open_paths_to_read(ring: &Ring, paths: &[PathBuf]) -> Result<(Header, Vec<Member>)> {
    open_each(ring, paths, async |_, path, header| {
        OpenDevice::open_to_read(ring, path, header.device.class).await
    })
    .await
}

async fn open_each(
    ring: &Ring,
    paths: &[PathBuf],
    open: impl AsyncFn(&Storage, &Path, &Header) -> Result<OpenDevice>,
) -> Result<(Header, Vec<Member>)> {
    refuse_duplicates(paths.iter().map(PathBuf::as_path))?;
    let (mut first, mut members) = (None, Vec::new());
    for path in paths {
        let header = look(ring, path).await?;
        let storage = Storage::Path(path.clone());
        let device = open(&storage, path, &header).await?;
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

/// Returns the options for opening a volume on the devices that are there.
pub(crate) fn open_options(record: &VolumeRecord, members: &[Member], lasting: &Lasting) -> OpenOptions {
    let (adopted, outdated, memory) = (adopted_disk(members), record.outdated(), lasting.memory());
    OpenOptions { adopted, outdated, memory, ..OpenOptions::new(names(members)) }
}

/// Finds the adopted disk among the devices that are there.
pub(crate) fn adopted_disk(members: &[Member]) -> Option<AdoptedDisk> {
    let mut there = members.iter().filter(|member| member.device.is_some()).enumerate();
    there.find_map(|(place, member)| {
        member.adopted.map(|identity| AdoptedDisk { place, identity, force: false })
    })
}

/// Returns the names of the devices that are there, for the engine's messages.
pub(crate) fn names(members: &[Member]) -> Vec<String> {
    members.iter().filter(|member| member.device.is_some()).map(|member| member.name.clone()).collect()
}

/// Returns handles of the devices that are there.
pub(crate) fn handles(members: &[Member]) -> Vec<OpenDevice> {
    members.iter().filter_map(|member| member.device.clone()).collect()
}
