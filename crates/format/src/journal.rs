//! A journal batch: the records of one commit, written in one piece.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDJN2"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..length
//! 12      4     length in bytes: header, list and records, without the padding to 4 KiB
//! 16      8     sequence: one more than the batch before
//! 24      8     tail: the oldest batch that recovery must replay
//! 32      8     epoch of the opening that wrote it
//! 40      4     records
//! 44      4     extents that the previous batch changed; 0xffffffff: more than fit, or not known
//! 48      4 n   their ids
//! …       …     records (see `record.rs`)
//! ```
//!
//! The journal is a ring of 4 KiB pages. A batch begins on a page and does not wrap: a batch too long for the
//! rest of the ring begins at the ring's start. Each batch lists the extents of the previous batch. If one
//! batch is lost, the next batch therefore names the extents without a proved place.

mod record;

pub use record::{Extra, MOST_RECORD, Record};

use crate::checksum::checksum;
use crate::{Invalid, Uuid, count};
use braid_base::{Bytes, ExtentId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The unit in which batches lie in the journal.
pub const PAGE: Bytes = Bytes(4096);
/// The largest batch: the size of a buffer.
pub const LARGEST_BATCH: Bytes = Bytes(1 << 20);
/// The most extents of the previous batch that a batch lists.
pub const MOST_PREVIOUS: usize = 512;
/// Records of any kind that the largest batch holds.
pub const MOST_RECORDS: usize = (LARGEST_BATCH.as_usize() - HEADER - 4 * MOST_PREVIOUS) / MOST_RECORD;

/// The most batches from the tail to the newest. The longest ring holds a quarter of them. A larger distance
/// arises only if a repair skips the numbers of lost batches.
pub const MOST_LIVE: u64 = 1 << 16;

const MAGIC: [u8; 8] = *b"BRAIDJN2";
const HEADER: usize = size_of::<Raw>();
/// Start of the checksum's range.
const COVERED: usize = 12;
/// In place of the length of the list of extents.
const TOO_MANY: u32 = u32::MAX;

/// A batch to be written.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// One more than the previous batch's sequence.
    pub sequence: u64,
    /// The oldest batch that recovery must replay once the batch is durable.
    pub tail: u64,
    /// The epoch of the opening that writes the batch.
    pub epoch: u64,
    /// The extents that the previous batch changed; `None` if unknown. More than [`MOST_PREVIOUS`] extents
    /// are not listed.
    pub previous: Option<&'a [ExtentId]>,
    /// The changes.
    pub records: &'a [Record],
}

/// The header of a verified batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// The sequence of the batch.
    pub sequence: u64,
    /// The oldest batch that recovery must replay once the batch is durable.
    pub tail: u64,
    /// The epoch of the opening that wrote the batch.
    pub epoch: u64,
    /// The length of the batch with its header, without padding.
    pub len: Bytes,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    len: U32,
    sequence: U64,
    tail: U64,
    epoch: U64,
    records: U32,
    previous: U32,
}

const _: () = assert!(HEADER == 48);
const _: () = assert!(std::mem::offset_of!(Raw, len) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, epoch) == 32);
const _: () = assert!(HEADER + 4 * MOST_PREVIOUS + MOST_RECORDS * MOST_RECORD <= LARGEST_BATCH.as_usize());

/// Bytes that suffice for any `records` records with the longest list of previous extents.
pub fn room(records: usize) -> Bytes {
    Bytes::of_len(HEADER + 4 * MOST_PREVIOUS + records * MOST_RECORD).align_up(PAGE)
}

/// Writes a batch to the start of `buffer` and zeros its padding. Returns the length in whole pages.
///
/// # Panics
/// If the buffer is too small; [`room`] is always enough.
pub fn encode(buffer: &mut [u8], volume: Uuid, batch: &Batch<'_>) -> Bytes {
    let previous = batch.previous.filter(|extents| extents.len() <= MOST_PREVIOUS);
    let mut at = HEADER;
    for extent in previous.into_iter().flatten() {
        buffer[at..at + 4].copy_from_slice(&extent.0.to_le_bytes());
        at += 4;
    }
    for record in batch.records {
        at += record.encode(&mut buffer[at..]);
    }
    let mut raw = Raw {
        magic: MAGIC,
        crc: U32::ZERO,
        len: (at as u32).into(),
        sequence: batch.sequence.into(),
        tail: batch.tail.into(),
        epoch: batch.epoch.into(),
        records: (batch.records.len() as u32).into(),
        previous: previous.map_or(TOO_MANY, |extents| extents.len() as u32).into(),
    };
    buffer[..HEADER].copy_from_slice(raw.as_bytes());
    raw.crc = checksum(volume, &buffer[COVERED..at]).into();
    buffer[..HEADER].copy_from_slice(raw.as_bytes());
    let room = Bytes::of_len(at).align_up(PAGE);
    buffer[at..room.as_usize()].fill(0);
    room
}

