//! A page of the map image: the required copies of a run of extents.
//!
//! ```text
//! offset  size  field
//! 0       4     CRC-32C of the volume's UUID and bytes 4..4096
//! 4       4     page number
//! 8       8     sequence of the newest journal batch that the page contains
//! 16      4080  entries, 6 bytes each with one required copy (680 a page), 12 with two (340 a page)
//!
//! entry   0  4  home, as slot number; 0: none
//!         4  2  valid parts, a bit each
//!         6  4  second copy, as slot number; 0: none       (two required copies only)
//!         10 2  parts of the second copy that are behind   (two required copies only)
//! ```
//!
//! 48 bits an extent is what Wu and Reddy's map takes (section II): 0.0046 % at 128 KiB. There are two images, each on
//! its own device where there are two: a page torn by a power cut is read from the other image, and the journal still
//! holds everything since the older of the two.

use crate::{Invalid, SlotNumber, Uuid};
use braid_base::Bytes;

/// The length of a page.
pub const SIZE: Bytes = Bytes(4096);
const HEADER: usize = 16;

/// The required copies of one extent, as they lie on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The home, or none for an extent that was never written.
    pub home: SlotNumber,
    /// Which parts of the home were written since it was allocated; others read as zeros.
    pub valid: u16,
    /// The second required copy.
    pub second: SlotNumber,
    /// Which parts of the second copy are older than the home.
    pub behind: u16,
}

fn entry_len(copies: u8) -> usize {
    if copies == 1 { 6 } else { 12 }
}

/// How many extents one page describes.
pub fn extents_per_page(copies: u8) -> u32 {
    ((SIZE.as_usize() - HEADER) / entry_len(copies)) as u32
}

/// How many pages describe `extents` extents.
pub fn pages(extents: u32, copies: u8) -> u32 {
    extents.div_ceil(extents_per_page(copies))
}

/// Writes a page into `page`, which is `SIZE` long. Missing entries at the end are empty.
pub fn encode(
    page: &mut [u8],
    volume: Uuid,
    number: u32,
    sequence: u64,
    copies: u8,
    entries: impl Iterator<Item = Entry>,
) {
    assert_eq!(page.len(), SIZE.as_usize(), "a map page has one size");
    page.fill(0);
    page[4..8].copy_from_slice(&number.to_le_bytes());
    page[8..16].copy_from_slice(&sequence.to_le_bytes());
    for (bytes, entry) in page[HEADER..].chunks_exact_mut(entry_len(copies)).zip(entries) {
        bytes[0..4].copy_from_slice(&entry.home.0.to_le_bytes());
        bytes[4..6].copy_from_slice(&entry.valid.to_le_bytes());
        if copies > 1 {
            bytes[6..10].copy_from_slice(&entry.second.0.to_le_bytes());
            bytes[10..12].copy_from_slice(&entry.behind.to_le_bytes());
        }
    }
    let crc = checksum(page, volume);
    page[0..4].copy_from_slice(&crc.to_le_bytes());
}

/// Verifies a page and gives its entries to `each`, by place in the page. Slot numbers are not verified: only the
/// volume knows how many slots there are.
pub fn decode(
    page: &[u8],
    volume: Uuid,
    number: u32,
    copies: u8,
    mut each: impl FnMut(u32, Entry),
) -> Result<(), Invalid> {
    assert_eq!(page.len(), SIZE.as_usize(), "a map page has one size");
    if page[0..4] != checksum(page, volume).to_le_bytes() {
        return Err(Invalid::Checksum);
    }
    let found = u32_at(page, 4);
    if found != number {
        return Err(Invalid::Value(format!("map page {number} holds page {found}: a write went astray")));
    }
    for (place, bytes) in page[HEADER..].chunks_exact(entry_len(copies)).enumerate() {
        let mut entry = Entry {
            home: SlotNumber(u32_at(bytes, 0)),
            valid: u16::from_le_bytes([bytes[4], bytes[5]]),
            ..Entry::default()
        };
        if copies > 1 {
            entry.second = SlotNumber(u32_at(bytes, 6));
            entry.behind = u16::from_le_bytes([bytes[10], bytes[11]]);
        }
        if entry != Entry::default() {
            each(place as u32, entry);
        }
    }
    Ok(())
}

fn checksum(page: &[u8], volume: Uuid) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&volume.0), &page[4..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn entry(i: u32) -> Entry {
        Entry { home: SlotNumber(i * 3), valid: i as u16, second: SlotNumber(i * 5), behind: !(i as u16) }
    }

    #[test]
    fn entries_come_back_as_they_went_in() {
        for copies in [1, 2] {
            let mut page = [0; 4096];
            let count = extents_per_page(copies);
            encode(&mut page, VOLUME, 9, 44, copies, (0..count).map(entry));
            let mut found = 0;
            decode(&page, VOLUME, 9, copies, |place, got| {
                let mut want = entry(place);
                if copies == 1 {
                    (want.second, want.behind) = (SlotNumber::NONE, 0);
                }
                assert_eq!(got, want);
                found += 1;
            })
            .unwrap();
            assert!(found >= count - 1, "an empty entry is passed over, nothing else");
        }
    }

    #[test]
    fn a_page_of_another_place_another_volume_or_torn_is_not_believed() {
        let mut page = [0; 4096];
        encode(&mut page, VOLUME, 9, 44, 1, (0..680).map(entry));
        assert_eq!(decode(&page, Uuid([8; 16]), 9, 1, |_, _| ()), Err(Invalid::Checksum));
        assert!(matches!(decode(&page, VOLUME, 10, 1, |_, _| ()), Err(Invalid::Value(_))));
        page[512..1024].fill(0);
        assert_eq!(decode(&page, VOLUME, 9, 1, |_, _| ()), Err(Invalid::Checksum));
        assert_eq!(decode(&[0; 4096], VOLUME, 0, 1, |_, _| ()), Err(Invalid::Checksum));
    }
}
