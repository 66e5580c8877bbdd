//! Room of a cache: a share of the extent slots of each SSD, and the SSD for the next piece.

use crate::{DeviceView, View};
use braid_base::{DeviceClass, DeviceId};

/// Share of the SSDs for a cache.
pub struct Room {
    share: f64,
    ssds: Vec<DeviceId>,
    /// SSD of the last piece.
    turn: usize,
}

impl Room {
    /// Takes this share of each SSD with slots.
    pub fn new(share: f64, devices: &[DeviceView]) -> Room {
        let ssds = DeviceView::of_class(devices, DeviceClass::Ssd);
        Room { share, ssds: ssds.map(|device| device.id).collect(), turn: 0 }
    }

    /// Returns the share.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Changes the share.
    pub fn resize(&mut self, share: f64) {
        self.share = share;
    }

    /// Returns the SSDs.
    pub fn ssds(&self) -> &[DeviceId] {
        &self.ssds
    }

    /// True if a device is an SSD of the cache.
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

    /// Capacity in blocks, on all SSDs.
    pub fn blocks(&self, view: &View) -> u64 {
        let slots: u64 = view.devices.iter().map(|device| u64::from(self.slots(device))).sum();
        slots * (view.extent_size / view.block_size)
    }

    /// Returns the SSD for the next piece: each in turn. Panics without an SSD.
    pub fn next_ssd(&mut self) -> DeviceId {
        self.turn = (self.turn + 1) % self.ssds.len();
        self.ssds[self.turn]
    }
}
