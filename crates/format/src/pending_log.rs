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
//! 64      8     position: epoch of a later opening that has read the log; 0: none
//! 72      8     position: number of the first entry that counts
//! 80      8     position: number of the entry behind the last one
//! 88      8     position: newest journal batch that was durable
//! 96      8     position: loss (0 none, 1 a guest's flush is still to fail, 2 a device may have lost writes,
//!               3 entries are missing)
//! 4096          entries: entry n lies at 4096 + 24 (n mod capacity)
//!
//! position  bits 0..48   the value
//!           bits 48..64  the lower half of the CRC-32C of the volume's UUID, the epoch (8 bytes), the
//!                        position's offset (8 bytes) and the value (8 bytes)
//! entry     0            CRC-32C of the volume's UUID, the epoch (8 bytes), the number (8 bytes) and bytes 4..24
//!           4            a journal record of kind extent or extra (see `journal/record.rs`), zeros behind it
//! ```
//!
//! The daemon writes an entry first, and then the number behind it in one store. A process that dies between
//! two instructions leaves the entries up to that number whole. So a position and its checksum are one word.
//! The log says nothing to another volume, another life of the machine or another opening. A later layout has
//! another digit at the end of its magic.

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
/// The byte of the magic in which layouts differ.
const DIGIT: u64 = 0xff << 56;

/// Positions stay below this: an opening that changed the map a million times a second would take nine years
/// to count so far.
pub const MOST_POSITION: u64 = 1 << POSITION_BITS;
/// Bits of a position's value. Its checksum has the others.
const POSITION_BITS: u32 = 48;

/// Where the head's checksum begins, and where it ends.
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

