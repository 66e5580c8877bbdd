//! The pending log: changes of the map that no journal batch says yet, in memory that outlives the daemon. It
//! lies on no device.
//!
//! ```text
//! offset  size  field                                          changes
//! 0       8     magic "BRAIDPL1"                               first and last
//! 8       4     CRC-32C of the volume's UUID and bytes 12..64  never
//! 12      4     0
//! 16      16    volume UUID
//! 32      16    life of the machine (its boot id)
//! 48      8     epoch of the opening that writes the log
//! 56      8     capacity in entries
//! 64      8     epoch of a later opening that has read the log; 0: none
//! 72      8     number of the first entry that counts
//! 80      8     number of the entry behind the last one
//! 88      8     newest journal batch that was durable
//! 96      8     loss: 0 none, 1 a guest's flush is still to fail, 2 a device may have lost writes, 3 entries are missing
//! 4096          entries: entry n lies at 4096 + 24 (n mod capacity)
//!
//! entry   0     CRC-32C of the volume's UUID, the epoch (8 bytes), the number (8 bytes) and bytes 4..24
//!         4     a journal record of kind extent or extra (see `journal/record.rs`), zeros behind it
//! ```
//!
//! The daemon writes an entry first, and then the number behind it in one store. A process that dies between
//! two instructions leaves the entries up to that number whole. The log says nothing to another volume,
//! another life of the machine or another opening.

use crate::checksum::checksum;
use crate::journal::{self, MOST_RECORD, MOST_RECORDS, Record};
use crate::{Invalid, Uuid, count};
use braid_base::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where the entries begin.
pub const HEAD: Bytes = Bytes(4096);
/// The length of an entry.
pub const ENTRY: Bytes = Bytes(24);
/// Bytes of the head that hold something.
pub const HEAD_USED: usize = 104;

/// Where the epoch of a later opening lies that has read the log.
pub const READER: Bytes = Bytes(64);
/// Where the number of the first entry lies.
pub const FIRST: Bytes = Bytes(72);
/// Where the number behind the last entry lies.
pub const END: Bytes = Bytes(80);
/// Where the newest durable batch lies.
pub const NEWEST: Bytes = Bytes(88);
/// Where the loss lies.
pub const LOSS: Bytes = Bytes(96);

/// Entries for each change that may be pending: a batch may be under way with as many again, and some changes
/// are there twice.
pub const PER_PENDING: u64 = 6;
/// The largest capacity, in entries: that of the largest journal batch.
pub const MOST_ENTRIES: u64 = PER_PENDING * MOST_RECORDS as u64;
/// The length of the largest log.
pub const LARGEST: Bytes = Bytes(HEAD.0 + ENTRY.0 * MOST_ENTRIES);

/// The first eight bytes of a log that counts.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDPL1");

/// Where the checksum's range begins, and where it ends.
const COVERED: std::ops::Range<usize> = 12..64;
/// Where the record of an entry begins.
const RECORD: usize = 4;

/// What a log says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Whose changes they are.
    pub volume: Uuid,
    /// The life of the machine.
    pub life: [u8; 16],
    /// The opening that writes it.
    pub epoch: u64,
    /// Entries that it has room for.
    pub capacity: u64,
    /// A later opening that has read it, and may not have made all of it durable.
    pub reader: Option<u64>,
    /// The first entry that counts.
    pub first: u64,
    /// The entry behind the last one.
    pub end: u64,
    /// The newest journal batch that was durable.
    pub newest: u64,
    /// What devices may have lost.
    pub loss: Loss,
}

/// What devices may have lost that the log speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loss {
    /// Nothing.
    #[default]
    None = 0,
    /// Nothing that the log speaks of; but an earlier loss is to be told to a guest that flushes.
    Owed = 1,
    /// A flush failed: the data of the entries may be lost.
    Possible = 2,
    /// There was no room for all changes.
    Incomplete = 3,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U64,
    crc: U32,
    zero: U32,
    volume: Uuid,
    life: [u8; 16],
    epoch: U64,
    capacity: U64,
    reader: U64,
    first: U64,
    end: U64,
    newest: U64,
    loss: U64,
}

