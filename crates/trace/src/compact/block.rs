//! Heads of blocks, and the end of a trace.

use super::header::{eight, four};

pub(super) const HEAD: usize = 48;
pub(super) const BLOCK: &[u8; 4] = b"BTBK";
pub(super) const END: &[u8; 4] = b"BTND";
/// Longest decompressed payload.
pub(super) const LONGEST: usize = 1 << 20;
/// Longest stored payload: compression enlarges incompressible data slightly.
pub(super) const LONGEST_STORED: usize = LONGEST + 4096;

/// Head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockHead {
    pub payload_crc: u32,
    pub stored: u32,
    pub len: u32,
    pub records: u32,
    pub zstd: bool,
    pub first: u64,
    pub before: u64,
}

/// End of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub records: u64,
    pub last: u64,
    pub end: u64,
    pub dropped: u64,
    pub first: u64,
}

impl BlockHead {
    pub(super) fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(BLOCK);
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.records.to_le_bytes());
        bytes[24] = self.zstd.into();
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..].copy_from_slice(&self.before.to_le_bytes());
        sealed(bytes)
    }

    /// Returns `None` if the bytes are not a head, or if a field is out of range.
    pub(super) fn decode(bytes: &[u8; HEAD]) -> Option<BlockHead> {
        let head = BlockHead {
            payload_crc: four(bytes, 8),
            stored: four(bytes, 12),
            len: four(bytes, 16),
            records: four(bytes, 20),
            zstd: bytes[24] == 1,
            first: eight(bytes, 32),
            before: eight(bytes, 40),
        };
        // A record takes at least one byte.
        let possible = head.stored as usize <= LONGEST_STORED
            && (1..=LONGEST).contains(&(head.len as usize))
            && (1..=head.len).contains(&head.records)
            && bytes[24] <= 1
            && (head.zstd || head.stored == head.len);
        (is_sealed(bytes, BLOCK) && possible).then_some(head)
    }
}

impl End {
    pub(super) fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(END);
        bytes[8..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.last.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.end.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.dropped.to_le_bytes());
        bytes[40..].copy_from_slice(&self.first.to_le_bytes());
        sealed(bytes)
    }

    pub(super) fn decode(bytes: &[u8; HEAD]) -> Option<End> {
        is_sealed(bytes, END).then(|| End {
            records: eight(bytes, 8),
            last: eight(bytes, 16),
            end: eight(bytes, 24),
            dropped: eight(bytes, 32),
            first: eight(bytes, 40),
        })
    }
}

fn sealed(mut bytes: [u8; HEAD]) -> [u8; HEAD] {
    let crc = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn is_sealed(bytes: &[u8; HEAD], magic: &[u8; 4]) -> bool {
    bytes.starts_with(magic) && crc32c::crc32c(&bytes[8..]) == four(bytes, 4)
}
