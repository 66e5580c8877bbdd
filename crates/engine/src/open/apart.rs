//! Whether a device that the others went on without went on without them, too.
//!
//! Both may be of the same opening: one device was given up while the volume was open, the machine stopped,
//! and at the next start only that one was found. The number of the opening does not tell then. The device's
//! own table does: it says which devices were in use beside it when it was written last.

use super::assemble::was_current;
use super::candidate::Candidate;
use super::judge::{NEVER, is_missing_since};
use crate::{Error, ErrorKind, Result};
use braid_format::superblock::{DeviceEntry, DeviceState, DeviceTable, Header, Phase, Superblock};
use braid_runtime::Device;

/// Whether what a device lacks, which has to be brought up to date, is known since it was in step.
///
/// # Errors
/// `Degraded` if it was written without any of the devices that are in use now, or if its own table, which
/// would tell, cannot be read.
pub(super) fn is_lack_known<D: Device>(newest: &Superblock, candidate: &Candidate<'_, D>) -> Result<bool> {
    let (name, header) = (candidate.name, &candidate.header);
    let is_used = |entry: &DeviceEntry| was_current(entry) && entry.state != DeviceState::Removed;
    let in_use = || newest.devices.iter().enumerate().filter(|(_, entry)| is_used(entry));
    let id = header.this_device;
    if !header.tables.iter().any(|place| place.device == id) {
        // Without one that has a table it was not opened, and its superblock tells of openings without those
        // that are in use now (`assemble::finish`).
        return Ok(header.tables.iter().any(|place| in_use().any(|(i, _)| i == place.device.index())));
    }
    // Where openings were interrupted before its superblock was written, the table of that may be gone: the
    // next one knows what that said.
    let is_own = |table: &&DeviceTable| {
        table.sequence >= header.sequence && table.epoch >= header.epoch && header.agrees_with(table)
    };
    let own = candidate.tables().iter().filter(is_own).min_by_key(|table| table.sequence);
    let Some(table) = own else {
        if is_given_up_in_last(newest, header) {
            return Ok(false);
        }
        let why = candidate.tables.as_ref().err().map_or("there is an older one", String::as_str);
        let text = format!(
            "{name} (device {id} of volume '{}') was given up, and whether it has been used apart from the others since is not known: its table of devices cannot \
             be read ({why}); try again, or give up what was written to it (serve with --distrust {id}), and it is brought up to date from the others",
            newest.name
        );
        return Err(Error::new(ErrorKind::Degraded, text));
    };
    // An opening that was interrupted wrote no data. One that is missing since that opening was there in all
    // that this one was written in; but one that was returning lacked something of it, and one that was given
    // up may have. Once an opening was not interrupted, one that was returning had been told so, and could
    // not go on alone.
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
        "{name} (device {id} of volume '{}') was used apart from the others in opening {}, as they were from it; choose: give one side alone, or \
         give up what was written to one of the devices (--distrust DEVICE), which is then brought up to date from the others",
        newest.name, header.epoch
    );
    Err(Error::new(ErrorKind::Degraded, text))
}

/// Whether a device was given up by those that are in use now, in the opening that its superblock is of: one
/// process does that, and did not go on with it alone.
fn is_given_up_in_last(newest: &Superblock, header: &Header) -> bool {
    let entry = newest.devices.get(header.this_device.index());
    let is_of_last =
        |entry: &DeviceEntry| entry.state == DeviceState::Failed && entry.in_step == header.epoch;
    entry.is_some_and(is_of_last) && header.phase != Phase::Opening
}
