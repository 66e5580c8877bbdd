//! The superblock: the volume of a device, the device's id in the volume, and the places of the device table.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDVOL"
//! 8       4     CRC-32C of bytes 12..8192
//! 12      4     format version: 2
//! 16      8     sequence: one more at each change, 65,537 if several hosts reach a device
//! 24      8     epoch: one more at each opening
//! 32      8     features that an older version may ignore (compat)
//! 40      8     features that an older version may read but not write (read-only compat)
//! 48      8     features that an older version must not touch (incompat)
//! 56      16    volume UUID
//! 72      8     volume size in bytes
//! 80      4     extent size in bytes
//! 84      4     block size in bytes
//! 88      4     extents of a span
//! 92      1     phase: 1 closed, 2 opening, 3 open, 4 closing
//! 93      1     required copies: 1 or 2
//! 94      1     mapping: 1 an entry for each extent, 2 each extent at its own address on the adopted disk
//! 95      1     copies of the device table: 1 or 2
//! 96      2     0
//! 98      2     this device's id
//! 100     2     devices of the volume
//! 102     1     dirty blocks: 0 not known, 1 none, 2 some are possible
//! 103     1     1 if the other devices went on without this one, 0 otherwise
//! 104     48    copies of the device table: device (2), 0 (6), offset (8), length (8) each
//! 152     8     owner: a random number of the opening that wrote this; 0 from an older version
//! 160     64    name, UTF-8, zero-padded
//! 224     1024  policy and its settings, UTF-8, zero-padded
//! 1248    32    0
//! 1280    128   this device's own entry (see `device.rs`)
//! 1408    6784  0
//! ```
//!
//! There are three copies on each device; the valid copy with the highest sequence counts. Each change writes
//! all copies on all devices, one copy after the other with a flush between, so a power cut leaves one copy
//! whole. Between changes, renewals of a lease write the first copy with lower sequences.

mod device;
mod given_up;
mod map;
mod raw;
mod region;
mod table;
mod verify;

pub(crate) use device::DEVICE_ENTRY;
pub use device::{DeviceEntry, DeviceState, LONGEST_MODEL, Layout, Role};
pub(crate) use region::REGION_ENTRY;
pub use region::{Region, RegionKind};
pub use table::DeviceTable;
pub(crate) use table::TABLE_HEADER;

use crate::layout::{MOST_DEVICES, MOST_SPANS};
use crate::map_page::Entry;
use crate::{Invalid, SpanId, Uuid, count};
use braid_base::{Bytes, DeviceId, ExtentId};
use raw::Raw;
use std::fmt;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, TryFromBytes, Unaligned};

/// The length of a superblock.
pub const SIZE: Bytes = Bytes(8192);
/// The longest name of a volume, in bytes.
pub const LONGEST_NAME: usize = 63;
/// The longest policy with settings, in bytes.
pub const LONGEST_POLICY: usize = 1023;
/// The most copies of the device table.
pub const MOST_TABLES: usize = 2;

const MAGIC: [u8; 8] = *b"BRAIDVOL";
const VERSION: u32 = 2;
/// Start of the checksum's range.
const COVERED: usize = 12;

/// The whole volume: superblock and device table together, verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// One more at each change.
    pub sequence: u64,
    /// One more at each opening. If the newest phase is `Opening`, the next opening reuses the epoch.
    pub epoch: u64,
    /// The progress of opening or closing.
    pub phase: Phase,
    /// Features that an older version must know.
    pub features: Features,
    /// The volume's identity.
    pub volume: Uuid,
    /// The volume's name.
    pub name: String,
    /// The size for guests.
    pub volume_size: Bytes,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Extents of a span, a power of two.
    pub span_extents: u32,
    /// Required copies of each extent: 1 or 2.
    pub copies: u8,
    /// The policy and its settings, as `name,key=value,…`.
    pub policy: String,
    /// Whether a block slot may hold data newer than the home.
    pub dirty_blocks: DirtyBlocks,
    /// The places of the device table: on one or two devices.
    pub tables: Vec<TablePlace>,
    /// A random number of the opening: two concurrent openings may have one epoch. 0 from an older version.
    pub owner: u64,
    /// All devices, by id.
    pub devices: Vec<DeviceEntry>,
    /// All regions.
    pub regions: Vec<Region>,
}

