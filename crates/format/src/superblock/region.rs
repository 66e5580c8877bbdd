//! A region: a run of bytes on one device that holds one of Braid's structures. 32 bytes in the device table.
//!
//! ```text
//! offset  size  field
//! 0       1     kind: 1 journal, 2 proof, 3 map, 4 intents, 5 cache table, 6 checksums, 7 policy state, 8 epoch journal,
//!               9 double-write area, 10 dirty spans, 11 sums
//! 1       1     copy: 0 or 1
//! 2       2     device
//! 4       1     1: void, as the place could not be written: nothing in it counts; else 0
//! 5       3     0
//! 8       8     offset on the device
//! 16      8     length
//! 24      8     0
//! ```

use super::coded;
use crate::Invalid;
use braid_base::{Bytes, DeviceId};
use std::fmt;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// The length of a region's entry, in bytes.
pub(crate) const REGION_ENTRY: usize = 32;

/// The structure in a region.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, TryFromBytes, IntoBytes, Immutable, Unaligned,
)]
#[repr(u8)]
pub enum RegionKind {
    /// The ring of journal batches.
    Journal = 1,
    /// The newest promised journal sequence.
    Proof = 2,
    /// An image of the map.
    Map = 3,
    /// The spans with copies that may differ.
    Intents = 4,
    /// Extra copies by cache slot.
    CacheTable = 5,
    /// Checksums of blocks. Planned.
    Checksums = 6,
    /// The policy's learned state.
    PolicyState = 7,
    /// Epochs of an image disk: changes to apply before the disk is a state of the volume.
    EpochJournal = 8,
    /// Pages before their write in place.
    DoubleWrite = 9,
    /// The spans that may have dirty extra copies: the cost of losing the SSDs.
    DirtySpans = 10,
    /// Sums and marks that identify an adopted disk.
    Sums = 11,
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionKind::Journal => "journal",
            RegionKind::Proof => "proof",
            RegionKind::Map => "map",
            RegionKind::Intents => "intents",
            RegionKind::CacheTable => "cache table",
            RegionKind::Checksums => "checksums",
            RegionKind::PolicyState => "policy state",
            RegionKind::EpochJournal => "epoch journal",
            RegionKind::DoubleWrite => "double-write area",
            RegionKind::DirtySpans => "dirty spans",
            RegionKind::Sums => "sums",
        })
    }
}

/// The place of one copy of a structure. A region takes whole extent slots, so a region can move when its
/// device is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The structure.
    pub kind: RegionKind,
    /// The number of the copy.
    pub copy: u8,
    /// The device of the region.
    pub device: DeviceId,
    /// Start of the region.
    pub offset: Bytes,
    /// The length.
    pub len: Bytes,
    /// True if the content does not count: the region could not be written. Its slots stay taken, so no data
    /// is placed there.
    pub void: bool,
}

impl Region {
    /// True if the region is this copy of the structure, and is not void.
    pub fn is(&self, kind: RegionKind, copy: u8) -> bool {
        (self.kind, self.copy, self.void) == (kind, copy, false)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} copy {} on {} at {}, {} long", self.kind, self.copy, self.device, self.offset, self.len)
    }
}

/// A region as bytes, not verified.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRegion {
    kind: u8,
    copy: u8,
    device: U16,
    void: u8,
    zero: [u8; 3],
    offset: U64,
    len: U64,
    rest: [u8; 8],
}

const _: () = assert!(size_of::<RawRegion>() == REGION_ENTRY);
const _: () = assert!(std::mem::offset_of!(RawRegion, offset) == 8);

impl RawRegion {
    pub(super) fn encode(region: &Region) -> RawRegion {
        RawRegion {
            kind: region.kind as u8,
            copy: region.copy,
            device: region.device.0.into(),
            void: region.void.into(),
            zero: [0; 3],
            offset: region.offset.0.into(),
            len: region.len.0.into(),
            rest: [0; 8],
        }
    }

    pub(super) fn decode(&self) -> Result<Region, Invalid> {
        let void = match self.void {
            0 => false,
            1 => true,
            other => return Err(Invalid::Value(format!("a region has the unknown state {other}"))),
        };
        Ok(Region {
            void,
            kind: coded(self.kind, "region kind")?,
            copy: self.copy,
            device: DeviceId(self.device.get()),
            offset: Bytes(self.offset.get()),
            len: Bytes(self.len.get()),
        })
    }
}
