//! A new device in the place of one that is gone.

use crate::copies::{Member, watched};
use crate::create::{refuse_content, write_empty_regions};
use crate::journal::{Mode, Source, recover};
use crate::map::State;
use crate::open::{
    Assembled, Attempts, Lacking, NEVER, assemble, refuse_only_copies, refuse_outdated, was_current,
    write_new,
};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, KIB};
use braid_format::Uuid;
use braid_format::superblock::{DeviceEntry, DeviceState, Role, Superblock};
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// What takes the place of a device.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The place.
    pub device: DeviceId,
    /// What to call the new device in messages: its path.
    pub name: String,
    /// Its identity: 128 random bits.
    pub identity: Uuid,
    /// The model that it emulates; empty for none.
    pub model: String,
    /// Devices that are known to be older than the others, as at an opening.
    pub outdated: Vec<DeviceId>,
    /// Whether it may be overwritten if it holds something else.
    pub overwrite: bool,
}

/// Gives a volume that is not open a new device in the place of one that is not among `devices`. The next
/// opening makes all copies on it anew, while guests work; until then the volume has one copy. The device
/// that was there before is none of the volume's from then on.
///
/// An interruption leaves the volume with the old device or with the new one, and it can be done again.
///
/// # Errors
/// `Invalid` for a new device that is too small, of another class, or holds something; `Degraded` if the old
/// one alone holds something, or is newer than the others, or more are missing; whatever
/// [`crate::Volume::open`] refuses.
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
        assemble(rt, devices, names, &[], None, (Lacking::Refused, &Attempts::default())).await?;
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
        return invalid(format!("{device} is there: take away the device that is to be replaced"));
    }
    if superblock.copies == 1 {
        let name = &superblock.name;
        let text = format!(
            "volume '{name}' has one copy of everything, and nothing to make {device} from: bring that back, or restore a backup to a new volume"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let entry = fitting(entry, &superblock, new, replacement)?;
    refuse_outdated(&superblock, &away, &[&replacement.outdated[..], &told].concat())?;
    refuse_if_needed(rt, &superblock, &devices, (clean, &anew), (&lately, &cut)).await?;
    let old_size = std::mem::replace(&mut superblock.devices[device.index()], entry).size;
    superblock.sequence += 1;
    superblock.verify().map_err(|wrong| {
        let text = format!("{name} cannot take the place of {device}: {wrong}; use a device of {old_size}");
        Error::new(ErrorKind::Invalid, text)
    })?;
    if !overwrite {
        refuse_content(new, name).await?;
    }
    // One that is behind learns of it once it is in step again: a superblock of this number would say that it
    // was there.
    let there = devices.iter().zip(&superblock.devices);
    let others: Vec<Option<&D>> =
        there.map(|(device, entry)| device.as_deref().filter(|_| was_current(entry))).collect();
    let mut alone = vec![None; others.len()];
    alone[device.index()] = Some(new);
    write_empty_regions(&alone, &superblock, None).await?;
    // The new one before those that will expect it: where this is interrupted, they have not heard of it.
    write_new(&[&alone, &others], &superblock).await?;
    Ok(superblock)
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, message))
}

/// The entry of the new device: its slots are where those of the old one were, and nothing on it counts yet.
fn fitting<D: Device>(
    old: &DeviceEntry,
    superblock: &Superblock,
    new: &D,
    replacement: &Replacement,
) -> Result<DeviceEntry> {
    let (geometry, name) = (new.geometry(), &replacement.name);
    if geometry.class != old.class {
        let (device, class) = (replacement.device, old.class);
        return invalid(format!("{name} is no {class}, as {device} of volume '{}' is", superblock.name));
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
        // The removal was of the old one.
        role: old.role.without(Role::LEAVING),
        ..old.clone()
    })
}

/// Refuses to go on if the device that is gone alone holds something.
async fn refuse_if_needed<R: Runtime, D: Device>(
    rt: &R,
    superblock: &Superblock,
    devices: &[Option<Rc<D>>],
    (clean, anew): (bool, &[DeviceId]),
    (lately, cut): (&[DeviceId], &[(DeviceId, String)]),
) -> Result<()> {
    let members = Member::all(superblock, devices.to_vec(), anew);
    let shape = Shape::of(superblock);
    let mut state = State::new(&shape, superblock);
    let source = Source {
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
    let recovered = watched(rt, &members, recover(&source, &mut state)).await?;
    if let Some(found) = recovered.forgetful.first() {
        let what = found.describe("a device", &superblock.name);
        return Err(Error::new(ErrorKind::Degraded, what));
    }
    refuse_only_copies(&members, superblock, &shape, &state, (lately, cut))
}
