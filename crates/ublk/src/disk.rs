//! The disk that the kernel is to make of a volume: its mark and its parameters. Pure code.

use crate::wire::{FUA, Parameters, READ_ONLY, VOLATILE_CACHE};
use braid_base::{Bytes, GIB, KIB, MIB, SECTOR};

/// Longest read and write of the kernel, which splits longer requests: the default size of an extent. Each
/// tag has a buffer of this size.
pub(crate) const LONGEST: Bytes = Bytes(128 * KIB.0);
/// Longest discard. A request occupies its tag to its end, but costs records of the journal only.
const LONGEST_DISCARD: Bytes = GIB;
/// Longest zeroing, which may write zeros to a hard disk: some tenths of a second.
const LONGEST_ZEROING: Bytes = Bytes(64 * MIB.0);

/// A volume as the kernel is to see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Disk {
    pub size: Bytes,
    /// Logical sector: 512 bytes or 4 KiB.
    pub sector: Bytes,
    /// Unit of the volume's cheapest requests.
    pub block: Bytes,
    pub is_read_only: bool,
}

impl Disk {
    /// Parameters for the driver.
    pub fn parameters(&self) -> Parameters {
        const PAGE: Bytes = Bytes(4096);
        let power = |len: Bytes| len.0.checked_ilog2().unwrap_or_default() as u8;
        let read_only = if self.is_read_only { READ_ONLY } else { 0 };
        let sectors = |len: Bytes| (len.0 / SECTOR.0) as u32;
        Parameters {
            len: Parameters::LEN,
            parts: Parameters::PARTS,
            attributes: VOLATILE_CACHE | FUA | read_only,
            logical_block: power(self.sector),
            physical_block: power(PAGE.max(self.sector)),
            optimal_request: power(PAGE.max(self.block)),
            least_request: power(PAGE.max(self.block)),
            longest: sectors(LONGEST),
            sectors: self.size.0 / SECTOR.0,
            discard_granularity: PAGE.max(self.block).0 as u32,
            longest_discard: sectors(LONGEST_DISCARD),
            longest_zeroing: sectors(LONGEST_ZEROING),
            discard_ranges: 1,
            ..Parameters::default()
        }
    }
}

/// Mark of a volume's devices: the hash of its UUID, never 0. The kernel keeps the mark with the device.
pub fn mark_of(uuid: &str) -> u64 {
    // FNV-1a, 64 bits. The first bytes keep the mark apart from marks of other programs.
    let bytes = b"braid volume ".iter().chain(uuid.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_follow_size_sector_and_block() {
        let disk = Disk { size: GIB + SECTOR, sector: SECTOR, block: Bytes(16 << 10), is_read_only: false };
        let parameters = disk.parameters();
        assert_eq!(parameters.sectors, (1 << 21) + 1);
        assert_eq!((parameters.logical_block, parameters.physical_block), (9, 12));
        assert_eq!((parameters.least_request, parameters.discard_granularity), (14, 16 << 10));
        assert_eq!((parameters.longest, parameters.longest_discard), (256, 1 << 21));
        assert_eq!(parameters.attributes, 0b1100);
        let disk = Disk { sector: Bytes(4096), block: Bytes(4096), is_read_only: true, ..disk };
        let parameters = disk.parameters();
        assert_eq!(
            (parameters.logical_block, parameters.physical_block, parameters.least_request),
            (12, 12, 12)
        );
        assert_eq!(parameters.attributes, 0b1101);
    }

    /// A later version must find the devices of this version.
    #[test]
    fn mark_of_a_volume_never_changes() {
        assert_eq!(mark_of("0b5ff2fc-7d0f-4f9c-a6b4-6b0ffcc43b58"), 0xa04d_4066_cc1b_c7b9);
        assert_ne!(mark_of("a"), mark_of("b"));
    }
}
