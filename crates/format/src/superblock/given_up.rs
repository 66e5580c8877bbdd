//! The mark of a device that the others went on without, in its own superblock.
//!
//! The survivors record that a device was given up. The superblock of that device still says that all devices
//! are current, so the device alone would pass for the newest half. The mark is set in each superblock copy
//! of the device, without a change of its epoch or sequence: the rest stays what the device knew.

use super::{COVERED, Header};
use crate::Invalid;

/// Where the mark lies.
pub(super) const GIVEN_UP: usize = 103;

impl Header {
    /// Marks a superblock copy as that of a device that the others went on without.
    ///
    /// # Errors
    /// If the copy is not valid: it is left as it is.
    pub fn mark_given_up(bytes: &mut [u8]) -> Result<(), Invalid> {
        Header::decode(bytes)?;
        bytes[GIVEN_UP] = 1;
        let crc = crc32c::crc32c(&bytes[COVERED..]);
        bytes[8..COVERED].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }
}
