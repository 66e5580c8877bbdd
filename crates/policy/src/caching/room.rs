//! The room of a cache: a share of the extent slots of each SSD, and which SSD gets the next piece.

use crate::{DeviceView, View};
use braid_base::{DeviceClass, DeviceId};

/// A share of the SSDs.
pub struct Room {
    share: f64,
    ssds: Vec<DeviceId>,
    /// Which SSD had the last piece.
    turn: usize,
}

impl Room {
    /// This share of each SSD that has slots.
    pub fn new(share: f64, devices: &[DeviceView]) -> Room {
        let ssds = DeviceView::of_class(devices, DeviceClass::Ssd);
        Room { share, ssds: ssds.map(|device| device.id).collect(), turn: 0 }
    }

    /// The share.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Another share from now on.
    pub fn resize(&mut self, share: f64) {
        self.share = share;
    }

    /// The SSDs.
    pub fn ssds(&self) -> &[DeviceId] {
        &self.ssds
    }

    /// Whether a device is one of them.
    pub fn is_ssd(&self, device: DeviceId) -> bool {
        self.ssds.contains(&device)
    }

    /// Extent slots of a device for the cache.
    pub fn slots(&self, device: &DeviceView) -> u32 {
        match device.class {
            DeviceClass::Ssd => (f64::from(device.slots) * self.share) as u32,
            DeviceClass::Hdd => 0,
        }
    }

    /// Blocks that it has room for, on all SSDs.
    pub fn blocks(&self, view: &View) -> u64 {
        let slots: u64 = view.devices.iter().map(|device| u64::from(self.slots(device))).sum();
        slots * (view.extent_size / view.block_size)
    }

    /// The SSD for the next piece: each in turn. There is one.
    pub fn next_ssd(&mut self) -> DeviceId {
        self.turn = (self.turn + 1) % self.ssds.len();
        self.ssds[self.turn]
    }
}
