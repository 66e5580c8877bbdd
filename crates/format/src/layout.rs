//! Where things lie on the devices of a volume, and how long they are: computed at creation and recorded in superblock and device
//! table.

use crate::superblock::{self, Layout};
use crate::{intent_page, map_page, policy_state, proof};
use braid_base::{Bytes, KIB, MIB};

/// The room of one superblock copy.
pub const SUPERBLOCK_ROOM: Bytes = Bytes(16 << 10);
/// Where the room after the first two superblock copies begins, in layout `head`.
pub const METADATA_START: Bytes = Bytes(32 << 10);
/// The smallest device of a volume.
pub const SMALLEST_DEVICE: Bytes = Bytes(4 << 20);
/// The most devices of a volume.
pub const MOST_DEVICES: usize = 1024;
/// The most spans of a volume: their bitmap takes five pages.
pub const MOST_SPANS: u32 = 65_536;
/// The most parts that an extent's validity is kept in: the bits of a map entry.
pub const PARTS: u64 = 16;

const PAGE: Bytes = Bytes(4096);

/// The places of the superblock copies on a device of `size`, at least [`SMALLEST_DEVICE`]. A device with layout `in place` has none:
/// other devices' tables identify it.
pub fn superblock_offsets(size: Bytes, layout: Layout) -> Vec<Bytes> {
    let from_end = |rooms: u64| (size - SUPERBLOCK_ROOM * rooms).align_down(SUPERBLOCK_ROOM);
    match layout {
        Layout::Head => vec![Bytes::ZERO, SUPERBLOCK_ROOM, from_end(1)],
        Layout::Tail => vec![from_end(3), from_end(2), from_end(1)],
        Layout::InPlace => vec![],
    }
}

/// The size of a part of an extent: the unit in which the map knows what was written. A sixteenth of the extent, but
/// never less than a block.
pub fn part_size(extent_size: Bytes, block_size: Bytes) -> Bytes {
    (extent_size / PARTS).max(block_size)
}

/// The length of one half of the device table for `devices` devices: room for at least 32 devices and for four regions each and 64
/// more, in whole pages.
pub fn device_table_room(devices: usize) -> Bytes {
    let entries = devices.max(32);
    let len = superblock::TABLE_HEADER
        + entries * superblock::DEVICE_ENTRY
        + most_regions(devices) * superblock::REGION_ENTRY;
    Bytes::of_len(len).align_up(PAGE)
}

/// The most regions of a volume with `devices` devices.
pub fn most_regions(devices: usize) -> usize {
    4 * devices.max(32) + 64
}

/// The journal's length for a volume of `volume_size`: 2^-18 of it (0.00038 %), 1 MiB to 64 MiB, whole pages.
pub fn journal_len(volume_size: Bytes) -> Bytes {
    (volume_size / (1 << 18)).clamp(MIB, MIB * 64).align_up(KIB * 4)
}

/// The length of the proof: two pages, written alternately.
pub fn proof_len() -> Bytes {
    proof::SIZE * proof::PAGES
}

/// The length of one map image for `extents` extents.
pub fn map_len(extents: u32, copies: u8) -> Bytes {
    map_page::SIZE * u64::from(map_page::pages(extents, copies))
}

/// The length of the intents for `spans` spans.
pub fn intents_len(spans: u32) -> Bytes {
    intent_page::SIZE * u64::from(intent_page::pages(spans))
}

/// The length of the policy's state: two halves, written alternately.
pub fn policy_state_len() -> Bytes {
    policy_state::HALF * 2
}

/// The extents of a span: the smallest power of two with which the volume has at most [`MOST_SPANS`] spans.
pub fn span_extents(volume_size: Bytes, extent_size: Bytes) -> u32 {
    let extents = volume_size.0.div_ceil(extent_size.0);
    extents.div_ceil(u64::from(MOST_SPANS)).max(1).next_power_of_two() as u32
}
