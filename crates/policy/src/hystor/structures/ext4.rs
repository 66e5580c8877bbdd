//! ext4 and its predecessors: structures that `mke2fs` lays out permanently.
//!
//! ```text
//! superblock, at 1024       4 blocks, 20 first data block, 24 block size as 1024 << n, 32 blocks and 40 inodes of a group,
//!                           56 magic (2), 88 inode size (2), 96 incompatible features, 206 spare blocks of descriptors (2),
//!                           254 size of a descriptor (2), 260 first group of meta_bg, 336 blocks, high half
//! group descriptor          0 block bitmap, 4 inode bitmap, 8 inode table; with 64 bytes 32, 36, 40 the high halves
//! ```
//!
//! Numbers have 4 bytes unless noted. Descriptors begin in the block after the superblock's.

use super::{Found, LONGEST_STEP, Of, Step, little, range_at};
use crate::ByteRange;
use braid_base::Bytes;

/// Descriptors still to be read.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    /// Start of the file system.
    start: Bytes,
    block: u64,
    /// Bytes of a descriptor.
    size: u64,
    /// Bytes of an inode table.
    inodes: u64,
    /// Byte of the next descriptor, within the file system.
    at: u64,
    left: u64,
}

const MAGIC: u64 = 0xef53;
/// Incompatible features: descriptors have 64 bytes; descriptors from a group on are elsewhere.
const WIDE: u64 = 0x80;
const META_BG: u64 = 0x10;

/// Recognises ext2, ext3 or ext4 from the first bytes of a file system.
pub fn superblock(bytes: &[u8], start: Bytes) -> Option<Found> {
    let sb = bytes.get(1024..)?;
    if little::u16(sb, 56)? != MAGIC {
        return None;
    }
    let log = little::u32(sb, 24).filter(|&log| log <= 6)?;
    let block = 1024 << log;
    let features = little::u32(sb, 96)?;
    let is_wide = features & WIDE != 0;
    let high = if is_wide { little::u32(sb, 336)? } else { 0 };
    let first = little::u32(sb, 20).filter(|&first| first <= 1)?;
    let blocks = (little::u32(sb, 4)? | high << 32).checked_sub(first)?;
    let of_group = little::u32(sb, 32).filter(|&blocks| blocks > 0)?;
    let inodes = little::u32(sb, 40)?.checked_mul(little::u16(sb, 88)?)?;
    let size = if is_wide { little::u16(sb, 254).filter(|size| (64..=1024).contains(size))? } else { 32 };
    let groups = blocks.div_ceil(of_group);
    let in_place = if features & META_BG != 0 { little::u32(sb, 260)? * (block / size) } else { groups };
    let descriptors =
        Descriptors { start, block, size, inodes, at: (first + 1) * block, left: groups.min(in_place) };
    // The superblock, all descriptors, and the room reserved for `resize2fs`.
    let table = (groups.min(in_place).checked_mul(size)?.div_ceil(block) + little::u16(sb, 206)?)
        .checked_mul(block)?;
    let head = range_at(start, first * block, block.checked_add(table)?)?;
    Some(Found { ranges: vec![head], steps: descriptors.step().into_iter().collect() })
}

impl Descriptors {
    fn step(self) -> Option<Step> {
        let len = (self.left * self.size).min(LONGEST_STEP.0 / self.size * self.size);
        let range = range_at(self.start, self.at, len).filter(|range| !range.is_empty())?;
        Some(Step { range, of: Of::Ext4(self) })
    }

    /// Finds the structures of the groups from their descriptors.
    pub fn look(self, bytes: &[u8]) -> Found {
        let whole = bytes.chunks_exact(self.size as usize);
        let read = whole.len() as u64;
        let ranges = whole.filter_map(|descriptor| self.group(descriptor)).flatten().collect();
        let rest =
            Descriptors { at: self.at + read * self.size, left: self.left.saturating_sub(read), ..self };
        let steps = if read > 0 { rest.step().into_iter().collect() } else { Vec::new() };
        Found { ranges, steps }
    }

    fn group(&self, descriptor: &[u8]) -> Option<[ByteRange; 3]> {
        let place = |low: usize, high: usize, len: u64| {
            let high = if self.size >= 64 { little::u32(descriptor, high)? } else { 0 };
            let block = (little::u32(descriptor, low)? | high << 32).checked_mul(self.block)?;
            range_at(self.start, block, len).filter(|_| block > 0)
        };
        let table = place(8, 40, self.inodes.checked_next_multiple_of(self.block)?)?;
        Some([place(0, 32, self.block)?, place(4, 36, self.block)?, table])
    }
}
