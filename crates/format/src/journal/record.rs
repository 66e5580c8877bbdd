//! A record of a journal batch: one change, with its length in front.
//!
//! ```text
//! offset  size  field
//! 0       1     kind
//! 1       1     flags; bit 0: a reader that does not know the kind may skip the record
//! 2       2     length of the record, these four bytes included
//!
//! kind 1  extent    4  4  extent     8  2  valid parts  10  4  home  14  4  second copy, only if there is one
//!                   (home as in a map page, see `map_page.rs`)
//! kind 2  extra     4  8  block      12 1  0 gone, 1 clean, 2 dirty
//!                   13 4  slot       17 2  place within the slot, in blocks; both only if not gone
//! kind 3  intent    4  4  span       8  1  0 clean, 1 dirty, 2 behind (see `intent_page.rs`)
//! kind 4  device    4  2  device     6  1  state        7   8  last epoch in step
//! kind 5  epoch     4  8  epoch of the opening that begins
//! ```
//!
//! A record states the complete new value. Replaying a record twice, or over a newer map page, does not
//! change the final state.

use crate::intent_page::Difference;
use crate::map_page::Entry;
use crate::superblock::DeviceState;
use crate::{Invalid, SlotNumber, SpanId};
use braid_base::{BlockId, DeviceId, ExtentId};
use zerocopy::TryFromBytes;

/// The length of the longest record, in bytes.
pub const MOST_RECORD: usize = PREFIX + 8 + 1 + 4 + 2;

const PREFIX: usize = 4;
const EXTENT: u8 = 1;
const EXTRA: u8 = 2;
const INTENT: u8 = 3;
const DEVICE: u8 = 4;
const EPOCH: u8 = 5;
/// Flag: a reader that does not know the kind may skip the record.
const MAY_SKIP: u8 = 1;

/// One change of the durable state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The new required copies of an extent.
    Extent(ExtentId, Entry),
    /// The new extra copy of a block; `None`: gone.
    Extra(BlockId, Option<Extra>),
    /// The new difference between the copies of a span.
    Intent(SpanId, Difference),
    /// The new state of a device, and the last epoch in which the device was in step.
    Device(DeviceId, DeviceState, u64),
    /// The epoch of the opening that begins. Replay ignores the record.
    Epoch(u64),
}

/// An extra copy of a block on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extra {
    /// The extent slot that contains the block slot.
    pub slot: SlotNumber,
    /// The place of the block in the slot, in blocks.
    pub place: u16,
    /// True if the extra copy is newer than every required copy.
    pub dirty: bool,
}

impl Record {
    /// Writes the record to the start of `bytes`. Returns its length.
    pub(super) fn encode(&self, bytes: &mut [u8]) -> usize {
        let mut writer = Writer { bytes, at: PREFIX };
        let kind = match self {
            Record::Extent(extent, entry) => {
                writer.put(&extent.0.to_le_bytes());
                writer.put(&entry.valid.to_le_bytes());
                writer.put(&entry.marked_home().to_le_bytes());
                if entry.second != SlotNumber::NONE {
                    writer.put(&entry.second.0.to_le_bytes());
                }
                EXTENT
            }
            Record::Extra(block, extra) => {
                writer.put(&block.0.to_le_bytes());
                writer.put(&[extra.map_or(0, |extra| 1 + u8::from(extra.dirty))]);
                if let Some(extra) = extra {
                    writer.put(&extra.slot.0.to_le_bytes());
                    writer.put(&extra.place.to_le_bytes());
                }
                EXTRA
            }
            Record::Intent(span, difference) => {
                writer.put(&span.0.to_le_bytes());
                writer.put(&[*difference as u8]);
                INTENT
            }
            Record::Device(device, state, in_step) => {
                writer.put(&device.0.to_le_bytes());
                writer.put(&[*state as u8]);
                writer.put(&in_step.to_le_bytes());
                DEVICE
            }
            Record::Epoch(epoch) => {
                writer.put(&epoch.to_le_bytes());
                EPOCH
            }
        };
        writer.finish(kind)
    }
}

/// The record at the start of `bytes` and its length; no record if the kind is unknown and skippable.
pub(super) fn decode(bytes: &[u8]) -> Result<(usize, Option<Record>), Invalid> {
    let torn = || Invalid::Value("a journal record is longer than its batch".to_owned());
    let &[kind, flags, low, high, ..] = bytes else { return Err(torn()) };
    let len = usize::from(u16::from_le_bytes([low, high]));
    let payload = bytes.get(PREFIX..len).ok_or_else(torn)?;
    if flags & !MAY_SKIP != 0 || (!(EXTENT..=EPOCH).contains(&kind) && flags == 0) {
        return Err(Invalid::Feature(format!(
            "the journal has a record of kind {kind} with flags {flags:#x}, unknown to this version: use a \
             newer version"
        )));
    }
    if !(EXTENT..=EPOCH).contains(&kind) {
        return Ok((len, None));
    }
    let mut reader = Reader(payload);
    let record = reader.record(kind).filter(|_| reader.0.is_empty());
    let record = record.ok_or_else(|| {
        Invalid::Value(format!("a journal record of kind {kind} has {len} bytes or an invalid value"))
    })?;
    Ok((len, Some(record)))
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, value: &[u8]) {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }

    fn finish(self, kind: u8) -> usize {
        self.bytes[..2].copy_from_slice(&[kind, 0]);
        self.bytes[2..PREFIX].copy_from_slice(&(self.at as u16).to_le_bytes());
        self.at
    }
}

/// Takes fields from the front. Returns `None` once the bytes are too short.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn record(&mut self, kind: u8) -> Option<Record> {
        Some(match kind {
            EXTENT => {
                let extent = ExtentId(self.u32()?);
                let (valid, home) = (self.u16()?, SlotNumber(self.u32()?));
                let second = if self.0.is_empty() { SlotNumber::NONE } else { SlotNumber(self.u32()?) };
                let entry = Entry { home, valid, second, partly_lost: false };
                entry.verify().ok()?;
                Record::Extent(extent, entry)
            }
            EXTRA => {
                let block = BlockId(self.u64()?);
                let state = self.u8().filter(|state| *state <= 2)?;
                let extra = match state {
                    0 => None,
                    _ => Some(Extra { slot: SlotNumber(self.u32()?), place: self.u16()?, dirty: state == 2 }),
                };
                Record::Extra(block, extra)
            }
            INTENT => Record::Intent(SpanId(self.u32()?), Difference::from_code(self.u8()?)?),
            DEVICE => {
                let (device, state) = (DeviceId(self.u16()?), self.u8()?);
                Record::Device(device, DeviceState::try_read_from_bytes(&[state]).ok()?, self.u64()?)
            }
            EPOCH => Record::Epoch(self.u64()?),
            _ => return None,
        })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