const _: () = assert!(size_of::<Raw>() == HEAD_USED);
const _: () = assert!(std::mem::offset_of!(Raw, zero) == COVERED.start);
const _: () = assert!(std::mem::offset_of!(Raw, reader) == READER.as_usize());
const _: () = assert!(std::mem::offset_of!(Raw, reader) == COVERED.end);
const _: () = assert!(std::mem::offset_of!(Raw, loss) == LOSS.as_usize());
const _: () = assert!(RECORD + MOST_RECORD <= ENTRY.as_usize());

/// The length of a log with room for so many entries.
pub fn len(capacity: u64) -> Bytes {
    HEAD + ENTRY * capacity
}

/// The bytes of a head.
pub fn encode_head(head: &Head) -> [u8; HEAD_USED] {
    let mut raw = Raw {
        magic: MAGIC.into(),
        crc: U32::ZERO,
        zero: U32::ZERO,
        volume: head.volume,
        life: head.life,
        epoch: head.epoch.into(),
        capacity: head.capacity.into(),
        reader: head.reader.unwrap_or(0).into(),
        first: head.first.into(),
        end: head.end.into(),
        newest: head.newest.into(),
        loss: (head.loss as u64).into(),
    };
    raw.crc = checksum(head.volume, &raw.as_bytes()[COVERED]).into();
    let mut bytes = [0; HEAD_USED];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

/// Verifies the head of a log of this length.
///
/// # Errors
/// `Absent` if there is no log, `Checksum` for a head that no daemon wrote, `Value` for numbers that
/// contradict each other.
pub fn decode_head(bytes: &[u8; HEAD_USED], len: Bytes) -> Result<Head, Invalid> {
    let raw = Raw::ref_from_bytes(bytes).map_err(|_| Invalid::Absent)?;
    if raw.magic.get() != MAGIC {
        return Err(Invalid::Absent);
    }
    if raw.crc.get() != checksum(raw.volume, &bytes[COVERED]) {
        return Err(Invalid::Checksum);
    }
    let loss = match raw.loss.get() {
        0 => Loss::None,
        1 => Loss::Owed,
        2 => Loss::Possible,
        3 => Loss::Incomplete,
        other => return Err(Invalid::Value(format!("a pending log has a loss of kind {other}"))),
    };
    let (capacity, first, end) = (raw.capacity.get(), raw.first.get(), raw.end.get());
    let has_room = (1..=MOST_ENTRIES).contains(&capacity) && self::len(capacity) <= len;
    if !has_room || end < first || end - first > capacity {
        return Err(Invalid::Value(format!(
            "a pending log of {len} with room for {capacity} entries cannot have entries {first} to {end}"
        )));
    }
    count::verify(raw.epoch.get(), "a pending log's epoch")?;
    count::verify(raw.reader.get(), "the epoch of a pending log's reader")?;
    count::verify(raw.newest.get(), "a pending log's newest batch")?;
    count::verify(end, "a pending log's last entry")?;
    Ok(Head {
        volume: raw.volume,
        life: raw.life,
        epoch: raw.epoch.get(),
        capacity,
        reader: Some(raw.reader.get()).filter(|&epoch| epoch > 0),
        first,
        end,
        newest: raw.newest.get(),
        loss,
    })
}

/// Seals the entries of one opening.
#[derive(Clone, Copy, Debug)]
pub struct Seal(u32);

impl Seal {
    /// The seal of a volume's opening.
    pub fn new(volume: Uuid, epoch: u64) -> Seal {
        Seal(checksum(volume, &epoch.to_le_bytes()))
    }

    /// The bytes of an entry.
    #[inline]
    pub fn encode(self, number: u64, record: &Record) -> [u8; ENTRY.as_usize()] {
        let mut bytes = [0; ENTRY.as_usize()];
        journal::encode_record(record, &mut bytes[RECORD..]);
        let crc = self.checksum(number, &bytes);
        bytes[..RECORD].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record of an entry.
    ///
    /// # Errors
    /// `Checksum` for an entry that this opening did not write under this number, `Value` for a record that
    /// no log has.
    pub fn decode(self, number: u64, bytes: &[u8; ENTRY.as_usize()]) -> Result<Record, Invalid> {
        if bytes[..RECORD] != self.checksum(number, bytes).to_le_bytes() {
            return Err(Invalid::Checksum);
        }
        match journal::decode_record(&bytes[RECORD..])? {
            Some(record @ (Record::Extent(..) | Record::Extra(..))) => Ok(record),
            _ => Err(Invalid::Value(format!(
                "entry {number} of a pending log speaks of no extent and no block"
            ))),
        }
    }

    fn checksum(self, number: u64, bytes: &[u8; ENTRY.as_usize()]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &number.to_le_bytes()), &bytes[RECORD..])
    }
}

