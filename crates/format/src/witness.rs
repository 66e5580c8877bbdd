//! The witness: the batches that the journal has promised, on a metadata device without the journal. Only
//! with one required copy.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDWIT"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..4096
//! 12      4     runs of extents that are listed
//! 16      16    volume UUID
//! 32      8     epoch of the opening that wrote it
//! 40      8     sequence of the newest batch that was durable
//! 48      8     listed: a page of the map that contains this batch is newer than the list
//! 56      8     number of the page among those of this opening
//! 64      8 n   runs: first extent (4), extents (4)
//! 2056    4     1: the page says what left the caches; 0: an older version wrote it
//! 2060    4     bytes of the third runs
//! 2064    8     contained: the images of the map contain all batches up to this one; 0: not known
//! 2072    8     recent: the newest batch of the list of recent entries; 0: no list, and no second runs
//! 2080    8     number of that list
//! 2088    4     pages of that list
//! 2092    4     second runs
//! 2096    8 n   second runs: extents that a batch behind the list changed, or may have changed
//!         n     third runs, packed (see `packed_runs.rs`): extents of which a dirty extra copy on a device
//!               without the journal has left its place since the list, or may have
//! ```
//!
//! A journal that ends before the newest batch named by a witness has lost batches, whatever the journal's
//! own device says. The runs name the extents that changed since the last checkpoint, and possibly other
//! extents. If the journal is lost with its device, the list of recent entries (see `recent.rs`) gives the
//! places of the changed extents, and only the extents of the second runs are unknown. If the list is
//! incomplete, all extents of the first runs are unknown.
//!
//! The page is written to the region of the proof, its two places in turn; the valid page with the highest
//! epoch and number counts. Older versions write up to 504 first runs, and nothing behind them. A page with
//! more than 250 first runs has no second part. A page with more than 249 has no third runs.
//!
//! The table of a surviving cache describes the last checkpoint, and the list brings the table up to date. A
//! dirty copy in an extent of the third runs may be older than the home, so such an extent is unknown.

use crate::checksum::checksum;
use crate::packed_runs::{Runs, all, join, pack, runs_within, unpack};
use crate::{Invalid, Uuid, count};
use braid_base::{Bytes, ExtentId};
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of the page.
pub const SIZE: Bytes = crate::proof::SIZE;

const MAGIC: [u8; 8] = *b"BRAIDWIT";
/// Start of the checksum's range.
const COVERED: usize = 12;

/// The content of a witness page.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Witness {
    /// The epoch of the opening that wrote the page.
    pub epoch: u64,
    /// Pages that the opening had written, including this page. Of two pages with the same batches, the later
    /// page lists more.
    pub number: u64,
    /// The newest durable batch at the time of the write.
    pub promised: u64,
    /// Beyond all batches of the listed changes: a page of the map that contains this batch is newer than the
    /// list.
    pub listed: u64,
    /// First extent and number of extents of each run, in order.
    pub runs: Vec<(u32, u32)>,
    /// The newest batch up to which the images of the map contain all batches; 0 if unknown.
    pub contained: u64,
    /// The list of recent entries, if there is a list.
    pub recent: Option<Recent>,
    /// Extents whose dirty extra copies left their places since that list, as runs; `None` in a page of an
    /// older version.
    pub left: Option<Runs>,
}

/// The list of recent entries that counts, and the later changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Recent {
    /// The newest batch that the list includes.
    pub batch: u64,
    /// The list's number.
    pub number: u64,
    /// The pages of the list; 0 if the images of the map contain all batches up to `batch`.
    pub pages: u32,
    /// Extents that later batches changed, as runs.
    pub runs: Vec<(u32, u32)>,
}

/// The most runs of a page, and the most second runs.
pub const MOST_RUNS: usize = 249;
/// The most second runs of a page with third runs.
const MOST_BESIDE: usize = 125;
/// The most runs of a page with a second part.
const MOST_RUNS_BEFORE: usize = MOST_RUNS + 1;
/// The most runs of a page that an older version wrote.
const MOST_RUNS_ALONE: usize = (SIZE.as_usize() - size_of::<Raw>()) / RUN;
/// The length of a run.
const RUN: usize = 8;
/// Start of the second part.
const SECOND: usize = size_of::<Raw>() + MOST_RUNS_BEFORE * RUN;
/// Offset of the length of the third runs.
const THIRD: usize = SECOND - size_of::<RawThird>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    runs: U32,
    volume: Uuid,
    epoch: U64,
    promised: U64,
    listed: U64,
    number: U64,
}

