//! virtio-blk as bytes: features, configuration, head and ranges of a request, status. All little-endian.
//!
//! Names are the names of the virtio specification, version 1.2, section 5.2.

use braid_base::{Bytes, KIB};

/// Unit of all addresses and lengths.
pub const SECTOR: Bytes = Bytes(512);

/// Feature: `seg_max` of the configuration counts.
pub const VIRTIO_BLK_F_SEG_MAX: u64 = 1 << 2;
/// Feature: the disk refuses changes.
pub const VIRTIO_BLK_F_RO: u64 = 1 << 5;
/// Feature: `blk_size` counts.
pub const VIRTIO_BLK_F_BLK_SIZE: u64 = 1 << 6;
/// Feature: flushes. Without this feature a write is durable when answered.
pub const VIRTIO_BLK_F_FLUSH: u64 = 1 << 9;
/// Feature: the preferred sizes of requests count.
pub const VIRTIO_BLK_F_TOPOLOGY: u64 = 1 << 10;
/// Feature: several queues.
pub const VIRTIO_BLK_F_MQ: u64 = 1 << 12;
/// Feature: discards.
pub const VIRTIO_BLK_F_DISCARD: u64 = 1 << 13;
/// Feature: zeroing.
pub const VIRTIO_BLK_F_WRITE_ZEROES: u64 = 1 << 14;
/// Feature: a descriptor may name a table of descriptors.
pub const VIRTIO_RING_F_INDIRECT_DESC: u64 = 1 << 28;
/// Feature: each side tells the index from which the other side notifies.
pub const VIRTIO_RING_F_EVENT_IDX: u64 = 1 << 29;
/// Feature: the device follows version 1 of the specification.
pub const VIRTIO_F_VERSION_1: u64 = 1 << 32;

/// Request types.
pub const VIRTIO_BLK_T_IN: u32 = 0;
#[expect(missing_docs, reason = "a name of the specification")]
pub const VIRTIO_BLK_T_OUT: u32 = 1;
#[expect(missing_docs, reason = "a name of the specification")]
pub const VIRTIO_BLK_T_FLUSH: u32 = 4;
#[expect(missing_docs, reason = "a name of the specification")]
pub const VIRTIO_BLK_T_GET_ID: u32 = 8;
#[expect(missing_docs, reason = "a name of the specification")]
pub const VIRTIO_BLK_T_DISCARD: u32 = 11;
#[expect(missing_docs, reason = "a name of the specification")]
pub const VIRTIO_BLK_T_WRITE_ZEROES: u32 = 13;

/// Length of a disk's name.
pub const ID_LEN: usize = 20;
/// Length of the configuration, with all that later versions have appended.
pub const CONFIG_LEN: usize = 256;

/// Largest number of data segments in a request, as told to the guest: with head and status, a queue of 128
/// descriptors holds the request.
pub const SEG_MAX: u32 = 126;
/// Largest number of ranges in a discard or a zeroing.
pub const RANGES_MAX: usize = 16;
/// Largest range of a discard or a zeroing, in sectors: 2 GiB.
pub const RANGE_SECTORS_MAX: u32 = 1 << 22;

/// Answer to a request: its last byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlkStatus {
    /// VIRTIO_BLK_S_OK.
    Ok = 0,
    /// VIRTIO_BLK_S_IOERR.
    IoError = 1,
    /// VIRTIO_BLK_S_UNSUPP: the device does not know the request.
    Unsupported = 2,
}

/// First bytes of a request.
///
/// ```text
/// 0  type      u32    VIRTIO_BLK_T_…
/// 4  reserved  u32
/// 8  sector    u64    first sector of a read or write
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlkHead {
    /// One of the request types, or a type that the device does not know.
    pub kind: u32,
    /// First sector.
    pub sector: u64,
}

impl BlkHead {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Decodes a head. Any bytes are a head.
    pub fn decode(bytes: &[u8; BlkHead::LEN]) -> BlkHead {
        BlkHead { kind: u32_at(bytes, 0), sector: u64_at(bytes, 8) }
    }
}

/// A range of a discard or a zeroing.
///
/// ```text
/// 0   sector       u64
/// 8   num_sectors  u32
/// 12  flags        u32    bit 0: the zeroing may free the range
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlkRange {
    /// First sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u32,
    /// True if a zeroing may free the range.
    pub unmap: bool,
}

impl BlkRange {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Decodes a range. `None` if the range has a flag that the device does not know.
    pub fn decode(bytes: &[u8; BlkRange::LEN]) -> Option<BlkRange> {
        let flags = u32_at(bytes, 12);
        let range = BlkRange { sector: u64_at(bytes, 0), sectors: u32_at(bytes, 8), unmap: flags & 1 != 0 };
        (flags & !1 == 0).then_some(range)
    }
}

