//! Places and lengths of structures on the devices of a volume: computed at creation, recorded in superblock
//! and device table.

use crate::superblock::{self, Layout};
use crate::{
    dirty_spans, double_write, extra_directory, extra_page, intent_page, map_page, policy_state, proof, sums,
};
use braid_base::{Bytes, KIB, MIB};

/// The room of one superblock copy.
pub const SUPERBLOCK_ROOM: Bytes = Bytes(16 << 10);
/// Start of the room after the first two superblock copies, in layout `head`.
pub const METADATA_START: Bytes = Bytes(32 << 10);
/// The smallest device of a volume.
pub const SMALLEST_DEVICE: Bytes = Bytes(4 << 20);
/// The most devices of a volume.
pub const MOST_DEVICES: usize = 1024;
/// The most spans of a volume: their table takes five pages.
pub const MOST_SPANS: u32 = 65_536;
/// The most parts of an extent: the validity bits of a map entry.
pub const PARTS: u64 = 16;

const PAGE: Bytes = Bytes(4096);

/// The places of the superblock copies on a device of `size`, at least [`SMALLEST_DEVICE`]; none on an
/// adopted disk.
pub fn superblock_offsets(size: Bytes, layout: Layout) -> Vec<Bytes> {
    let from_end = |rooms: u64| (size - SUPERBLOCK_ROOM * rooms).align_down(SUPERBLOCK_ROOM);
    match layout {
        Layout::Head => vec![Bytes::ZERO, SUPERBLOCK_ROOM, from_end(1)],
        Layout::Tail => vec![from_end(3), from_end(2), from_end(1)],
        Layout::Adopted => Vec::new(),
    }
}

/// The size of a part of an extent: the unit in which the map records written data. A sixteenth of the
/// extent, but at least a block.
pub fn part_size(extent_size: Bytes, block_size: Bytes) -> Bytes {
    (extent_size / PARTS).max(block_size)
}

/// The length of one half of the device table for `devices` devices, in whole pages: room for at least 32
/// devices, four regions for each, and 64 more regions.
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

/// The journal's length for a volume of `volume_size`: 2^-18 of the size (0.00038 %), 1 MiB to 64 MiB, whole
/// pages.
pub fn journal_len(volume_size: Bytes) -> Bytes {
    (volume_size / (1 << 18)).clamp(MIB, MIB * 64).align_up(KIB * 4)
}

