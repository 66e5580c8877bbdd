//! Structures on devices, or in memory that outlives a daemon: each structure of the format by itself.
//!
//! A target decodes the damaged bytes unchanged, makes the checksum fit, and decodes again. An accepted
//! structure must be within its limits, and must equal itself after another round of encoding and decoding.

pub mod journal;
pub mod page;
pub mod pending_log;
pub mod seal;
pub mod sums;
pub mod superblock;

use braid_base::Bytes;
use braid_format::Uuid;

/// Volume of all structures.
pub const VOLUME: Uuid = Uuid([7; 16]);

fn padded(bytes: &[u8], len: Bytes) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(len.as_usize(), 0);
    padded
}
