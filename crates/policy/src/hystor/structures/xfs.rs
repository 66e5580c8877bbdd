//! XFS: the headers of each allocation group, and the trees rooted there. All numbers are big-endian.
//!
//! ```text
//! superblock, at 0      0 "XFSB", 4 block size, 84 blocks and 88 number of groups, 100 version (2, low 4 bits),
//!                       102 sector size (2), 123 inodes of a block, as a power of two (1)
//! AGF, second sector    0 "XAGF", 16 and 20 roots of the two trees of free space, 28 and 32 their levels
//! AGI, third sector     0 "XAGI", 20 root and 24 level of the tree of inodes, 328 and 332 of that of free inodes
//! block of a tree       0 magic, 4 level (2), 6 records (2); records from byte 16 on, or 56 from version 5 on
//! node                  keys, then as many places for pointers of 4 bytes as fit
//! record of inodes      16 bytes: 0 number of the first of 64
//! ```
//!
//! Numbers have 4 bytes unless noted, and blocks are counted from the start of their group.

use super::{Found, Of, Step, big, range_at};
use crate::ByteRange;
use braid_base::Bytes;

/// Geometry of a file system.
#[derive(Clone, Copy, Debug)]
struct Shape {
    start: Bytes,
    block: u64,
    sector: u64,
    /// Blocks of a group.
    blocks: u64,
    groups: u64,
    /// Inodes of a block, as a power of two.
    inodes_log: u32,
    /// Offset of the records in a tree's block.
    header: u64,
    version: u64,
}

/// A group with headers to be read next.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    shape: Shape,
    number: u64,
}

/// A block of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    group: Group,
    kind: Kind,
    level: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    FreeByPlace,
    FreeByLength,
    Inodes,
    FreeInodes,
}

/// Sectors at the start of a group: superblock, AGF, AGI, AGFL.
const HEADERS: u64 = 4;
/// Bound for the height of a tree: 16 entries in each node would do for 2^32 blocks.
const HIGHEST: u64 = 9;
/// Inodes are allocated in chunks of this many.
const CHUNK: u64 = 64;

/// Recognises XFS from the first bytes of a file system.
pub fn superblock(bytes: &[u8], start: Bytes) -> Option<Found> {
    if !bytes.starts_with(b"XFSB") {
        return None;
    }
    let block =
        big::u32(bytes, 4).filter(|block| block.is_power_of_two() && (512..=65_536).contains(block))?;
    let sector = big::u16(bytes, 102).filter(|s| s.is_power_of_two() && (512..=32_768).contains(s))?;
    let (blocks, groups) = (big::u32(bytes, 84).filter(|&blocks| blocks > 0)?, big::u32(bytes, 88)?);
    let inodes_log = u32::from(*bytes.get(123)?).min(15);
    let version = big::u16(bytes, 100)? & 15;
    let header = if version >= 5 { 56 } else { 16 };
    let shape = Shape { start, block, sector, blocks, groups, inodes_log, header, version };
    let first = Group { shape, number: 0 };
    Some(Found { ranges: first.headers().into_iter().collect(), steps: first.step().into_iter().collect() })
}

impl Group {
    fn step(self) -> Option<Step> {
        let range = self.range(0, self.shape.sector * HEADERS).filter(|_| self.number < self.shape.groups)?;
        Some(Step { range, of: Of::XfsGroup(self) })
    }

    /// Returns a range of bytes within the group.
    fn range(&self, offset: u64, len: u64) -> Option<ByteRange> {
        let group = self.number.checked_mul(self.shape.blocks * self.shape.block)?;
        range_at(self.shape.start, group.checked_add(offset)?, len)
    }

    fn block(&self, number: u64, blocks: u64) -> Option<ByteRange> {
        self.range(number * self.shape.block, blocks * self.shape.block)
            .filter(|_| number < self.shape.blocks)
    }

    fn headers(&self) -> Option<ByteRange> {
        self.range(0, (self.shape.sector * HEADERS).next_multiple_of(self.shape.block))
    }

