//! Puts a new device in the place of a lost device.

use crate::create::{refuse_content, write_empty_regions};
use crate::devices::{Member, watched, write_new};
use crate::fence::lease::refuse_served;
use crate::journal::{Mode, RecoveryInput, recover};
use crate::map::State;
use crate::open::{
    Assembled, Attempts, Lacking, NEVER, assemble, refuse_only_copies, refuse_outdated, was_current,
};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, KIB};
use braid_format::Uuid;
use braid_format::superblock::{DeviceEntry, DeviceState, Phase, Role, Superblock};
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// Description of the new device.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// Place of the lost device.
    pub device: DeviceId,
    /// Name of the new device in messages: its path.
    pub name: String,
    /// Identity of the new device: 128 random bits.
    pub identity: Uuid,
    /// Emulated model; empty for none.
    pub model: String,
    /// Devices known to be outdated, as at an opening.
    pub outdated: Vec<DeviceId>,
    /// True if other contents of the new device may be overwritten.
    pub overwrite: bool,
}

/// Puts a new device in the place of a device that is not among `devices`, while the volume is closed. The
/// next opening rebuilds all copies there while guests work; until then the volume has one copy. The former
/// device no longer belongs to the volume.
///
/// An interruption leaves the volume with the old device or with the new device, and the call may be
/// repeated.
///
/// # Errors
/// `Invalid` for a new device that is too small, of another class, or has contents; `Degraded` if the old
/// device has the only copy of data, or is newer than the rest, or more devices are missing; `Busy` if
/// another host serves the volume on shared devices (after an unclean stop, the call takes 5 s more); every
/// refusal of [`crate::Volume::open`].
pub async fn replace<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<D>,
    names: &[String],
    new: &D,
    replacement: &Replacement,
) -> Result<Superblock> {
    let Replacement { device, name, overwrite, .. } = replacement;
    let devices = devices.into_iter().map(Rc::new).collect();
    let Assembled { mut superblock, devices, clean, lately, away, told, anew, cut, .. } =
        assemble(rt, devices, names, &[], None, Lacking::Refused, &Attempts::default()).await?;
    let Some(entry) = superblock.devices.get(device.index()) else {
        let count = superblock.devices.len();
        return invalid(format!("volume '{}' has no device {device}: it has {count}", superblock.name));
    };
    if entry.state == DeviceState::Removed {
        return invalid(format!(
            "{device} was removed: serve the volume, and add a device (braid device add)"
        ));
    }
    if devices[device.index()].is_some() {
        return invalid(format!("{device} is present: detach the device before its replacement"));
    }
    if superblock.copies == 1 {
        let name = &superblock.name;
        let text = format!(
            "volume '{name}' has one copy of everything, and no source for a new {device}: bring the device \
             back, or restore a backup to a new volume"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let entry = fitting(entry, &superblock, new, replacement)?;
    refuse_outdated(&superblock, &away, &[&replacement.outdated[..], &told].concat())?;
    refuse_if_needed(rt, &superblock, &devices, clean, &anew, &lately, &cut).await?;
    let is_shared = devices.iter().flatten().any(|device| device.is_shared());
    if superblock.phase != Phase::Closed && is_shared {
        let members = Member::all(&superblock, devices.clone(), &anew);
        watched(rt, &members, refuse_served(rt, &members, &superblock.name)).await?;
    }
    let old_size = std::mem::replace(&mut superblock.devices[device.index()], entry).size;
    superblock.sequence += 1;
    superblock.verify().map_err(|wrong| {
        let text = format!("{name} cannot take the place of {device}: {wrong}; use a device of {old_size}");
        Error::new(ErrorKind::Invalid, text)
    })?;
    if !overwrite {
        refuse_content(new, name).await?;
    }
    // A device that is behind gets its superblock once in step again: a superblock with this number would
    // claim that the device was in step.
    let there = devices.iter().zip(&superblock.devices);
    let others: Vec<Option<&D>> =
        there.map(|(device, entry)| device.as_deref().filter(|_| was_current(entry))).collect();
    let mut alone = vec![None; others.len()];
    alone[device.index()] = Some(new);
    write_empty_regions(&alone, &superblock, None).await?;
    // The new device is written before the devices that expect it. If the call is interrupted in between, the
    // other devices do not know of the new device.
    write_new(&[&alone, &others], &superblock).await?;
    Ok(superblock)
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Entry of the new device: its slots are at the old device's places, and no data on it counts yet.
fn fitting<D: Device>(
    old: &DeviceEntry,
    superblock: &Superblock,
    new: &D,
    replacement: &Replacement,
) -> Result<DeviceEntry> {
    let (geometry, name) = (new.geometry(), &replacement.name);
    if geometry.class != old.class {
        let (device, class) = (replacement.device, old.class);
        return invalid(format!("{name} is not a {class}, and {device} of volume '{}' is", superblock.name));
    }
    if geometry.alignment > KIB * 4 {
        return invalid(format!(
            "{name} needs requests of {}: at most 4 KiB is supported",
            geometry.alignment
        ));
    }
    Ok(DeviceEntry {
        uuid: replacement.identity,
        size: geometry.size,
        model: replacement.model.clone(),
        state: DeviceState::Missing,
        in_step: NEVER,
        // The removal concerned the old device.
        role: old.role.without(Role::LEAVING),
        ..old.clone()
    })
}

/// Refuses to continue if the lost device has the only copy of data.
async fn refuse_if_needed<R: Runtime, D: Device>(
    rt: &R,
    superblock: &Superblock,
    devices: &[Option<Rc<D>>],
    clean: bool,
    anew: &[DeviceId],
    lately: &[DeviceId],
    cut: &[(DeviceId, String)],
) -> Result<()> {
    let members = Member::all(superblock, devices.to_vec(), anew);
    let shape = Shape::of(superblock);
    let mut state = State::new(&shape, superblock);
    let input = RecoveryInput {
        members: &members,
        superblock,
        mode: Mode::Strict,
        clean,
        changed_elsewhere: false,
        dirty_spans: None,
        log: None,
        cut,
        noted: 0,
    };
    let recovered = watched(rt, &members, recover(&input, &mut state)).await?;
    if let Some(found) = recovered.forgetful.first() {
        let what = found.describe("a device", &superblock.name);
        return Err(Error::new(ErrorKind::Degraded, what));
    }
    refuse_only_copies(&members, superblock, &shape, &state, lately, cut)
}
