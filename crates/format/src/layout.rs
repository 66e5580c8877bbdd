//! Where things lie on the devices of a volume, computed once at creation and recorded in the superblock.

use crate::map_page;
use braid_base::{Bytes, KIB, MIB};

/// Length of the superblock's room at each of its places.
pub const SUPERBLOCK_ROOM: Bytes = Bytes(16 << 10);
/// Where the room for metadata begins, after the first two superblocks.
pub const METADATA_START: Bytes = Bytes(32 << 10);
/// The smallest device that makes sense.
pub const SMALLEST_DEVICE: Bytes = Bytes(4 << 20);
/// Most devices of a volume.
pub const MOST_DEVICES: usize = 32;
/// Parts that an extent's validity is kept in, at most: the bits of a map entry.
pub const PARTS: u64 = 16;

/// The places of the superblock's copies on a device of `size`.
pub fn superblock_offsets(size: Bytes) -> [Bytes; 3] {
    [Bytes::ZERO, SUPERBLOCK_ROOM, (size - SUPERBLOCK_ROOM).align_down(SUPERBLOCK_ROOM)]
}

/// The size of a part of an extent: the unit in which the map knows what was written. A sixteenth of the extent, but
/// never less than a block.
pub fn part_size(extent_size: Bytes, block_size: Bytes) -> Bytes {
    (extent_size / PARTS).max(block_size)
}

/// The journal's length for a volume of `volume_size`: 2^-18 of it (0.00038 %), 1 MiB to 64 MiB, whole pages.
pub fn journal_len(volume_size: Bytes) -> Bytes {
    (volume_size / (1 << 18)).clamp(MIB, MIB * 64).align_up(KIB * 4)
}

/// The length of one map image for `extents` extents.
pub fn map_len(extents: u32, copies: u8) -> Bytes {
    map_page::SIZE * u64::from(map_page::pages(extents, copies))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::TIB;

    #[test]
    fn metadata_takes_at_most_a_ten_thousandth_at_the_default_extent_size() {
        for size in [Bytes(150_000_000_000), TIB, TIB * 4, TIB * 100] {
            let extents = (size / (KIB * 128)) as u32;
            let superblocks = METADATA_START * 2;
            let metadata = map_len(extents, 1) * 2 + journal_len(size) + superblocks;
            let share = metadata.0 as f64 / size.0 as f64;
            assert!(share <= 0.0001, "{size}: {metadata} is {:.5} %", share * 100.0);
        }
    }
}
