//! Recent entries: the map's entries of the extents that changed since the last checkpoint, on a metadata
//! device without the journal. Only with one required copy.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDREC", or "BRAIDRCB" for a page of blocks
//! 8       4     CRC-32C of the volume's UUID and bytes 12..4096
//! 12      4     number of the page in the list
//! 16      8     epoch of the opening that wrote it
//! 24      8     number of the list among those of this opening
//! 32      8     batch: what the journal said up to this batch, it included
//! 40      4     entries
//! 44      4     0
//! 48      10 n  entries: extent (4), home (4), valid parts (2); home and parts as in a map page
//! 48      14 n  entries of a page of blocks: block (8), extent slot (4) and place (2) of its dirty extra copy
//! ```
//!
//! Pages of blocks follow pages of extents. Extent slot 0 means that the block has no dirty extra copy on a
//! device without the journal. Older versions reject a page of blocks, and with the page the whole list.
//!
//! A list is written to the unused journal ring: to the first half of the ring if its number is even,
//! otherwise to the second half. The witness names the list that counts, and its number of pages. A page of
//! the map that contains the list's batch is newer than the list.

use crate::checksum::checksum;
use crate::journal::Extra;
use crate::map_page::Entry;
use crate::{Invalid, SlotNumber, Uuid, count, page};
use braid_base::{BlockId, Bytes, ExtentId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a page.
pub const SIZE: Bytes = Bytes::of_len(page::SIZE);

const MAGIC: [u8; 8] = *b"BRAIDREC";
const MAGIC_OF_BLOCKS: [u8; 8] = *b"BRAIDRCB";
/// Start of the checksum's range.
const COVERED: usize = 12;

/// The list of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List {
    /// The epoch of the opening that wrote the list.
    pub epoch: u64,
    /// Lists that the opening had written, including this list.
    pub number: u64,
    /// The newest batch that the entries include.
    pub batch: u64,
}

/// The entries of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entries {
    /// Map entries of extents.
    Extents(Vec<(ExtentId, Entry)>),
    /// The dirty extra copies of blocks on devices without the journal.
    Blocks(Vec<(BlockId, Option<Extra>)>),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    page: U32,
    epoch: U64,
    number: U64,
    batch: U64,
    entries: U32,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    extent: U32,
    home: U32,
    valid: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    block: U64,
    slot: U32,
    place: U16,
}

const _: () = assert!(size_of::<Raw>() == 48);
const _: () = assert!(size_of::<RawBlock>() == 14);
const _: () = assert!(std::mem::offset_of!(Raw, page) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, batch) == 32);
const _: () = assert!(size_of::<RawEntry>() == 10);

/// Entries of a full page.
pub const PER_PAGE: usize = (page::SIZE - size_of::<Raw>()) / size_of::<RawEntry>();

/// Blocks of a full page.
pub const BLOCKS_PER_PAGE: usize = (page::SIZE - size_of::<Raw>()) / size_of::<RawBlock>();

/// How many pages `entries` entries take.
pub fn pages(entries: usize) -> usize {
    entries.div_ceil(PER_PAGE)
}

/// How many pages `blocks` blocks take.
pub fn block_pages(blocks: usize) -> usize {
    blocks.div_ceil(BLOCKS_PER_PAGE)
}

/// Start of list `number` in a ring of length `ring`, and the pages that fit there.
pub fn place(ring: Bytes, number: u64) -> (Bytes, usize) {
    let half = (ring / 2).align_down(SIZE);
    (half * (number % 2), (half / SIZE) as usize)
}

/// Writes a page into `page`, which is `SIZE` long.
///
/// # Panics
/// If there are more entries than [`PER_PAGE`].
pub fn encode(page: &mut [u8], volume: Uuid, list: List, number: u32, entries: &[(ExtentId, Entry)]) {
    assert!(entries.len() <= PER_PAGE, "a page has room for {PER_PAGE} entries");
    page.fill(0);
    let places = page[size_of::<Raw>()..].chunks_exact_mut(size_of::<RawEntry>());
    for (bytes, (extent, entry)) in places.zip(entries) {
        let (home, valid) = (entry.marked_home().into(), entry.valid.into());
        bytes.copy_from_slice(RawEntry { extent: extent.0.into(), home, valid }.as_bytes());
    }
    seal(page, MAGIC, volume, list, number, entries.len());
}

