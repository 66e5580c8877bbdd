//! The pending log: changes of the map that are not yet in a journal batch, in memory that outlives the
//! daemon. The log lies on no device.
//!
//! ```text
//! offset  size  field                                          changes
//! 0       8     magic "BRAIDPL2"                               first and last
//! 8       4     CRC-32C of the volume's UUID, bytes 12..64     never
//!               and the owner
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
//! 104     8     position: owner of the later opening that has read the log
//! 112     8     position: owner in the superblock that the later opening has found
//! 120     8     owner of the opening that writes the log       never
//! 4096          entries: entry n lies at 4096 + 24 (n mod capacity)
//!
//! position  bits 0..48   the value; of an owner, bits 0..48
//!           bits 48..64  the lower half of the CRC-32C of the volume's UUID, the epoch (8 bytes), the owner
//!                        (8 bytes), the position's offset (8 bytes) and the value (8 bytes)
//! entry     0            CRC-32C of the volume's UUID, the epoch (8 bytes), the owner (8 bytes), the number
//!                        (8 bytes) and bytes 4..24
//!           4            a journal record of kind extent or extra (see `journal/record.rs`), zeros behind it
//! ```
//!
//! The daemon writes an entry first, and then the number behind the entry in one store. If a process dies
//! between two instructions, the entries up to that number are whole. A position and its checksum therefore
//! share one word. The log is rejected for another volume, another life of the machine and another opening. A
//! copy of the volume has the same UUID, and may have counted as many openings. The owner, a random number of
//! each opening (see `superblock.rs`), distinguishes such openings.
//!
//! A later layout has another digit at the end of its magic. The previous layout, "BRAIDPL1", is still read:
//! its bytes 104..128 are zeros, and its checksums include no owner.

use crate::checksum::checksum;
use crate::journal::{self, MOST_RECORD, MOST_RECORDS, Record};
use crate::{Invalid, Uuid, count};
use braid_base::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Start of the entries.
pub const HEAD: Bytes = Bytes(4096);
/// The length of an entry.
pub const ENTRY: Bytes = Bytes(24);
/// Used bytes of the head.
pub const HEAD_USED: usize = 128;

/// Offset of the epoch of the later opening that has read the log.
pub const READER: Bytes = Bytes(64);
/// Offset of the number of the first entry.
pub const FIRST: Bytes = Bytes(72);
/// Offset of the number behind the last entry.
pub const END: Bytes = Bytes(80);
/// Offset of the newest durable batch.
pub const NEWEST: Bytes = Bytes(88);
/// Offset of the loss.
pub const LOSS: Bytes = Bytes(96);
/// Offset of the owner of the later opening that has read the log.
pub const READER_OWNER: Bytes = Bytes(104);
/// Offset of the owner that the later opening has found in the superblock.
pub const FOUND_OWNER: Bytes = Bytes(112);

/// Entries for each change that may be pending: a batch in flight may hold as many again, and some changes
/// are in the log twice.
pub const PER_PENDING: u64 = 6;
/// The largest capacity, in entries: enough for the largest journal batch.
pub const MOST_ENTRIES: u64 = PER_PENDING * MOST_RECORDS as u64;
/// The length of the largest log.
pub const LARGEST: Bytes = Bytes(HEAD.0 + ENTRY.0 * MOST_ENTRIES);

/// The first eight bytes of a valid log.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDPL2");
/// The first eight bytes of a log without owners, from an older version.
pub const MAGIC_WITHOUT_OWNER: u64 = u64::from_le_bytes(*b"BRAIDPL1");
/// The byte of the magic that differs between layouts.
const DIGIT: u64 = 0xff << 56;

/// Exclusive bound of positions: reached after nine years at a million changes of the map a second.
pub const MOST_POSITION: u64 = 1 << POSITION_BITS;
/// Bits of a position's value. The remaining bits hold the checksum.
const POSITION_BITS: u32 = 48;

/// The range of the head's checksum.
const COVERED: std::ops::Range<usize> = 12..64;
/// Start of the record in an entry.
const RECORD: usize = 4;