/// The length of the journal of epochs: an eighth of the volume, 8 MiB to 1 GiB, but at least eight extents
/// and 4 MiB. An epoch takes less than half of the journal, and a guest may discard a whole extent at once.
pub fn epoch_journal_len(volume_size: Bytes, extent_size: Bytes) -> Bytes {
    let usual = (volume_size / 8).clamp(MIB * 8, MIB * 1024);
    usual.max(extent_size * 8 + MIB * 4).align_up(KIB * 4)
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

/// The length of one image of the cache table of a device with `slots` slots: the directory, then an entry
/// for each block slot. An image takes 0.15 % of the device with blocks of 4 KiB.
pub fn cache_table_len(slots: u32, extent_size: Bytes, block_size: Bytes) -> Bytes {
    let pages = cache_table_pages(slots, extent_size, block_size);
    extra_page::SIZE * (u64::from(extra_directory::pages(pages)) + u64::from(pages))
}

/// The pages of entries of a cache table.
pub fn cache_table_pages(slots: u32, extent_size: Bytes, block_size: Bytes) -> u32 {
    extra_page::pages(u64::from(slots) * (extent_size / block_size))
}

/// The length of a double-write area for an image of `pages` pages.
pub fn double_write_len(pages: u32) -> Bytes {
    double_write::PAGE * u64::from(pages.clamp(1, double_write::MOST_PAGES))
}

/// The length of the table of spans that may have dirty extra copies: two halves, written alternately.
pub fn dirty_spans_len(spans: u32) -> Bytes {
    dirty_spans::half(spans) * 2
}

/// The length of the sums of an adopted disk: two halves, written alternately.
pub fn sums_len() -> Bytes {
    sums::HALF * 2
}

/// The length of the policy's state: two halves, written alternately.
pub fn policy_state_len() -> Bytes {
    policy_state::HALF * 2
}

/// The extents of a span: the smallest power of two with which a span has `least` bytes and the volume at
/// most [`MOST_SPANS`] spans.
pub fn span_extents(volume_size: Bytes, extent_size: Bytes, least: Bytes) -> u32 {
    let extents = volume_size.0.div_ceil(extent_size.0);
    let span = extents.div_ceil(u64::from(MOST_SPANS)).max(least.0.div_ceil(extent_size.0)).max(1);
    span.next_power_of_two() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, TIB};

    /// One SSD and one disk, one required copy, extents of 128 KiB, nothing cached; each region takes whole
    /// slots.
    #[test]
    fn metadata_takes_at_most_0_012_percent_at_the_defaults() {
        let extent_size = KIB * 128;
        for size in [Bytes(150_000_000_000), TIB, TIB * 4, TIB * 100] {
            let extents = (size / extent_size) as u32;
            let spans = extents.div_ceil(span_extents(size, extent_size, MIB * 16));
            let regions = [
                intents_len(spans),
                intents_len(spans),
                map_len(extents, 1),
                map_len(extents, 1),
                journal_len(size),
                proof_len(),
                policy_state_len(),
            ];
            let regions: Bytes = regions.into_iter().map(|len| len.align_up(extent_size)).sum();
            let per_device = METADATA_START + SUPERBLOCK_ROOM + device_table_room(2) * 2;
            let metadata = regions + per_device * 2;
            let share = metadata.0 as f64 / size.0 as f64;
            assert!(share <= 0.00012, "{size}: {metadata} is {:.5} %", share * 100.0);
        }
    }

    #[test]
    fn superblock_copies_lie_apart_and_within_the_device() {
        for layout in [Layout::Head, Layout::Tail] {
            for size in [SMALLEST_DEVICE, SMALLEST_DEVICE + Bytes(16383), TIB + Bytes(512)] {
                let places = superblock_offsets(size, layout);
                assert_eq!(places.len(), 3);
                assert!(places.windows(2).all(|pair| pair[0] + SUPERBLOCK_ROOM <= pair[1]), "{places:?}");
                assert!(places[2] + superblock::SIZE <= size, "{places:?}");
                assert!(places.iter().all(|place| place.is_aligned(SUPERBLOCK_ROOM)), "{places:?}");
            }
        }
    }

    #[test]
    fn large_volume_has_32769_to_65536_spans() {
        assert_eq!(span_extents(Bytes(1), KIB * 128, KIB * 4), 1);
        assert_eq!(span_extents(GIB * 8, KIB * 128, KIB * 4), 1);
        assert_eq!(span_extents(GIB * 8 + Bytes(1), KIB * 128, KIB * 4), 2);
        assert_eq!(span_extents(GIB * 8, KIB * 128, MIB * 16), 128);
        assert_eq!(span_extents(GIB * 8, MIB * 64, MIB * 16), 1);
        for size in [TIB, TIB * 3, TIB * 200] {
            let (extents, span) =
                (size.0.div_ceil(128 << 10), u64::from(span_extents(size, KIB * 128, MIB * 16)));
            let spans = extents.div_ceil(span);
            assert!(span.is_power_of_two() && (32_769..=65_536).contains(&spans), "{size}: {spans}");
        }
    }

    #[test]
    fn a_device_table_for_few_devices_is_short() {
        assert_eq!(device_table_room(1), KIB * 12);
        assert_eq!(device_table_room(1), device_table_room(32));
        assert_eq!(device_table_room(MOST_DEVICES), KIB * 260);
    }
}