/// The second part, without its runs.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSecond {
    contained: U64,
    batch: U64,
    number: U64,
    pages: U32,
    runs: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawThird {
    is_there: U32,
    bytes: U32,
}

const _: () = assert!(size_of::<Raw>() == 64);
const _: () = assert!(THIRD == 2056 && THIRD == size_of::<Raw>() + MOST_RUNS * RUN);
const _: () = assert!(SECOND == 2064);
const _: () = assert!(SECOND + size_of::<RawSecond>() + MOST_RUNS_BEFORE * RUN == SIZE.as_usize());
const _: () = assert!(std::mem::offset_of!(Raw, runs) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, epoch) == 32);

impl Witness {
    /// True if this page and its list do not prove the place of an extent.
    pub fn lists(&self, extent: ExtentId) -> bool {
        let of_list = self.recent.as_ref().is_none_or(|recent| contains(&recent.runs, extent));
        of_list && contains(&self.runs, extent)
    }

    /// True if this page and its list do not prove the dirty extra copies of an extent.
    pub fn lists_left(&self, extent: ExtentId) -> bool {
        self.left.as_ref().is_some_and(|left| contains(left, extent))
    }

    /// Lists extents whose dirty extra copies left their places, given in order.
    pub fn list_left(&mut self, extents: impl Iterator<Item = ExtentId>) {
        let extents: Vec<ExtentId> = extents.collect();
        if let (Some(recent), false) = (&mut self.recent, extents.is_empty()) {
            recent.runs = joined(std::mem::take(&mut recent.runs), MOST_BESIDE);
        }
        self.left = Some(runs_within(extents.into_iter(), self.room_for_left()));
    }

    fn room_for_left(&self) -> usize {
        let second = self.recent.as_ref().map_or(0, |recent| recent.runs.len());
        SIZE.as_usize() - SECOND - size_of::<RawSecond>() - second * RUN
    }
}

fn contains(runs: &[(u32, u32)], extent: ExtentId) -> bool {
    let after = runs.partition_point(|(first, _)| *first <= extent.0);
    after > 0 && extent.0 - runs[after - 1].0 < runs[after - 1].1
}

/// Runs as ranges.
pub fn ranges(runs: &[(u32, u32)]) -> impl Iterator<Item = Range<u32>> {
    runs.iter().map(|&(first, len)| first..first.saturating_add(len))
}

/// Packs extents, given in order, into at most [`MOST_RUNS`] runs. Too many runs are merged across short
/// gaps.
pub fn runs(extents: impl Iterator<Item = ExtentId>) -> Runs {
    joined(all(extents), MOST_RUNS)
}

fn joined(mut runs: Runs, most: usize) -> Runs {
    let mut gap = 1;
    while runs.len() > most {
        (runs, gap) = (join(runs, gap), gap.saturating_mul(2));
    }
    runs
}