/// The head of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The volume of the changes.
    pub volume: Uuid,
    /// The life of the machine.
    pub life: [u8; 16],
    /// The epoch of the opening that writes the log.
    pub epoch: u64,
    /// The random number of that opening; none in a log of an older version.
    pub owner: Option<u64>,
    /// The log's room, in entries.
    pub capacity: u64,
    /// The epoch of a later opening that has read the log. The reader may not have made all entries durable.
    pub reader: Option<u64>,
    /// The owner of the reader, and the owner that the reader has found in the superblock, in 48 bits.
    pub reader_owners: [u64; 2],
    /// The first entry that counts.
    pub first: u64,
    /// The number behind the last entry.
    pub end: u64,
    /// The newest durable journal batch.
    pub newest: u64,
    /// The loss of data on devices.
    pub loss: Loss,
}

/// A loss that affects the entries of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loss {
    /// No loss.
    #[default]
    None = 0,
    /// No loss of entries, but an earlier loss must still fail a guest's flush.
    Owed = 1,
    /// A flush failed: the data of the entries may be lost.
    Possible = 2,
    /// The log had no room for all changes.
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
    reader_owner: U64,
    found_owner: U64,
    owner: U64,
}

const _: () = assert!(size_of::<Raw>() == HEAD_USED);
const _: () = assert!(std::mem::offset_of!(Raw, zero) == COVERED.start);
const _: () = assert!(std::mem::offset_of!(Raw, reader) == READER.as_usize());
const _: () = assert!(std::mem::offset_of!(Raw, reader) == COVERED.end);
const _: () = assert!(std::mem::offset_of!(Raw, loss) == LOSS.as_usize());
const _: () = assert!(std::mem::offset_of!(Raw, reader_owner) == READER_OWNER.as_usize());
const _: () = assert!(std::mem::offset_of!(Raw, found_owner) == FOUND_OWNER.as_usize());
const _: () = assert!(RECORD + MOST_RECORD <= ENTRY.as_usize());

/// The length of a log with room for `capacity` entries.
pub fn len(capacity: u64) -> Bytes {
    HEAD + ENTRY * capacity
}

impl Head {
    /// The seal of the log's entries and positions.
    pub fn seal(&self) -> Seal {
        Seal::new(self.volume, self.epoch, self.owner)
    }

    /// True if the opening with this owner wrote the log, or has read the log later, or wrote the superblock
    /// that the reader found. A log of an older version has no owners and accepts every opening.
    pub fn knows(&self, owner: u64) -> bool {
        let is_reader = self.reader.is_some() && self.reader_owners.contains(&in_position(owner));
        self.owner.is_none_or(|own| own == owner) || is_reader
    }
}

/// The part of an owner that a position stores.
pub fn in_position(owner: u64) -> u64 {
    owner & (MOST_POSITION - 1)
}

