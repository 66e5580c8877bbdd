//! The second required copy of an extent, as far as the map and the devices know.

use braid_format::SlotNumber;

/// State of the second required copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Other {
    /// There is no second copy.
    None,
    /// The second copy equals the current copy.
    Equal(SlotNumber),
    /// The second copy lacks a write: written, but not read.
    Behind(SlotNumber),
    /// The device of the second copy is absent.
    Away,
}
