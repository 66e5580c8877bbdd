//! The spans of an adopted disk that may have dirty extra copies: a superset of the data that the loss of the
//! SSDs would cost. The region lies neither on the SSDs with the caches nor on the adopted disk.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDDSP"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..length
//! 12      4     spans of the volume
//! 16      8     sequence: one more at each write
//! 24      8     0
//! 32      …     a bit for each span, lowest bit of the lowest byte first: 1 may have a dirty extra copy
//! ```
//!
//! The region has two halves, written alternately by the parity of the sequence. Of two valid halves the one
//! with the higher sequence counts. If none is valid, every span may have dirty extra copies.

use crate::checksum::checksum;
use crate::{Invalid, SpanId, Uuid, count};
use braid_base::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"BRAIDDSP";
const HEADER: usize = size_of::<Raw>();
/// Start of the checksum's range.
const COVERED: usize = 12;
const PAGE: Bytes = Bytes(4096);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    spans: U32,
    sequence: U64,
    zero: [u8; 8],
}

const _: () = assert!(HEADER == 32);
const _: () = assert!(std::mem::offset_of!(Raw, spans) == COVERED);

/// The length of a half for a volume with `spans` spans, in whole pages.
pub fn half(spans: u32) -> Bytes {
    Bytes::of_len(len(spans)).align_up(PAGE)
}

fn len(spans: u32) -> usize {
    HEADER + (spans as usize).div_ceil(8)
}

/// Encodes a half, [`half`] long.
///
/// # Panics
/// If a span is beyond the volume's spans.
pub fn encode(volume: Uuid, spans: u32, sequence: u64, dirty: impl Iterator<Item = SpanId>) -> Vec<u8> {
    let mut bytes = vec![0; half(spans).as_usize()];
    for span in dirty {
        assert!(span.0 < spans, "{span:?} of {spans}");
        bytes[HEADER + span.index() / 8] |= 1 << (span.0 % 8);
    }
    let mut raw =
        Raw { magic: MAGIC, crc: U32::ZERO, spans: spans.into(), sequence: sequence.into(), zero: [0; 8] };
    bytes[..HEADER].copy_from_slice(raw.as_bytes());
    raw.crc = checksum(volume, &bytes[COVERED..len(spans)]).into();
    bytes[..HEADER].copy_from_slice(raw.as_bytes());
    bytes
}

/// Verifies a half. Returns its sequence and its dirty spans.
pub fn decode(bytes: &[u8], volume: Uuid, spans: u32) -> Result<(u64, Vec<SpanId>), Invalid> {
    let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC {
        return Err(Invalid::Absent);
    }
    let end = len(spans);
    if raw.spans.get() != spans
        || end > bytes.len()
        || raw.crc.get() != checksum(volume, &bytes[COVERED..end])
    {
        return Err(Invalid::Checksum);
    }
    count::verify(raw.sequence.get(), "the sequence of the dirty spans")?;
    let is_dirty = |span: &SpanId| bytes[HEADER + span.index() / 8] >> (span.0 % 8) & 1 == 1;
    Ok((raw.sequence.get(), (0..spans).map(SpanId).filter(is_dirty).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    const VOLUME: Uuid = Uuid([7; 16]);

    #[test]
    fn dirty_spans_round_trip() {
        for spans in [1, 8, 9, 65_536] {
            let dirty: Vec<SpanId> = [0, spans / 2, spans - 1].map(SpanId).into();
            let bytes = encode(VOLUME, spans, 9, dirty.iter().copied());
            let mut distinct = dirty;
            distinct.dedup();
            assert_eq!(decode(&bytes, VOLUME, spans), Ok((9, distinct)));
            assert_eq!(decode(&bytes, Uuid([1; 16]), spans), Err(Invalid::Checksum));
            assert_eq!(decode(&bytes, VOLUME, spans + 1), Err(Invalid::Checksum));
        }
        assert_eq!(half(65_536), Bytes(12 << 10));
    }

    #[test]
    fn a_torn_or_foreign_half_names_no_span() {
        let whole = encode(VOLUME, 65_536, 3, [SpanId(5)].into_iter());
        for sector in 0..17 {
            let mut torn = whole.clone();
            torn[sector * 512..][..512].fill(0xaa);
            assert!(decode(&torn, VOLUME, 65_536).is_err(), "sector {sector}");
        }
        let mut rng = Rng::new(1);
        for len in [0, 31, 32, 4096] {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            assert!(decode(&bytes, VOLUME, 65_536).is_err());
            bytes[..len.min(8)].copy_from_slice(&MAGIC[..len.min(8)]);
            assert!(decode(&bytes, VOLUME, 65_536).is_err());
        }
    }
}
