//! Devices that were cut: the end of the device is gone, with all data there.
//!
//! The last superblock copy lies at the end of a device, so a cut removes the copy first. If the device gets
//! its size back, the copy is absent: its place lacks the magic. A damaged copy still has the magic. A device
//! that was never written lacks the copy if its creation was interrupted; nothing is lost on such a device.
//!
//! With two required copies, the volume rebuilds all copies on the device, as for an excluded device. With
//! one copy, only a repair continues. Zeroed slots at the end of the device are then lost, as far as the map
//! uses the slots ([`lost_at_end`](crate::journal::lost_at_end)).

use super::candidate::Candidate;
use super::verdict::{last_written, refuse};
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::{ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::superblock::{DeviceEntry, Header, Layout, Superblock};
use braid_runtime::Device;

/// State of a device's end, compared with the end of the device as a member of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    There,
    /// The size is unchanged or larger, and the last superblock copy is gone.
    Absent,
    /// The device is smaller than its superblock says.
    Short,
}

/// Generation that the creation of a volume writes.
const CREATION: u64 = 1;

/// True if a device has its size and lost the data at its end. A device that never held data has lost
/// nothing.
pub(super) fn is_cut<D>(candidate: &Candidate<'_, D>) -> bool {
    candidate.end == End::Absent && is_lost(&candidate.header, candidate.end) && !planted(Bug::CutDeviceTaken)
}

/// True if a device with this superblock lost data with its end. With layout tail, the remaining copies lie
/// behind all slots: only the last copy is gone.
pub(super) fn is_lost(header: &Header, end: End) -> bool {
    let lies_before = header.device.layout != Layout::Tail;
    end == End::Short || end == End::Absent && lies_before && last_written(header) > CREATION
}

/// True if a device is smaller than its size in the table of devices.
pub(super) fn is_short<D: Device>(entry: &DeviceEntry, candidate: &Candidate<'_, D>) -> bool {
    candidate.device.geometry().size < entry.size
}

/// Refuses a device that is smaller than before.
pub(super) fn refuse_short<T, D: Device>(
    newest: &Superblock,
    entry: &DeviceEntry,
    candidate: &Candidate<'_, D>,
) -> Result<T> {
    let (name, id) = (candidate.name, candidate.header.this_device);
    let (had, has, volume) = (entry.size, candidate.device.geometry().size, &newest.name);
    let remedy = match newest.copies {
        1 => format!(
            "only a backup has the lost data; the former size does not restore it, but then braid check \
             {volume} --repair keeps the rest; or discard all data on {id} (--distrust {id})"
        ),
        _ => format!(
            "continue without {id} (--distrust {id}), or put another device in its place (braid device \
             replace {volume} {id} PATH); or restore its size, and the missing data is copied from the \
             others"
        ),
    };
    let text = format!(
        "{name} (device {id} of volume '{volume}') was cut: it had {had}, it has {has}, and the data at its \
         end is lost: {remedy} (nothing was changed)"
    );
    refuse(ErrorKind::Invalid, text)
}

/// Refuses a device that was cut and has its size again, of a volume with one required copy.
pub(super) fn refuse_cut<T>(newest: &Superblock, name: &str, id: DeviceId) -> Result<T> {
    let volume = &newest.name;
    let text = format!(
        "{name} (device {id} of volume '{volume}') was cut, or its end was overwritten: the superblock copy \
         there is lost, with all other data at its end; braid check {volume} --repair keeps the rest and \
         lists the loss; or discard all data on {id} (--distrust {id}) (nothing was changed)"
    );
    refuse(ErrorKind::Corrupt, text)
}

/// Refuses to keep a cut device with cached blocks, of a volume with one required copy: the lost blocks are
/// unknown.
pub(crate) fn refuse_cached(state: &State, cut: &[(DeviceId, String)]) -> Result<()> {
    let Some((id, what)) = cut.iter().find(|(id, _)| state.extras.divided(*id) > 0) else { return Ok(()) };
    let text = format!(
        "{what}; the lost cached blocks on {id} are unknown: discard the data there (--distrust {id})"
    );
    refuse(ErrorKind::Corrupt, text)
}

/// Sentence for messages about a device that was cut.
pub(crate) fn describe(name: &str, header: &Header, end: End) -> String {
    let (id, had) = (header.this_device, header.device.size);
    match end {
        End::Short => {
            format!("{id} was cut: {name} is smaller than {had}, and the data at its end is lost")
        }
        _ => format!(
            "{id} was cut, or its end was overwritten: the last superblock copy of {name} is lost, with all \
             other data at its end"
        ),
    }
}
