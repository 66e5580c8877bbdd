//! The device table: all devices and regions of the volume, on its metadata devices. All superblocks name the
//! places of the table.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDTBL"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..length
//! 12      4     length: header and entries, without the padding to 4 KiB
//! 16      8     sequence of the superblock that it belongs to
//! 24      8     epoch of the opening that wrote it
//! 32      2     devices
//! 34      2     regions
//! 36      12    0
//! 48      …     devices, 128 bytes each (see `device.rs`), then regions, 32 bytes each (see `region.rs`)
//! ```
//!
//! The table has two halves, written alternately by the parity of the sequence, each before the superblocks
//! that refer to the half.

use super::device::{DEVICE_ENTRY, DeviceEntry, RawDevice};
use super::region::{REGION_ENTRY, RawRegion, Region};
use crate::checksum::checksum;
use crate::layout::{MOST_DEVICES, most_regions};
use crate::{Invalid, Uuid, count};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of the table before its entries, in bytes.
pub(crate) const TABLE_HEADER: usize = 48;

const MAGIC: [u8; 8] = *b"BRAIDTBL";
/// Start of the checksum's range.
const COVERED: usize = 12;
const PAGE: usize = 4096;

/// All devices and regions of a volume. Decoding verifies checksum and counts; places are verified only
/// together with a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceTable {
    /// The sequence of the matching superblock.
    pub sequence: u64,
    /// The epoch of the opening that wrote the table.
    pub epoch: u64,
    /// All devices, by id.
    pub devices: Vec<DeviceEntry>,
    /// All regions.
    pub regions: Vec<Region>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    len: U32,
    sequence: U64,
    epoch: U64,
    devices: U16,
    regions: U16,
    zero: [u8; 12],
}

const _: () = assert!(size_of::<Raw>() == TABLE_HEADER);
const _: () = assert!(std::mem::offset_of!(Raw, len) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, devices) == 32);

/// The length of a table, without padding.
pub(super) fn table_len(devices: usize, regions: usize) -> usize {
    TABLE_HEADER + devices * DEVICE_ENTRY + regions * REGION_ENTRY
}

pub(super) fn encode(
    volume: Uuid,
    sequence: u64,
    epoch: u64,
    devices: &[DeviceEntry],
    regions: &[Region],
) -> Vec<u8> {
    assert!(devices.len() <= MOST_DEVICES && regions.len() <= most_regions(devices.len()));
    let len = table_len(devices.len(), regions.len());
    let mut raw = Raw {
        magic: MAGIC,
        crc: U32::ZERO,
        len: (len as u32).into(),
        sequence: sequence.into(),
        epoch: epoch.into(),
        devices: (devices.len() as u16).into(),
        regions: (regions.len() as u16).into(),
        zero: [0; 12],
    };
    let mut bytes = raw.as_bytes().to_vec();
    bytes.extend(devices.iter().flat_map(|device| RawDevice::encode(device).as_bytes().to_vec()));
    bytes.extend(regions.iter().flat_map(|region| RawRegion::encode(region).as_bytes().to_vec()));
    raw.crc = checksum(volume, &bytes[COVERED..]).into();
    bytes[..TABLE_HEADER].copy_from_slice(raw.as_bytes());
    bytes.resize(len.next_multiple_of(PAGE), 0);
    bytes
}

impl DeviceTable {
    /// Verifies the table at the start of `bytes`, one half or more. Allocates at most in proportion to
    /// `bytes`.
    pub fn decode(bytes: &[u8], volume: Uuid) -> Result<DeviceTable, Invalid> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| Invalid::Absent)?;
        if raw.magic != MAGIC {
            return Err(Invalid::Absent);
        }
        let len = raw.len.get() as usize;
        if !(TABLE_HEADER..=bytes.len()).contains(&len)
            || raw.crc.get() != checksum(volume, &bytes[COVERED..len])
        {
            return Err(Invalid::Checksum);
        }
        let (devices, regions) = (usize::from(raw.devices.get()), usize::from(raw.regions.get()));
        if devices > MOST_DEVICES || regions > most_regions(devices) || len != table_len(devices, regions) {
            return Err(Invalid::Value(format!(
                "device table of {len} bytes says {devices} devices and {regions} regions; \
                 {MOST_DEVICES} devices at most"
            )));
        }
        count::verify(raw.sequence.get(), "the device table's sequence")?;
        count::verify(raw.epoch.get(), "the device table's epoch")?;
        let (device_bytes, region_bytes) = bytes[TABLE_HEADER..len].split_at(devices * DEVICE_ENTRY);
        Ok(DeviceTable {
            sequence: raw.sequence.get(),
            epoch: raw.epoch.get(),
            devices: entries(device_bytes, RawDevice::decode)?,
            regions: entries(region_bytes, RawRegion::decode)?,
        })
    }
}

fn entries<R: FromBytes + Immutable + KnownLayout + Unaligned, T>(
    bytes: &[u8],
    decode: fn(&R) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let raw = <[R]>::ref_from_bytes(bytes).map_err(|_| Invalid::Checksum)?;
    raw.iter().map(decode).collect()
}
