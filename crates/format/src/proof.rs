//! The proof: the newest journal sequence promised to a guest, stored outside the journal's ring.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDPRF"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..4096
//! 12      4     1 + the device whose witness is known; 0: none. Plus 1 << 31 if that page is alone
//! 16      16    volume UUID
//! 32      8     epoch of the opening that wrote it
//! 40      8     sequence of the newest promised batch
//! 48      4     extents that that batch changed; 0xffffffff: more than fit
//! 52      4     number of the newest page of that witness that was durable
//! 56      4 n   their ids
//! ```
//!
//! A witness (see `witness.rs`) older than the named page has been lost, with everything that its device had
//! made durable since. Older versions write zeros in place of the page. A page is alone if the other place of
//! the witness could not be written: the next page overwrote this page, and a power cut may have torn the
//! next page.
//!
//! The proof distinguishes a journal with a lost end from a journal whose end was never promised. The proof
//! is written *after* the flush of the named batch, and becomes durable with the next flush. A proof may
//! therefore be older than the newest promise, but never newer. The region holds two such pages, written
//! alternately; the valid page with the highest epoch and sequence counts.

use crate::checksum::checksum;
use crate::{Invalid, Uuid, count};
use braid_base::{Bytes, DeviceId, ExtentId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of the page.
pub const SIZE: Bytes = Bytes(4096);
/// Pages in the region.
pub const PAGES: u64 = 2;

const MAGIC: [u8; 8] = *b"BRAIDPRF";
/// Start of the checksum's range.
const COVERED: usize = 12;

/// The newest promised batch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Proof {
    /// The epoch of the opening that wrote the proof.
    pub epoch: u64,
    /// The newest journal batch promised at the time of the write.
    pub sequence: u64,
    /// The extents that the batch changed; `None` for too many. If the batch is lost, the list names the
    /// extents without a proved place.
    pub extents: Option<Vec<ExtentId>>,
    /// The newest durable page of the witness at the time of the write, if known.
    pub witnessed: Option<Witnessed>,
}

/// A page of a witness, made durable by the opening that wrote the proof.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Witnessed {
    /// The device of the witness.
    pub device: DeviceId,
    /// The number of the page among the pages of the opening.
    pub number: u32,
    /// True if the other place of the witness could not be written: the next page overwrites this page.
    pub alone: bool,
}

/// The most extents that a page lists.
pub const MOST_EXTENTS: usize = (SIZE.as_usize() - size_of::<Raw>()) / 4;
/// Flag beside the device of the witness: the page is alone.
const ALONE: u32 = 1 << 31;
/// In place of the length of the list.
const TOO_MANY: u32 = u32::MAX;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    witness: U32,
    volume: Uuid,
    epoch: U64,
    sequence: U64,
    listed: U32,
    number: U32,
}

const _: () = assert!(size_of::<Raw>() == 56);
const _: () = assert!(std::mem::offset_of!(Raw, witness) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, epoch) == 32);

