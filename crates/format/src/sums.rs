//! Recognises an adopted disk after an unclean stop, by sums of *samples* (blocks scattered over the disk)
//! and by *marks* of its file systems. The table lies on the record.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDSUM"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..length
//! 12      2     samples n, 256 at most
//! 14      2     marks m, 100 at most
//! 16      8     sequence: one more at each write
//! 24      8     0
//! 32      16 n  samples: address (8), CRC-32C of 4 KiB (4), 1 if it may be written since (1), 0 (3)
//! …       32 m  marks: sector (8), identity (4), change (4), next change (4), 1 if not known (1), 0 (11)
//! ```
//!
//! The region has two halves, written alternately by the parity of the sequence. Of two valid halves, the
//! half with the higher sequence counts. A half torn by a power cut does not count, and no write to the disk
//! has relied on the torn half.
//!
//! A sample is marked as written before the first write to its block. If an unmarked sample lacks its sum,
//! the disk is another disk or was changed elsewhere. A mark on the disk has one of its two changes: the next
//! change is recorded before a guest's write brings the change to the disk.

use crate::checksum::checksum;
use crate::fingerprint::Mark;
use crate::{Invalid, Uuid, count};
use braid_base::Bytes;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most samples. Reading all samples takes a disk 2 s, at 8 ms each. If a 50th of the disk is changed
/// elsewhere, a sample shows the change 99 of 100 times.
pub const MOST_SAMPLES: usize = 256;
/// The most marks.
pub const MOST_MARKS: usize = 100;
/// The length of a sample.
pub const SAMPLE: Bytes = Bytes(4096);
/// The length of a half.
pub const HALF: Bytes = Bytes(8192);

const MAGIC: [u8; 8] = *b"BRAIDSUM";
const HEADER: usize = size_of::<Raw>();
/// Start of the checksum's range.
const COVERED: usize = 12;

/// A block of the disk with its sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Start of the block.
    pub at: Bytes,
    /// The CRC-32C of its bytes.
    pub sum: u32,
    /// True if the block may have been written since.
    pub is_written: bool,
}

/// A mark of a file system or a partition table, as expected on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// The sector that holds the mark.
    pub at: Bytes,
    /// The mark as last recorded.
    pub mark: Mark,
    /// The change on its way to the disk; without one, the change of `mark`.
    pub next: u32,
    /// True if the sector may hold arbitrary bytes.
    pub is_unknown: bool,
}