/// Where an entry lies in a log of this capacity.
#[inline]
pub fn place(number: u64, capacity: u64) -> Bytes {
    HEAD + ENTRY * (number % capacity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlotNumber;
    use crate::journal::Extra;
    use crate::map_page::Entry;
    use braid_base::{BlockId, ExtentId, Rng};

    const HEAD_OF_TEST: Head = Head {
        volume: Uuid([7; 16]),
        life: [3; 16],
        epoch: 5,
        capacity: 100,
        reader: Some(6),
        first: 250,
        end: 330,
        newest: 17,
        loss: Loss::Owed,
    };

    fn records() -> [Record; 4] {
        let entry = Entry { home: SlotNumber(9), valid: 0xf00f, second: SlotNumber(11) };
        let extra = Extra { slot: SlotNumber(u32::MAX - 1), place: 16_383, dirty: true };
        [
            Record::Extent(ExtentId(3), entry),
            Record::Extent(ExtentId(3), Entry::default()),
            Record::Extra(BlockId(1 << 45), Some(extra)),
            Record::Extra(BlockId(0), None),
        ]
    }

    #[test]
    fn a_head_comes_back_as_it_was() {
        let bytes = encode_head(&HEAD_OF_TEST);
        assert_eq!(decode_head(&bytes, len(100)), Ok(HEAD_OF_TEST));
        assert_eq!(decode_head(&bytes, len(1 << 40)), Ok(HEAD_OF_TEST));
    }

    #[test]
    fn a_head_that_promises_more_than_there_is_is_refused() {
        let of = |head: Head| decode_head(&encode_head(&head), len(100));
        assert!(of(Head { capacity: 101, ..HEAD_OF_TEST }).is_err(), "the log was cut short");
        assert!(of(Head { capacity: 0, ..HEAD_OF_TEST }).is_err());
        assert!(of(Head { end: 351, ..HEAD_OF_TEST }).is_err());
        assert!(of(Head { end: 249, ..HEAD_OF_TEST }).is_err());
        assert!(of(Head { end: u64::MAX, first: u64::MAX, ..HEAD_OF_TEST }).is_err());
        let huge = Head { capacity: MOST_ENTRIES + 1, ..HEAD_OF_TEST };
        assert!(decode_head(&encode_head(&huge), Bytes(1 << 50)).is_err());
    }

    #[test]
    fn an_entry_counts_under_its_number_in_its_opening_and_volume_alone() {
        let seal = Seal::new(Uuid([7; 16]), 5);
        for record in records() {
            let bytes = seal.encode(40, &record);
            assert_eq!(seal.decode(40, &bytes), Ok(record));
            assert_eq!(seal.decode(140, &bytes), Err(Invalid::Checksum), "the lap before");
            assert_eq!(Seal::new(Uuid([7; 16]), 4).decode(40, &bytes), Err(Invalid::Checksum));
            assert_eq!(Seal::new(Uuid([8; 16]), 5).decode(40, &bytes), Err(Invalid::Checksum));
        }
    }

    /// Whatever lies in the file: an error or a value, and no panic.
    #[test]
    fn no_bytes_are_too_strange() {
        let mut rng = Rng::new(1);
        let seal = Seal::new(HEAD_OF_TEST.volume, HEAD_OF_TEST.epoch);
        for _ in 0..20_000 {
            let mut head = encode_head(&HEAD_OF_TEST);
            head[rng.below(HEAD_USED as u64) as usize] ^= 1 << rng.below(8);
            let _ = decode_head(&head, Bytes(rng.below(1 << 20)));
            rng.fill(&mut head);
            assert!(decode_head(&head, LARGEST).is_err());
            let mut entry = seal.encode(1, &records()[rng.below(4) as usize]);
            entry[rng.below(ENTRY.0) as usize] ^= 1 << rng.below(8);
            assert_eq!(seal.decode(1, &entry), Err(Invalid::Checksum));
            // A record that is sealed and wrong.
            rng.fill(&mut entry);
            let crc = seal.checksum(1, &entry).to_le_bytes();
            entry[..RECORD].copy_from_slice(&crc);
            let _ = seal.decode(1, &entry);
        }
    }
}
