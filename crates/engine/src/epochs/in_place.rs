//! Jobs that write to the image in place while no epochs are kept: epochs begin the comparison after such
//! jobs have ended.

use super::Epochs;
use crate::core::Extents;
use braid_base::DeviceId;
use braid_runtime::{Device, Runtime};

/// A job that writes to a device without an extent's lock.
pub(crate) struct InPlace<'a>(Option<&'a Epochs>);

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        let Some(epochs) = self.0 else { return };
        epochs.in_place.set(epochs.in_place.get() - 1);
        epochs.event.notify();
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Registers a job that is about to write to a device without an extent's lock. The job is under way
    /// until the returned value is dropped. Returns `None` if only epochs may write to the device.
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

    /// True if only epochs may write to the places of extents on a device.
    pub fn is_image(&self, device: DeviceId) -> bool {
        self.active_epochs().is_some_and(|epochs| epochs.device() == device)
    }
}
