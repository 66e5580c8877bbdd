//! The 16 bytes at the head of every checkpointed 4 KiB page, for all kinds of pages.
//!
//! ```text
//! offset  size  field
//! 0       4     CRC-32C of the volume's UUID, the region's kind (one byte) and bytes 4..4096
//! 4       4     page number within the image
//! 8       8     sequence of the newest journal batch that the page contains
//! ```
//!
//! The kind enters the checksum, so a page left by an earlier region of another kind is never accepted.

use crate::superblock::RegionKind;
use crate::{Invalid, Uuid, count};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a page, in bytes.
pub(crate) const SIZE: usize = 4096;
/// Bytes before the content.
pub(crate) const HEADER: usize = 16;
/// Bytes of content.
pub(crate) const CONTENT: usize = SIZE - HEADER;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    crc: U32,
    number: U32,
    sequence: U64,
}

const _: () = assert!(size_of::<Raw>() == HEADER);
const _: () = assert!(std::mem::offset_of!(Raw, sequence) == 8);

/// Writes the header of a page with complete content.
pub(crate) fn seal(page: &mut [u8], kind: RegionKind, volume: Uuid, number: u32, sequence: u64) {
    let mut raw = Raw { crc: U32::ZERO, number: number.into(), sequence: sequence.into() };
    page[..HEADER].copy_from_slice(raw.as_bytes());
    raw.crc = checksum(page, kind, volume).into();
    page[..HEADER].copy_from_slice(raw.as_bytes());
}

/// The page number in the header; not verified.
pub(crate) fn number(page: &[u8]) -> u32 {
    assert_eq!(page.len(), SIZE, "a page has one size");
    u32::from_le_bytes(page[4..8].try_into().expect("four bytes"))
}

/// Verifies a page. Returns its sequence and its content.
pub(crate) fn open(
    page: &[u8],
    kind: RegionKind,
    volume: Uuid,
    number: u32,
) -> Result<(u64, &[u8]), Invalid> {
    assert_eq!(page.len(), SIZE, "a page has one size");
    let (raw, content) = Raw::ref_from_prefix(page).map_err(|_| Invalid::Absent)?;
    if raw.crc.get() != checksum(page, kind, volume) {
        return Err(Invalid::Checksum);
    }
    if raw.number.get() != number {
        return Err(Invalid::Value(format!(
            "{kind} page {number} holds page {}: a misdirected write",
            raw.number.get()
        )));
    }
    count::verify(raw.sequence.get(), "the sequence of a page")?;
    Ok((raw.sequence.get(), content))
}

fn checksum(page: &[u8], kind: RegionKind, volume: Uuid) -> u32 {
    crc32c::crc32c_append(crate::checksum::checksum(volume, &[kind as u8]), &page[4..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::LARGEST_COUNT;
    use braid_base::Rng;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn sealed(kind: RegionKind) -> [u8; SIZE] {
        let mut page = [0; SIZE];
        Rng::new(1).fill(&mut page);
        seal(&mut page, kind, VOLUME, 9, 44);
        page
    }

    /// A region that moved away leaves its pages behind. With the same number and volume, the pages would
    /// pass for pages of the new region.
    #[test]
    fn page_of_wrong_region_kind_is_rejected() {
        let page = sealed(RegionKind::Map);
        assert_eq!(open(&page, RegionKind::Map, VOLUME, 9), Ok((44, &page[HEADER..])));
        for kind in [RegionKind::Intents, RegionKind::CacheTable] {
            assert_eq!(open(&page, kind, VOLUME, 9), Err(Invalid::Checksum));
        }
    }

    #[test]
    fn page_with_impossible_sequence_is_rejected() {
        let mut page = sealed(RegionKind::Map);
        for (sequence, is_reached) in [(LARGEST_COUNT - 1, true), (LARGEST_COUNT, false), (u64::MAX, false)] {
            seal(&mut page, RegionKind::Map, VOLUME, 9, sequence);
            let opened = open(&page, RegionKind::Map, VOLUME, 9);
            assert_eq!(opened.is_ok(), is_reached, "{sequence}");
            assert!(is_reached || matches!(opened, Err(Invalid::Value(_))), "{sequence}");
        }
    }

    #[test]
    fn every_torn_sector_of_a_page_is_noticed() {
        let page = sealed(RegionKind::Map);
        for sector in 0..SIZE / 512 {
            let mut torn = page;
            torn[sector * 512..][..512].fill(0);
            assert_eq!(open(&torn, RegionKind::Map, VOLUME, 9), Err(Invalid::Checksum), "sector {sector}");
        }
    }
}
