//! A page of the cache table's directory: the pages of the table that were ever written, and the pages that
//! may hold dirty entries.
//!
//! ```text
//! offset  size  field
//! 0       16    page header: checksum, page number, sequence (see `page.rs`)
//! 16      4080  two bits for each page of entries, 16,320 a page; lowest bits of the lowest byte first;
//!               0 never written, 1 no entry is dirty, 2 entries may be dirty
//! ```
//!
//! The directory comes first in the region, then the pages of entries (see `extra_page.rs`), numbered in one
//! sequence. A page of entries that was never written holds arbitrary bytes. Creation therefore writes the
//! directory alone, and an opening reads only the used part of the table. If a page of entries is valid in no
//! image, the directory says whether dirty copies are lost or only clean copies.

use crate::superblock::RegionKind;
use crate::{Invalid, Uuid, page};

/// How many pages of entries one page of the directory describes.
pub const PAGES_PER_PAGE: u32 = page::CONTENT as u32 * PAGES_PER_BYTE;

const PAGES_PER_BYTE: u32 = 4;

/// The state of a page of entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Content {
    /// Never written: arbitrary bytes.
    #[default]
    Unwritten,
    /// Entries, all clean.
    Clean,
    /// Entries, some of them possibly dirty.
    Dirty,
}

impl Content {
    fn from_code(code: u8) -> Option<Content> {
        [Content::Unwritten, Content::Clean, Content::Dirty].get(usize::from(code)).copied()
    }
}

/// How many pages describe `pages` pages of entries.
pub fn pages(pages: u32) -> u32 {
    pages.div_ceil(PAGES_PER_PAGE)
}

/// Writes page `number` into `page`, which is [`crate::extra_page::SIZE`] long. `content` is called for every
/// page of entries that the directory page describes, including pages beyond the table's end.
pub fn encode(page: &mut [u8], volume: Uuid, number: u32, sequence: u64, content: impl Fn(u32) -> Content) {
    assert_eq!(page.len(), page::SIZE, "a page of the directory has one size");
    let mut next = number * PAGES_PER_PAGE;
    for byte in &mut page[page::HEADER..] {
        *byte = (0..PAGES_PER_BYTE).fold(0, |bits, i| bits | (content(next + i) as u8) << (2 * i));
        next += PAGES_PER_BYTE;
    }
    page::seal(page, RegionKind::CacheTable, volume, number, sequence);
}

/// Verifies a page, passes each written page of entries to `each`, and returns the page's sequence. Page
/// numbers are not checked against the length of the table. `each` may have been called before an error is
/// returned.
pub fn decode(
    page: &[u8],
    volume: Uuid,
    number: u32,
    mut each: impl FnMut(u32, Content),
) -> Result<u64, Invalid> {
    let (sequence, content) = page::open(page, RegionKind::CacheTable, volume, number)?;
    let first = number * PAGES_PER_PAGE;
    for (place, byte) in content.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        for i in 0..PAGES_PER_BYTE {
            let described = first + place as u32 * PAGES_PER_BYTE + i;
            match Content::from_code(byte >> (2 * i) & 3) {
                Some(Content::Unwritten) => {}
                Some(content) => each(described, content),
                None => {
                    return Err(Invalid::Value(format!(
                        "page {described} of the cache table has an invalid state: not unwritten, clean or \
                         dirty"
                    )));
                }
            }
        }
    }
    Ok(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn content(page: u32) -> Content {
        Content::from_code((page % 3) as u8).unwrap()
    }

    #[test]
    fn contents_round_trip() {
        let mut page = [0; page::SIZE];
        encode(&mut page, VOLUME, 1, 44, content);
        let mut found = Vec::new();
        assert_eq!(decode(&page, VOLUME, 1, |page, content| found.push((page, content))), Ok(44));
        let all = (PAGES_PER_PAGE..PAGES_PER_PAGE * 2).map(|page| (page, content(page)));
        assert_eq!(found, all.filter(|(_, c)| *c != Content::Unwritten).collect::<Vec<_>>());
    }

    #[test]
    fn a_fourth_content_is_rejected() {
        let mut page = [0; page::SIZE];
        page[page::HEADER + 5] = 0b1100;
        page::seal(&mut page, RegionKind::CacheTable, VOLUME, 0, 44);
        assert!(matches!(decode(&page, VOLUME, 0, |_, _| ()), Err(Invalid::Value(_))));
    }
}
