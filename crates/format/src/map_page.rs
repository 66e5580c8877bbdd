//! A page of a dense map image: the required copies of a run of extents.
//!
//! ```text
//! offset  size  field
//! 0       16    page header: checksum, page number, sequence (see `page.rs`)
//! 16      4080  entries: 6 bytes each with one required copy (680 a page), 10 with two (408 a page)
//!
//! entry   0  4  home, as slot number; 0: none, 0xffffffff: lost; bit 31, with the feature *partly lost*:
//!               parts that are not valid are lost, and the other bits are the slot number
//!         4  2  valid parts, a bit each
//!         6  4  second copy, as slot number; 0: none       (two required copies only)
//! ```
//!
//! 48 bits an extent equal Wu and Reddy's map (section II): 0.0046 % at 128 KiB. There are two images, on
//! different devices if the volume has two devices for metadata. Of two valid pages, the page with the higher
//! sequence counts. A page torn by a power cut is read from the other image, and the journal still holds all
//! changes since the older of the two pages. The intents, not the map, record the second copies that may
//! differ from their homes.

use crate::superblock::RegionKind;
use crate::{Invalid, SlotNumber, Uuid, page};
use braid_base::Bytes;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a page.
pub const SIZE: Bytes = Bytes::of_len(page::SIZE);

/// The required copies of one extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The home: none for an extent that was never written, lost if a repair could not prove the place.
    pub home: SlotNumber,
    /// The parts of the home written since the home was allocated. Other parts read as zeros, or are lost.
    pub valid: u16,
    /// The second required copy.
    pub second: SlotNumber,
    /// True if the parts that are not valid are lost.
    pub partly_lost: bool,
}

/// Mark of a home whose invalid parts are lost.
const PARTLY_LOST: u32 = 1 << 31;
/// Exclusive bound of slot numbers in a volume with marked homes.
pub const MOST_MARKED: u64 = PARTLY_LOST as u64;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHome {
    home: U32,
    valid: U16,
}

/// An entry with one copy equals the start of an entry with two.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    first: RawHome,
    second: U32,
}

const _: () = assert!(size_of::<RawHome>() == 6);
const _: () = assert!(size_of::<Raw>() == 10);

const fn entry_len(copies: u8) -> usize {
    if copies == 1 { size_of::<RawHome>() } else { size_of::<Raw>() }
}

/// How many extents one page describes.
pub const fn extents_per_page(copies: u8) -> u32 {
    (page::CONTENT / entry_len(copies)) as u32
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
    assert_eq!(page.len(), page::SIZE, "a map page has one size");
    page.fill(0);
    let len = entry_len(copies);
    for (bytes, entry) in page[page::HEADER..].chunks_exact_mut(len).zip(entries) {
        let first = RawHome { home: entry.marked_home().into(), valid: entry.valid.into() };
        let raw = Raw { first, second: entry.second.0.into() };
        bytes.copy_from_slice(&raw.as_bytes()[..len]);
    }
    page::seal(page, RegionKind::Map, volume, number, sequence);
}

/// A verified page.
pub struct Verified<'a> {
    /// The sequence of the newest journal batch that the page contains.
    pub sequence: u64,
    content: &'a [u8],
    copies: u8,
}

/// Verifies a page. Slot numbers are not verified: the format does not know the volume's number of slots.
///
/// # Errors
/// `Checksum` for a torn or rotted page, `Value` for a page of another place or a page with an impossible
/// entry.
pub fn verify(page: &[u8], volume: Uuid, number: u32, copies: u8) -> Result<Verified<'_>, Invalid> {
    let (sequence, content) = page::open(page, RegionKind::Map, volume, number)?;
    if copies > 1 {
        for (place, raw) in entries::<Raw>(content).iter().enumerate() {
            raw.entry()
                .verify()
                .map_err(|wrong| Invalid::Value(format!("entry {place} of map page {number}: {wrong}")))?;
        }
    }
    Ok(Verified { sequence, content, copies })
}

impl Verified<'_> {
    /// Passes the non-empty entries to `each`, by place in the page.
    pub fn each(&self, mut each: impl FnMut(u32, Entry)) {
        let mut take = |place: usize, entry: Entry| {
            if entry != Entry::default() {
                each(place as u32, entry);
            }
        };
        // One loop for each length: a length known to the compiler halves the time of an opening.
        match self.copies {
            1 => {
                let all = entries::<RawHome>(self.content).iter().enumerate();
                all.for_each(|(place, raw)| take(place, raw.entry(SlotNumber::NONE)));
            }
            _ => {
                let all = entries::<Raw>(self.content).iter().enumerate();
                all.for_each(|(place, raw)| take(place, raw.entry()));
            }
        }
    }
}

/// Verifies a page, passes its non-empty entries to `each`, by place in the page, and returns the page's
/// sequence.
///
/// # Errors
/// As [`verify`]; `each` has then not been called.
pub fn decode(
    page: &[u8],
    volume: Uuid,
    number: u32,
    copies: u8,
    each: impl FnMut(u32, Entry),
) -> Result<u64, Invalid> {
    let verified = verify(page, volume, number, copies)?;
    verified.each(each);
    Ok(verified.sequence)
}