/// The superblock of one device, without the device table. Fields shared with [`Superblock`] mean the same.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the shared fields are described in Superblock")]
pub struct Header {
    pub sequence: u64,
    pub epoch: u64,
    pub phase: Phase,
    pub features: Features,
    pub volume: Uuid,
    pub name: String,
    pub volume_size: Bytes,
    pub extent_size: Bytes,
    pub block_size: Bytes,
    pub span_extents: u32,
    pub copies: u8,
    /// How the volume finds homes.
    pub mapping: Mapping,
    pub policy: String,
    pub dirty_blocks: DirtyBlocks,
    pub tables: Vec<TablePlace>,
    pub owner: u64,
    /// True if the volume continues without this device. The device itself still accepted the mark.
    pub given_up: bool,
    /// The device of this superblock.
    pub this_device: DeviceId,
    /// The entry of the device.
    pub device: DeviceEntry,
    /// Devices of the volume.
    pub device_count: u16,
}

/// Whether a block slot may hold dirty data: the cost of losing an SSD, beside the homes on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(u8)]
pub enum DirtyBlocks {
    /// Unknown: an older version wrote the superblock.
    Unknown = 0,
    /// No block slot holds dirty data.
    None = 1,
    /// Any block slot may hold dirty data. Durable before the first block slot becomes dirty.
    Possible = 2,
}

/// How the volume finds the home of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(u8)]
pub enum Mapping {
    /// The map has an entry for each extent.
    Dense = 1,
    /// No map: each extent lies at its own address on the adopted disk, valid from the start.
    OwnAddress = 2,
}

/// The progress of opening or closing. Data is written only in `Open`, after all devices record the phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(u8)]
pub enum Phase {
    /// Clean shutdown.
    Closed = 1,
    /// An opening is in progress; nothing else was written since the last phase.
    Opening = 2,
    /// In use, or ended without a shutdown.
    Open = 3,
    /// A shutdown is in progress; everything else is durable.
    Closing = 4,
}

/// Features of the format, as bits. A bit without a name here comes from a newer version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// An older version may ignore these features.
    pub compat: u64,
    /// An older version may read the volume, but not write.
    pub read_only_compat: u64,
    /// An older version must not touch the volume.
    pub incompat: u64,
}

impl Features {
    /// Incompat: the journal records when a clean extra copy comes and goes, and records a span as differing
    /// before a write makes copies differ. An older version would do neither.
    pub const CLEAN_EXTRAS: u64 = 1;
    /// Incompat: a device of the table may be removed from the volume, or not yet added. An older version
    /// would report the device as damage.
    pub const REMOVED_DEVICES: u64 = 2;
    /// Incompat: the volume is a disk that kept epochs, and its journal is not fully applied. An older
    /// version would miss changes in the journal, or apply them over later writes of guests.
    pub const UNAPPLIED: u64 = 4;
    /// Incompat: a region may be void. An older version would trust the content of the region.
    pub const VOID_REGIONS: u64 = 8;
    /// Incompat: some homes have a mark, because their invalid parts are lost. An older version would read
    /// the mark as part of a slot number.
    pub const PARTLY_LOST: u64 = 16;
    /// Incompat: a summary behind each image of the map names the pages that were ever written. An older
    /// version would report the other pages as damage.
    pub const MAP_SUMMARY: u64 = 32;
    /// Incompat: the volume was shut down cleanly, but copies differ in spans that the journal calls dirty.
    /// An older version would treat the copies as equal.
    pub const UNDECIDED: u64 = 64;
    /// All incompat features that this version knows.
    pub(crate) const INCOMPAT: u64 = Features::CLEAN_EXTRAS
        | Features::REMOVED_DEVICES
        | Features::UNAPPLIED
        | Features::VOID_REGIONS
        | Features::PARTLY_LOST
        | Features::MAP_SUMMARY
        | Features::UNDECIDED;
}

/// The place of a copy of the device table: two halves of `len / 2`; `sequence % 2` names the current half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablePlace {
    /// The device.
    pub device: DeviceId,
    /// Start of the first half.
    pub offset: Bytes,
    /// The length of both halves.
    pub len: Bytes,
}

impl TablePlace {
    /// Start of the half of superblock `sequence`.
    pub fn half(&self, sequence: u64) -> Bytes {
        self.offset + self.len / 2 * (sequence % 2)
    }
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {} at {}, {} long", self.device, self.offset, self.len)
    }
}

