//! Decides whether all present devices are known to be outdated.
//!
//! When a device fails, the superblocks of the other devices say so; its own superblock does not. Found alone
//! at the next opening, the device says that all devices were current. The surviving half of a mirror says
//! the same, with the same superblock. The caller of the last opening knows the difference
//! ([`Volume::outdated_devices`](crate::Volume::outdated_devices)), and passes the list to the next opening
//! ([`OpenOptions::outdated`](crate::OpenOptions)).

use super::verdict::{refuse, was_current};
use crate::{ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::superblock::{DeviceEntry, DeviceState, Superblock};

/// Returns the `away` devices that were in use when all `current` devices had become outdated. Empty if a
/// current device is not `outdated`: its superblock knows the state of all devices.
pub(crate) fn newer_elsewhere(
    mut current: impl Iterator<Item = DeviceId>,
    away: &[DeviceId],
    outdated: &[DeviceId],
) -> Vec<DeviceId> {
    if current.any(|id| !outdated.contains(&id)) {
        return Vec::new();
    }
    away.iter().copied().filter(|id| !outdated.contains(id)).collect()
}

/// Refuses to serve older bytes as the newest.
pub(crate) fn refuse_outdated(
    superblock: &Superblock,
    away: &[DeviceId],
    outdated: &[DeviceId],
) -> Result<()> {
    let list = |devices: &[DeviceId], separator: &str| {
        devices.iter().map(DeviceId::to_string).collect::<Vec<_>>().join(separator)
    };
    let is_used = |entry: &DeviceEntry| was_current(entry) && entry.state != DeviceState::Removed;
    let devices = (0..).map(DeviceId).zip(&superblock.devices);
    let used = devices.filter(|(_, entry)| is_used(entry)).map(|(id, _)| id);
    let newer = newer_elsewhere(used, away, outdated);
    if newer.is_empty() {
        return Ok(());
    }
    let (missing, options) = (list(&newer, ", "), list(&newer, " --distrust "));
    let text = format!(
        "volume '{}' lacks {missing}, and was served last without {}, which is older: bring {missing} back, \
         or discard the writes to it: --distrust {options} (nothing was changed)",
        superblock.name,
        list(outdated, ", "),
    );
    refuse(ErrorKind::Degraded, text)
}
