//! Judges one device by its own superblock and by its entry in the newest superblock.

use super::apart::is_lack_known;
use super::candidate::Candidate;
use super::cut::{is_cut, is_short, refuse_short};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::Uuid;
use braid_format::fingerprint::NO_SERIAL;
use braid_format::superblock::{DeviceEntry, DeviceState, Header, Phase, Role, Superblock};
use braid_runtime::Device;

/// Last generation in step of a device to rebuild: none, until its differences are durably recorded.
pub(crate) const NEVER: u64 = 0;

/// Last generation with possible writes to a device, by its own superblock. An interrupted opening wrote no
/// data, and any number of interrupted openings may follow each other.
pub(super) fn last_written(header: &Header) -> u64 {
    if header.phase == Phase::Opening { header.device.in_step } else { header.epoch }
}

/// Verdict on a given device.
pub(crate) struct Verdict {
    pub(super) state: DeviceState,
    /// True if all copies on the device must be rebuilt.
    pub lacks_all: bool,
    /// True if the end of the device is gone. With one required copy, the device counts as before: the caller
    /// decides.
    pub is_cut: bool,
}

/// Returns the entry of a device in the newest superblock.
///
/// # Errors
/// `Invalid` if the device does not belong to the volume any more, or not yet.
pub(super) fn entry_of<'a, D: Device>(
    newest: &'a Superblock,
    candidate: &Candidate<'_, D>,
) -> Result<&'a DeviceEntry> {
    let (name, header, volume) = (candidate.name, &candidate.header, &newest.name);
    let entry = newest.devices.get(header.this_device.index());
    let Some(entry) = entry.filter(|entry| entry.uuid == header.device.uuid) else {
        let text = format!(
            "{name} is not a device of volume '{volume}' in its last opening: the device was removed, or \
             was added to a discarded side; leave it out"
        );
        return refuse(ErrorKind::Invalid, text);
    };
    Ok(entry)
}

/// Judges a device by its own superblock and by its entry in the newest superblock.
///
/// # Errors
/// `Invalid` for a foreign device, an old copy, or a device that has shrunk; `Degraded` for a device that was
/// used apart from the rest.
pub(crate) fn judge<D: Device>(newest: &Superblock, candidate: &Candidate<'_, D>) -> Result<Verdict> {
    let entry = entry_of(newest, candidate)?;
    if is_short(entry, candidate) {
        return refuse_short(newest, entry, candidate);
    }
    let (name, header, volume) = (candidate.name, &candidate.header, &newest.name);
    let id = header.this_device;
    let used = last_written(header);
    // The table of an opening in progress, or of an opening without the device, knows the device's last
    // written generation.
    let is_known_last = newest.phase == Phase::Opening || !was_current(entry);
    if is_known_last && used > entry.in_step && entry.in_step != NEVER && !planted(Bug::StaleDeviceTaken) {
        let text = format!(
            "{name} (device {id} of volume '{volume}') was used apart from the others: it was written in \
             opening {used}, and the others were opened without it after opening {}; choose: give one side \
             alone, or discard the data of one of the devices (--distrust DEVICE), which is then brought up \
             to date from the others",
            entry.in_step
        );
        return refuse(ErrorKind::Degraded, text);
    }
    let is_cut = is_cut(candidate);
    match entry.state {
        // The differences since the device was in step are recorded. An older copy of the device lacks more.
        DeviceState::Missing | DeviceState::Failed | DeviceState::Returning => {
            // An interrupted opening may be the successor of the last generation in step, or a later opening.
            let was_there = used != NEVER && (used..=header.epoch).contains(&entry.in_step)
                || planted(Bug::OlderReturnTaken);
            // If a device was excluded while absent, only its own table reveals its use since. A device that
            // was being resynchronised was present.
            let was_absent = entry.in_step == NEVER && entry.state != DeviceState::Returning;
            let is_told = match was_there || was_absent {
                true => is_lack_known(newest, candidate)?,
                false => false,
            };
            let is_known = was_there && is_told && !is_cut;
            let lacks_all = !is_known && !planted(Bug::StaleDeviceTaken);
            Ok(Verdict { state: DeviceState::Returning, lacks_all, is_cut })
        }
        _ if is_cut && newest.copies > 1 => {
            Ok(Verdict { state: DeviceState::Returning, lacks_all: true, is_cut })
        }
        state if is_in_step(newest, header, entry) => Ok(Verdict { state, lacks_all: false, is_cut }),
        _ => {
            let other_way = match newest.copies {
                1 => format!(
                    "no other copy of its data exists: --distrust {id} discards all data on {id} alone for \
                     good"
                ),
                _ => format!(
                    "or have this device brought up to date from another copy (--distrust {id}), which \
                     overwrites it"
                ),
            };
            let text = format!(
                "{name} is an old copy of device {id} of volume '{volume}': its last opening is {used} \
                 ({:?}), the last opening of the others {} ({:?}); give the device that was in use last; \
                 {other_way}",
                header.phase, newest.epoch, newest.phase
            );
            refuse(ErrorKind::Invalid, text)
        }
    }
}

