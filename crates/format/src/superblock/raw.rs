//! The bytes of a superblock: its fields as they lie on the device, and their conversion. The table of
//! offsets is in `superblock.rs`.

use super::device::RawDevice;
use super::given_up::GIVEN_UP;
use super::{
    COVERED, Features, Header, LONGEST_NAME, LONGEST_POLICY, MAGIC, MOST_TABLES, Superblock, TablePlace,
    VERSION, coded,
};
use crate::{Invalid, Uuid, text};
use braid_base::{Bytes, DeviceId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A superblock as bytes, not verified; only zeros follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Raw {
    pub(super) magic: [u8; 8],
    pub(super) crc: U32,
    version: U32,
    sequence: U64,
    epoch: U64,
    compat: U64,
    read_only_compat: U64,
    incompat: U64,
    volume: Uuid,
    volume_size: U64,
    extent_size: U32,
    block_size: U32,
    span_extents: U32,
    phase: u8,
    copies: u8,
    mapping: u8,
    table_count: u8,
    unused: U16,
    this_device: U16,
    device_count: U16,
    dirty_blocks: u8,
    given_up: u8,
    tables: [RawTable; MOST_TABLES],
    owner: U64,
    name: [u8; LONGEST_NAME + 1],
    policy: [u8; LONGEST_POLICY + 1],
    more_zeros: [u8; 32],
    device: RawDevice,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTable {
    device: U16,
    zero: [u8; 6],
    offset: U64,
    len: U64,
}

const _: () = assert!(size_of::<Raw>() == 1408);
const _: () = assert!(std::mem::offset_of!(Raw, version) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, volume) == 56);
const _: () = assert!(std::mem::offset_of!(Raw, phase) == 92);
const _: () = assert!(std::mem::offset_of!(Raw, given_up) == GIVEN_UP);
const _: () = assert!(std::mem::offset_of!(Raw, tables) == 104);
const _: () = assert!(std::mem::offset_of!(Raw, owner) == 152);
const _: () = assert!(std::mem::offset_of!(Raw, name) == 160);
const _: () = assert!(std::mem::offset_of!(Raw, policy) == 224);
const _: () = assert!(std::mem::offset_of!(Raw, device) == 1280);

impl Raw {
    /// Encodes all fields except the checksum.
    pub(super) fn encode(superblock: &Superblock, device: DeviceId) -> Raw {
        Raw {
            magic: MAGIC,
            crc: U32::ZERO,
            version: VERSION.into(),
            sequence: superblock.sequence.into(),
            epoch: superblock.epoch.into(),
            compat: superblock.features.compat.into(),
            read_only_compat: superblock.features.read_only_compat.into(),
            incompat: superblock.features.incompat.into(),
            volume: superblock.volume,
            volume_size: superblock.volume_size.0.into(),
            extent_size: (superblock.extent_size.0 as u32).into(),
            block_size: (superblock.block_size.0 as u32).into(),
            span_extents: superblock.span_extents.into(),
            phase: superblock.phase as u8,
            copies: superblock.copies,
            mapping: superblock.mapping() as u8,
            table_count: superblock.tables.len() as u8,
            unused: U16::ZERO,
            this_device: device.0.into(),
            device_count: (superblock.devices.len() as u16).into(),
            dirty_blocks: superblock.dirty_blocks as u8,
            given_up: 0,
            tables: RawTable::encode(&superblock.tables),
            owner: superblock.owner.into(),
            name: text::encode(&superblock.name),
            policy: text::encode(&superblock.policy),
            more_zeros: [0; 32],
            device: RawDevice::encode(&superblock.devices[device.index()]),
        }
    }

    pub(super) fn verify_version(&self) -> Result<(), Invalid> {
        let (version, read_only, incompat) =
            (self.version.get(), self.read_only_compat.get(), self.incompat.get());
        if version < VERSION {
            return Err(Invalid::Feature(format!(
                "the volume has format {version}, and this version of Braid no longer reads it: create the \
                 volume again"
            )));
        }
        if version > VERSION || read_only != 0 || incompat & !Features::INCOMPAT != 0 {
            return Err(Invalid::Feature(format!(
                "the volume was made by a newer version of Braid (format {version}, features {read_only:#x} \
                 to write, {incompat:#x} to read; this version knows format {VERSION} with features 0x0 and \
                 {:#x}): use that version or a newer one",
                Features::INCOMPAT
            )));
        }
        Ok(())
    }

    pub(super) fn decode(&self) -> Result<Header, Invalid> {
        let table_count = usize::from(self.table_count);
        if table_count > MOST_TABLES {
            return Err(Invalid::Value(format!("{table_count} device tables, {MOST_TABLES} at most")));
        }
        Ok(Header {
            sequence: self.sequence.get(),
            epoch: self.epoch.get(),
            phase: coded(self.phase, "phase")?,
            features: Features {
                compat: self.compat.get(),
                read_only_compat: self.read_only_compat.get(),
                incompat: self.incompat.get(),
            },
            volume: self.volume,
            name: text::decode(&self.name, "name of the volume")?,
            volume_size: Bytes(self.volume_size.get()),
            extent_size: Bytes(u64::from(self.extent_size.get())),
            block_size: Bytes(u64::from(self.block_size.get())),
            span_extents: self.span_extents.get(),
            copies: self.copies,
            mapping: coded(self.mapping, "mapping")?,
            policy: text::decode(&self.policy, "policy")?,
            dirty_blocks: coded(self.dirty_blocks, "state of dirty blocks")?,
            tables: self.tables[..table_count].iter().map(RawTable::decode).collect(),
            owner: self.owner.get(),
            given_up: match self.given_up {
                0 => false,
                1 => true,
                other => {
                    return Err(Invalid::Value(format!(
                        "the mark of a given-up device is {other}, not 0 or 1"
                    )));
                }
            },
            this_device: DeviceId(self.this_device.get()),
            device: self.device.decode()?,
            device_count: self.device_count.get(),
        })
    }
}

impl RawTable {
    fn encode(tables: &[TablePlace]) -> [RawTable; MOST_TABLES] {
        assert!(tables.len() <= MOST_TABLES, "a superblock names {MOST_TABLES} device tables");
        let mut raw = [RawTable::new_zeroed(); MOST_TABLES];
        for (raw, table) in raw.iter_mut().zip(tables) {
            raw.device = table.device.0.into();
            raw.offset = table.offset.0.into();
            raw.len = table.len.0.into();
        }
        raw
    }

    fn decode(&self) -> TablePlace {
        TablePlace {
            device: DeviceId(self.device.get()),
            offset: Bytes(self.offset.get()),
            len: Bytes(self.len.get()),
        }
    }
}
