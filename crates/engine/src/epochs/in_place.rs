//! What other jobs write to the image in its place while no epochs are kept: epochs begin to find out what it
//! lacks once that has ended.

use super::Epochs;
use crate::core::Core;
use braid_base::DeviceId;
use braid_runtime::{Device, Runtime};

/// A job that writes to a device without the lock of an extent.
pub(crate) struct InPlace<'a>(Option<&'a Epochs>);

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        let Some(epochs) = self.0 else { return };
        epochs.in_place.set(epochs.in_place.get() - 1);
        epochs.event.notify();
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// A job is about to write to a device without the lock of an extent, until what this gives is dropped.
    /// None if only epochs may.
    pub fn begin_in_place(&self, device: DeviceId) -> Option<InPlace<'_>> {
        if self.is_image(device) {
            return None;
        }
        let epochs = self.epochs.as_ref().filter(|epochs| epochs.device() == device);
        if let Some(epochs) = epochs {
            epochs.in_place.set(epochs.in_place.get() + 1);
        }
        Some(InPlace(epochs))
    }

    /// Whether nothing but an epoch may write to the places of extents on a device.
    pub fn is_image(&self, device: DeviceId) -> bool {
        self.active_epochs().is_some_and(|epochs| epochs.device() == device)
    }
}
