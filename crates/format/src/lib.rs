//! The formats of all structures that Braid writes to devices: superblock, device table, journal batch,
//! proof, pages. Pure: bytes to values and back.
//!
//! ```text
//! every device   0        superblock copy 0 (8 KiB)
//!                16 KiB   superblock copy 1
//!                32 KiB   device table, on metadata devices
//!                …        extent slots; a region (journal, map image, …) takes the room of whole slots
//!                end      superblock copy 2, in the last whole 16 KiB
//! ```
//!
//! Everything is little-endian and carries a checksum (CRC-32C). The checksum covers the volume's UUID, so
//! bytes left by another volume are never accepted. Bytes from a device are not trusted before their checksum
//! and their ranges are verified. A length from a device decides no allocation before the length is bounded.
//! `docs/format.md` draws all structures on one page and gives the order of their writes.
#![forbid(unsafe_code)]

pub mod dirty_spans;
pub mod double_write;
pub mod epoch_journal;
pub mod extra_directory;
pub mod extra_page;
pub mod fingerprint;
pub mod intent_page;
pub mod journal;
pub mod layout;
pub mod map_page;
pub mod map_summary;
pub mod pending_log;
pub mod policy_state;
pub mod proof;
pub mod recent;
pub mod sums;
pub mod superblock;
pub mod witness;

mod checksum;
mod count;
mod invalid;
mod packed_runs;
mod page;
mod text;

pub use count::LARGEST_COUNT;
pub use fingerprint::Fingerprint;
pub use invalid::Invalid;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The identity of a volume or a device.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Uuid(pub [u8; 16]);

impl std::fmt::Display for Uuid {
    /// As `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The number of a slot among the slots of all devices, as the map stores it: the device's first slot number
/// plus the index on the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotNumber(pub u32);

impl SlotNumber {
    /// No slot: the extent was never written, or has no such copy.
    pub const NONE: SlotNumber = SlotNumber(0);
    /// The home of an extent without a proved place after a repair: reads fail until the extent is written
    /// again.
    pub const LOST: SlotNumber = SlotNumber(u32::MAX);
}

impl std::fmt::Debug for SlotNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            SlotNumber::NONE => f.write_str("no slot"),
            SlotNumber::LOST => f.write_str("lost slot"),
            SlotNumber(number) => write!(f, "slot {number}"),
        }
    }
}

/// A run of 2^k extents, aligned to its length: the unit in which "copies may differ" is recorded durably.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub u32);

impl SpanId {
    /// The id as an index into tables of spans.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Debug for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "span {}", self.0)
    }
}