/// Writes a page of blocks, with their dirty extra copies, like [`encode`].
///
/// # Panics
/// If there are more blocks than [`BLOCKS_PER_PAGE`].
pub fn encode_blocks(
    page: &mut [u8],
    volume: Uuid,
    list: List,
    number: u32,
    blocks: &[(BlockId, Option<Extra>)],
) {
    assert!(blocks.len() <= BLOCKS_PER_PAGE, "a page has room for {BLOCKS_PER_PAGE} blocks");
    page.fill(0);
    let places = page[size_of::<Raw>()..].chunks_exact_mut(size_of::<RawBlock>());
    for (bytes, (block, extra)) in places.zip(blocks) {
        let (slot, place) = extra.map_or((SlotNumber::NONE, 0), |extra| (extra.slot, extra.place));
        let raw = RawBlock { block: block.0.into(), slot: slot.0.into(), place: place.into() };
        bytes.copy_from_slice(raw.as_bytes());
    }
    seal(page, MAGIC_OF_BLOCKS, volume, list, number, blocks.len());
}

/// Writes the head of a page with its entries in place.
fn seal(page: &mut [u8], magic: [u8; 8], volume: Uuid, list: List, number: u32, entries: usize) {
    let mut raw = Raw {
        magic,
        crc: U32::ZERO,
        page: number.into(),
        epoch: list.epoch.into(),
        number: list.number.into(),
        batch: list.batch.into(),
        entries: (entries as u32).into(),
        zero: U32::ZERO,
    };
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    raw.crc = checksum(volume, &page[COVERED..]).into();
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
}