    /// Finds the trees rooted in the headers of a group, and the next group.
    pub fn look(self, bytes: &[u8]) -> Found {
        let next = Group { number: self.number + 1, ..self }.step();
        let trees = self.trees(bytes).unwrap_or_default();
        Found {
            ranges: self.headers().into_iter().chain(trees.iter().map(|step| step.range)).collect(),
            steps: trees.into_iter().chain(next).collect(),
        }
    }

    fn trees(&self, bytes: &[u8]) -> Option<Vec<Step>> {
        let sector = self.shape.sector as usize;
        let (free, inodes) = (bytes.get(sector..)?, bytes.get(sector * 2..)?);
        if !free.starts_with(b"XAGF") || !inodes.starts_with(b"XAGI") {
            return None;
        }
        let mut roots = vec![
            (Kind::FreeByPlace, big::u32(free, 16)?, big::u32(free, 28)?),
            (Kind::FreeByLength, big::u32(free, 20)?, big::u32(free, 32)?),
            (Kind::Inodes, big::u32(inodes, 20)?, big::u32(inodes, 24)?),
        ];
        if self.shape.version >= 5 {
            roots.push((Kind::FreeInodes, big::u32(inodes, 328)?, big::u32(inodes, 332)?));
        }
        let step = |(kind, root, levels): (Kind, u64, u64)| {
            let level = levels.checked_sub(1).filter(|&level| level < HIGHEST)?;
            Tree { group: *self, kind, level }.step(root)
        };
        Some(roots.into_iter().filter_map(step).collect())
    }
}

impl Tree {
    fn step(self, block: u64) -> Option<Step> {
        let range = self.group.block(block, 1).filter(|_| block > 0)?;
        Some(Step { range, of: Of::XfsTree(self) })
    }

    /// Finds the blocks that a block of a tree points to. Blocks of the lowest level are read only in the
    /// tree of inodes.
    pub fn look(self, bytes: &[u8]) -> Found {
        self.found(bytes).unwrap_or_default()
    }

    fn found(&self, bytes: &[u8]) -> Option<Found> {
        let magic = bytes.first_chunk::<4>()?;
        if !self.kind.magics().contains(&magic) || big::u16(bytes, 4)? != self.level {
            return None;
        }
        let Shape { block, header, .. } = self.group.shape;
        let records = big::u16(bytes, 6)?;
        if self.level == 0 {
            let inodes = |record: u64| self.inodes(bytes, header + record * 16);
            let ranges = if self.kind == Kind::Inodes {
                (0..records).filter_map(inodes).collect()
            } else {
                Vec::new()
            };
            return Some(Found { ranges, steps: Vec::new() });
        }
        let key = if matches!(self.kind, Kind::Inodes | Kind::FreeInodes) { 4 } else { 8 };
        let most = (block - header) / (key + 4);
        let child = |record: u64| {
            let pointer = big::u32(bytes, (header + most * key + record * 4) as usize)?;
            Tree { level: self.level - 1, ..*self }.step(pointer)
        };
        let mut steps: Vec<Step> = (0..records.min(most)).filter_map(child).collect();
        let ranges = steps.iter().map(|step| step.range).collect();
        if self.level == 1 && self.kind != Kind::Inodes {
            steps.clear();
        }
        Some(Found { ranges, steps })
    }

    /// Returns the range of a record's inodes.
    fn inodes(&self, bytes: &[u8], at: u64) -> Option<ByteRange> {
        let log = self.group.shape.inodes_log;
        let first = big::u32(bytes, usize::try_from(at).ok()?)? >> log;
        self.group.block(first, (CHUNK >> log).max(1))
    }
}

impl Kind {
    /// Returns the magic before version 5, and from version 5 on.
    fn magics(self) -> [&'static [u8; 4]; 2] {
        match self {
            Kind::FreeByPlace => [b"ABTB", b"AB3B"],
            Kind::FreeByLength => [b"ABTC", b"AB3C"],
            Kind::Inodes => [b"IABT", b"IAB3"],
            Kind::FreeInodes => [b"FIBT", b"FIB3"],
        }
    }
}