/// Encodes the page. Extents beyond [`MOST_EXTENTS`] are recorded as too many.
pub fn encode(volume: Uuid, proof: &Proof) -> [u8; SIZE.as_usize()] {
    let mut page = [0; SIZE.as_usize()];
    let of_page = |page: Witnessed| (1 + u32::from(page.device.0)) | if page.alone { ALONE } else { 0 };
    let extents = proof.extents.as_deref().filter(|extents| extents.len() <= MOST_EXTENTS);
    let mut raw = Raw {
        magic: MAGIC,
        crc: U32::ZERO,
        witness: proof.witnessed.map_or(0, of_page).into(),
        volume,
        epoch: proof.epoch.into(),
        sequence: proof.sequence.into(),
        listed: extents.map_or(TOO_MANY, |extents| extents.len() as u32).into(),
        number: proof.witnessed.map_or(0, |page| page.number).into(),
    };
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    for (bytes, extent) in page[size_of::<Raw>()..].chunks_exact_mut(4).zip(extents.into_iter().flatten()) {
        bytes.copy_from_slice(&extent.0.to_le_bytes());
    }
    raw.crc = checksum(volume, &page[COVERED..]).into();
    page[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    page
}

/// Verifies the page at the start of `bytes`.
pub fn decode(bytes: &[u8], volume: Uuid) -> Result<Proof, Invalid> {
    let page = bytes.get(..SIZE.as_usize()).ok_or(Invalid::Absent)?;
    let (raw, rest) = Raw::ref_from_prefix(page).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC {
        return Err(Invalid::Absent);
    }
    if raw.crc.get() != checksum(volume, &page[COVERED..]) || raw.volume != volume {
        return Err(Invalid::Checksum);
    }
    count::verify(raw.epoch.get(), "the proof's epoch")?;
    count::verify(raw.sequence.get(), "the proof's sequence")?;
    let extents = match raw.listed.get() {
        TOO_MANY => None,
        listed => {
            let ids = rest.get(..4 * listed as usize).and_then(|ids| <[U32]>::ref_from_bytes(ids).ok());
            let wrong =
                || Invalid::Value(format!("the proof lists {listed} extents, {MOST_EXTENTS} at most"));
            Some(ids.ok_or_else(wrong)?.iter().map(|id| ExtentId(id.get())).collect())
        }
    };
    let (of_page, alone) = (raw.witness.get() & !ALONE, raw.witness.get() & ALONE != 0);
    let device = of_page.checked_sub(1).and_then(|id| u16::try_from(id).ok());
    let witnessed = device.map(|id| Witnessed { device: DeviceId(id), number: raw.number.get(), alone });
    Ok(Proof { epoch: raw.epoch.get(), sequence: raw.sequence.get(), extents, witnessed })
}

/// The newest valid proof in the bytes of its region; without a valid page, the first page's error.
pub fn newest(region: &[u8], volume: Uuid) -> Result<Proof, Invalid> {
    let pages = region.chunks_exact(SIZE.as_usize()).take(PAGES as usize);
    let proofs = pages.filter_map(|page| decode(page, volume).ok());
    match proofs.max() {
        Some(proof) => Ok(proof),
        None => Err(decode(region, volume).err().unwrap_or(Invalid::Absent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn proof(epoch: u64, sequence: u64) -> Proof {
        Proof { epoch, sequence, extents: Some(vec![ExtentId(4), ExtentId(9)]), witnessed: None }
    }

    fn page(epoch: u64, sequence: u64) -> [u8; 4096] {
        encode(VOLUME, &proof(epoch, sequence))
    }

    #[test]
    fn a_proof_round_trips() {
        for extents in [None, Some(Vec::new()), Some((0..MOST_EXTENTS as u32).map(ExtentId).collect())] {
            for alone in [None, Some(false), Some(true)] {
                let page = |alone| Witnessed { device: DeviceId(u16::MAX), number: u32::MAX, alone };
                let witnessed = alone.map(page);
                let proof = Proof { extents: extents.clone(), witnessed, ..proof(3, 77) };
                assert_eq!(decode(&encode(VOLUME, &proof), VOLUME), Ok(proof));
            }
        }
        let too_many = Proof { extents: Some(vec![ExtentId(1); MOST_EXTENTS + 1]), ..proof(3, 77) };
        assert_eq!(decode(&encode(VOLUME, &too_many), VOLUME), Ok(Proof { extents: None, ..proof(3, 77) }));
    }

    #[test]
    fn a_list_longer_than_the_page_is_rejected() {
        let mut page = page(3, 77);
        page[48..52].copy_from_slice(&(MOST_EXTENTS as u32 + 1).to_le_bytes());
        let crc = checksum(VOLUME, &page[COVERED..]);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(decode(&page, VOLUME), Err(Invalid::Value(_))));
    }

    #[test]
    fn proof_with_impossible_numbers_is_rejected() {
        for (epoch, sequence) in [(u64::MAX, 77), (3, u64::MAX)] {
            assert!(matches!(decode(&page(epoch, sequence), VOLUME), Err(Invalid::Value(_))));
        }
    }

    #[test]
    fn newest_proof_counts_and_torn_proof_is_skipped() {
        let region = |first: [u8; 4096], second: [u8; 4096]| [first, second].concat();
        let (old, new) = (page(3, 77), page(4, 5));
        let mut torn = new;
        torn[..512].fill(0);
        assert_eq!(newest(&region(old, new), VOLUME), Ok(proof(4, 5)));
        assert_eq!(newest(&region(new, old), VOLUME), Ok(proof(4, 5)));
        assert_eq!(newest(&region(torn, old), VOLUME), Ok(proof(3, 77)));
        assert_eq!(newest(&region(torn, torn), VOLUME), Err(Invalid::Absent));
        assert_eq!(newest(&[], VOLUME), Err(Invalid::Absent));
    }

    #[test]
    fn every_torn_sector_of_a_proof_is_noticed() {
        let page = page(3, 77);
        for sector in 0..8 {
            let mut torn = page;
            torn[sector * 512..][..512].fill(0xaa);
            assert!(decode(&torn, VOLUME).is_err(), "sector {sector}");
        }
        assert_eq!(decode(&page, Uuid([1; 16])), Err(Invalid::Checksum), "of another volume");
        assert_eq!(decode(&page[..4095], VOLUME), Err(Invalid::Absent));
    }
}