/// Encodes the page.
///
/// # Panics
/// If there are more runs than fit: [`runs`] and [`Witness::list_left`] produce no more.
pub fn encode(volume: Uuid, witness: &Witness) -> [u8; SIZE.as_usize()] {
    let none = Recent::default();
    let recent = witness.recent.as_ref().unwrap_or(&none);
    for runs in [&witness.runs, &recent.runs] {
        assert!(runs.len() <= MOST_RUNS, "a page has room for {MOST_RUNS} runs");
    }
    let mut page = [0; SIZE.as_usize()];
    let mut raw = Raw {
        magic: MAGIC,
        crc: U32::ZERO,
        runs: (witness.runs.len() as u32).into(),
        volume,
        epoch: witness.epoch.into(),
        promised: witness.promised.into(),
        listed: witness.listed.into(),
        number: witness.number.into(),
    };
    let second = RawSecond {
        contained: witness.contained.into(),
        batch: recent.batch.into(),
        number: recent.number.into(),
        pages: recent.pages.into(),
        runs: (recent.runs.len() as u32).into(),
    };
    let behind = SECOND + size_of::<RawSecond>();
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    page[SECOND..behind].copy_from_slice(second.as_bytes());
    if let Some(left) = &witness.left {
        let (packed, start) = (pack(left), behind + recent.runs.len() * RUN);
        assert!(packed.len() <= witness.room_for_left(), "there is room for the third runs");
        let third = RawThird { is_there: 1.into(), bytes: (packed.len() as u32).into() };
        page[THIRD..SECOND].copy_from_slice(third.as_bytes());
        page[start..start + packed.len()].copy_from_slice(&packed);
    }
    for (at, runs) in [(size_of::<Raw>(), &witness.runs), (behind, &recent.runs)] {
        for (bytes, (first, len)) in page[at..].chunks_exact_mut(RUN).zip(runs) {
            bytes[..4].copy_from_slice(&first.to_le_bytes());
            bytes[4..].copy_from_slice(&len.to_le_bytes());
        }
    }
    raw.crc = checksum(volume, &page[COVERED..]).into();
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    page
}

/// Verifies the page at the start of `bytes`.
pub fn decode(bytes: &[u8], volume: Uuid) -> Result<Witness, Invalid> {
    let page = bytes.get(..SIZE.as_usize()).ok_or(Invalid::Absent)?;
    let (raw, rest) = Raw::ref_from_prefix(page).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC {
        return Err(Invalid::Absent);
    }
    if raw.crc.get() != checksum(volume, &page[COVERED..]) || raw.volume != volume {
        return Err(Invalid::Checksum);
    }
    let numbers = [
        (raw.epoch, "epoch"),
        (raw.promised, "newest batch"),
        (raw.listed, "listed batch"),
        (raw.number, "number"),
    ];
    for (number, what) in numbers {
        count::verify(number.get(), &format!("the witness's {what}"))?;
    }
    let runs = decode_runs(rest, raw.runs.get(), MOST_RUNS_ALONE)?;
    let mut witness = Witness {
        epoch: raw.epoch.get(),
        number: raw.number.get(),
        promised: raw.promised.get(),
        listed: raw.listed.get(),
        runs,
        ..Witness::default()
    };
    if witness.runs.len() > MOST_RUNS_BEFORE {
        // The runs of an older version reach into the place of the second part.
        return Ok(witness);
    }
    let (raw, rest) = RawSecond::ref_from_prefix(&page[SECOND..]).map_err(|_| Invalid::Absent)?;
    let numbers =
        [(raw.contained, "contained batch"), (raw.batch, "recent batch"), (raw.number, "list of entries")];
    for (number, what) in numbers {
        count::verify(number.get(), &format!("the witness's {what}"))?;
    }
    let runs = decode_runs(rest, raw.runs.get(), MOST_RUNS_BEFORE)?;
    let packed = &rest[runs.len() * RUN..];
    let (batch, number, pages) = (raw.batch.get(), raw.number.get(), raw.pages.get());
    if batch == 0 && (number, pages, runs.len()) != (0, 0, 0) {
        return Err(Invalid::Value("the witness describes a list of entries that it lacks".to_owned()));
    }
    witness.contained = raw.contained.get();
    witness.recent = (batch > 0).then_some(Recent { batch, number, pages, runs });
    let (third, _) = RawThird::ref_from_prefix(&page[THIRD..]).map_err(|_| Invalid::Absent)?;
    if witness.runs.len() <= MOST_RUNS && third.is_there.get() == 1 {
        let packed = packed.get(..third.bytes.get() as usize);
        let beyond = || Invalid::Value("the witness's third runs reach beyond the page".to_owned());
        witness.left = Some(unpack(packed.ok_or_else(beyond)?)?);
    }
    Ok(witness)
}