/// A table of samples and marks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// One more at each write.
    pub sequence: u64,
    /// Samples in the order of their addresses.
    pub samples: Vec<Sample>,
    /// Marks in the order of their addresses.
    pub marks: Vec<Noted>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    samples: U16,
    marks: U16,
    sequence: U64,
    zero: [u8; 8],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSample {
    at: U64,
    sum: U32,
    is_written: u8,
    zero: [u8; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMark {
    at: U64,
    identity: U32,
    change: U32,
    next: U32,
    is_unknown: u8,
    zero: [u8; 11],
}

const _: () = assert!(HEADER == 32);
const _: () = assert!(size_of::<RawSample>() == 16);
const _: () = assert!(size_of::<RawMark>() == 32);
const _: () = assert!(std::mem::offset_of!(Raw, samples) == COVERED);
const _: () = assert!(len(MOST_SAMPLES, MOST_MARKS) as u64 <= HALF.0);

const fn len(samples: usize, marks: usize) -> usize {
    HEADER + samples * size_of::<RawSample>() + marks * size_of::<RawMark>()
}

/// The addresses of a disk's samples: a block in each of equal parts of the disk, chosen by the volume's
/// UUID. No pattern of a file system therefore meets all samples.
pub fn addresses(volume: Uuid, size: Bytes) -> Vec<Bytes> {
    let blocks = size.0 / SAMPLE.0;
    let count = blocks.min(MOST_SAMPLES as u64);
    let place = |i: u64| {
        let (first, end) = (wide(blocks, i, count), wide(blocks, i + 1, count));
        let draw = checksum(volume, &i.to_le_bytes());
        SAMPLE * (first + u64::from(draw) % (end - first).max(1))
    };
    (0..count).map(place).collect()
}

/// The sum of a sample's bytes.
pub fn sum_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

fn wide(blocks: u64, i: u64, count: u64) -> u64 {
    (u128::from(blocks) * u128::from(i) / u128::from(count)) as u64
}

/// Encodes a half, [`HALF`] long.
///
/// # Panics
/// If there are more samples or marks than a table holds.
pub fn encode(volume: Uuid, sums: &Sums) -> Vec<u8> {
    assert!(sums.samples.len() <= MOST_SAMPLES && sums.marks.len() <= MOST_MARKS, "a table has bounds");
    let header = |crc: u32| Raw {
        magic: MAGIC,
        crc: crc.into(),
        samples: (sums.samples.len() as u16).into(),
        marks: (sums.marks.len() as u16).into(),
        sequence: sums.sequence.into(),
        zero: [0; 8],
    };
    let mut bytes = header(0).as_bytes().to_vec();
    for &Sample { at, sum, is_written } in &sums.samples {
        let raw = RawSample { at: at.0.into(), sum: sum.into(), is_written: is_written.into(), zero: [0; 3] };
        bytes.extend_from_slice(raw.as_bytes());
    }
    for &Noted { at, mark: Mark { identity, change }, next, is_unknown } in &sums.marks {
        let raw = RawMark {
            at: at.0.into(),
            identity: identity.into(),
            change: change.into(),
            next: next.into(),
            is_unknown: is_unknown.into(),
            zero: [0; 11],
        };
        bytes.extend_from_slice(raw.as_bytes());
    }
    let crc = checksum(volume, &bytes[COVERED..]);
    bytes[..HEADER].copy_from_slice(header(crc).as_bytes());
    bytes.resize(HALF.as_usize(), 0);
    bytes
}

/// Verifies a half.
///
/// # Errors
/// `Absent` if there is no table, `Checksum` or `Value` for a damaged table.
pub fn decode(bytes: &[u8], volume: Uuid) -> Result<Sums, Invalid> {
    let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC {
        return Err(Invalid::Absent);
    }
    let (samples, marks) = (usize::from(raw.samples.get()), usize::from(raw.marks.get()));
    let end = len(samples, marks);
    let is_short = samples > MOST_SAMPLES || marks > MOST_MARKS || end > bytes.len();
    if is_short || raw.crc.get() != checksum(volume, &bytes[COVERED..end]) {
        return Err(Invalid::Checksum);
    }
    let damaged = |_| Invalid::Checksum;
    let (samples, rest) =
        <[RawSample]>::ref_from_prefix_with_elems(rest, samples).map_err(|e| damaged(e.to_string()))?;
    let (marks, _) =
        <[RawMark]>::ref_from_prefix_with_elems(rest, marks).map_err(|e| damaged(e.to_string()))?;
    let sample = |raw: &RawSample| Sample {
        at: Bytes(raw.at.get()),
        sum: raw.sum.get(),
        is_written: raw.is_written != 0,
    };
    let mark = |raw: &RawMark| Noted {
        at: Bytes(raw.at.get()),
        mark: Mark { identity: raw.identity.get(), change: raw.change.get() },
        next: raw.next.get(),
        is_unknown: raw.is_unknown != 0,
    };
    let sums = Sums {
        sequence: raw.sequence.get(),
        samples: samples.iter().map(sample).collect(),
        marks: marks.iter().map(mark).collect(),
    };
    count::verify(sums.sequence, "the sequence of the sums")?;
    let are_ordered =
        sums.samples.is_sorted_by(|a, b| a.at < b.at) && sums.marks.is_sorted_by(|a, b| a.at < b.at);
    match are_ordered {
        true => Ok(sums),
        false => Err(Invalid::Value("the addresses of samples or marks are not in order".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB, Rng, TIB};

    const VOLUME: Uuid = Uuid([7; 16]);

    fn table(samples: usize, marks: usize) -> Sums {
        let sample =
            |i: usize| Sample { at: SAMPLE * i as u64, sum: 3 * i as u32, is_written: i.is_multiple_of(3) };
        let mark = |i: usize| Noted {
            at: KIB * i as u64,
            mark: Mark { identity: 5, change: i as u32 },
            next: 9,
            is_unknown: i.is_multiple_of(2),
        };
        Sums {
            sequence: 8,
            samples: (0..samples).map(sample).collect(),
            marks: (0..marks).map(mark).collect(),
        }
    }

    #[test]
    fn table_of_sums_round_trips() {
        for (samples, marks) in [(0, 0), (1, 2), (MOST_SAMPLES, MOST_MARKS)] {
            let sums = table(samples, marks);
            let bytes = encode(VOLUME, &sums);
            assert_eq!(decode(&bytes, VOLUME), Ok(sums));
            assert_eq!(decode(&bytes, Uuid([1; 16])), Err(Invalid::Checksum));
        }
    }

    #[test]
    fn torn_or_random_table_of_sums_is_rejected() {
        let whole = encode(VOLUME, &table(MOST_SAMPLES, MOST_MARKS));
        for sector in 0..14 {
            let mut torn = whole.clone();
            torn[sector * 512..][..512].fill(0xaa);
            assert!(decode(&torn, VOLUME).is_err(), "sector {sector}");
        }
        let mut rng = Rng::new(1);
        for len in [0, 31, 32, 4096] {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            assert!(decode(&bytes, VOLUME).is_err());
            bytes[..len.min(8)].copy_from_slice(&MAGIC[..len.min(8)]);
            assert!(decode(&bytes, VOLUME).is_err());
        }
    }

    #[test]
    fn samples_are_distinct_on_disk_and_vary_by_volume() {
        for size in [Bytes(0), KIB * 3, KIB * 9, MIB, MIB * 64 + Bytes(512), TIB * 20] {
            let places = addresses(VOLUME, size);
            assert_eq!(places.len() as u64, (size.0 / 4096).min(256));
            assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|&at| at + SAMPLE <= size));
            assert!(size <= MIB || places != addresses(Uuid([8; 16]), size));
        }
    }
}