impl Superblock {
    /// Encodes the superblock of one of the devices, `SIZE` long.
    ///
    /// # Panics
    /// If the device does not exist, or a text or list is longer than its room: creation checks the lengths.
    pub fn encode(&self, device: DeviceId) -> Vec<u8> {
        let mut bytes = vec![0; SIZE.as_usize()];
        bytes[..size_of::<Raw>()].copy_from_slice(Raw::encode(self, device).as_bytes());
        let crc = crc32c::crc32c(&bytes[COVERED..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Encodes the device table, in whole pages. [`TablePlace::half`] of `sequence` is its place.
    ///
    /// # Panics
    /// If there are more devices or regions than a table holds: creation checks the counts.
    pub fn encode_table(&self) -> Vec<u8> {
        table::encode(self.volume, self.sequence, self.epoch, &self.devices, &self.regions)
    }

    /// A copy of a region that counts; of several on different devices (cache tables), the first.
    pub fn region(&self, kind: RegionKind, copy: u8) -> Option<&Region> {
        self.regions.iter().find(|region| region.is(kind, copy))
    }

    /// True if the volume has a structure, even if the structure's first copy is void.
    pub fn has(&self, kind: RegionKind) -> bool {
        self.regions.iter().any(|region| region.kind == kind)
    }

    /// The first journal that counts.
    pub fn journal(&self) -> Option<&Region> {
        self.region(RegionKind::Journal, 0).or_else(|| self.region(RegionKind::Journal, 1))
    }

    /// Void copies of regions that were not yet reproduced elsewhere.
    pub fn void_regions(&self) -> impl Iterator<Item = &Region> {
        let is_anew = |void: &Region| {
            let is_same = |region: &&Region| region.is(void.kind, void.copy);
            self.regions
                .iter()
                .filter(is_same)
                .any(|region| region.kind != RegionKind::CacheTable || region.device == void.device)
        };
        self.regions.iter().filter(move |region| region.void && !is_anew(region))
    }

    /// The bytes of a device that regions take.
    pub fn regions_on(&self, device: DeviceId) -> impl Iterator<Item = Range<Bytes>> {
        let regions = self.regions.iter().filter(move |region| region.device == device);
        regions.map(|region| region.offset..region.offset + region.len)
    }

    /// Extents of the volume.
    pub fn extents(&self) -> u32 {
        extents(self.volume_size, self.extent_size)
    }

    /// Interprets a decoded map entry for this volume: the top bit of the home is a mark only with the
    /// feature *partly lost*.
    pub fn interpret(&self, entry: Entry) -> Entry {
        if self.features.incompat & Features::PARTLY_LOST != 0 { entry.unmarked() } else { entry }
    }

    /// Spans of the volume.
    pub fn spans(&self) -> u32 {
        self.extents().div_ceil(self.span_extents)
    }

    /// The disk that is the volume byte for byte, if the volume has adopted one.
    pub fn adopted(&self) -> Option<DeviceId> {
        let mut devices = (0..).map(DeviceId).zip(&self.devices);
        devices.find(|(_, device)| device.layout == Layout::Adopted).map(|(id, _)| id)
    }

    /// How the volume finds homes.
    pub fn mapping(&self) -> Mapping {
        if self.adopted().is_some() { Mapping::OwnAddress } else { Mapping::Dense }
    }

    /// The span of an extent.
    pub fn span(&self, extent: ExtentId) -> SpanId {
        SpanId(extent.0 / self.span_extents)
    }

    /// Verifies all rules of a whole volume. Creation verifies a new superblock before the first write.
    pub fn verify(&self) -> Result<(), Invalid> {
        let count = u16::try_from(self.devices.len()).unwrap_or(u16::MAX);
        verify_sizes(self.volume_size, self.extent_size, self.block_size, self.span_extents, self.copies)?;
        verify_counts(count, &self.tables)?;
        verify_age(self.sequence, self.epoch)?;
        verify::verify(self)
    }
}

impl Header {
    /// Verifies `bytes`, which are `SIZE` long, as far as possible without the device table.
    pub fn decode(bytes: &[u8]) -> Result<Header, Invalid> {
        assert_eq!(bytes.len(), SIZE.as_usize(), "a superblock has one size");
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| Invalid::Absent)?;
        if raw.magic != MAGIC {
            return Err(Invalid::Absent);
        }
        if raw.crc.get() != crc32c::crc32c(&bytes[COVERED..]) {
            return Err(Invalid::Checksum);
        }
        raw.verify_version()?;
        let header = raw.decode()?;
        header.verify()?;
        Ok(header)
    }

    /// True if a table has this device at its id and as many devices (a later table may have one more).
    pub fn agrees_with(&self, table: &DeviceTable) -> bool {
        let own = table.devices.get(self.this_device.index());
        table.devices.len() == usize::from(self.device_count)
            && own.is_some_and(|own| own.uuid == self.device.uuid)
    }

    /// The whole volume, verified. The caller decides whether the table belongs to this epoch.
    pub fn with_table(self, table: DeviceTable) -> Result<Superblock, Invalid> {
        if !self.agrees_with(&table) {
            return Err(Invalid::Value(format!(
                "the device table has {} devices, and device {} is another: the superblock says {} and {}",
                table.devices.len(),
                self.this_device,
                self.device_count,
                self.device.uuid
            )));
        }
        let superblock = Superblock {
            sequence: self.sequence,
            epoch: self.epoch,
            phase: self.phase,
            features: self.features,
            volume: self.volume,
            name: self.name,
            volume_size: self.volume_size,
            extent_size: self.extent_size,
            block_size: self.block_size,
            span_extents: self.span_extents,
            copies: self.copies,
            policy: self.policy,
            dirty_blocks: self.dirty_blocks,
            tables: self.tables,
            owner: self.owner,
            devices: table.devices,
            regions: table.regions,
        };
        if superblock.mapping() != self.mapping {
            return Err(Invalid::Value(format!(
                "the superblock has the mapping {:?}, and the device table {:?}",
                self.mapping,
                superblock.mapping()
            )));
        }
        superblock.verify()?;
        Ok(superblock)
    }

    fn verify(&self) -> Result<(), Invalid> {
        verify_sizes(self.volume_size, self.extent_size, self.block_size, self.span_extents, self.copies)?;
        verify_counts(self.device_count, &self.tables)?;
        verify_age(self.sequence, self.epoch)?;
        if self.this_device.0 >= self.device_count {
            return Err(Invalid::Value(format!(
                "this device is {} of {} devices",
                self.this_device, self.device_count
            )));
        }
        self.tables.iter().try_for_each(verify::verify_table_place)?;
        verify::verify_device(&self.device, self.extent_size)
    }
}

/// Checks the three basic sizes: at creation, and in a superblock from a device. An error is a sentence with
/// the limit.
pub fn check_sizes(volume_size: Bytes, extent_size: Bytes, block_size: Bytes) -> Result<(), String> {
    let power_within =
        |size: Bytes, low: u64, high: u64| size.0.is_power_of_two() && (low..=high).contains(&size.0);
    if !power_within(extent_size, 4 << 10, 64 << 20) {
        return Err(format!("the extent size is {extent_size}: use a power of two from 4 KiB to 64 MiB"));
    }
    if !power_within(block_size, 4 << 10, 64 << 10) || block_size > extent_size {
        return Err(format!(
            "the block size is {block_size}: use a power of two from 4 KiB to 64 KiB, at most the extent size"
        ));
    }
    if volume_size == Bytes::ZERO || volume_size.0.div_ceil(extent_size.0) > u64::from(u32::MAX) / 2 {
        return Err(format!(
            "the volume size is {volume_size}: use 1 to {} extents of {extent_size}, or larger extents",
            u32::MAX / 2
        ));
    }
    Ok(())
}

fn verify_sizes(
    volume_size: Bytes,
    extent_size: Bytes,
    block_size: Bytes,
    span_extents: u32,
    copies: u8,
) -> Result<(), Invalid> {
    check_sizes(volume_size, extent_size, block_size).map_err(Invalid::Value)?;
    if !matches!(copies, 1 | 2) {
        return Err(Invalid::Value(format!("the volume requires {copies} copies, not 1 or 2")));
    }
    let extents = extents(volume_size, extent_size);
    if !span_extents.is_power_of_two() || extents.div_ceil(span_extents) > MOST_SPANS {
        return Err(Invalid::Value(format!(
            "a span has {span_extents} of {extents} extents: not a power of two, or more than {MOST_SPANS} spans"
        )));
    }
    Ok(())
}

fn verify_counts(devices: u16, tables: &[TablePlace]) -> Result<(), Invalid> {
    if !(1..=MOST_DEVICES).contains(&usize::from(devices)) {
        return Err(Invalid::Value(format!("the volume has {devices} devices, not 1 to {MOST_DEVICES}")));
    }
    if !(1..=MOST_TABLES).contains(&tables.len()) || tables.iter().any(|table| table.device.0 >= devices) {
        return Err(Invalid::Value(format!(
            "the device table has {} places among {devices} devices",
            tables.len()
        )));
    }
    Ok(())
}

fn verify_age(sequence: u64, epoch: u64) -> Result<(), Invalid> {
    count::verify(sequence, "the superblock's sequence")?;
    count::verify(epoch, "the superblock's epoch")?;
    match epoch {
        0 => Err(Invalid::Value("the superblock's epoch is 0: the first one is 1".to_owned())),
        _ => Ok(()),
    }
}

fn extents(volume_size: Bytes, extent_size: Bytes) -> u32 {
    volume_size.0.div_ceil(extent_size.0) as u32
}

/// The enum value of `code`. `what` names the field in the error.
fn coded<T: TryFromBytes>(code: u8, what: &str) -> Result<T, Invalid> {
    T::try_read_from_bytes(&[code]).map_err(|_| Invalid::Value(format!("{what} {code} is unknown")))
}

#[cfg(test)]
mod tests;
