//! A page of the cache table: which block each cache slot of a device holds.
//!
//! ```text
//! offset  size  field
//! 0       16    page header: checksum, page number, sequence (see `page.rs`)
//! 16      4080  entries: 6 bytes each, 680 a page, by cache slot
//!
//! entry   0  5  block number + 1; 0: none
//!         5  1  0: none, 1: clean, 2: dirty
//! ```
//!
//! A *cache slot* is a block slot: its number is the index of its extent slot on the device, times the blocks
//! of an extent, plus its place in the extent slot. Every block slot of the device therefore has an entry, a
//! cache can lie in any extent slots, and a change of the cache's size moves no entry. Clean entries are
//! trusted after a clean shutdown. After any other stop, clean entries are trusted only if their span was
//! clean.

use crate::superblock::RegionKind;
use crate::{Invalid, Uuid, page};
use braid_base::{BlockId, Bytes};

/// The length of a page.
pub const SIZE: Bytes = Bytes::of_len(page::SIZE);
/// How many cache slots one page describes.
pub const SLOTS_PER_PAGE: u32 = (page::CONTENT / ENTRY) as u32;
/// The largest block number that an entry holds.
pub const LARGEST_BLOCK: BlockId = BlockId((1 << 40) - 2);

const ENTRY: usize = 6;
const CLEAN: u8 = 1;
const DIRTY: u8 = 2;

/// The content of a cache slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheEntry {
    /// The cached block.
    pub block: BlockId,
    /// True if the cached bytes are newer than every required copy.
    pub dirty: bool,
}

/// How many pages describe `slots` cache slots. Cache slots beyond 2^32 − 1 pages (11 PiB with blocks of 4
/// KiB) are not described.
pub fn pages(slots: u64) -> u32 {
    u32::try_from(slots.div_ceil(u64::from(SLOTS_PER_PAGE))).unwrap_or(u32::MAX)
}

/// Writes a page into `page`, which is `SIZE` long. Missing entries at the end are empty.
///
/// # Panics
/// If a block number is above `LARGEST_BLOCK`: no volume has so many.
pub fn encode(
    page: &mut [u8],
    volume: Uuid,
    number: u32,
    sequence: u64,
    entries: impl Iterator<Item = Option<CacheEntry>>,
) {
    assert_eq!(page.len(), page::SIZE, "a page of the cache table has one size");
    page.fill(0);
    for (bytes, entry) in page[page::HEADER..].chunks_exact_mut(ENTRY).zip(entries) {
        let Some(CacheEntry { block, dirty }) = entry else { continue };
        assert!(block <= LARGEST_BLOCK, "{block:?} does not fit into 5 bytes");
        bytes[..5].copy_from_slice(&(block.0 + 1).to_le_bytes()[..5]);
        bytes[5] = if dirty { DIRTY } else { CLEAN };
    }
    page::seal(page, RegionKind::CacheTable, volume, number, sequence);
}

/// Verifies a page, passes its non-empty entries to `each`, by place in the page, and returns the page's
/// sequence. Block numbers are not checked against the size of the volume. `each` may have been called before
/// an error is returned.
pub fn decode(
    page: &[u8],
    volume: Uuid,
    number: u32,
    mut each: impl FnMut(u32, CacheEntry),
) -> Result<u64, Invalid> {
    let (sequence, content) = page::open(page, RegionKind::CacheTable, volume, number)?;
    for (place, bytes) in content.chunks_exact(ENTRY).enumerate() {
        let mut wide = [0; 8];
        wide[..5].copy_from_slice(&bytes[..5]);
        match (u64::from_le_bytes(wide), bytes[5]) {
            (0, 0) => (),
            (block, state @ (CLEAN | DIRTY)) if block > 0 => {
                each(place as u32, CacheEntry { block: BlockId(block - 1), dirty: state == DIRTY });
            }
            (block, state) => {
                return Err(Invalid::Value(format!(
                    "entry {place} of cache table page {number}: block {block} with state {state}"
                )));
            }
        }
    }
    Ok(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn entry(place: u32) -> Option<CacheEntry> {
        match place % 3 {
            0 => None,
            1 => Some(CacheEntry { block: BlockId(u64::from(place) - 1), dirty: place.is_multiple_of(2) }),
            _ => Some(CacheEntry { block: LARGEST_BLOCK, dirty: place.is_multiple_of(2) }),
        }
    }

    #[test]
    fn entries_round_trip() {
        let mut page = [0; 4096];
        encode(&mut page, VOLUME, 3, 44, (0..SLOTS_PER_PAGE).map(entry));
        let mut found = vec![None; SLOTS_PER_PAGE as usize];
        let sequence = decode(&page, VOLUME, 3, |place, entry| found[place as usize] = Some(entry));
        assert_eq!(sequence, Ok(44));
        assert_eq!(found, (0..SLOTS_PER_PAGE).map(entry).collect::<Vec<_>>());
    }

    #[test]
    fn extra_entry_with_impossible_state_is_rejected() {
        for (block, state) in [(0, 1), (1, 0), (1, 3)] {
            let mut page = [0; 4096];
            (page[page::HEADER], page[page::HEADER + 5]) = (block, state);
            page::seal(&mut page, RegionKind::CacheTable, VOLUME, 3, 44);
            assert!(matches!(decode(&page, VOLUME, 3, |_, _| ()), Err(Invalid::Value(_))), "{block} {state}");
        }
    }
}
