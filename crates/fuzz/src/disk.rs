//! What lies on devices, or in memory that outlives a daemon: each structure of the format by itself.
//!
//! A target reads the damaged bytes as they are, makes the checksum fit, and reads them again. What is
//! accepted then must be within its limits, and must come back as it was after it is encoded and decoded once
//! more.

pub mod journal;
pub mod page;
pub mod pending_log;
pub mod seal;
pub mod sums;
pub mod superblock;

use braid_base::Bytes;
use braid_format::Uuid;

/// The volume that all structures belong to.
pub const VOLUME: Uuid = Uuid([7; 16]);

fn padded(bytes: &[u8], len: Bytes) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(len.as_usize(), 0);
    padded
}
