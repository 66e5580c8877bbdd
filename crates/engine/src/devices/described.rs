//! A device in messages.

use super::Member;
use crate::{Error, ErrorKind};
use braid_base::ExtentId;
use braid_runtime::Device;
use std::fmt;

impl<D: Device> Member<D> {
    /// Name of the device.
    pub fn describe(&self) -> impl fmt::Display + use<D> {
        let (id, entry) = (self.id, &self.entry);
        let model =
            if entry.model.is_empty() { String::new() } else { format!(", emulated {}", entry.model) };
        format!("device {id} ({}{model})", entry.class)
    }

    /// Error of a device with late requests.
    pub fn error_of_late(&self) -> Error {
        let text = format!(
            "{} has not answered {} request(s), and may still carry them out: before the volume is served \
             again, wait for the answers, or detach the device",
            self.describe(),
            self.requests.late()
        );
        Error::new(ErrorKind::Io, text)
    }

    /// Error of a range whose bytes on the device may belong to another extent.
    #[cold]
    pub fn error_of_unproved(&self, extent: ExtentId) -> Error {
        let text = format!(
            "{} lost writes when a flush failed, perhaps also writes to {extent:?}: stop and start the volume, which \
             then reads as at its last successful flush",
            self.describe()
        );
        Error::new(ErrorKind::Io, text)
    }
}