/// The bytes of a head. Its epoch and positions are below [`MOST_POSITION`].
pub fn encode_head(head: &Head) -> [u8; HEAD_USED] {
    let seal = Seal::new(head.volume, head.epoch);
    let mut raw = Raw {
        magic: MAGIC.into(),
        crc: U32::ZERO,
        zero: U32::ZERO,
        volume: head.volume,
        life: head.life,
        epoch: head.epoch.into(),
        capacity: head.capacity.into(),
        reader: seal.position(READER, head.reader.unwrap_or(0)).into(),
        first: seal.position(FIRST, head.first).into(),
        end: seal.position(END, head.end).into(),
        newest: seal.position(NEWEST, head.newest).into(),
        loss: seal.position(LOSS, head.loss as u64).into(),
    };
    raw.crc = checksum(head.volume, &raw.as_bytes()[COVERED]).into();
    let mut bytes = [0; HEAD_USED];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

/// Verifies the head of a log of this length.
///
/// # Errors
/// `Absent` if there is no log, `Checksum` for a head or position that no daemon wrote, `Feature` for another
/// layout, `Value` for numbers that contradict each other.
pub fn decode_head(bytes: &[u8; HEAD_USED], len: Bytes) -> Result<Head, Invalid> {
    let raw = Raw::ref_from_bytes(bytes).map_err(|_| Invalid::Absent)?;
    match raw.magic.get() {
        MAGIC => {}
        0 => return Err(Invalid::Absent),
        other if other & !DIGIT == MAGIC & !DIGIT => {
            return Err(Invalid::Feature("another version of Braid wrote it".to_owned()));
        }
        _ => return Err(Invalid::Value("the file holds no pending log".to_owned())),
    }
    if raw.crc.get() != checksum(raw.volume, &bytes[COVERED]) {
        return Err(Invalid::Checksum);
    }
    let seal = Seal::new(raw.volume, raw.epoch.get());
    let loss = match seal.value(LOSS, raw.loss.get())? {
        0 => Loss::None,
        1 => Loss::Owed,
        2 => Loss::Possible,
        3 => Loss::Incomplete,
        other => return Err(Invalid::Value(format!("a pending log has a loss of kind {other}"))),
    };
    let capacity = raw.capacity.get();
    let (first, end) = (seal.value(FIRST, raw.first.get())?, seal.value(END, raw.end.get())?);
    let has_room = (1..=MOST_ENTRIES).contains(&capacity) && self::len(capacity) <= len;
    if !has_room || end < first || end - first > capacity {
        return Err(Invalid::Value(format!(
            "a pending log of {len} with room for {capacity} entries cannot have entries {first} to {end}"
        )));
    }
    count::verify(raw.epoch.get(), "a pending log's epoch")?;
    Ok(Head {
        volume: raw.volume,
        life: raw.life,
        epoch: raw.epoch.get(),
        capacity,
        reader: Some(seal.value(READER, raw.reader.get())?).filter(|&epoch| epoch > 0),
        first,
        end,
        newest: seal.value(NEWEST, raw.newest.get())?,
        loss,
    })
}

/// Seals the entries and positions of one opening.
#[derive(Clone, Copy, Debug)]
pub struct Seal(u32);

impl Seal {
    /// The seal of a volume's opening.
    pub fn new(volume: Uuid, epoch: u64) -> Seal {
        Seal(checksum(volume, &epoch.to_le_bytes()))
    }

    /// The word of a position that lies at `at`. A value from [`MOST_POSITION`] on counts as the largest one.
    #[inline]
    pub fn position(self, at: Bytes, value: u64) -> u64 {
        let value = value.min(MOST_POSITION - 1);
        let crc =
            crc32c::crc32c_append(crc32c::crc32c_append(self.0, &at.0.to_le_bytes()), &value.to_le_bytes());
        value | u64::from(crc) << POSITION_BITS
    }

    /// The value of a position that lies at `at`.
    ///
    /// # Errors
    /// `Checksum` for a word that this opening did not write there.
    pub fn value(self, at: Bytes, word: u64) -> Result<u64, Invalid> {
        let value = word & (MOST_POSITION - 1);
        if self.position(at, value) == word { Ok(value) } else { Err(Invalid::Checksum) }
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

/// The records of a log, in the order in which the changes were made. `load` copies bytes out of the log, and
/// zeros from behind its end.
///
/// # Errors
/// The number of the first entry that is damaged, and why. Then none counts: an older change of an extent must
/// not hide a newer one.
pub fn records(head: &Head, load: impl Fn(Bytes, &mut [u8])) -> Result<Vec<Record>, (u64, Invalid)> {
    let seal = Seal::new(head.volume, head.epoch);
    let read = |number| {
        let mut bytes = [0; ENTRY.as_usize()];
        load(place(number, head.capacity), &mut bytes);
        seal.decode(number, &bytes).map_err(|invalid| (number, invalid))
    };
    (head.first..head.end).map(read).collect()
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
        let entry = Entry { home: SlotNumber(9), valid: 0xf00f, second: SlotNumber(11), partly_lost: false };
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
        let huge = Head { capacity: MOST_ENTRIES + 1, ..HEAD_OF_TEST };
        assert!(decode_head(&encode_head(&huge), Bytes(1 << 50)).is_err());
    }

    /// A daemon of another version left a log of another layout, and no message told the administrator.
    #[test]
    fn a_log_of_another_layout_is_told_from_no_log() {
        let mut bytes = encode_head(&HEAD_OF_TEST);
        bytes[7] = b'2';
        assert!(matches!(decode_head(&bytes, len(100)), Err(Invalid::Feature(_))));
        bytes[0] = b'X';
        assert!(matches!(decode_head(&bytes, len(100)), Err(Invalid::Value(_))));
        bytes[..8].fill(0);
        assert_eq!(decode_head(&bytes, len(100)), Err(Invalid::Absent));
    }

    /// The number of the first entry was damaged, and a part of the log was passed over without a word.
    #[test]
    fn a_position_that_was_damaged_does_not_count() {
        for at in [READER, FIRST, END, NEWEST, LOSS] {
            for bit in 0..64 {
                let mut bytes = encode_head(&HEAD_OF_TEST);
                bytes[at.as_usize() + bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode_head(&bytes, len(100)), Err(Invalid::Checksum), "bit {bit} at {at}");
            }
        }
        let seal = Seal::new(Uuid([7; 16]), 5);
        let word = seal.position(FIRST, 7);
        assert_eq!((seal.value(FIRST, word), seal.value(END, word)), (Ok(7), Err(Invalid::Checksum)));
        assert_eq!(seal.value(END, seal.position(END, u64::MAX)), Ok(MOST_POSITION - 1));
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
