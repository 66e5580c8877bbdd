//! The summary of the map: the pages of the map images that were ever written.
//!
//! ```text
//! offset  size  field
//! 0       16    page header: checksum, page number, sequence (see `page.rs`)
//! 16      4     pages of a group
//! 20      4     groups
//! 24      4072  a bit for each group, lowest bit of the lowest byte first: 1 written, 0 never written
//! ```
//!
//! A map image of a volume with the feature *map summary* ends in two identical summary pages, numbered
//! behind the pages of the map. The sequence goes up by one at each write. Creation writes the summary alone,
//! and an opening reads only the written groups. A page of any other group holds arbitrary bytes, and counts
//! as a page without entries, of sequence 0.
//!
//! A checkpoint that writes the first page of a group writes the whole group to all images. The checkpoint
//! then flushes, writes and flushes the first page of each summary, then the second page, and only then lets
//! the journal forget. Every valid summary is therefore true until the journal forgets more: groups missing
//! in an older summary are still in the journal.

use crate::superblock::RegionKind;
use crate::{Invalid, Uuid, page};
use braid_base::Bytes;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a page.
pub const SIZE: Bytes = Bytes::of_len(page::SIZE);
/// The pages of the summary behind a map image.
pub const PAGES: u32 = 2;
/// The most groups: the bits of a page.
pub const MOST_GROUPS: u32 = (page::CONTENT - size_of::<Raw>()) as u32 * 8;
/// The smallest group that creation chooses: with extents of 128 KiB, 64 KiB of the map describe 1.3 GiB of
/// the volume.
const SMALLEST_GROUP: u32 = 16;
/// The most pages of a map that is read in one request. Such a map has no summary.
const MOST_READ_AT_ONCE: u32 = 256;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    group_pages: U32,
    groups: U32,
}

const _: () = assert!(size_of::<Raw>() == 8);

/// The written groups of pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Writes of the summary before this write.
    pub sequence: u64,
    pages: u32,
    group_pages: u32,
    bits: Vec<u8>,
}

/// The pages of a group in the summary that creation gives a map of `pages` pages; `None` for a map without a
/// summary.
pub fn group_pages(pages: u32) -> Option<u32> {
    let least = pages.div_ceil(MOST_GROUPS).next_power_of_two();
    (pages > MOST_READ_AT_ONCE).then_some(least.max(SMALLEST_GROUP))
}

impl Summary {
    /// The summary of a map of `pages` pages without a written group.
    ///
    /// # Panics
    /// If a summary cannot describe so many groups.
    pub fn new(pages: u32, group_pages: u32) -> Summary {
        assert!(group_pages > 0 && pages.div_ceil(group_pages) <= MOST_GROUPS, "{pages} of {group_pages}");
        let bits = vec![0; pages.div_ceil(group_pages).div_ceil(8) as usize];
        Summary { sequence: 0, pages, group_pages, bits }
    }

    /// The summary of a map whose groups may all have been written.
    pub fn of_all(pages: u32) -> Summary {
        let mut summary = Summary::new(pages, pages.div_ceil(MOST_GROUPS).max(SMALLEST_GROUP));
        (0..summary.groups()).for_each(|group| summary.insert(group));
        summary
    }

    /// The pages of a group.
    pub fn group_len(&self) -> u32 {
        self.group_pages
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.pages.div_ceil(self.group_pages)
    }

    /// The group of a page.
    pub fn group_of(&self, page: u32) -> u32 {
        page / self.group_pages
    }

    /// The pages of a group.
    pub fn pages_of(&self, group: u32) -> std::ops::Range<u32> {
        let end = (group + 1).saturating_mul(self.group_pages);
        group * self.group_pages..end.min(self.pages)
    }

    /// True if the group was written.
    pub fn contains(&self, group: u32) -> bool {
        self.bits[group as usize / 8] >> (group % 8) & 1 == 1
    }

    /// Records a group as written.
    ///
    /// # Panics
    /// If the group is beyond the map.
    pub fn insert(&mut self, group: u32) {
        assert!(group < self.groups(), "group {group} of {}", self.groups());
        self.bits[group as usize / 8] |= 1 << (group % 8);
    }

