//! Report of a volume without a daemon: the record, the end of its last daemon, and the remains of a dead
//! daemon.

use crate::Result;
use crate::device::ublk::waiting;
use crate::report::types::RestingReport;
use crate::state::lasting::Lasting;
use crate::state::lock::{self, ended_unclean};
use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use braid_fuse::{Use, is_dead_mount, stale};
use braid_ublk::Device;
use std::path::{Path, PathBuf};

/// Returns the report of a volume that no daemon serves.
pub(crate) fn resting_report(state: &StateDir, name: &VolumeName) -> Result<RestingReport> {
    let record = state.load(name)?;
    let pending_log = Lasting::left(state, &record);
    let VolumeRecord { name, uuid, temporary, devices, .. } = record;
    let (dead_block_devices, dead_mounts) = left_behind(state, &name);
    let waiting_block_devices = waiting(&uuid).iter().map(Device::path).collect();
    let cannot_end = lock::waiting(state, &name);
    Ok(RestingReport {
        ended_unclean: ended_unclean(state, &name) && cannot_end.is_none(),
        cannot_end,
        pending_log,
        name: name.to_string(),
        served: false,
        uuid,
        temporary,
        dead_block_devices,
        waiting_block_devices,
        dead_mounts,
        devices,
    })
}

/// Returns block devices and mounts of a dead daemon that are visible to this user.
pub(crate) fn left_behind(state: &StateDir, name: &VolumeName) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let directory = state.mount_dir(name);
    let (mut devices, mut mounts) = (Vec::new(), Vec::new());
    for left in stale(&directory).unwrap_or_default() {
        mounts.extend(left.uses.into_iter().filter_map(|used| match used {
            Use::Mounted(point) | Use::MountedElsewhere(point, _) => Some(as_text(&point)),
            Use::Swap | Use::Holder(_) | Use::Claimed => None,
        }));
        devices.push(left.device);
    }
    mounts.extend(is_dead_mount(&directory).then_some(directory));
    (devices, mounts)
}

/// Converts a path to text, lossily: reports are text.
pub(crate) fn as_text(path: &Path) -> PathBuf {
    PathBuf::from(path.to_string_lossy().into_owned())
}
