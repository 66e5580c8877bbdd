//! btrfs: its superblocks, and the chunks of metadata, listed in the chunk tree.
//!
//! ```text
//! superblock, at 64 KiB   64 "_BHRfS_M" (8), 88 chunk tree's root (8), 148 size of a node (4), 160 bytes of the list of chunks (4),
//!                         199 level of the root (1), 201 number of this device (8), 811 list of chunks: the tree's own
//! node                    96 items (4), 100 level (1), 101 items: of a leaf 25 bytes: key, offset (4) and size (4) of what
//!                         it is about, counted from 101; of others 33: key, block (8), generation (8)
//! key                     0 object (8), 8 type (1), 9 offset (8): for a chunk its logical address
//! chunk                   0 length (8), 24 type (8), 44 stripes (2), 46 sub-stripes (2), 48 stripes of 32 bytes: device (8), offset (8)
//! ```
//!
//! The chunk tree lies in chunks listed in the superblock, and uses logical addresses. A volume is one device
//! of the file system.

use super::{Found, MOST_RANGES, Of, Step, little, range_at};
use crate::ByteRange;
use braid_base::Bytes;
use std::rc::Rc;

/// A node of the chunk tree.
#[derive(Clone, Debug)]
pub struct ChunkNode {
    tree: Rc<ChunkTree>,
    level: u8,
}

#[derive(Debug)]
struct ChunkTree {
    start: Bytes,
    /// Bytes of a node.
    node: u64,
    device: u64,
    /// Chunks of the chunk tree.
    chunks: Vec<Chunk>,
}

/// Part of a chunk on this device.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    logical: u64,
    len: u64,
    kind: u64,
    /// Offset of the chunk's stripe on the device.
    place: u64,
    /// True if each stripe holds all of the chunk.
    is_whole: bool,
}

const SUPERBLOCK: usize = 64 << 10;
/// Places of the superblocks; a smaller device has fewer.
const MIRRORS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const LIST: usize = 811;
const MOST_LIST: u64 = 2048;
const NODE_HEADER: usize = 101;
const CHUNK_ITEM: u8 = 228;
/// Types of chunks: chunk tree, other metadata, striped chunks.
const SYSTEM: u64 = 2;
const METADATA: u64 = 4;
const RAID0: u64 = 1 << 3;
const RAID10: u64 = 1 << 6;
const RAID5: u64 = 1 << 7;
const RAID6: u64 = 1 << 8;
/// Maximum height of btrfs's trees.
const HIGHEST: u8 = 8;

/// Recognises btrfs from the first bytes of a file system.
pub fn superblock(bytes: &[u8], start: Bytes) -> Option<Found> {
    let sb = bytes.get(SUPERBLOCK..)?;
    if sb.get(64..72)? != b"_BHRfS_M" {
        return None;
    }
    let node = little::u32(sb, 148).filter(|n| n.is_power_of_two() && (4096..=65_536).contains(n))?;
    let device = little::u64(sb, 201)?;
    let len = little::u32(sb, 160)?.min(MOST_LIST) as usize;
    let mut list = sb.get(LIST..LIST + len)?;
    let mut chunks = Vec::new();
    while let Some((chunk, rest)) = Chunk::first_of(list, device) {
        chunks.extend(chunk);
        list = rest;
    }
    let tree = Rc::new(ChunkTree { start, node, device, chunks });
    let mirrors = MIRRORS.iter().filter_map(|&at| range_at(start, at, 4096));
    let ranges = mirrors.chain(tree.chunks.iter().flat_map(|chunk| chunk.range(start))).collect();
    let level = *sb.get(199)?;
    let root = if level < HIGHEST { ChunkNode { tree, level }.step(little::u64(sb, 88)?) } else { None };
    Some(Found { ranges, steps: root.into_iter().collect() })
}

