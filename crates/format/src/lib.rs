//! What lies on the devices: superblock, journal batch, map page. Pure: bytes to values and back.
//!
//! ```text
//! every device   0        superblock copy 0 (8 KiB)
//!                16 KiB   superblock copy 1
//!                32 KiB   journal, on the first metadata device
//!                         map image, on both metadata devices (twice on the only device)
//!                         extent slots, aligned to the extent size
//!                end      superblock copy 2 in the last whole 16 KiB
//! ```
//!
//! Everything is little-endian and carries a checksum (CRC-32C) that covers the volume's UUID, so that what another
//! volume left behind is never taken for this one's. Nothing read from a device is believed before its checksum and
//! its ranges were verified; no length that was read decides an allocation before it was bounded.
#![forbid(unsafe_code)]

pub mod journal;
pub mod layout;
pub mod map_page;
pub mod superblock;

mod invalid;

pub use invalid::Invalid;

/// The identity of a volume or a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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

/// A slot of any device by one number, as the map stores it: 0 is none, else the device's first number plus the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotNumber(pub u32);

impl SlotNumber {
    /// No slot.
    pub const NONE: SlotNumber = SlotNumber(0);
}

impl std::fmt::Debug for SlotNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slot {}", self.0)
    }
}
