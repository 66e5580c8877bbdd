//! Replies to changes of a volume: its devices or its policy. Part of the stable JSON.

use crate::state::state_dir::DeviceRecord;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Result of adding or returning a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddReport {
    /// The volume.
    pub name: String,
    /// Place of the device: `d2`.
    pub device: String,
    /// The devices of the volume now, by place.
    pub devices: Vec<DeviceRecord>,
    /// Bytes by which the volume could grow (`braid resize`).
    #[serde(default)]
    pub left_bytes: u64,
}

/// Result of changing the size of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ResizeReport {
    /// The volume.
    pub name: String,
    /// The size now.
    pub size_bytes: u64,
    /// The size before.
    pub former_bytes: u64,
    /// Bytes by which the volume could grow further.
    pub left_bytes: u64,
    /// The attached block device, which has the new size, too.
    pub block_device: Option<PathBuf>,
    /// Connected guests that have the former size until they connect again.
    #[serde(default)]
    pub untold_guests: Vec<String>,
}

/// Result of replacing a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplaceReport {
    /// The volume.
    pub name: String,
    /// The place of the old device: `d1`.
    pub device: String,
    /// The place of the new device: the old place if the volume is not served.
    pub new_device: String,
    /// The path of the old device.
    pub replaced_path: String,
    /// The devices of the volume now, by place.
    pub devices: Vec<DeviceRecord>,
}

/// The policy of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyReport {
    /// The volume.
    pub name: String,
    /// The policy with all its settings, as `name,key=value,…`.
    pub policy: String,
}
