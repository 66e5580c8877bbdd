//! A journal batch: the records of one commit, written in one piece.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDJRN"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..length
//! 12      4     length in bytes: header and records, without the padding to 4 KiB
//! 16      8     sequence: one more than the batch before
//! 24      8     tail: the oldest batch that recovery must replay
//! 32      …     records, 20 bytes each
//!
//! record  0   1  kind: 1 extent, 2 extra
//!         1   1  extent: 0; extra: 0 gone, 1 clean, 2 dirty
//!         2   2  extent: valid parts;  extra: 0
//!         4   4  extent: number;       extra: block number, low half
//!         8   4  extent: home;         extra: block number, high half
//!         12  4  extent: second copy;  extra: slot number
//!         16  2  extent: parts behind; extra: place within the slot, in blocks
//!         18  2  0
//! ```
//!
//! The journal is a ring of 4 KiB pages. A batch begins on a page and does not wrap: where it does not fit before the
//! end, it begins at the start. Each record states what its extent or block is after it, whole, so that replaying a
//! record twice, or over a newer map page, changes nothing in the end.

use crate::map_page::Entry;
use crate::{Invalid, SlotNumber, Uuid};
use braid_base::{BlockId, Bytes, ExtentId};

/// The unit in which batches lie in the journal.
pub const PAGE: Bytes = Bytes(4096);
/// The largest batch: what one buffer holds.
pub const LARGEST_BATCH: Bytes = Bytes(1 << 20);
/// Records that the largest batch holds.
pub const MOST_RECORDS: usize = (LARGEST_BATCH.as_usize() - HEADER) / RECORD;

const MAGIC: [u8; 8] = *b"BRAIDJRN";
const HEADER: usize = 32;
/// The length of a record, in bytes.
pub const RECORD: usize = 20;

/// One change of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The required copies of an extent are now these.
    Extent(ExtentId, Entry),
    /// The extra copy of a block is now this, or gone.
    Extra(BlockId, Option<Extra>),
}

/// An extra copy of a block, as it lies on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extra {
    /// The extent slot that the block slot is part of.
    pub slot: SlotNumber,
    /// Which block of that slot.
    pub place: u16,
    /// Whether it holds newer bytes than every required copy.
    pub dirty: bool,
}

/// What a batch says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its number.
    pub sequence: u64,
    /// The oldest batch that recovery must replay once this one is durable.
    pub tail: u64,
    /// Its length, header included, padding not.
    pub len: Bytes,
}

/// Room that a batch of `records` records takes in the journal.
pub fn room(records: usize) -> Bytes {
    Bytes::of_len(HEADER + records * RECORD).align_up(PAGE)
}

/// Writes a batch to the start of `buffer` and zeros its padding. Returns the room that it takes.
///
/// # Panics
/// Where the buffer is too small.
pub fn encode(buffer: &mut [u8], volume: Uuid, sequence: u64, tail: u64, records: &[Record]) -> Bytes {
    let (len, room) = (HEADER + records.len() * RECORD, room(records.len()));
    let batch = &mut buffer[..room.as_usize()];
    batch[len..].fill(0);
    batch[0..8].copy_from_slice(&MAGIC);
    batch[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    batch[16..24].copy_from_slice(&sequence.to_le_bytes());
    batch[24..32].copy_from_slice(&tail.to_le_bytes());
    for (bytes, record) in batch[HEADER..len].chunks_exact_mut(RECORD).zip(records) {
        encode_record(bytes, record);
    }
    let crc = checksum(&batch[..len], volume);
    batch[8..12].copy_from_slice(&crc.to_le_bytes());
    room
}

/// Verifies the batch that begins at the start of `bytes`, which may be followed by anything.
pub fn verify(bytes: &[u8], volume: Uuid) -> Result<Header, Invalid> {
    if bytes.len() < HEADER || bytes[0..8] != MAGIC {
        return Err(Invalid::Absent);
    }
    let len = u32_at(bytes, 12) as usize;
    if !(HEADER..=bytes.len().min(LARGEST_BATCH.as_usize())).contains(&len)
        || !(len - HEADER).is_multiple_of(RECORD)
    {
        return Err(Invalid::Checksum);
    }
    if bytes[8..12] != checksum(&bytes[..len], volume).to_le_bytes() {
        return Err(Invalid::Checksum);
    }
    Ok(Header { sequence: u64_at(bytes, 16), tail: u64_at(bytes, 24), len: Bytes::of_len(len) })
}

/// The records of a verified batch.
pub fn records<'a>(
    bytes: &'a [u8],
    header: &Header,
) -> impl Iterator<Item = Result<Record, Invalid>> + use<'a> {
    bytes[HEADER..header.len.as_usize()].chunks_exact(RECORD).map(decode_record)
}

