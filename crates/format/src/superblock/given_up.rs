//! The mark of a failed device, in the device's own superblock.
//!
//! The survivors record that a device is excluded. The superblock of the failed device still says that all
//! devices are current, so the device alone would pass for the newest half of the volume. The mark is set in
//! each superblock copy of the device, without a change of epoch or sequence: all other fields stay.

use super::{COVERED, Header};
use crate::Invalid;

/// Offset of the mark.
pub(super) const GIVEN_UP: usize = 103;

impl Header {
    /// Marks a superblock copy: the other devices continue without its device.
    ///
    /// # Errors
    /// If the copy is not valid. The copy is then unchanged.
    pub fn mark_given_up(bytes: &mut [u8]) -> Result<(), Invalid> {
        Header::decode(bytes)?;
        bytes[GIVEN_UP] = 1;
        let crc = crc32c::crc32c(&bytes[COVERED..]);
        bytes[8..COVERED].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }
}