impl ChunkNode {
    fn step(self, logical: u64) -> Option<Step> {
        let holds = |chunk: &&Chunk| {
            chunk.kind & SYSTEM != 0 && chunk.is_whole && logical.wrapping_sub(chunk.logical) < chunk.len
        };
        let chunk = self.tree.chunks.iter().find(holds)?;
        let range =
            range_at(self.tree.start, chunk.place.checked_add(logical - chunk.logical)?, self.tree.node)?;
        Some(Step { range, of: Of::Btrfs(self) })
    }

    /// Finds the chunks listed in a leaf, or the nodes below.
    pub fn look(self, bytes: &[u8]) -> Found {
        let (Some(&level), Some(items)) = (bytes.get(100), little::u32(bytes, 96)) else {
            return Found::default();
        };
        if level != self.level {
            return Found::default();
        }
        let items = items.min(self.tree.node / 25) as usize;
        if level == 0 {
            let ranges = (0..items).filter_map(|item| self.chunk(bytes, NODE_HEADER + item * 25));
            // All items may refer to the same bytes: without the limit, millions of ranges would result.
            let ranges = ranges.flatten().take(MOST_RANGES).collect();
            return Found { ranges, steps: Vec::new() };
        }
        let child = |item: usize| {
            let logical = little::u64(bytes, NODE_HEADER + item * 33 + 17)?;
            ChunkNode { tree: self.tree.clone(), level: level - 1 }.step(logical)
        };
        Found { ranges: Vec::new(), steps: (0..items).filter_map(child).collect() }
    }

    fn chunk(&self, bytes: &[u8], at: usize) -> Option<Vec<ByteRange>> {
        let item = bytes.get(at..)?.get(..25)?;
        if item[8] != CHUNK_ITEM {
            return None;
        }
        let data = NODE_HEADER + usize::try_from(little::u32(item, 17)?).ok()?;
        let chunks = Chunk::read(little::u64(item, 9)?, bytes.get(data..)?, self.tree.device)?;
        let is_metadata = |chunk: &&Chunk| chunk.kind & (METADATA | SYSTEM) != 0;
        Some(chunks.iter().filter(is_metadata).flat_map(|chunk| chunk.range(self.tree.start)).collect())
    }
}

impl Chunk {
    /// Returns the first chunk of the superblock's list, once for each stripe on this device, and the rest of
    /// the list.
    fn first_of(list: &[u8], device: u64) -> Option<(Vec<Chunk>, &[u8])> {
        let chunk = list.get(17..)?;
        let stripes = usize::try_from(little::u16(chunk, 44)?).ok()?;
        let rest = chunk.get(48 + stripes * 32..)?;
        Some((Chunk::read(little::u64(list, 9)?, chunk, device)?, rest))
    }

    fn read(logical: u64, bytes: &[u8], device: u64) -> Option<Vec<Chunk>> {
        let (len, kind) = (little::u64(bytes, 0)?, little::u64(bytes, 24)?);
        let (stripes, subs) = (little::u16(bytes, 44)?.max(1), little::u16(bytes, 46)?.max(1));
        // Divisor of the chunk's length for a stripe's length.
        let parts = match kind & (RAID0 | RAID10 | RAID5 | RAID6) {
            0 => 1,
            RAID10 => (stripes / subs).max(1),
            RAID5 => (stripes - 1).max(1),
            RAID6 => stripes.saturating_sub(2).max(1),
            _ => stripes,
        };
        let stripe = |number: u64| {
            let stripe = bytes.get(48 + number as usize * 32..)?;
            let place = little::u64(stripe, 8).filter(|_| little::u64(stripe, 0) == Some(device))?;
            Some(Chunk { logical, len: len.div_ceil(parts), kind, place, is_whole: parts == 1 })
        };
        Some((0..stripes).filter_map(stripe).collect())
    }

    fn range(&self, start: Bytes) -> Option<ByteRange> {
        range_at(start, self.place, self.len)
    }
}