    /// The groups that were written, in order.
    pub fn written(&self) -> impl Iterator<Item = u32> {
        let bytes = (0..).zip(&self.bits).filter(|(_, byte)| **byte != 0);
        bytes.flat_map(|(i, byte)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| i * 8 + bit))
    }

    /// Writes page `number` into `page`, which is `SIZE` long.
    pub fn encode(&self, page: &mut [u8], volume: Uuid, number: u32) {
        assert_eq!(page.len(), page::SIZE, "a page of the summary has one size");
        page.fill(0);
        let raw = Raw { group_pages: self.group_pages.into(), groups: self.groups().into() };
        let content = &mut page[page::HEADER..];
        content[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        content[size_of::<Raw>()..][..self.bits.len()].copy_from_slice(&self.bits);
        page::seal(page, RegionKind::Map, volume, number, self.sequence);
    }

    /// Verifies page `number`, of a map of `pages` pages.
    ///
    /// # Errors
    /// `Checksum` for a torn or rotted page, `Value` for a summary of another map.
    pub fn decode(page: &[u8], volume: Uuid, number: u32, pages: u32) -> Result<Summary, Invalid> {
        let (sequence, content) = page::open(page, RegionKind::Map, volume, number)?;
        let (raw, bits) = Raw::ref_from_prefix(content).map_err(|_| Invalid::Absent)?;
        let (group_pages, groups) = (raw.group_pages.get(), raw.groups.get());
        let is_of_map = group_pages > 0 && pages.div_ceil(group_pages) == groups && groups <= MOST_GROUPS;
        if !is_of_map {
            let text = format!("{groups} groups of {group_pages} pages do not divide a map of {pages}");
            return Err(Invalid::Value(text));
        }
        let (bits, rest) = bits.split_at(groups.div_ceil(8) as usize);
        let unused = if groups.is_multiple_of(8) { 0 } else { u8::MAX << (groups % 8) };
        if bits.last().is_some_and(|last| last & unused != 0) || rest.iter().any(|&byte| byte != 0) {
            return Err(Invalid::Value(format!("a group beyond the {groups} of the map was written")));
        }
        Ok(Summary { sequence, pages, group_pages, bits: bits.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_page;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn encoded(summary: &Summary, number: u32) -> Vec<u8> {
        let mut page = vec![0xff; page::SIZE];
        summary.encode(&mut page, VOLUME, number);
        page
    }

    #[test]
    fn every_size_of_map_round_trips() {
        for (pages, group) in [(1, 1), (2, 1), (257, 16), (1000, 3), (MOST_GROUPS, 1), (5_263_440, 256)] {
            let mut summary = Summary { sequence: 44, ..Summary::new(pages, group) };
            let groups = summary.groups();
            let written: Vec<u32> = (0..groups).filter(|g| g % 3 == 0 || g + 1 == groups).collect();
            written.iter().for_each(|&group| summary.insert(group));
            assert_eq!(
                Summary::decode(&encoded(&summary, pages + 1), VOLUME, pages + 1, pages),
                Ok(summary.clone())
            );
            assert_eq!(summary.written().collect::<Vec<_>>(), written);
            assert!((0..groups).all(|group| summary.contains(group) == written.contains(&group)));
            assert_eq!(summary.pages_of(groups - 1).end, pages);
        }
    }

    #[test]
    fn groups_of_largest_map_fit_into_one_page() {
        assert_eq!(group_pages(256), None, "it is read in one request");
        assert_eq!(group_pages(257), Some(16));
        for (copies, group) in [(1, 128), (2, 256)] {
            let pages = map_page::pages(u32::MAX / 2, copies);
            assert_eq!(group_pages(pages), Some(group), "{copies}");
            assert!(Summary::new(pages, group).groups() <= MOST_GROUPS);
            assert_eq!(Summary::of_all(pages).written().count(), Summary::of_all(pages).groups() as usize);
        }
    }

    #[test]
    fn every_torn_or_rotted_summary_is_noticed() {
        let mut summary = Summary::new(1000, 3);
        summary.insert(5);
        let page = encoded(&summary, 1000);
        for byte in 0..page::SIZE {
            let mut rotted = page.clone();
            rotted[byte] ^= 1 << (byte % 8);
            assert!(Summary::decode(&rotted, VOLUME, 1000, 1000).is_err(), "byte {byte}");
        }
        assert_eq!(Summary::decode(&page, Uuid([8; 16]), 1000, 1000), Err(Invalid::Checksum));
        assert!(matches!(Summary::decode(&page, VOLUME, 1001, 1000), Err(Invalid::Value(_))));
    }

    #[test]
    fn summary_of_wrong_map_or_impossible_groups_is_rejected() {
        let page = encoded(&Summary::new(1000, 3), 1000);
        assert!(matches!(Summary::decode(&page, VOLUME, 1000, 1004), Err(Invalid::Value(_))));
        // The group fields of the page, or a bit beyond the last group.
        for (at, value) in [(16, 0), (16, 1), (20, 0), (20, 1), (23, 0x80), (24 + 41, 0x40), (4095, 1)] {
            let mut hostile = page.clone();
            hostile[at] = value;
            page::seal(&mut hostile, RegionKind::Map, VOLUME, 1000, 1);
            let decoded = Summary::decode(&hostile, VOLUME, 1000, 1000);
            assert!(matches!(decoded, Err(Invalid::Value(_))), "{at}: {decoded:?}");
        }
    }

    /// The images hold pages of the map and of the summary: neither kind may pass for the other.
    #[test]
    fn a_summary_is_no_page_of_the_map() {
        let page = encoded(&Summary::new(1000, 3), 1000);
        assert!((0..1000).all(|number| map_page::decode(&page, VOLUME, number, 1, |_, _| ()).is_err()));
    }
}