/// Verifies the batch at the start of `bytes`. Arbitrary bytes may follow the batch.
pub fn verify(bytes: &[u8], volume: Uuid) -> Result<BatchHeader, Invalid> {
    let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC {
        return Err(Invalid::Absent);
    }
    let len = raw.len.get() as usize;
    if !(HEADER..=bytes.len().min(LARGEST_BATCH.as_usize())).contains(&len)
        || raw.crc.get() != checksum(volume, &bytes[COVERED..len])
    {
        return Err(Invalid::Checksum);
    }
    if raw.listed() > MOST_PREVIOUS || HEADER + 4 * raw.listed() > len {
        return Err(Invalid::Value(format!(
            "journal batch {} of {len} bytes lists {} extents, {MOST_PREVIOUS} at most",
            raw.sequence.get(),
            raw.listed()
        )));
    }
    raw.verify_counts()?;
    Ok(BatchHeader {
        sequence: raw.sequence.get(),
        tail: raw.tail.get(),
        epoch: raw.epoch.get(),
        len: Bytes::of_len(len),
    })
}

/// The records of a batch that [`verify`] accepted, without skippable records of unknown kinds. The first
/// error is the last item.
pub fn records<'a>(
    bytes: &'a [u8],
    header: &BatchHeader,
) -> impl Iterator<Item = Result<Record, Invalid>> + use<'a> {
    let (raw, mut rest) = split(bytes, header);
    rest = rest.get(4 * raw.listed()..).unwrap_or_default();
    let mut left = raw.records.get();
    std::iter::from_fn(move || {
        loop {
            if left == 0 {
                let surplus = std::mem::take(&mut rest).len();
                return (surplus > 0).then(|| {
                    Err(Invalid::Value(format!("{surplus} bytes follow the last record of a journal batch")))
                });
            }
            left -= 1;
            match record::decode(rest) {
                Ok((len, record)) => {
                    rest = &rest[len..];
                    if let Some(record) = record {
                        return Some(Ok(record));
                    }
                }
                Err(invalid) => {
                    (left, rest) = (0, &[]);
                    return Some(Err(invalid));
                }
            }
        }
    })
}

/// Writes one record to the start of `bytes`, at least [`MOST_RECORD`] long. Returns the record's length.
pub(crate) fn encode_record(record: &Record, bytes: &mut [u8]) -> usize {
    record.encode(bytes)
}

/// The record at the start of `bytes`; `None` for a skippable record of an unknown kind.
pub(crate) fn decode_record(bytes: &[u8]) -> Result<Option<Record>, Invalid> {
    record::decode(bytes).map(|(_, record)| record)
}

/// The extents that the previous batch changed; `None` if the verified batch does not list them.
pub fn previous(bytes: &[u8], header: &BatchHeader) -> Option<Vec<ExtentId>> {
    let (raw, rest) = split(bytes, header);
    if raw.previous.get() == TOO_MANY {
        return None;
    }
    let ids = <[U32]>::ref_from_bytes(rest.get(..4 * raw.listed())?).ok()?;
    Some(ids.iter().map(|id| ExtentId(id.get())).collect())
}

/// The fixed fields of a verified batch, and the rest of the batch.
fn split<'a>(bytes: &'a [u8], header: &BatchHeader) -> (&'a Raw, &'a [u8]) {
    let batch = &bytes[..header.len.as_usize()];
    Raw::ref_from_prefix(batch).expect("a verified batch is at least as long as its header")
}

impl Raw {
    /// Verifies that a ring can reach these numbers: recovery looks for every batch from the tail on.
    fn verify_counts(&self) -> Result<(), Invalid> {
        let (sequence, tail) = (self.sequence.get(), self.tail.get());
        count::verify(sequence, "a journal batch's sequence")?;
        count::verify(self.epoch.get(), "a journal batch's epoch")?;
        if tail > sequence || sequence - tail >= MOST_LIVE {
            return Err(Invalid::Value(format!(
                "journal batch {sequence} needs the batches from {tail} on: at most {MOST_LIVE} up to itself"
            )));
        }
        Ok(())
    }

