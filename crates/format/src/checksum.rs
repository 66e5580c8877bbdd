//! The checksum that all structures share: CRC-32C (Castagnoli), seeded with the volume's UUID.
//!
//! The checksum covers the UUID, which most structures do not store. A structure of another volume therefore
//! fails its check like a torn write.

use crate::Uuid;

/// CRC-32C of the volume's UUID followed by `bytes`.
pub(crate) fn checksum(volume: Uuid, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&volume.0), bytes)
}
