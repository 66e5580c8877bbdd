//! The SSDs, split between the SSD tier and the SSD cache.
//!
//! The cache takes extent slots as it grows, up to its share. The tier has room in the free slots beyond that
//! share. Another split is therefore a change of one number. A smaller cache frees its slots at once (the
//! engine evicts blocks). A smaller tier lets pages migrate until the cache has its share.

use crate::caching::Room;
use crate::{DeviceView, ExtraCopy, View};
use braid_base::{DeviceClass, DeviceId};

/// Division of each SSD between tier and cache.
pub(super) struct Split {
    /// The cache: its share is the SSD cache rate of the paper.
    pub cache: Room,
    disks: Vec<DeviceId>,
    /// Blocks in the cache, by device.
    cached: Vec<u64>,
}

impl Split {
    pub fn new(cache: f64, devices: &[DeviceView]) -> Split {
        let disks = DeviceView::of_class(devices, DeviceClass::Hdd).map(|d| d.id).collect();
        Split { cache: Room::new(cache, devices), disks, cached: vec![0; devices.len()] }
    }

    /// True if a device belongs to the HDD tier.
    pub fn is_disk(&self, device: DeviceId) -> bool {
        self.disks.contains(&device)
    }

    /// Records that a cached block was added, moved or evicted.
    pub fn changed(&mut self, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        if let Some(copy) = before {
            self.cached[copy.device.index()] -= 1;
        }
        if let Some(copy) = now {
            self.cached[copy.device.index()] += 1;
        }
    }

    /// Number of extent slots free for homes now.
    pub fn room(&self, device: &DeviceView, view: &View) -> i64 {
        i64::from(device.free) - self.wanted(device, view).max(0)
    }

    /// Number of homes that the SSD tier has room for, if it has `on_ssd` homes now.
    pub fn tier_capacity(&self, on_ssd: u64, view: &View) -> u64 {
        let ssds = view.devices.iter().filter(|d| d.class == DeviceClass::Ssd);
        let more: i64 = ssds.map(|d| i64::from(d.free) - self.wanted(d, view)).sum();
        (on_ssd as i64 + more).max(0) as u64
    }

    /// Returns the device of a tier for extents of a page; the extents of a page go to the same device if
    /// possible. `None` if all devices are full.
    pub fn target(&self, page: u32, class: DeviceClass, room: &[i64]) -> Option<DeviceId> {
        let tier = if class == DeviceClass::Ssd { self.cache.ssds() } else { &self.disks };
        let usual = tier[page as usize % tier.len()];
        let room = |device: &DeviceId| room[device.index()];
        let roomiest = || tier.iter().copied().max_by_key(room);
        Some(usual).filter(|device| room(device) > 0).or_else(roomiest).filter(|device| room(device) > 0)
    }

    /// Number of extent slots that the cache may still take on a device; if negative, slots to give back. The
    /// cache holds at least as many slots as its blocks fill.
    fn wanted(&self, device: &DeviceView, view: &View) -> i64 {
        let held = self.cached[device.id.index()].div_ceil((view.extent_size / view.block_size).max(1));
        i64::from(self.cache.slots(device)) - held as i64
    }
}