    /// Extents in the list.
    fn listed(&self) -> usize {
        match self.previous.get() {
            TOO_MANY => 0,
            listed => listed as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent_page::Difference;
    use crate::map_page::Entry;
    use crate::superblock::DeviceState;
    use crate::{LARGEST_COUNT, SlotNumber, SpanId};
    use braid_base::{BlockId, DeviceId, Rng};

    const VOLUME: Uuid = Uuid([7; 16]);

    fn some_records(count: u32) -> Vec<Record> {
        let one = |i: u32| match i % 7 {
            0 => {
                let entry = Entry {
                    home: SlotNumber(i + 1),
                    valid: 0xffff,
                    second: SlotNumber(2),
                    ..Entry::default()
                };
                Record::Extent(ExtentId(i), entry)
            }
            1 => Record::Extent(ExtentId(i), Entry { home: SlotNumber::LOST, ..Entry::default() }),
            2 => {
                let extra = Extra { slot: SlotNumber(i), place: 31, dirty: i.is_multiple_of(2) };
                Record::Extra(BlockId(u64::from(i) << 30), Some(extra))
            }
            3 => Record::Extra(BlockId(u64::from(i)), None),
            4 => Record::Intent(
                SpanId(i),
                [Difference::None, Difference::Dirty, Difference::Behind][i as usize % 3],
            ),
            5 => Record::Device(DeviceId(1023), DeviceState::Returning, u64::MAX),
            _ => Record::Epoch(u64::from(i) << 33),
        };
        (0..count).map(one).collect()
    }

    fn batch<'a>(previous: Option<&'a [ExtentId]>, records: &'a [Record]) -> Batch<'a> {
        Batch { sequence: 5, tail: 2, epoch: 9, previous, records }
    }

    /// Makes the checksum match the bytes.
    fn forge(bytes: &mut [u8], len: usize) {
        bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        let crc = checksum(VOLUME, &bytes[COVERED..len]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn a_batch_round_trips() {
        let extents: Vec<_> = (0..MOST_PREVIOUS as u32 + 1).map(ExtentId).collect();
        let lists = [None, Some(&extents[..0]), Some(&extents[..3]), Some(&extents[1..]), Some(&extents[..])];
        for (count, list) in [0, 1, 7, 1000, 2000].into_iter().zip(lists) {
            let wanted = some_records(count);
            let mut buffer = vec![0xaa; 65536];
            let taken = encode(&mut buffer, VOLUME, &batch(list, &wanted));
            assert!(taken.is_aligned(PAGE) && taken <= room(wanted.len()));
            let header = verify(&buffer[..taken.as_usize()], VOLUME).unwrap();
            assert_eq!((header.sequence, header.tail, header.epoch), (5, 2, 9));
            assert!(buffer[header.len.as_usize()..taken.as_usize()].iter().all(|&byte| byte == 0));
            let found: Vec<Record> = records(&buffer, &header).map(Result::unwrap).collect();
            assert_eq!(found, wanted);
            let listed = list.filter(|list| list.len() <= MOST_PREVIOUS).map(<[_]>::to_vec);
            assert_eq!(previous(&buffer, &header), listed);
        }
    }

    #[test]
    fn the_most_and_longest_records_fit_the_largest_batch() {
        assert!(room(MOST_RECORDS) <= LARGEST_BATCH);
        let extra = Extra { slot: SlotNumber(1), place: 1, dirty: true };
        let longest = vec![Record::Extra(BlockId(1), Some(extra)); MOST_RECORDS];
        let mut buffer = vec![0; LARGEST_BATCH.as_usize()];
        let taken = encode(&mut buffer, VOLUME, &batch(Some(&[ExtentId(1); MOST_PREVIOUS]), &longest));
        assert_eq!(taken, room(MOST_RECORDS));
        let header = verify(&buffer, VOLUME).unwrap();
        assert_eq!(records(&buffer, &header).count(), MOST_RECORDS);
    }

    #[test]
    fn every_torn_sector_of_a_batch_is_noticed() {
        let mut whole = vec![0xaa; 65536];
        encode(&mut whole, VOLUME, &batch(Some(&[ExtentId(3); 200]), &some_records(800)));
        let len = verify(&whole, VOLUME).unwrap().len.as_usize();
        for sector in 0..len.div_ceil(512) {
            let mut torn = whole.clone();
            torn[sector * 512..(sector + 1) * 512].fill(0xaa);
            assert!(verify(&torn, VOLUME).is_err(), "sector {sector}");
        }
        assert_eq!(verify(&whole, Uuid([1; 16])), Err(Invalid::Checksum), "of another volume");
    }

    #[test]
    fn unknown_record_is_skipped_only_if_flagged_skippable() {
        for (flags, skipped) in [(1, true), (0, false), (3, false)] {
            let mut buffer = vec![0; 4096];
            encode(&mut buffer, VOLUME, &batch(Some(&[]), &[Record::Epoch(1), Record::Epoch(2)]));
            let len = verify(&buffer, VOLUME).unwrap().len.as_usize();
            buffer[HEADER..HEADER + 2].copy_from_slice(&[200, flags]);
            forge(&mut buffer, len);
            let header = verify(&buffer, VOLUME).unwrap();
            let found: Vec<_> = records(&buffer, &header).collect();
            match skipped {
                true => assert_eq!(found, [Ok(Record::Epoch(2))]),
                false => assert!(matches!(found[..], [Err(Invalid::Feature(_))]), "{found:?}"),
            }
        }
    }

    #[test]
    fn records_with_contradictory_lengths_are_rejected() {
        // Offset and value of each fault. The record faults: a record too long for the batch, shorter than
        // its prefix, longer and shorter than its kind allows, a span neither set nor cleared. The count
        // faults: one record too many, one record too few.
        let first = HEADER;
        for (at, value) in [
            (first + 2, 200),
            (first + 2, 3),
            (first + 2, 10),
            (first + 2, 8),
            (first + 8, 3),
            (40, 3),
            (40, 1),
        ] {
            let mut buffer = vec![0; 4096];
            let spans =
                [Record::Intent(SpanId(1), Difference::Dirty), Record::Intent(SpanId(2), Difference::None)];
            encode(&mut buffer, VOLUME, &batch(Some(&[]), &spans));
            let len = verify(&buffer, VOLUME).unwrap().len.as_usize();
            buffer[at] = value;
            forge(&mut buffer, len);
            let header = verify(&buffer, VOLUME).unwrap();
            let last = records(&buffer, &header).last();
            assert!(matches!(last, Some(Err(Invalid::Value(_)))), "byte {at} as {value}: {last:?}");
        }
    }

    #[test]
    fn a_record_of_a_second_copy_without_a_home_is_rejected() {
        for home in [SlotNumber::NONE, SlotNumber::LOST] {
            let mut buffer = vec![0; 4096];
            let entry = Entry { home, valid: 1, second: SlotNumber(7), ..Entry::default() };
            encode(&mut buffer, VOLUME, &batch(None, &[Record::Extent(ExtentId(1), entry)]));
            let header = verify(&buffer, VOLUME).unwrap();
            let found = records(&buffer, &header).next();
            assert!(matches!(found, Some(Err(Invalid::Value(_)))), "{home:?}: {found:?}");
        }
    }

    #[test]
    fn a_list_of_extents_beyond_the_batch_is_rejected() {
        let mut buffer = vec![0; 4096];
        encode(&mut buffer, VOLUME, &batch(None, &[Record::Epoch(1)]));
        let len = verify(&buffer, VOLUME).unwrap().len.as_usize();
        for listed in [4, MOST_PREVIOUS as u32 + 1, u32::MAX - 1] {
            buffer[44..48].copy_from_slice(&listed.to_le_bytes());
            forge(&mut buffer, len);
            assert!(matches!(verify(&buffer, VOLUME), Err(Invalid::Value(_))), "{listed}");
        }
    }

    /// Recovery looks for every batch from the tail on, and the next batch gets the next number.
    #[test]
    fn impossible_batch_numbers_are_rejected() {
        for (at, value) in [(16, LARGEST_COUNT), (16, 1), (16, 2 + MOST_LIVE), (24, 6), (32, u64::MAX)] {
            let mut buffer = vec![0; 4096];
            encode(&mut buffer, VOLUME, &batch(None, &[Record::Epoch(1)]));
            let len = verify(&buffer, VOLUME).unwrap().len.as_usize();
            buffer[at..at + 8].copy_from_slice(&value.to_le_bytes());
            forge(&mut buffer, len);
            assert!(matches!(verify(&buffer, VOLUME), Err(Invalid::Value(_))), "byte {at} as {value}");
        }
    }

    #[test]
    fn hostile_bytes_do_not_panic() {
        let mut rng = Rng::new(3);
        let mut good = vec![0; 16384];
        encode(&mut good, VOLUME, &batch(Some(&[ExtentId(3); 5]), &some_records(100)));
        let len = verify(&good, VOLUME).unwrap().len.as_usize();
        let mut records_seen = 0;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..rng.between(1, 9) {
                bytes[rng.between(16, len as u64 - 1) as usize] = rng.next_u64() as u8;
            }
            let cut = rng.between(HEADER as u64, len as u64) as usize;
            forge(&mut bytes, cut);
            let Ok(header) = verify(&bytes, VOLUME) else { continue };
            assert!(previous(&bytes, &header).is_none_or(|list| list.len() <= MOST_PREVIOUS));
            records_seen += records(&bytes, &header).count();
        }
        assert!(records_seen > 20_000, "most batches get as far as their records");
        for _ in 0..2_000 {
            rng.fill(&mut good);
            good[0..8].copy_from_slice(&MAGIC);
            assert!(verify(&good[..rng.below(4097) as usize], VOLUME).is_err());
        }
    }
}
