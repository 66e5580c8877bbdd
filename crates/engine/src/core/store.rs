//! What a volume stores, and where: extents, the map of their copies, the devices with the copies. Its verbs
//! answer from memory.

use crate::devices::{Devices, Member};
use crate::map::State;
use crate::shape::Shape;
use braid_base::{Bytes, DeviceId};
use braid_format::SlotNumber;
use braid_runtime::Device;
use std::cell::{Cell, RefCell};

/// Shape, map and devices of a volume. Questions about copies are verbs of the store; each is in the file of
/// its subject.
pub(crate) struct Store<D> {
    pub shape: Shape,
    /// Map and related state. Never borrowed across an await.
    pub state: RefCell<State>,
    pub devices: Devices<D>,
    /// True if extents may lack a required second copy.
    pub incomplete: Cell<bool>,
    /// Stale bytes at which the plan's policy is asked again. Set only while no move of the plan is left.
    pub wake_at: Cell<Option<Bytes>>,
}

impl<D: Device> Store<D> {
    /// Creates the store of a volume that opens.
    pub fn new(shape: Shape, state: State, devices: Devices<D>) -> Store<D> {
        let incomplete = Cell::new(shape.copies > 1);
        Store { shape, state: RefCell::new(state), devices, incomplete, wake_at: Cell::new(None) }
    }

    /// Returns a device of the volume.
    #[inline]
    pub fn member(&self, device: DeviceId) -> &Member<D> {
        &self.devices[device]
    }

    /// Returns the device of a slot and the slot's offset on the device.
    #[inline]
    pub fn locate(&self, slot: SlotNumber) -> (&Member<D>, Bytes) {
        let slot = self.state.borrow().space.locate(slot).expect("the map names slots that exist");
        let member = self.member(slot.device);
        (member, member.slot_offset(slot.index, self.shape.extent_size))
    }

    /// Returns the device of a slot.
    pub fn device_of(&self, slot: SlotNumber) -> DeviceId {
        self.locate(slot).0.id
    }

    /// Number of guest requests in flight on a device.
    pub fn guests_of(&self, member: &Member<D>) -> u32 {
        self.state.borrow().views[member.id.index()].in_flight
    }
}
