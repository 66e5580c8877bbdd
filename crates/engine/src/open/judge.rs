//! What one device is good for: by its own superblock, and by what the newest one says of it.

use super::apart::is_lack_known;
use super::assemble::was_current;
use super::candidate::Candidate;
use super::cut::{is_cut, is_short, refuse_short};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::Uuid;
use braid_format::fingerprint::NO_SERIAL;
use braid_format::superblock::{DeviceEntry, DeviceState, Header, Phase, Role, Superblock};
use braid_runtime::Device;

/// The last epoch in step of a device whose copies are all made again: it has none until the set of what it
/// lacks is durable.
pub(crate) const NEVER: u64 = 0;

/// The last epoch in which data may have been written to a device, as its superblock knows it. An opening
/// that was interrupted wrote none, and any number of them may have followed each other.
pub(super) fn last_written(header: &Header) -> u64 {
    if header.phase == Phase::Opening { header.device.in_step } else { header.epoch }
}

/// What a device that was given is good for.
pub(crate) struct Judged {
    pub(super) state: DeviceState,
    /// Whether all of its copies must be made again.
    pub lacks_all: bool,
    /// Whether its end is gone. With one required copy the device counts as before all the same: the caller
    /// decides.
    pub is_cut: bool,
}

/// What the volume knows of a device, if it is one of its devices.
///
/// # Errors
/// `Invalid` for a device that is none of the volume's any more, or not yet.
pub(super) fn entry_of<'a, D: Device>(
    newest: &'a Superblock,
    candidate: &Candidate<'_, D>,
) -> Result<&'a DeviceEntry> {
    let (name, header, volume) = (candidate.name, &candidate.header, &newest.name);
    let entry = newest.devices.get(header.this_device.index());
    let Some(entry) = entry.filter(|entry| entry.uuid == header.device.uuid) else {
        let text = format!(
            "{name} is no device of volume '{volume}' as that was used last: it was one once, or was added to what is given up; leave it out"
        );
        return refuse(ErrorKind::Invalid, text);
    };
    Ok(entry)
}

/// Judges a device by its superblock and by what the newest one says of it.
///
/// # Errors
/// `Invalid` for a device that is none of the volume's, an old copy, or smaller than before; `Degraded` for
/// one that was used apart from the others.
pub(crate) fn judge<D: Device>(newest: &Superblock, candidate: &Candidate<'_, D>) -> Result<Judged> {
    let entry = entry_of(newest, candidate)?;
    if is_short(entry, candidate) {
        return refuse_short(newest, entry, candidate);
    }
    let (name, header, volume) = (candidate.name, &candidate.header, &newest.name);
    let id = header.this_device;
    let used = last_written(header);
    // A table of an opening that is in progress, or of one without the device, knows of all in which that was
    // written.
    let is_known_last = newest.phase == Phase::Opening || !was_current(entry);
    if is_known_last && used > entry.in_step && entry.in_step != NEVER && !planted(Bug::StaleDeviceTaken) {
        let text = format!(
            "{name} (device {id} of volume '{volume}') was used apart from the others: it was written in opening {used}, and \
             they were opened without it after opening {}; choose: give one side alone, or give up what was written \
             to one of the devices (--distrust DEVICE), which is then brought up to date from the others",
            entry.in_step
        );
        return refuse(ErrorKind::Degraded, text);
    }
    let is_cut = is_cut(candidate);
    match entry.state {
        // What it lacks is known since it was in step. An older copy of it lacks more.
        DeviceState::Missing | DeviceState::Failed | DeviceState::Returning => {
            // An opening that was interrupted may have been the one after that in which it was in step, or a
            // later one.
            let was_there = used != NEVER && (used..=header.epoch).contains(&entry.in_step)
                || planted(Bug::OlderReturnTaken);
            // Of one that was given up while it was not there nothing else tells what it was used for since;
            // one that is being brought up to date was there.
            let was_absent = entry.in_step == NEVER && entry.state != DeviceState::Returning;
            let is_told = match was_there || was_absent {
                true => is_lack_known(newest, candidate)?,
                false => false,
            };
            let is_known = was_there && is_told && !is_cut;
            let lacks_all = !is_known && !planted(Bug::StaleDeviceTaken);
            Ok(Judged { state: DeviceState::Returning, lacks_all, is_cut })
        }
        _ if is_cut && newest.copies > 1 => {
            Ok(Judged { state: DeviceState::Returning, lacks_all: true, is_cut })
        }
        state if is_in_step(newest, header, entry) => Ok(Judged { state, lacks_all: false, is_cut }),
        _ => {
            let other_way = match newest.copies {
                1 => format!(
                    "no other copy of its data exists: --distrust {id} gives up for good all that lies on {id} alone"
                ),
                _ => format!(
                    "or have this one brought up to date from another copy (--distrust {id}), which overwrites it"
                ),
            };
            let text = format!(
                "{name} is an old copy of device {id} of volume '{volume}': it was last used in opening {used} ({:?}), the \
                 others in {} ({:?}); give the one that was in use last; {other_way}",
                header.phase, newest.epoch, newest.phase
            );
            refuse(ErrorKind::Invalid, text)
        }
    }
}

