//! The checksum that all structures share: CRC-32C (Castagnoli), seeded with the volume's UUID.
//!
//! The UUID is not stored in most structures. It enters the checksum, so that a structure of another volume
//! fails as a torn one does.

use crate::Uuid;

/// CRC-32C of the volume's UUID followed by `bytes`.
pub(crate) fn checksum(volume: Uuid, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&volume.0), bytes)
}
