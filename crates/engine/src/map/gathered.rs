//! Gathers the slots of a window ([`super::window`]).

use super::State;
use super::window::{Window, emptiest};
use braid_base::{DeviceId, Slot};
use braid_format::SlotNumber;
use std::ops::Range;

impl State {
    /// Begins to gather `count` adjacent slots of a device: those with the fewest slots in use. None of
    /// `metadata` is among them, and no slot before `least`. Returns the slots; `None` if there are none.
    pub fn begin_window(
        &mut self,
        device: DeviceId,
        count: u32,
        least: u32,
        metadata: &[Range<u32>],
    ) -> Option<Range<u32>> {
        let first = emptiest(&self.space, device, count, least, metadata)?;
        let slots = first..first + count;
        self.window = Some(Window { device, slots: slots.clone(), gathered: Vec::new() });
        for index in slots.clone() {
            if self.space.is_free(device, index) {
                self.gather(Slot { device, index });
            }
        }
        Some(slots)
    }

    /// Number of slots of the window that are not gathered yet.
    pub fn window_left(&self) -> usize {
        self.window.as_ref().map_or(0, |window| window.slots.len() - window.gathered.len())
    }

    /// True if a slot belongs to the window.
    pub fn is_in_window(&self, slot: SlotNumber) -> bool {
        let place = self.window.as_ref().zip(self.space.locate(slot));
        place.is_some_and(|(window, slot)| slot.device == window.device && window.slots.contains(&slot.index))
    }

    /// Device of the window.
    pub fn window_device(&self) -> Option<DeviceId> {
        self.window.as_ref().map(|window| window.device)
    }

    /// Ends the window. The gathered slots stay taken for metadata if all were gathered; otherwise they are
    /// free again, and the result is false.
    pub fn end_window(&mut self) -> bool {
        let Some(window) = self.window.take() else { return false };
        let are_all = window.gathered.len() == window.slots.len();
        if !are_all {
            window.gathered.iter().for_each(|&index| self.release_run(window.device, index, 1));
        }
        are_all
    }

    /// Counts a slot that has just become free, or takes the slot if it belongs to the window.
    pub(super) fn gather_freed(&mut self, slot: SlotNumber) {
        self.refresh(slot);
        if self.is_in_window(slot)
            && let Some(slot) = self.space.locate(slot)
        {
            self.gather(slot);
        }
    }

    fn gather(&mut self, slot: Slot) {
        let before = self.space.free(slot.device);
        self.space.reserve(slot);
        let view = &mut self.views[slot.device.index()];
        view.free = self.space.free(slot.device);
        view.slots -= before - view.free;
        if let Some(window) = &mut self.window {
            window.gathered.push(slot.index);
        }
    }
}