fn encode_record(bytes: &mut [u8], record: &Record) {
    bytes.fill(0);
    match record {
        Record::Extent(extent, entry) => {
            bytes[0] = 1;
            bytes[2..4].copy_from_slice(&entry.valid.to_le_bytes());
            bytes[4..8].copy_from_slice(&extent.0.to_le_bytes());
            bytes[8..12].copy_from_slice(&entry.home.0.to_le_bytes());
            bytes[12..16].copy_from_slice(&entry.second.0.to_le_bytes());
            bytes[16..18].copy_from_slice(&entry.behind.to_le_bytes());
        }
        Record::Extra(block, extra) => {
            bytes[0] = 2;
            bytes[4..12].copy_from_slice(&block.0.to_le_bytes());
            if let Some(extra) = extra {
                bytes[1] = 1 + u8::from(extra.dirty);
                bytes[12..16].copy_from_slice(&extra.slot.0.to_le_bytes());
                bytes[16..18].copy_from_slice(&extra.place.to_le_bytes());
            }
        }
    }
}

fn decode_record(bytes: &[u8]) -> Result<Record, Invalid> {
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    match (bytes[0], bytes[1]) {
        (1, 0) => {
            let entry = Entry {
                home: SlotNumber(u32_at(bytes, 8)),
                valid: u16_at(2),
                second: SlotNumber(u32_at(bytes, 12)),
                behind: u16_at(16),
            };
            Ok(Record::Extent(ExtentId(u32_at(bytes, 4)), entry))
        }
        (2, state @ 0..=2) => {
            let extra = Extra { slot: SlotNumber(u32_at(bytes, 12)), place: u16_at(16), dirty: state == 2 };
            Ok(Record::Extra(BlockId(u64_at(bytes, 4)), (state > 0).then_some(extra)))
        }
        (kind, state) => Err(Invalid::Feature(format!(
            "the journal has a record of kind {kind}.{state}, which this version does not know: use a newer one"
        ))),
    }
}

fn checksum(batch: &[u8], volume: Uuid) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&volume.0), &batch[12..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn some_records(count: u32) -> Vec<Record> {
        (0..count)
            .map(|i| match i % 3 {
                0 => {
                    let entry =
                        Entry { home: SlotNumber(i), valid: 0xffff, second: SlotNumber(2), behind: 1 };
                    Record::Extent(ExtentId(i), entry)
                }
                1 => {
                    let extra = Extra { slot: SlotNumber(i), place: 31, dirty: i % 2 == 0 };
                    Record::Extra(BlockId(u64::from(i) << 30), Some(extra))
                }
                _ => Record::Extra(BlockId(u64::from(i)), None),
            })
            .collect()
    }

    #[test]
    fn records_come_back_as_they_went_in() {
        for count in [0, 1, 3, 1000] {
            let wanted = some_records(count);
            let mut buffer = vec![0xaa; 65536];
            let room = encode(&mut buffer, VOLUME, 5, 2, &wanted);
            assert!(room.is_aligned(PAGE));
            let header = verify(&buffer, VOLUME).unwrap();
            assert_eq!((header.sequence, header.tail), (5, 2));
            let found: Vec<Record> = records(&buffer, &header).map(Result::unwrap).collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_batch_with_any_sector_lost_is_not_believed() {
        let mut whole = vec![0xaa; 65536];
        let room = encode(&mut whole, VOLUME, 5, 2, &some_records(800)).as_usize();
        let len = verify(&whole, VOLUME).unwrap().len.as_usize();
        for sector in 0..len.div_ceil(512) {
            let mut torn = whole.clone();
            torn[sector * 512..(sector + 1) * 512].fill(0xaa);
            assert!(verify(&torn, VOLUME).is_err(), "sector {sector} of {}", room / 512);
        }
        assert!(verify(&whole, Uuid([1; 16])).is_err(), "of another volume");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = Rng::new(3);
        let mut bytes = vec![0; 4096];
        for _ in 0..2_000 {
            rng.fill(&mut bytes);
            bytes[0..8].copy_from_slice(&MAGIC);
            let cut = rng.below(4097) as usize;
            assert!(verify(&bytes[..cut], VOLUME).is_err());
            let _ = decode_record(&bytes[..RECORD]);
        }
    }
}
