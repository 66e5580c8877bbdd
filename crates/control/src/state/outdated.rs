//! Outdated devices in the volume's record on this host. An outdated device is older than the other devices
//! of its volume. Its superblock may not say so, and the others may be missing at the next opening.

use crate::Result;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use braid_base::DeviceId;

impl VolumeRecord {
    /// Returns the devices noted as outdated.
    pub(crate) fn outdated(&self) -> Vec<DeviceId> {
        let devices = (0..).map(DeviceId).zip(&self.devices);
        devices.filter(|(_, device)| device.outdated).map(|(id, _)| id).collect()
    }

    /// Notes exactly these devices as outdated.
    pub(crate) fn set_outdated(&mut self, outdated: &[DeviceId]) {
        for (id, device) in (0..).map(DeviceId).zip(&mut self.devices) {
            device.outdated = !device.removed && outdated.contains(&id);
        }
    }
}

/// Durably notes the outdated devices of a volume that is about to be opened.
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

/// Durably notes the paths of an opened volume's devices, and the outdated devices. Called before anything
/// else changes the record.
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
