//! The devices of a volume that exists: found by their paths, known by their superblocks, opened as what they are.

use crate::devices::{OpenDevice, look, refuse_duplicates};
use crate::models::{self, OwnModels};
use crate::spec::Storage;
use crate::state_dir::VolumeRecord;
use crate::{Error, ErrorKind, Result};
use braid_format::superblock::Superblock;
use braid_uring::Ring;
use std::io;
use std::path::{Path, PathBuf};

/// A device as the daemon holds it, beside what the engine knows of it.
pub(crate) struct Member {
    pub device: OpenDevice,
    /// Its path, or `memory`.
    pub name: String,
}

/// Opens the devices of a volume, in the order of their places.
///
/// # Errors
/// `Degraded` where a path leads nowhere, `Invalid` where the devices there are of another volume. What the superblocks
/// say of each other is for the engine to judge.
pub(crate) async fn open_members(ring: &Ring, record: &VolumeRecord) -> Result<Vec<Member>> {
    let paths = record.paths()?;
    refuse_missing(record, &paths)?;
    refuse_other(record, open_paths(ring, &paths, &record.models).await?)
}

/// The same for reading alone: needs no right to write to any of them.
pub(crate) async fn open_members_to_read(ring: &Ring, record: &VolumeRecord) -> Result<Vec<Member>> {
    let paths = record.paths()?;
    refuse_missing(record, &paths)?;
    refuse_other(record, open_paths_to_read(ring, &paths).await?)
}

fn refuse_other(
    record: &VolumeRecord,
    (superblock, members): (Superblock, Vec<Member>),
) -> Result<Vec<Member>> {
    if superblock.volume.to_string() != record.uuid {
        let name = &record.name;
        let problem = format!(
            "{} belongs to volume '{}' ({}), not to '{name}' ({}): bring the devices of '{name}' back, or braid import \
             them under their paths of today",
            record.devices[0].name(),
            superblock.name,
            superblock.volume,
            record.uuid
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    Ok(members)
}

/// Opens whatever lies on these devices, in the order of their places; with the superblock of the first path. `own` are
/// the texts of models that are not of the library.
pub(crate) async fn open_paths(
    ring: &Ring,
    paths: &[PathBuf],
    own: &OwnModels,
) -> Result<(Superblock, Vec<Member>)> {
    open_each(ring, paths, |storage, _, superblock| {
        let (entry, place) = (superblock.this_entry(), superblock.this_device);
        let model = Some(entry.model.as_str()).filter(|model| !model.is_empty());
        let model = model.map(|model| models::reopen(entry.class, model, own)).transpose();
        let model = model.map_err(|e| Error::new(e.kind(), format!("{}: {e}", storage.name())))?;
        OpenDevice::open(ring, storage, entry.class, model.as_ref(), None, u64::from(place.0))
    })
    .await
}

/// The same for reading alone.
async fn open_paths_to_read(ring: &Ring, paths: &[PathBuf]) -> Result<(Superblock, Vec<Member>)> {
    open_each(ring, paths, |_, path, superblock| {
        OpenDevice::open_to_read(ring, path, superblock.this_entry().class)
    })
    .await
}

async fn open_each(
    ring: &Ring,
    paths: &[PathBuf],
    open: impl Fn(&Storage, &Path, &Superblock) -> Result<OpenDevice>,
) -> Result<(Superblock, Vec<Member>)> {
    refuse_duplicates(paths.iter().map(PathBuf::as_path))?;
    let (mut first, mut members) = (None, Vec::new());
    for path in paths {
        let superblock = look(ring, path).await?;
        let storage = Storage::Path(path.clone());
        let device = open(&storage, path, &superblock)?;
        members.push((superblock.this_device, Member { device, name: storage.name() }));
        first.get_or_insert(superblock);
    }
    members.sort_by_key(|(place, _)| *place);
    let first = first
        .ok_or_else(|| Error::new(ErrorKind::Usage, "no device was given: name the volume's devices"))?;
    Ok((first, members.into_iter().map(|(_, member)| member).collect()))
}

/// Says of all paths that lead nowhere at once what was there.
fn refuse_missing(record: &VolumeRecord, paths: &[PathBuf]) -> Result<()> {
    let is_missing =
        |path: &Path| std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let places = paths.iter().zip(&record.devices).enumerate();
    let missing = places.filter(|(_, (path, _))| is_missing(path));
    let missing: Vec<String> = missing
        .map(|(place, (path, device))| format!("d{place} ({}, {})", device.class, path.display()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let VolumeRecord { name, .. } = record;
    let problem = format!(
        "volume '{name}' lacks {} of its {} devices: {} does not exist; bring it back, or, where the devices have other \
         paths now, name all of them: braid import PATH… (nothing was changed)",
        missing.len(),
        paths.len(),
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Degraded, problem))
}

/// Names of the devices, for the engine's messages.
pub(crate) fn names(members: &[Member]) -> Vec<String> {
    members.iter().map(|member| member.name.clone()).collect()
}

/// The devices themselves: handles.
pub(crate) fn handles(members: &[Member]) -> Vec<OpenDevice> {
    members.iter().map(|member| member.device.clone()).collect()
}