/// The `count` runs at the start of `bytes`.
fn decode_runs(bytes: &[u8], count: u32, most: usize) -> Result<Vec<(u32, u32)>, Invalid> {
    let listed = count as usize;
    let bytes = bytes.get(..listed.saturating_mul(RUN)).filter(|_| listed <= most);
    let wrong = || Invalid::Value(format!("the witness lists {listed} runs, {most} at most"));
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let run = |bytes: &[u8]| (number(bytes), number(&bytes[4..]));
    let runs: Vec<(u32, u32)> = bytes.ok_or_else(wrong)?.chunks_exact(RUN).map(run).collect();
    let mut end = 0u64;
    for &(first, len) in &runs {
        if u64::from(first) < end || len == 0 || first.checked_add(len).is_none() {
            return Err(Invalid::Value("the witness lists runs out of order".to_owned()));
        }
        end = u64::from(first) + u64::from(len);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn witness() -> Witness {
        let runs = vec![(4, 1), (9, 100)];
        Witness { epoch: 3, number: 5, promised: 77, listed: 78, runs, ..Witness::default() }
    }

    fn ids(all: impl Iterator<Item = u32>) -> impl Iterator<Item = ExtentId> {
        all.map(ExtentId)
    }

    /// The newest valid witness in the bytes of its region.
    fn newest(region: &[u8], volume: Uuid) -> Option<Witness> {
        region.chunks_exact(SIZE.as_usize()).filter_map(|page| decode(page, volume).ok()).max()
    }

    fn with_list() -> Witness {
        let recent = Recent { batch: 70, number: 4, pages: 9, runs: vec![(9, 2), (40, 1)] };
        Witness { contained: 60, recent: Some(recent), ..witness() }
    }

    fn sealed(mut page: [u8; 4096]) -> [u8; 4096] {
        let crc = checksum(VOLUME, &page[COVERED..]);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
        page
    }

    #[test]
    fn witness_round_trips_and_finds_listed_extents() {
        let witness = witness();
        assert_eq!(decode(&encode(VOLUME, &witness), VOLUME), Ok(witness.clone()));
        let listed: Vec<u32> = (0..200).filter(|&extent| witness.lists(ExtentId(extent))).collect();
        assert_eq!(listed, [4].into_iter().chain(9..109).collect::<Vec<u32>>());
        let all: Vec<(u32, u32)> = (0..MOST_RUNS as u32).map(|i| (i * 2, 1)).collect();
        let recent = Recent { runs: all.clone(), ..with_list().recent.unwrap() };
        let full = Witness { runs: all, recent: Some(recent), ..with_list() };
        assert_eq!(decode(&encode(VOLUME, &full), VOLUME), Ok(full));
    }

    #[test]
    fn witness_omits_extents_outside_second_runs() {
        let witness = with_list();
        assert_eq!(decode(&encode(VOLUME, &witness), VOLUME), Ok(witness.clone()));
        let listed: Vec<u32> = (0..200).filter(|&extent| witness.lists(ExtentId(extent))).collect();
        assert_eq!(listed, [9, 10, 40]);
    }

    #[test]
    fn removed_dirty_copies_are_listed_beside_second_runs() {
        for second in [0, 20, MOST_RUNS as u32] {
            let mut witness = with_list();
            witness.recent.as_mut().unwrap().runs = (0..second).map(|i| (i * 5, 1)).collect();
            let before = witness.clone();
            for count in [0, 1, 300, 5_000] {
                witness.list_left(ids((0..count).map(|i| i * 1_000)));
                assert_eq!(decode(&encode(VOLUME, &witness), VOLUME), Ok(witness.clone()));
                assert!((0..count).all(|i| witness.lists_left(ExtentId(i * 1_000))));
                assert!(count > 300 || !witness.lists_left(ExtentId(500)), "nothing else is listed");
                let is_listed = |runs: &Runs| {
                    before.recent.as_ref().unwrap().runs.iter().all(|run| contains(runs, ExtentId(run.0)))
                };
                assert!(is_listed(&witness.recent.as_ref().unwrap().runs));
            }
        }
    }

    #[test]
    fn older_page_does_not_list_removed_dirty_copies() {
        let page = encode(VOLUME, &with_list());
        assert_eq!(decode(&page, VOLUME).unwrap().left, None);
        // With 250 runs, the last one lies where the third part is described.
        let mut page = encode(VOLUME, &witness());
        page[12..16].copy_from_slice(&250u32.to_le_bytes());
        for (i, run) in page[64..SECOND].chunks_exact_mut(RUN).enumerate() {
            run[..4].copy_from_slice(&(i as u32 * 2 + 1).to_le_bytes());
            run[4..].copy_from_slice(&1u32.to_le_bytes());
        }
        let found = decode(&sealed(page), VOLUME).unwrap();
        assert_eq!((found.runs.len(), found.left), (250, None));
    }

    /// Runs of an older version reach into the place of the second part, and must not be read as the second
    /// part.
    #[test]
    fn a_full_page_of_an_older_version_has_no_second_part() {
        let mut page = encode(VOLUME, &witness());
        page[12..16].copy_from_slice(&(MOST_RUNS_ALONE as u32).to_le_bytes());
        for (i, run) in page[64..].chunks_exact_mut(RUN).enumerate() {
            run[..4].copy_from_slice(&(i as u32 * 2).to_le_bytes());
            run[4..].copy_from_slice(&1u32.to_le_bytes());
        }
        let found = decode(&sealed(page), VOLUME).unwrap();
        assert_eq!((found.runs.len(), found.contained, found.recent), (MOST_RUNS_ALONE, 0, None));
    }

    #[test]
    fn excess_extents_are_joined_into_listed_runs() {
        let extents: Vec<ExtentId> = (0..10_000u32).map(|i| ExtentId(i * 7 + (i % 3))).collect();
        let runs = runs(extents.iter().copied());
        assert!(runs.len() <= MOST_RUNS && !runs.is_empty());
        let witness = Witness { runs, ..witness() };
        assert_eq!(decode(&encode(VOLUME, &witness), VOLUME), Ok(witness.clone()));
        assert!(extents.iter().all(|&extent| witness.lists(extent)));
    }

    #[test]
    fn impossible_witness_page_is_rejected() {
        let page = encode(VOLUME, &witness());
        for (at, bytes) in
            [(12, [0xff; 4]), (12, [0xf9, 1, 0, 0]), (36, [0xff; 4]), (64, [50, 0, 0, 0]), (76, [0; 4])]
        {
            let mut wrong = page;
            wrong[at..at + 4].copy_from_slice(&bytes);
            assert_eq!(decode(&wrong, VOLUME), Err(Invalid::Checksum), "byte {at}");
            assert!(matches!(decode(&sealed(wrong), VOLUME), Err(Invalid::Value(_))), "byte {at}");
        }
        let mut left = with_list();
        left.list_left(ids([3, 77, 900].into_iter()));
        let page = encode(VOLUME, &left);
        for (at, bytes) in [
            (2068, [0xff; 4]),
            (2072, [0; 4]),
            (2084, [0xff; 4]),
            (2092, [0xfb, 0, 0, 0]),
            (2096, [50, 0, 0, 0]),
            (2060, [0xff, 0xff, 0, 0]),
            (2112, [6, 0, 6, 0]),
        ] {
            let mut wrong = page;
            wrong[at..at + 4].copy_from_slice(&bytes);
            assert!(matches!(decode(&sealed(wrong), VOLUME), Err(Invalid::Value(_))), "byte {at}");
        }
        assert_eq!(decode(&[0; 4096], VOLUME), Err(Invalid::Absent));
        assert_eq!(decode(&page[..4095], VOLUME), Err(Invalid::Absent));
        assert_eq!(decode(&page, Uuid([1; 16])), Err(Invalid::Checksum), "of another volume");
    }

    /// Both pages named the same batch, and the page that listed less counted.
    #[test]
    fn later_of_two_pages_with_same_batches_counts() {
        let later = Witness { number: 6, runs: vec![(2, 1), (4, 1), (9, 100)], ..witness() };
        let region = [encode(VOLUME, &later), encode(VOLUME, &witness())].concat();
        assert_eq!(newest(&region, VOLUME), Some(later));
    }

    #[test]
    fn a_torn_page_is_passed_over() {
        let older = encode(VOLUME, &witness());
        let mut torn = encode(VOLUME, &Witness { promised: 78, ..witness() });
        torn[512..1024].fill(0xaa);
        assert_eq!(newest(&[older, torn].concat(), VOLUME), Some(witness()));
        assert_eq!(newest(&[torn, torn].concat(), VOLUME), None);
    }
}
