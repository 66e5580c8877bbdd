//! State of devices that drain, are lost and await removal, or were removed since the opening.

use crate::stats::Lately;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_format::superblock::{DeviceState, Role, Superblock};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Progress of a device's removal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DrainStatus {
    /// Slots not free yet, in bytes.
    pub left_bytes: Bytes,
    /// Recent rate of moves off the device.
    pub bytes_per_second: f64,
}

impl DrainStatus {
    /// Remaining seconds at the recent rate; none if nothing has moved recently.
    pub fn seconds_left(&self) -> Option<f64> {
        match self.left_bytes {
            Bytes::ZERO => Some(0.0),
            _ if self.bytes_per_second == 0.0 => None,
            left => Some(left.0 as f64 / self.bytes_per_second),
        }
    }
}

/// State of devices that drain, or were removed since the opening.
#[derive(Default)]
pub(crate) struct Drains {
    lately: RefCell<BTreeMap<DeviceId, Lately>>,
    erased: RefCell<BTreeSet<DeviceId>>,
    /// Lost devices that await removal, also by the superblocks.
    lost: RefCell<BTreeSet<DeviceId>>,
    /// Devices with a change that the superblocks do not record yet, and their states before the change.
    changing: RefCell<BTreeMap<DeviceId, DeviceState>>,
}

impl Drains {
    /// State according to the superblocks.
    pub fn of(superblock: &Superblock) -> Drains {
        let lost = (0..).map(DeviceId).zip(&superblock.devices).filter(|(_, entry)| {
            let is_lost = matches!(entry.state, DeviceState::Missing | DeviceState::Failed);
            is_lost && entry.role.contains(Role::LEAVING)
        });
        Drains { lost: RefCell::new(lost.map(|(id, _)| id).collect()), ..Drains::default() }
    }

    /// Begins the drain of a device.
    pub fn begin(&self, device: DeviceId) {
        self.lately.borrow_mut().insert(device, Lately::default());
    }

    /// Sets or clears the awaited removal of a lost device; true if the state changed.
    pub fn set_lost(&self, device: DeviceId, leaves: bool) -> bool {
        let mut lost = self.lost.borrow_mut();
        if leaves { lost.insert(device) } else { lost.remove(&device) }
    }

    /// True if a lost device awaits removal.
    pub fn is_lost(&self, device: DeviceId) -> bool {
        self.lost.borrow().contains(&device)
    }

    /// Notes that a device in state `before` joins or leaves, before all superblocks say so.
    pub fn begin_membership_change(&self, device: DeviceId, before: DeviceState) {
        self.changing.borrow_mut().insert(device, before);
    }

    /// Ends the change: all superblocks agree, or the device stays as before.
    pub fn end_membership_change(&self, device: DeviceId) {
        self.changing.borrow_mut().remove(&device);
    }

    pub fn is_changing(&self, device: DeviceId) -> bool {
        self.state_before_change(device).is_some()
    }

    /// State of a device before its change; none without a change, or once all superblocks record the change.
    pub fn state_before_change(&self, device: DeviceId) -> Option<DeviceState> {
        self.changing.borrow().get(&device).copied()
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