/// The disk, as its configuration tells the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Size. An incomplete last sector is not addressed.
    pub size: Bytes,
    /// Cheapest size and alignment of a request.
    pub preferred_block: Bytes,
    /// Largest number of queues.
    pub queues: u16,
    /// True if the disk refuses changes.
    pub read_only: bool,
}

impl Facts {
    /// Features of the device, without the features of the transport.
    pub fn features(&self) -> u64 {
        let always = VIRTIO_F_VERSION_1
            | VIRTIO_RING_F_INDIRECT_DESC
            | VIRTIO_RING_F_EVENT_IDX
            | VIRTIO_BLK_F_SEG_MAX
            | VIRTIO_BLK_F_BLK_SIZE
            | VIRTIO_BLK_F_FLUSH
            | VIRTIO_BLK_F_TOPOLOGY
            | VIRTIO_BLK_F_MQ;
        let changes = VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES;
        always | if self.read_only { VIRTIO_BLK_F_RO } else { changes }
    }

    /// The configuration.
    ///
    /// ```text
    /// 0   capacity   u64    sectors            34  num_queues                u16
    /// 12  seg_max    u32                       36  max_discard_sectors       u32
    /// 20  blk_size   u32                       40  max_discard_seg           u32
    /// 24  physical_block_exp  u8   log2        44  discard_sector_alignment  u32
    /// 26  min_io_size         u16  blocks      48  max_write_zeroes_sectors  u32
    /// 28  opt_io_size         u32  blocks      52  max_write_zeroes_seg      u32
    /// 32  writeback           u8               56  write_zeroes_may_unmap    u8
    /// ```
    pub fn config(&self) -> [u8; CONFIG_LEN] {
        let blocks = (self.preferred_block.clamp(KIB * 4, KIB * 64) / SECTOR) as u32;
        let mut bytes = [0; CONFIG_LEN];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &(self.size / SECTOR).to_le_bytes());
        put(12, &SEG_MAX.to_le_bytes());
        put(20, &(SECTOR.0 as u32).to_le_bytes());
        put(24, &[PHYSICAL_BLOCK_EXP]);
        put(26, &(blocks as u16).to_le_bytes());
        put(28, &blocks.to_le_bytes());
        put(32, &[1]);
        put(34, &self.queues.to_le_bytes());
        put(36, &RANGE_SECTORS_MAX.to_le_bytes());
        put(40, &(RANGES_MAX as u32).to_le_bytes());
        put(44, &blocks.to_le_bytes());
        put(48, &RANGE_SECTORS_MAX.to_le_bytes());
        put(52, &(RANGES_MAX as u32).to_le_bytes());
        put(56, &[1]);
        bytes
    }
}

/// Blocks of 4 KiB: 512 B times 2^3.
const PHYSICAL_BLOCK_EXP: u8 = 3;

fn u32_at(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::GIB;

    const FACTS: Facts = Facts { size: GIB, preferred_block: Bytes(4096), queues: 64, read_only: false };

    #[test]
    fn heads_and_ranges_lie_where_the_specification_says() {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&VIRTIO_BLK_T_DISCARD.to_le_bytes());
        bytes[8..].copy_from_slice(&0x0102_0304_0506_0708_u64.to_le_bytes());
        let head = BlkHead::decode(&bytes);
        assert_eq!(head, BlkHead { kind: VIRTIO_BLK_T_DISCARD, sector: 0x0102_0304_0506_0708 });
        bytes[8..12].copy_from_slice(&7u32.to_le_bytes());
        bytes[12..].copy_from_slice(&1u32.to_le_bytes());
        assert_eq!(BlkRange::decode(&bytes), Some(BlkRange { sector: 11, sectors: 7, unmap: true }));
        bytes[12] = 3;
        assert_eq!(BlkRange::decode(&bytes), None, "an unknown flag");
    }

    #[test]
    fn configuration_shows_whole_sectors_and_limits() {
        let config = Facts { size: GIB + Bytes(511), ..FACTS }.config();
        assert_eq!(config[..8], (GIB.0 / 512).to_le_bytes());
        assert_eq!(config[20..24], 512u32.to_le_bytes());
        assert_eq!((config[26], config[34], config[56]), (8, 64, 1));
    }

    #[test]
    fn read_only_disk_offers_no_discard() {
        let features = Facts { read_only: true, ..FACTS }.features();
        assert_eq!(features & (VIRTIO_BLK_F_RO | VIRTIO_BLK_F_DISCARD), VIRTIO_BLK_F_RO);
        assert_eq!(FACTS.features() & VIRTIO_BLK_F_RO, 0);
    }
}