/// Verifies page `number` of a list, at the start of `bytes`. Returns the entries as stored. Extents, blocks
/// and slots are not verified: the format does not know the volume's counts.
pub fn decode(bytes: &[u8], volume: Uuid, list: List, number: u32) -> Result<Entries, Invalid> {
    let page = bytes.get(..SIZE.as_usize()).ok_or(Invalid::Absent)?;
    let (raw, rest) = Raw::ref_from_prefix(page).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC && raw.magic != MAGIC_OF_BLOCKS {
        return Err(Invalid::Absent);
    }
    if raw.crc.get() != checksum(volume, &page[COVERED..]) {
        return Err(Invalid::Checksum);
    }
    for (number, what) in [(raw.epoch, "epoch"), (raw.number, "number"), (raw.batch, "batch")] {
        count::verify(number.get(), &format!("the {what} of the list of recent entries"))?;
    }
    let found = List { epoch: raw.epoch.get(), number: raw.number.get(), batch: raw.batch.get() };
    if (found, raw.page.get()) != (list, number) {
        let page = raw.page.get();
        let text = format!("page {page} of {found:?} is in the place of page {number} of {list:?}");
        return Err(Invalid::Value(text));
    }
    let entries = raw.entries.get() as usize;
    let most = if raw.magic == MAGIC { PER_PAGE } else { BLOCKS_PER_PAGE };
    if entries > most {
        return Err(Invalid::Value(format!("a page of {entries} recent entries: {most} at most")));
    }
    if raw.magic == MAGIC_OF_BLOCKS {
        let raw = rest.chunks_exact(size_of::<RawBlock>()).take(entries);
        let block = |bytes: &[u8]| {
            let raw = RawBlock::ref_from_bytes(bytes).expect("the length is that of a block");
            let slot = SlotNumber(raw.slot.get());
            let extra = Extra { slot, place: raw.place.get(), dirty: true };
            (BlockId(raw.block.get()), (slot != SlotNumber::NONE).then_some(extra))
        };
        return Ok(Entries::Blocks(raw.map(block).collect()));
    }
    let raw = rest.chunks_exact(size_of::<RawEntry>()).take(entries);
    let entry = |bytes: &[u8]| {
        let raw = RawEntry::ref_from_bytes(bytes).expect("the length is that of an entry");
        let home = SlotNumber(raw.home.get());
        let entry = Entry { home, valid: raw.valid.get(), ..Entry::default() };
        (ExtentId(raw.extent.get()), entry)
    };
    Ok(Entries::Extents(raw.map(entry).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);
    const LIST: List = List { epoch: 3, number: 5, batch: 77 };

    fn entries(count: usize) -> Vec<(ExtentId, Entry)> {
        let entry = |i: u32| Entry { home: SlotNumber(i * 3), valid: i as u16, ..Entry::default() };
        (0..count as u32).map(|i| (ExtentId(i * 7), entry(i))).collect()
    }

    fn page(entries: &[(ExtentId, Entry)]) -> [u8; 4096] {
        let mut page = [0xee; 4096];
        encode(&mut page, VOLUME, LIST, 2, entries);
        page
    }

    #[test]
    fn entries_round_trip() {
        for count in [0, 1, PER_PAGE] {
            let expected = Entries::Extents(entries(count));
            assert_eq!(decode(&page(&entries(count)), VOLUME, LIST, 2), Ok(expected));
        }
        let lost = Entry { home: SlotNumber::LOST, ..Entry::default() };
        let marked = Entry { home: SlotNumber(9), valid: 6, partly_lost: true, ..Entry::default() };
        let found = decode(&page(&[(ExtentId(1), lost), (ExtentId(2), marked)]), VOLUME, LIST, 2);
        let Ok(Entries::Extents(found)) = found else { panic!("{found:?}") };
        assert_eq!(found.iter().map(|(_, entry)| entry.unmarked()).collect::<Vec<_>>(), [lost, marked]);
    }

    #[test]
    fn blocks_round_trip() {
        let extra = |i: u64| Extra { slot: SlotNumber(1 + i as u32), place: i as u16, dirty: true };
        let block = |i: u64| (BlockId(i << 31), (!i.is_multiple_of(3)).then_some(extra(i)));
        for count in [0, 1, BLOCKS_PER_PAGE as u64] {
            let (blocks, mut page): (Vec<_>, _) = ((0..count).map(block).collect(), [0xee; 4096]);
            encode_blocks(&mut page, VOLUME, LIST, 2, &blocks);
            assert_eq!(decode(&page, VOLUME, LIST, 2), Ok(Entries::Blocks(blocks)));
        }
    }

    #[test]
    fn page_of_wrong_list_place_or_volume_is_rejected() {
        let page = page(&entries(9));
        for other in [List { epoch: 4, ..LIST }, List { number: 6, ..LIST }, List { batch: 78, ..LIST }] {
            assert!(matches!(decode(&page, VOLUME, other, 2), Err(Invalid::Value(_))), "{other:?}");
        }
        assert!(matches!(decode(&page, VOLUME, LIST, 1), Err(Invalid::Value(_))));
        assert_eq!(decode(&page, Uuid([8; 16]), LIST, 2), Err(Invalid::Checksum));
        assert_eq!(decode(&[0; 4096], VOLUME, LIST, 2), Err(Invalid::Absent));
        assert_eq!(decode(&page[..4095], VOLUME, LIST, 2), Err(Invalid::Absent));
        let mut torn = page;
        torn[512..1024].fill(0xaa);
        assert_eq!(decode(&torn, VOLUME, LIST, 2), Err(Invalid::Checksum));
    }

    #[test]
    fn impossible_page_of_recent_entries_is_rejected() {
        for (at, bytes) in [(23, [0xff; 4]), (31, [0xff; 4]), (39, [0xff; 4]), (40, [0x95, 1, 0, 0])] {
            let mut wrong = page(&entries(9));
            wrong[at..at + 4].copy_from_slice(&bytes);
            let crc = checksum(VOLUME, &wrong[COVERED..]);
            wrong[8..12].copy_from_slice(&crc.to_le_bytes());
            assert!(matches!(decode(&wrong, VOLUME, LIST, 2), Err(Invalid::Value(_))), "byte {at}");
        }
    }

    #[test]
    fn consecutive_lists_do_not_overlap() {
        for ring in [Bytes(1 << 20), Bytes((1 << 20) + 4096), Bytes(64 << 20)] {
            let ((first, most), (second, _)) = (place(ring, 8), place(ring, 9));
            assert_eq!((first, first + SIZE * most as u64), (Bytes::ZERO, second));
            assert!(second + SIZE * most as u64 <= ring);
        }
    }
}
