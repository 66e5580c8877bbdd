//! The pending log: changes of the map that no journal batch says yet, in memory that outlives the daemon. It
//! lies on no device.
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
//! The daemon writes an entry first, and then the number behind it in one store. A process that dies between
//! two instructions leaves the entries up to that number whole. So a position and its checksum are one word.
//! The log says nothing to another volume, another life of the machine or another opening. A copy of the
//! volume has the same UUID, and may have counted as many openings: the owner, a random number of each
//! opening (see `superblock.rs`), tells the openings apart.
//!
//! A later layout has another digit at the end of its magic. The layout before this one, "BRAIDPL1", is still
//! read: bytes 104..128 are zeros there, and no checksum includes an owner.

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
pub const HEAD_USED: usize = 128;

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
/// Where the owner of the later opening lies that has read the log.
pub const READER_OWNER: Bytes = Bytes(104);
/// Where the owner lies that the later opening has found in the superblock.
pub const FOUND_OWNER: Bytes = Bytes(112);

/// Entries for each change that may be pending: a batch may be under way with as many again, and some changes
/// are there twice.
pub const PER_PENDING: u64 = 6;
/// The largest capacity, in entries: that of the largest journal batch.
pub const MOST_ENTRIES: u64 = PER_PENDING * MOST_RECORDS as u64;
/// The length of the largest log.
pub const LARGEST: Bytes = Bytes(HEAD.0 + ENTRY.0 * MOST_ENTRIES);

/// The first eight bytes of a log that counts.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDPL2");
/// The first eight bytes of a log without owners, of an older version.
pub const MAGIC_WITHOUT_OWNER: u64 = u64::from_le_bytes(*b"BRAIDPL1");
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
    /// The random number of that opening; none in a log of an older version.
    pub owner: Option<u64>,
    /// Entries that it has room for.
    pub capacity: u64,
    /// A later opening that has read it, and may not have made all of it durable.
    pub reader: Option<u64>,
    /// The owners of that later opening and of the superblock that the later opening has found, in 48 bits.
    pub reader_owners: [u64; 2],
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

/// The length of a log with room for so many entries.
pub fn len(capacity: u64) -> Bytes {
    HEAD + ENTRY * capacity
}

impl Head {
    /// What seals the log's entries and positions.
    pub fn seal(&self) -> Seal {
        Seal::new(self.volume, self.epoch, self.owner)
    }

    /// Whether the opening with this owner wrote the log, or has read the log after that, or is the opening
    /// whose superblock the reader found. A log of an older version does not know, and takes each opening for
    /// one of these.
    pub fn knows(&self, owner: u64) -> bool {
        let is_reader = self.reader.is_some() && self.reader_owners.contains(&in_position(owner));
        self.owner.is_none_or(|own| own == owner) || is_reader
    }
}

/// An owner as a position has it.
pub fn in_position(owner: u64) -> u64 {
    owner & (MOST_POSITION - 1)
}

/// The bytes of a head. Its epoch and positions are below [`MOST_POSITION`].
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
/// layout, `Value` for numbers that contradict each other.
pub fn decode_head(bytes: &[u8; HEAD_USED], len: Bytes) -> Result<Head, Invalid> {
    let raw = Raw::ref_from_bytes(bytes).map_err(|_| Invalid::Absent)?;
    let owner = match raw.magic.get() {
        MAGIC => Some(raw.owner.get()),
        MAGIC_WITHOUT_OWNER => None,
        0 => return Err(Invalid::Absent),
        other if other & !DIGIT == MAGIC & !DIGIT => {
            return Err(Invalid::Feature("another version of Braid wrote it".to_owned()));
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
    /// The seal of a volume's opening, with the owner of the opening unless the layout has none.
    pub fn new(volume: Uuid, epoch: u64, owner: Option<u64>) -> Seal {
        Seal(with_owner(checksum(volume, &epoch.to_le_bytes()), owner))
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
/// The number of the first entry that is damaged, and why. Then none counts: an older change of an extent
/// must not hide a newer one.
pub fn records(head: &Head, load: impl Fn(Bytes, &mut [u8])) -> Result<Vec<Record>, (u64, Invalid)> {
    let seal = head.seal();
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
mod tests;
