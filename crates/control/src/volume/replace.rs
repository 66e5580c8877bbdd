//! `braid device replace`: a new device in the place of a missing device, or of a device that is to leave.
//!
//! A served volume gets the new device beside the old device, and the old device drains. A volume without a
//! daemon gets the new device in the old device's place.

use crate::admin::client::Client;
use crate::device::open::{OpenDevice, Prepared, prepare, refuse_duplicates};
use crate::device::remote::remove_made;
use crate::device::spec::{DeviceSpec, Storage};
use crate::members::claims::{IntendedUse, refuse_claimed};
use crate::members::open::{Members, Purpose, handles, names, open_members, open_options, open_others};
use crate::members::replaced::old_and_new;
use crate::model::library;
use crate::report::changes::ReplaceReport;
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::with_notes;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use crate::volume::at_rest;
use crate::volume::create::absolute;
use crate::volume::ring::on_ring;
use crate::{ErrorKind, Result};
use braid_base::DeviceId;
use braid_engine::{Replacement, Volume};
use braid_format::Uuid;
use braid_runtime::Device;
use braid_uring::Ring;

/// Replaces a device that is missing or is to leave. `text` is `PATH[,size=S][,model=M]`.
///
/// If the volume is served, the new device gets a place of its own, and the old device drains: its data moves
/// to the new device and elsewhere while guests work. The data of a lost device is read from the other
/// devices. If the volume is not served and has two copies of everything, the next serving makes all copies
/// on the new device.
///
/// # Errors
/// `Invalid` if the new device does not fit; `NoSpace` if the devices without the old device have no room;
/// `Degraded` if only the old device holds some data. Nothing was changed then.
pub fn replace(
    state: &StateDir,
    name: &VolumeName,
    device: DeviceId,
    text: &str,
    overwrite: bool,
) -> Result<ReplaceReport> {
    let (_, mut spec) = old_and_new(&state.load(name)?, device, text)?;
    match Client::connect(state, name) {
        Ok(mut client) => return client.replace_device(device, &spec, overwrite),
        Err(error) if error.kind() == ErrorKind::NotServed => {}
        Err(error) => return Err(error),
    }
    let (_lock, mut record) = VolumeLock::take_known(state, name, "given a new device")?;
    old_and_new(&record, device, text)?;
    spec.storage = absolute(&spec.storage)?;
    if Lasting::left(state, &record).is_some() {
        on_ring(async |ring| keep_acknowledged(ring, state, &record, device).await)?;
        record = state.load(name)?;
    }
    let work = async |ring: &Ring| replace_on(ring, state, &mut record, device, &spec, overwrite).await;
    let (new, replaced_path) = on_ring(work)?;
    record.set_device(device.index(), new);
    state.save(&record)?;
    Ok(ReplaceReport {
        name: name.to_string(),
        device: device.to_string(),
        new_device: device.to_string(),
        replaced_path,
        devices: record.devices,
    })
}

/// Makes durable the writes that a dead daemon had acknowledged. A replacement begins an opening of its own,
/// and a pending log counts only in the next opening. If the volume cannot be opened with the old device, the
/// volume is opened without the old device.
async fn keep_acknowledged(
    ring: &Ring,
    state: &StateDir,
    record: &VolumeRecord,
    old: DeviceId,
) -> Result<()> {
    let with_all = async {
        let members = open_members(ring, state, record, Purpose::Use(&[])).await?;
        open_and_close(ring, state, record, &members).await
    };
    if let Err(error) = with_all.await {
        tracing::warn!(
            "volume '{}' is opened without {old}, the device to be replaced: {error}",
            record.name
        );
        let (members, _) = open_others(ring, state, record, old).await?;
        open_and_close(ring, state, record, &members).await?;
    }
    Ok(())
}

async fn open_and_close(
    ring: &Ring,
    state: &StateDir,
    record: &VolumeRecord,
    members: &Members,
) -> Result<()> {
    let lasting = Lasting::of(state, record);
    let options = with_notes(open_options(record, &members.list, &lasting), state, record);
    let (volume, _) = Volume::open(ring.clone(), handles(&members.list), options)
        .await
        .map_err(|error| members.explain(error))?;
    at_rest::close(state, record, members, &volume, &lasting).await
}

/// Replaces a device, and returns the new device's record and the old device's path or name. Notes the
/// present paths of the other devices in `record`. On an error, a file made for the new device is removed
/// again.
async fn replace_on(
    ring: &Ring,
    state: &StateDir,
    record: &mut VolumeRecord,
    device: DeviceId,
    spec: &DeviceSpec,
    overwrite: bool,
) -> Result<(DeviceRecord, String)> {
    let model = spec.model.as_deref().map(|model| library::find(spec.class, model)).transpose()?;
    let stored = model.as_ref().map(|model| model.stored.clone());
    let mut new = DeviceRecord::new(&spec.storage, spec.class, stored.as_deref(), 0);
    let (members, replaced) = open_others(ring, state, record, device).await?;
    let places = members.records.iter().filter(|(place, _)| *place != device.index());
    refuse_duplicates(places.map(|(_, other)| other).chain([&new]).filter_map(|d| d.path.as_deref()))?;
    if let Storage::Path(path) = &spec.storage {
        refuse_claimed(state, path, IntendedUse::Overwrite { forced: overwrite })?;
    }
    record.set_places(&members.records);
    if let Some((name, text)) = model.as_ref().and_then(|model| model.own.clone()) {
        library::keep(&mut record.models, name, text)?;
    }
    new.made = prepare(spec)? == Prepared::Made;
    let work = async {
        let (model, seed) = (model.map(|model| model.spec), u64::from(device.0));
        let opened =
            OpenDevice::open(ring, &spec.storage, spec.class, model.as_ref(), spec.size, seed).await?;
        new.size_bytes = opened.geometry().size.0;
        let replacement = Replacement {
            device,
            name: spec.name(),
            identity: Uuid(uuid::Uuid::new_v4().into_bytes()),
            model: stored.unwrap_or_default(),
            outdated: record.outdated(),
            overwrite,
        };
        let list = &members.list;
        let replaced = braid_engine::replace(ring, handles(list), &names(list), &opened, &replacement).await;
        replaced.map(drop).map_err(|error| members.explain(error))
    };
    let result = work.await;
    if result.is_err()
        && new.made
        && let Some(Err(error)) = new.path.as_deref().map(remove_made)
    {
        tracing::warn!("{} could not be removed: {error}", spec.name());
    }
    result.map(|()| (new, replaced))
}
