//! Decides whether a device with outdated data was used alone, apart from the devices that continued without
//! it.
//!
//! Both sides may have the same generation. Example: one device failed while the volume was open, the machine
//! stopped, and the next start found that device alone. The generation cannot reveal such a case. The
//! device's own table can: the table lists the devices in use at its last write.

use super::candidate::Candidate;
use super::verdict::{NEVER, is_missing_since, was_current};
use crate::{Error, ErrorKind, Result};
use braid_format::superblock::{DeviceEntry, DeviceState, DeviceTable, Header, Phase, Superblock};
use braid_runtime::Device;

/// True if the differences recorded since the device was last in step are complete. If false, the device
/// needs a rebuild.
///
/// # Errors
/// `Degraded` if the device was written without any of the devices in use now, or if its own table cannot be
/// read and the question stays open.
pub(super) fn is_lack_known<D: Device>(newest: &Superblock, candidate: &Candidate<'_, D>) -> Result<bool> {
    let (name, header) = (candidate.name, &candidate.header);
    let is_used = |entry: &DeviceEntry| was_current(entry) && entry.state != DeviceState::Removed;
    let in_use = || newest.devices.iter().enumerate().filter(|(_, entry)| is_used(entry));
    let id = header.this_device;
    if !header.tables.iter().any(|place| place.device == id) {
        // A device without a table is opened only beside a device with a table. Its superblock reveals
        // openings without the devices in use now (`assemble::finish`).
        return Ok(header.tables.iter().any(|place| in_use().any(|(i, _)| i == place.device.index())));
    }
    // Openings that were interrupted before this superblock was written may have overwritten its table. The
    // next table repeats the contents.
    let is_own = |table: &&DeviceTable| {
        table.sequence >= header.sequence && table.epoch >= header.epoch && header.agrees_with(table)
    };
    let own = candidate.tables().iter().filter(is_own).min_by_key(|table| table.sequence);
    let Some(table) = own else {
        if is_given_up_in_last(newest, header) {
            return Ok(false);
        }
        let why = candidate.tables.as_ref().err().map_or("there is an older table", String::as_str);
        let text = format!(
            "{name} (device {id} of volume '{}') was excluded, and may have been used apart from the others \
             since: its table of devices cannot be read ({why}); try again, or discard its data (serve with \
             --distrust {id}), and it is brought up to date from the others",
            newest.name
        );
        return Err(Error::new(ErrorKind::Degraded, text));
    };
    // An interrupted opening wrote no data. A device that is missing only since such an opening was present
    // whenever the candidate was written. A returning device lacked some of the writes, and a failed device
    // may have. After an opening that was not interrupted, the superblock of a returning device says
    // "returning", so the device could not continue alone.
    let was_interrupted = header.phase == Phase::Opening || table.sequence != header.sequence;
    let last_used = table.devices.get(id.index()).map_or(NEVER, |own| own.in_step);
    let was_with = |entry: &DeviceEntry| match entry.state {
        DeviceState::Missing => was_interrupted && is_missing_since(entry, last_used),
        DeviceState::Returning => !was_interrupted,
        _ => is_used(entry),
    };
    let mut beside = in_use().filter_map(|(i, _)| table.devices.get(i)).peekable();
    let was_alone = beside.peek().is_some() && !beside.any(was_with);
    if !was_alone {
        return Ok(true);
    }
    let text = format!(
        "{name} (device {id} of volume '{}') was used apart from the others in opening {}, and the others \
         apart from it; choose: give one side alone, or discard the data of one of the devices (--distrust \
         DEVICE), which is then brought up to date from the others",
        newest.name, header.epoch
    );
    Err(Error::new(ErrorKind::Degraded, text))
}

/// True if the devices in use now excluded the device in the opening of its superblock. One process did so,
/// and did not continue with the excluded device alone.
fn is_given_up_in_last(newest: &Superblock, header: &Header) -> bool {
    let entry = newest.devices.get(header.this_device.index());
    let is_of_last =
        |entry: &DeviceEntry| entry.state == DeviceState::Failed && entry.in_step == header.epoch;
    entry.is_some_and(is_of_last) && header.phase != Phase::Opening
}