/// True if a device took part up to the newest step, or is behind by the one step of an interruption. Any
/// number of openings may have been interrupted before they reached the device: they wrote no data.
fn is_in_step(newest: &Superblock, header: &Header, entry: &DeviceEntry) -> bool {
    let step = |phase: Phase| match phase {
        Phase::Opening => 0,
        Phase::Open => 1,
        Phase::Closing => 2,
        Phase::Closed => 3,
    };
    let (last, this) = (step(newest.phase), step(header.phase));
    match newest.phase {
        _ if planted(Bug::StaleDeviceTaken) => true,
        // The table may be one step ahead of the superblocks. If a device did not get past `Opening`, no
        // device was written. A device further along with the same number belongs to another opening.
        Phase::Opening if header.epoch == newest.epoch => header.phase == Phase::Opening,
        Phase::Opening => header.epoch >= entry.in_step.min(newest.epoch - 1),
        // The device was about to be opened together with a device that is missing now.
        Phase::Closed if header.phase == Phase::Opening => header.device.in_step == newest.epoch,
        _ => header.epoch == newest.epoch && this <= last && this + 1 >= last,
    }
}

/// Superblock of the end of the last opening that wrote the newest header's device. It counts if the newest
/// header belongs to an interrupted opening and its table is on a missing device.
pub(super) fn closed_before<'a>(
    newest: &Header,
    mut headers: impl Iterator<Item = &'a Header>,
) -> Option<&'a Header> {
    let is_end = |header: &&Header| header.phase == Phase::Closed && header.epoch == newest.device.in_step;
    headers.find(|header| newest.phase == Phase::Opening && is_end(header))
}

/// Superblock of a device that continued without the devices of the newest superblock, if none of these has
/// data that the device lacks. The newest superblock, like all since the device was written with the rest,
/// belongs to an interrupted opening.
pub(super) fn gone_on<'a>(
    newest: &Superblock,
    headers: impl Iterator<Item = &'a Header>,
) -> Option<&'a Header> {
    let is_used = |entry: &&DeviceEntry| was_current(entry) && entry.state != DeviceState::Removed;
    let last_used = newest.devices.iter().filter(is_used).map(|entry| entry.in_step).max()?;
    let has_gone_on = |header: &&Header| {
        let entry = newest.devices.get(header.this_device.index());
        entry.filter(|entry| entry.uuid == header.device.uuid).is_some_and(|entry| {
            let was_with_all = is_used(&entry) && entry.in_step >= last_used;
            (was_with_all || is_missing_since(entry, last_used)) && last_written(header) > entry.in_step
        })
    };
    let others = headers.filter(has_gone_on).filter(|_| newest.phase == Phase::Opening);
    others.max_by_key(|header| (header.epoch, header.sequence))
}

/// True if an interrupted opening lacked a device that was present at every write to another device (last in
/// generation `last_used`): the entry is neither failed nor returning.
pub(super) fn is_missing_since(entry: &DeviceEntry, last_used: u64) -> bool {
    entry.state == DeviceState::Missing && entry.in_step != NEVER && entry.in_step >= last_used
}

/// True if a device was in step, as far as the superblock knows.
pub(crate) fn was_current(entry: &DeviceEntry) -> bool {
    !matches!(entry.state, DeviceState::Missing | DeviceState::Failed | DeviceState::Returning)
}

/// State of a device that was not given.
pub(super) fn absent(entry: &DeviceEntry) -> DeviceState {
    match entry.state {
        state @ (DeviceState::Failed | DeviceState::Removed) => state,
        // The device lacked something already: the other devices have changed since.
        DeviceState::Returning => DeviceState::Failed,
        _ => DeviceState::Missing,
    }
}

/// True if the newest superblock says that the device has left the volume, or has not joined yet.
pub(super) fn is_removed(entry: &DeviceEntry, header: &Header) -> bool {
    entry.state == DeviceState::Removed && entry.uuid == header.device.uuid
}

/// True if a device was lost and awaits removal. The device is present again, and the other devices hold
/// everything.
pub(super) fn is_leaving(entry: &DeviceEntry, header: &Header) -> bool {
    let is_lost = matches!(entry.state, DeviceState::Missing | DeviceState::Failed);
    is_lost && entry.role.contains(Role::LEAVING) && entry.uuid == header.device.uuid
}

/// True if the administrator excludes a device, or excluded it earlier and it has not returned since.
pub(super) fn is_given_up(superblock: &Superblock, device: DeviceId, distrusted: &[DeviceId]) -> bool {
    let entry = superblock.devices.get(device.index());
    let lacks_all = |entry: &DeviceEntry| {
        entry.in_step == NEVER && matches!(entry.state, DeviceState::Missing | DeviceState::Failed)
    };
    distrusted.contains(&device) || entry.is_some_and(lacks_all)
}

/// Refuses a disk with another serial number or size than the adopted disk.
pub(super) fn judge_adopted<D: Device>(
    superblock: &Superblock,
    entry: &DeviceEntry,
    name: &str,
    device: &D,
    identity: Uuid,
) -> Result<()> {
    let volume = &superblock.name;
    // If a serial number is absent, now or at the adoption, the sums of the disk's contents decide.
    if identity != entry.uuid && ![identity, entry.uuid].contains(&NO_SERIAL) {
        let text = format!(
            "{name} is not the disk that volume '{volume}' adopted: its serial number differs; give the \
             adopted disk"
        );
        return refuse(ErrorKind::Invalid, text);
    }
    let size = device.geometry().size;
    if size != entry.size {
        let text = format!(
            "{name} has {} bytes, and had {} when volume '{volume}' adopted it: restore its size, or leave the volume (braid device remove) and \
             adopt the disk anew",
            size.0, entry.size.0
        );
        return refuse(ErrorKind::Invalid, text);
    }
    Ok(())
}

pub(super) fn refuse<T>(kind: ErrorKind, message: String) -> Result<T> {
    Err(Error::new(kind, message))
}
