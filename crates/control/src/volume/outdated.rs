//! What this host remembers of which devices are older than the others of their volume: in the record, for
//! the superblock of such a device may not say so, and the others may be away when the volume is opened next.

use crate::Result;
use crate::volume::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use braid_base::DeviceId;

impl VolumeRecord {
    /// The devices that are noted as outdated.
    pub(crate) fn outdated(&self) -> Vec<DeviceId> {
        let devices = (0..).map(DeviceId).zip(&self.devices);
        devices.filter(|(_, device)| device.outdated).map(|(id, _)| id).collect()
    }

    /// Notes these devices as outdated, and no others.
    pub(crate) fn set_outdated(&mut self, outdated: &[DeviceId]) {
        for (id, device) in (0..).map(DeviceId).zip(&mut self.devices) {
            device.outdated = !device.removed && outdated.contains(&id);
        }
    }
}

/// Notes durably which devices of a volume are outdated that is about to be opened.
pub(crate) fn note_outdated(state: &StateDir, name: &VolumeName, outdated: &[DeviceId]) -> Result<()> {
    if state.load(name)?.outdated() == outdated {
        return Ok(());
    }
    let noted = state.change(name, |record| {
        record.set_outdated(outdated);
        Ok(())
    });
    noted.map(drop)
}

/// Notes durably where the devices of a volume are that was opened, and which of them are outdated: before
/// anything else changes the record.
pub(crate) fn note_opened(
    state: &StateDir,
    name: &VolumeName,
    places: &[(usize, DeviceRecord)],
    outdated: &[DeviceId],
) -> Result<()> {
    let noted = state.change(name, |record| {
        record.set_places(places);
        record.set_outdated(outdated);
        Ok(())
    });
    noted.map(drop)
}