/// Encodes a head. Its epoch and positions are below [`MOST_POSITION`].
pub fn encode_head(head: &Head) -> [u8; HEAD_USED] {
    let seal = head.seal();
    let [reader_owner, found_owner] = head.reader_owners;
    let of_reader = |at: Bytes, owner: u64| head.owner.map_or(0, |_| seal.position(at, in_position(owner)));
    let mut raw = Raw {
        magic: head.owner.map_or(MAGIC_WITHOUT_OWNER, |_| MAGIC).into(),
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
        reader_owner: of_reader(READER_OWNER, reader_owner).into(),
        found_owner: of_reader(FOUND_OWNER, found_owner).into(),
        owner: head.owner.unwrap_or(0).into(),
    };
    raw.crc = head_checksum(raw.as_bytes(), head.volume, head.owner).into();
    let mut bytes = [0; HEAD_USED];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

fn head_checksum(bytes: &[u8], volume: Uuid, owner: Option<u64>) -> u32 {
    with_owner(checksum(volume, &bytes[COVERED]), owner)
}

fn with_owner(crc: u32, owner: Option<u64>) -> u32 {
    owner.map_or(crc, |owner| crc32c::crc32c_append(crc, &owner.to_le_bytes()))
}

/// Verifies the head of a log of this length.
///
/// # Errors
/// `Absent` if there is no log, `Checksum` for a head or position that no daemon wrote, `Feature` for another
/// layout, `Value` for contradictory numbers.
pub fn decode_head(bytes: &[u8; HEAD_USED], len: Bytes) -> Result<Head, Invalid> {
    let raw = Raw::ref_from_bytes(bytes).map_err(|_| Invalid::Absent)?;
    let owner = match raw.magic.get() {
        MAGIC => Some(raw.owner.get()),
        MAGIC_WITHOUT_OWNER => None,
        0 => return Err(Invalid::Absent),
        other if other & !DIGIT == MAGIC & !DIGIT => {
            return Err(Invalid::Feature("the log has the format of another version of Braid".to_owned()));
        }
        _ => return Err(Invalid::Value("the file holds no pending log".to_owned())),
    };
    let is_as_old = owner.is_some() || bytes[READER_OWNER.as_usize()..].iter().all(|&byte| byte == 0);
    if !is_as_old || raw.crc.get() != head_checksum(bytes, raw.volume, owner) {
        return Err(Invalid::Checksum);
    }
    let seal = Seal::new(raw.volume, raw.epoch.get(), owner);
    let reader_owners = match owner {
        Some(_) => [
            seal.value(READER_OWNER, raw.reader_owner.get())?,
            seal.value(FOUND_OWNER, raw.found_owner.get())?,
        ],
        None => [0; 2],
    };
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
        owner,
        capacity,
        reader: Some(seal.value(READER, raw.reader.get())?).filter(|&epoch| epoch > 0),
        reader_owners,
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
    /// The seal of a volume's opening. `owner` is `None` in a layout without owners.
    pub fn new(volume: Uuid, epoch: u64, owner: Option<u64>) -> Seal {
        Seal(with_owner(checksum(volume, &epoch.to_le_bytes()), owner))
    }

    /// The word of a position at offset `at`. Values from [`MOST_POSITION`] on are stored as the largest
    /// value.
    #[inline]
    pub fn position(self, at: Bytes, value: u64) -> u64 {
        let value = value.min(MOST_POSITION - 1);
        let crc =
            crc32c::crc32c_append(crc32c::crc32c_append(self.0, &at.0.to_le_bytes()), &value.to_le_bytes());
        value | u64::from(crc) << POSITION_BITS
    }

    /// The value of a position at offset `at`.
    ///
    /// # Errors
    /// `Checksum` for a word that this opening did not write at `at`.
    pub fn value(self, at: Bytes, word: u64) -> Result<u64, Invalid> {
        let value = word & (MOST_POSITION - 1);
        if self.position(at, value) == word { Ok(value) } else { Err(Invalid::Checksum) }
    }

    /// Encodes an entry.
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
    /// `Checksum` for an entry that this opening did not write under `number`, `Value` for a record of a kind
    /// not allowed in a log.
    pub fn decode(self, number: u64, bytes: &[u8; ENTRY.as_usize()]) -> Result<Record, Invalid> {
        if bytes[..RECORD] != self.checksum(number, bytes).to_le_bytes() {
            return Err(Invalid::Checksum);
        }
        match journal::decode_record(&bytes[RECORD..])? {
            Some(record @ (Record::Extent(..) | Record::Extra(..))) => Ok(record),
            _ => Err(Invalid::Value(format!("entry {number} of a pending log names no extent and no block"))),
        }
    }

    fn checksum(self, number: u64, bytes: &[u8; ENTRY.as_usize()]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &number.to_le_bytes()), &bytes[RECORD..])
    }
}

/// The records of a log, in the order of the changes. `load` copies bytes from the log, and zeros from behind
/// its end.
///
/// # Errors
/// The number of the first damaged entry, and the reason. No entry counts then: an older change of an extent
/// must not hide a newer change.
pub fn records(head: &Head, load: impl Fn(Bytes, &mut [u8])) -> Result<Vec<Record>, (u64, Invalid)> {
    let seal = head.seal();
    let read = |number| {
        let mut bytes = [0; ENTRY.as_usize()];
        load(place(number, head.capacity), &mut bytes);
        seal.decode(number, &bytes).map_err(|invalid| (number, invalid))
    };
    (head.first..head.end).map(read).collect()
}

/// Offset of an entry in a log of this capacity.
#[inline]
pub fn place(number: u64, capacity: u64) -> Bytes {
    HEAD + ENTRY * (number % capacity)
}

#[cfg(test)]
mod tests;
