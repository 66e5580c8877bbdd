//! Returns remote devices without a command: a device that is missing, or whose connection was lost or
//! silent.
//!
//! A lost connection may have lost acknowledged writes that were not flushed, so it is never continued. The
//! engine fails the device; this job connects anew, and the engine resynchronises what differs. A device that
//! the administrator excluded stays excluded, and so does a device whose server replied with an error: both
//! wait for `braid device return`.

use crate::device::open::OpenDevice;
use crate::device::remote::is_address;
use crate::served::ServedVolume;
use braid_base::{DeviceId, Nanos};
use braid_format::superblock::DeviceState;
use braid_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

/// Time between two attempts.
const PERIOD: Nanos = Nanos::from_secs(2);

/// Returns remote devices for as long as the daemon runs.
pub(crate) async fn return_remote_devices(served: Rc<ServedVolume>) {
    // The last error of each device: the log has an error once, not every two seconds.
    let mut errors = BTreeMap::new();
    while !served.end.has_begun() {
        for (device, path) in served.lost_remote_devices() {
            match served.return_device(device, Some(path)).await {
                Ok(report) => {
                    errors.remove(&device);
                    tracing::warn!("device {} of volume '{}' is back", report.device, served.name);
                }
                Err(error) => {
                    let error = error.to_string();
                    if errors.get(&device) != Some(&error) {
                        tracing::warn!("device {device} of volume '{}' is not back: {error}", served.name);
                    }
                    errors.insert(device, error);
                }
            }
        }
        served.ring.sleep(PERIOD).await;
    }
}

impl ServedVolume {
    /// Notes devices that only a command returns.
    pub fn exclude(&self, devices: &[DeviceId]) {
        self.excluded.borrow_mut().extend(devices);
    }

    /// Returns the remote devices to be returned, with their addresses. Ends the connections that the engine
    /// has given up: their requests no longer keep the devices from returning.
    fn lost_remote_devices(&self) -> Vec<(DeviceId, PathBuf)> {
        let status = self.volume().status();
        let is_out = |state| matches!(state, DeviceState::Failed | DeviceState::Missing);
        let out: Vec<DeviceId> = status.devices.iter().filter(|d| is_out(d.state)).map(|d| d.id).collect();
        if status.shape.copies < 2 || out.is_empty() {
            return Vec::new();
        }
        let (members, excluded) = (self.members.borrow(), self.excluded.borrow());
        let lost = members.iter().filter(|member| out.contains(&member.id) && !excluded.contains(&member.id));
        lost.filter(|member| is_address(member.name.as_ref()))
            .filter(|member| member.device.as_ref().is_none_or(OpenDevice::give_up_connection))
            .map(|member| (member.id, PathBuf::from(&member.name)))
            .collect()
    }
}