fn entries<R: FromBytes + Immutable + KnownLayout + Unaligned>(content: &[u8]) -> &[R] {
    let whole = &content[..content.len() / size_of::<R>() * size_of::<R>()];
    <[R]>::ref_from_bytes(whole).expect("the length is a multiple of the entry's")
}

impl Raw {
    #[inline]
    fn entry(&self) -> Entry {
        self.first.entry(SlotNumber(self.second.get()))
    }
}

impl RawHome {
    #[inline]
    fn entry(&self, second: SlotNumber) -> Entry {
        Entry { home: SlotNumber(self.home.get()), valid: self.valid.get(), second, partly_lost: false }
    }
}

impl Entry {
    /// True if some parts of the extent are lost.
    pub fn is_any_lost(&self) -> bool {
        self.partly_lost || self.home == SlotNumber::LOST
    }

    /// The home with its mark, as stored.
    #[inline]
    pub(crate) fn marked_home(&self) -> u32 {
        if self.partly_lost { self.home.0 | PARTLY_LOST } else { self.home.0 }
    }

    /// A decoded entry, for a volume with the feature *partly lost*.
    pub fn unmarked(self) -> Entry {
        let home = SlotNumber(self.home.0 & !PARTLY_LOST);
        let is_marked = self.home != SlotNumber::LOST && self.home != home && home != SlotNumber::NONE;
        if is_marked { Entry { home, partly_lost: true, ..self } } else { self }
    }

    /// Verifies the rule of every entry, in a page and in a journal record: a second copy needs a home.
    #[inline]
    pub(crate) fn verify(&self) -> Result<(), &'static str> {
        match self.home {
            SlotNumber::NONE | SlotNumber::LOST if self.second != SlotNumber::NONE => {
                Err("a second copy without a home")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn entry(i: u32) -> Entry {
        let home = if i == 5 { SlotNumber::LOST } else { SlotNumber(i * 3) };
        let second = if i == 5 { SlotNumber::NONE } else { SlotNumber(i * 5) };
        Entry { home, valid: i as u16, second, partly_lost: false }
    }

    #[test]
    fn entries_round_trip() {
        for (copies, count) in [(1, 680), (2, 408)] {
            let mut page = [0; 4096];
            assert_eq!(extents_per_page(copies), count);
            encode(&mut page, VOLUME, 9, 44, copies, (0..count).map(entry));
            let mut found = 0;
            let sequence = decode(&page, VOLUME, 9, copies, |place, got| {
                let mut want = entry(place);
                if copies == 1 {
                    want.second = SlotNumber::NONE;
                }
                assert_eq!(got, want);
                found += 1;
            });
            assert_eq!(sequence, Ok(44));
            assert_eq!(found, count - 1, "only the empty entry is left out");
        }
    }

    #[test]
    fn mark_of_partly_lost_home_round_trips() {
        let marked = Entry { home: SlotNumber(9), valid: 6, partly_lost: true, ..Entry::default() };
        let lost = Entry { home: SlotNumber::LOST, ..Entry::default() };
        let mut page = [0; 4096];
        encode(&mut page, VOLUME, 9, 44, 1, [marked, lost].into_iter());
        let mut found = Vec::new();
        decode(&page, VOLUME, 9, 1, |_, entry| found.push(entry.unmarked())).unwrap();
        assert_eq!(found, [marked, lost]);
        let none = Entry { home: SlotNumber(1 << 31), ..Entry::default() };
        assert_eq!(none.unmarked(), none, "a mark without a home is a slot that does not exist");
    }

    /// Such an entry made a read ask for the slot of a missing home.
    #[test]
    fn a_second_copy_without_a_home_is_rejected() {
        for home in [SlotNumber::NONE, SlotNumber::LOST] {
            let mut page = [0; 4096];
            let entry = Entry { home, valid: 1, second: SlotNumber(7), partly_lost: false };
            encode(&mut page, VOLUME, 9, 44, 2, std::iter::once(entry));
            assert!(matches!(decode(&page, VOLUME, 9, 2, |_, _| ()), Err(Invalid::Value(_))), "{home:?}");
        }
    }

    #[test]
    fn map_page_of_wrong_place_or_volume_is_rejected() {
        let mut page = [0; 4096];
        encode(&mut page, VOLUME, 9, 44, 1, (0..680).map(entry));
        assert_eq!(decode(&page, Uuid([8; 16]), 9, 1, |_, _| ()), Err(Invalid::Checksum));
        assert!(matches!(decode(&page, VOLUME, 10, 1, |_, _| ()), Err(Invalid::Value(_))));
        assert_eq!(decode(&[0; 4096], VOLUME, 0, 1, |_, _| ()), Err(Invalid::Checksum));
    }
}