/// Whether a device took part up to the newest step, or is the one step behind that an interruption leaves.
/// Any number of openings may have been interrupted before they reached it: none of them wrote data.
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
        // The table may be one step ahead of the superblocks. Where one device did not get past `Opening`,
        // none wrote data. Nor has one that got further in an opening of the same number: that was another
        // opening.
        Phase::Opening if header.epoch == newest.epoch => header.phase == Phase::Opening,
        Phase::Opening => header.epoch >= entry.in_step.min(newest.epoch - 1),
        // It was about to be opened with a device that is missing.
        Phase::Closed if header.phase == Phase::Opening => header.device.in_step == newest.epoch,
        _ => header.epoch == newest.epoch && this <= last && this + 1 >= last,
    }
}

/// A superblock of the last opening in which the device of the newest one was written, and of the end of
/// that: what counts if the newest one is of an opening that was interrupted, and the table that belongs to
/// it is on a device that is missing.
pub(super) fn closed_before<'a>(
    newest: &Header,
    mut headers: impl Iterator<Item = &'a Header>,
) -> Option<&'a Header> {
    let is_end = |header: &&Header| header.phase == Phase::Closed && header.epoch == newest.device.in_step;
    headers.find(|header| newest.phase == Phase::Opening && is_end(header))
}

/// The superblock of a device that went on without those that the newest one speaks of, if these have nothing
/// that it has not: the newest one is of an opening that was interrupted, as were all since that device was
/// written with them.
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

/// Whether a device that an interrupted opening lacked had been there whenever another one was written, which
/// was last in epoch `last_used`: it was neither given up, nor returning.
pub(super) fn is_missing_since(entry: &DeviceEntry, last_used: u64) -> bool {
    entry.state == DeviceState::Missing && entry.in_step != NEVER && entry.in_step >= last_used
}

/// The state of a device that was not given.
pub(super) fn absent(entry: &DeviceEntry) -> DeviceState {
    match entry.state {
        state @ (DeviceState::Failed | DeviceState::Removed) => state,
        // It lacked something already: the others are not what they were with it.
        DeviceState::Returning => DeviceState::Failed,
        _ => DeviceState::Missing,
    }
}

/// Whether the others say of a device that it is none of the volume's any more, or was not yet.
pub(super) fn is_removed(entry: &DeviceEntry, header: &Header) -> bool {
    entry.state == DeviceState::Removed && entry.uuid == header.device.uuid
}

/// Whether a device was lost, and is to be removed: it is there again, and the others hold all that counts.
pub(super) fn is_leaving(entry: &DeviceEntry, header: &Header) -> bool {
    let is_lost = matches!(entry.state, DeviceState::Missing | DeviceState::Failed);
    is_lost && entry.role.contains(Role::LEAVING) && entry.uuid == header.device.uuid
}

/// Whether the administrator gives a device up, or did so and it has not come back since.
pub(super) fn is_given_up(superblock: &Superblock, device: DeviceId, distrusted: &[DeviceId]) -> bool {
    let entry = superblock.devices.get(device.index());
    let lacks_all = |entry: &DeviceEntry| {
        entry.in_step == NEVER && matches!(entry.state, DeviceState::Missing | DeviceState::Failed)
    };
    distrusted.contains(&device) || entry.is_some_and(lacks_all)
}

/// Refuses a disk that is not the one that was adopted, or has another size.
pub(super) fn judge_adopted<D: Device>(
    superblock: &Superblock,
    entry: &DeviceEntry,
    name: &str,
    (device, identity): (&D, Uuid),
) -> Result<()> {
    let volume = &superblock.name;
    // Without a serial number now or then, the sums of what lies on it tell.
    if identity != entry.uuid && ![identity, entry.uuid].contains(&NO_SERIAL) {
        let text = format!(
            "{name} is not the disk that volume '{volume}' adopted: its serial number differs; give that disk"
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
