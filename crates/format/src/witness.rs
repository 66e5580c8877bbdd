//! The witness: what the journal has promised, on a metadata device that does not have the journal. Only with
//! one required copy.
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
//! 56      8     0
//! 64      8 n   runs: first extent (4), extents (4)
//! ```
//!
//! A journal that ends before the newest batch that a witness names has lost batches, whatever its own device
//! says. The list names the extents that were changed since the last checkpoint, and maybe others: if the
//! journal is lost with its device, the places of these extents are not known. The page is written to the
//! region of the proof, its two places in turn; the valid page with the highest epoch, sequence and list
//! counts.

use crate::checksum::checksum;
use crate::{Invalid, Uuid, count};
use braid_base::{Bytes, ExtentId};
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of the page.
pub const SIZE: Bytes = crate::proof::SIZE;

const MAGIC: [u8; 8] = *b"BRAIDWIT";
/// Where the checksum's range begins.
const COVERED: usize = 12;

/// What is witnessed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Witness {
    /// The opening that wrote it.
    pub epoch: u64,
    /// The newest batch that was durable when it was written.
    pub promised: u64,
    /// Beyond all batches that the list may speak of: a page of the map that contains this one is newer.
    pub listed: u64,
    /// First extent and number of extents of each run, in order.
    pub runs: Vec<(u32, u32)>,
}

/// The most runs of a page.
pub const MOST_RUNS: usize = (SIZE.as_usize() - size_of::<Raw>()) / 8;

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
    zeros: [u8; 8],
}

const _: () = assert!(size_of::<Raw>() == 64);
const _: () = assert!(std::mem::offset_of!(Raw, runs) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, epoch) == 32);

impl Witness {
    /// Whether an extent is listed.
    pub fn lists(&self, extent: ExtentId) -> bool {
        let after = self.runs.partition_point(|(first, _)| *first <= extent.0);
        after > 0 && extent.0 - self.runs[after - 1].0 < self.runs[after - 1].1
    }

    /// The runs as ranges.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        self.runs.iter().map(|&(first, len)| first..first.saturating_add(len))
    }
}

/// Extents, given in order, as runs that fit a page. If they are too many, runs with short gaps between them
/// become one.
pub fn runs(extents: impl Iterator<Item = ExtentId>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for extent in extents {
        match runs.last_mut() {
            Some((first, len)) if *first + *len == extent.0 => *len += 1,
            _ => runs.push((extent.0, 1)),
        }
    }
    let mut gap = 1;
    while runs.len() > MOST_RUNS {
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (first, len) in runs {
            match joined.last_mut() {
                Some((before, length)) if first - (*before + *length) <= gap => {
                    *length = first + len - *before
                }
                _ => joined.push((first, len)),
            }
        }
        (runs, gap) = (joined, gap.saturating_mul(2));
    }
    runs
}

/// The page.
///
/// # Panics
/// If there are more runs than fit: [`runs`] makes no more.
pub fn encode(volume: Uuid, witness: &Witness) -> [u8; SIZE.as_usize()] {
    assert!(witness.runs.len() <= MOST_RUNS, "a page has room for {MOST_RUNS} runs");
    let mut page = [0; SIZE.as_usize()];
    let mut raw = Raw {
        magic: MAGIC,
        crc: U32::ZERO,
        runs: (witness.runs.len() as u32).into(),
        volume,
        epoch: witness.epoch.into(),
        promised: witness.promised.into(),
        listed: witness.listed.into(),
        zeros: [0; 8],
    };
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    for (bytes, (first, len)) in page[size_of::<Raw>()..].chunks_exact_mut(8).zip(&witness.runs) {
        bytes[..4].copy_from_slice(&first.to_le_bytes());
        bytes[4..].copy_from_slice(&len.to_le_bytes());
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
    for (number, what) in [(raw.epoch, "epoch"), (raw.promised, "newest batch"), (raw.listed, "listed batch")]
    {
        count::verify(number.get(), &format!("the witness's {what}"))?;
    }
    let listed = raw.runs.get() as usize;
    let bytes = rest.get(..listed.saturating_mul(8)).filter(|_| listed <= MOST_RUNS);
    let wrong = || Invalid::Value(format!("the witness lists {listed} runs, {MOST_RUNS} at most"));
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let run = |bytes: &[u8]| (number(bytes), number(&bytes[4..]));
    let runs: Vec<(u32, u32)> = bytes.ok_or_else(wrong)?.chunks_exact(8).map(run).collect();
    let mut end = 0u64;
    for &(first, len) in &runs {
        if u64::from(first) < end || len == 0 || first.checked_add(len).is_none() {
            return Err(Invalid::Value("the witness lists runs out of order".to_owned()));
        }
        end = u64::from(first) + u64::from(len);
    }
    Ok(Witness { epoch: raw.epoch.get(), promised: raw.promised.get(), listed: raw.listed.get(), runs })
}

/// The newest valid witness in the bytes of its region.
pub fn newest(region: &[u8], volume: Uuid) -> Option<Witness> {
    region.chunks_exact(SIZE.as_usize()).filter_map(|page| decode(page, volume).ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn witness() -> Witness {
        Witness { epoch: 3, promised: 77, listed: 78, runs: vec![(4, 1), (9, 100)] }
    }

    fn sealed(mut page: [u8; 4096]) -> [u8; 4096] {
        let crc = checksum(VOLUME, &page[COVERED..]);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
        page
    }

    #[test]
    fn a_witness_round_trips_and_knows_what_it_lists() {
        let witness = witness();
        assert_eq!(decode(&encode(VOLUME, &witness), VOLUME), Ok(witness.clone()));
        let listed: Vec<u32> = (0..200).filter(|&extent| witness.lists(ExtentId(extent))).collect();
        assert_eq!(listed, [4].into_iter().chain(9..109).collect::<Vec<u32>>());
        let full = Witness { runs: (0..MOST_RUNS as u32).map(|i| (i * 2, 1)).collect(), ..witness };
        assert_eq!(decode(&encode(VOLUME, &full), VOLUME), Ok(full));
    }

    #[test]
    fn extents_that_do_not_fit_are_listed_with_the_gaps_between_them() {
        let extents: Vec<ExtentId> = (0..10_000u32).map(|i| ExtentId(i * 7 + (i % 3))).collect();
        let runs = runs(extents.iter().copied());
        assert!(runs.len() <= MOST_RUNS && !runs.is_empty());
        let witness = Witness { runs, ..witness() };
        assert_eq!(decode(&encode(VOLUME, &witness), VOLUME), Ok(witness.clone()));
        assert!(extents.iter().all(|&extent| witness.lists(extent)));
    }

    #[test]
    fn pages_that_no_version_writes_are_rejected() {
        let page = encode(VOLUME, &witness());
        for (at, bytes) in
            [(12, [0xff; 4]), (12, [0xf9, 1, 0, 0]), (36, [0xff; 4]), (64, [50, 0, 0, 0]), (76, [0; 4])]
        {
            let mut wrong = page;
            wrong[at..at + 4].copy_from_slice(&bytes);
            assert_eq!(decode(&wrong, VOLUME), Err(Invalid::Checksum), "byte {at}");
            assert!(matches!(decode(&sealed(wrong), VOLUME), Err(Invalid::Value(_))), "byte {at}");
        }
        assert_eq!(decode(&[0; 4096], VOLUME), Err(Invalid::Absent));
        assert_eq!(decode(&page[..4095], VOLUME), Err(Invalid::Absent));
        assert_eq!(decode(&page, Uuid([1; 16])), Err(Invalid::Checksum), "of another volume");
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
