//! What is known of devices that drain, are lost and to be removed, or were removed since the opening.

use crate::moves::Lately;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_format::superblock::{DeviceState, Role, Superblock};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// How far the removal of a device is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DrainStatus {
    /// Slots that are not free yet, in bytes.
    pub left_bytes: Bytes,
    /// Bytes moved off it in a second, of late.
    pub bytes_per_second: f64,
}

impl DrainStatus {
    /// How long the rest takes at this rate; none if nothing has moved of late.
    pub fn seconds_left(&self) -> Option<f64> {
        match self.left_bytes {
            Bytes::ZERO => Some(0.0),
            _ if self.bytes_per_second == 0.0 => None,
            left => Some(left.0 as f64 / self.bytes_per_second),
        }
    }
}

/// What is known of devices that drain, or were removed since the opening.
#[derive(Default)]
pub(crate) struct Drains {
    lately: RefCell<BTreeMap<DeviceId, Lately>>,
    erased: RefCell<BTreeSet<DeviceId>>,
    /// Lost devices that are to be removed. The superblocks say so.
    lost: RefCell<BTreeSet<DeviceId>>,
    /// Devices of which the superblocks do not say yet what is known here.
    changing: RefCell<BTreeSet<DeviceId>>,
}

impl Drains {
    /// What the superblocks say.
    pub fn of(superblock: &Superblock) -> Drains {
        let lost = (0..).map(DeviceId).zip(&superblock.devices).filter(|(_, entry)| {
            let is_lost = matches!(entry.state, DeviceState::Missing | DeviceState::Failed);
            is_lost && entry.role.contains(Role::LEAVING)
        });
        Drains { lost: RefCell::new(lost.map(|(id, _)| id).collect()), ..Drains::default() }
    }

    /// A device begins to drain.
    pub fn begin(&self, device: DeviceId) {
        self.lately.borrow_mut().insert(device, Lately::default());
    }

    /// A lost device is to be removed, or not any more. Whether that is news.
    pub fn set_lost(&self, device: DeviceId, leaves: bool) -> bool {
        let mut lost = self.lost.borrow_mut();
        if leaves { lost.insert(device) } else { lost.remove(&device) }
    }

    /// Whether a lost device is to be removed.
    pub fn is_lost(&self, device: DeviceId) -> bool {
        self.lost.borrow().contains(&device)
    }

    /// A device comes or leaves, and not all superblocks say so yet.
    pub fn begin_change(&self, device: DeviceId) {
        self.changing.borrow_mut().insert(device);
    }

    /// They do, or it stays as it was.
    pub fn end_change(&self, device: DeviceId) {
        self.changing.borrow_mut().remove(&device);
    }

    pub fn is_changing(&self, device: DeviceId) -> bool {
        self.changing.borrow().contains(&device)
    }

    pub fn set_erased(&self, device: DeviceId) {
        self.erased.borrow_mut().insert(device);
    }

    pub fn is_erased(&self, device: DeviceId) -> bool {
        self.erased.borrow().contains(&device)
    }

    pub fn count(&self, device: DeviceId, len: Bytes, now: Nanos) {
        self.lately.borrow_mut().entry(device).or_default().count(len, now);
    }

    pub fn per_second(&self, device: DeviceId, now: Nanos) -> f64 {
        self.lately.borrow().get(&device).map_or(0.0, |lately| lately.per_second(now))
    }
}
