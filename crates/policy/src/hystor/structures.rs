//! Places of file-system metadata, found from the bytes of the volume, for frontends that do not mark
//! metadata requests.
//!
//! | file system | what is recognised | what is not |
//! |---|---|---|
//! | ext4, ext3, ext2 | superblock, group descriptors and the room they grow into; block and inode bitmaps, inode tables of all groups, with `flex_bg` too | directories, indirect and extent blocks; descriptors of `meta_bg` |
//! | XFS | headers of allocation groups; the trees of free space and of inodes; all inodes | directories, extent trees of large files |
//! | btrfs | superblocks; all chunks of metadata and of the chunk tree, wherever they lie | nothing but the log of a log tree being replayed elsewhere |
//!
//! File systems are found alone on the volume, or in its partitions (GPT, or the four primary partitions of
//! an MBR).
//!
//! A scan works step by step: a [`Step`] names a range of bytes, and the bytes lead to metadata ranges and
//! further steps. The module does not read: the policy asks the engine. Scans are repeated because file
//! systems grow: XFS makes inodes on demand, btrfs chunks.
//!
//! The bytes may be arbitrary. A scan takes at most [`MOST_STEPS`] steps and [`MOST_RANGES`] ranges.
//! Structures beyond these limits, or outside the volume, are not recognised.

mod btrfs;
mod ext4;
mod partitions;
mod xfs;

use crate::ByteRange;
use braid_base::Bytes;
use std::collections::VecDeque;

/// Ranges of the volume that hold metadata.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Structures {
    /// Sorted and disjoint; no two ranges touch.
    ranges: Vec<ByteRange>,
    /// One bit for each [`Structures::COARSE`] bytes with metadata: most requests touch no metadata and need
    /// no search.
    coarse: Vec<u64>,
}

/// A scan of the volume in progress.
pub(super) struct Scan {
    volume: Bytes,
    steps: VecDeque<Step>,
    ranges: Vec<ByteRange>,
    taken: usize,
}

/// A range of bytes that a scan needs next, and its purpose.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub range: ByteRange,
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    Volume,
    Partition,
    Ext4(ext4::Descriptors),
    XfsGroup(xfs::Group),
    XfsTree(xfs::Tree),
    Btrfs(btrfs::ChunkNode),
}

/// Metadata ranges and further steps found in the bytes of a step.
#[derive(Default)]
struct Found {
    ranges: Vec<ByteRange>,
    steps: Vec<Step>,
}

/// Maximum length of a step, in bytes.
const LONGEST_STEP: Bytes = crate::LONGEST_INSPECTED;
/// End of the place of superblocks and partition tables: btrfs has its superblock at 64 KiB.
pub(super) const BEGINNING: Bytes = Bytes(68 << 10);
/// Maximum number of steps of a scan: about as many as the inode trees of XFS with 16 million inodes take.
const MOST_STEPS: usize = 1 << 16;
/// Maximum number of ranges of a scan: 2 MiB of memory. 1 TiB of ext4 has 1,000 ranges with `flex_bg`, 16,000
/// without.
const MOST_RANGES: usize = 1 << 17;

impl Structures {
    const COARSE: Bytes = Bytes(4 << 20);

    /// Returns the metadata parts of a range. Constant time for most ranges without metadata.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> {
        let (from, to) =
            (range.start / Structures::COARSE, range.end.align_up(Structures::COARSE) / Structures::COARSE);
        let is_set = |place: u64| {
            self.coarse.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
        };
        let first = match (from..to).any(is_set) {
            true => self.ranges.partition_point(|known| known.end <= range.start),
            false => self.ranges.len(),
        };
        let touching = self.ranges[first..].iter().take_while(move |known| known.start < range.end);
        touching.map(move |known| ByteRange {
            start: known.start.max(range.start),
            end: known.end.min(range.end),
        })
    }

    /// Number of bytes that hold metadata, or may hold metadata.
    pub fn bytes(&self) -> Bytes {
        self.ranges.iter().fold(Bytes::ZERO, |sum, range| sum + range.len())
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<ByteRange>() + self.coarse.capacity() * 8
    }

    fn new(mut ranges: Vec<ByteRange>) -> Structures {
        ranges.sort_unstable();
        let mut merged: Vec<ByteRange> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let end = merged.last().map_or(0, |last| last.end.align_up(Structures::COARSE) / Structures::COARSE);
        let mut coarse = vec![0u64; (end as usize).div_ceil(64)];
        for range in &merged {
            let last = (range.end - Bytes(1)) / Structures::COARSE;
            (range.start / Structures::COARSE..=last)
                .for_each(|place| coarse[place as usize / 64] |= 1 << (place % 64));
        }
        Structures { ranges: merged, coarse }
    }
}

impl Scan {
    /// Begins a scan of a volume of `volume` bytes.
    pub fn new(volume: Bytes) -> Scan {
        let mut scan = Scan { volume, steps: VecDeque::new(), ranges: Vec::new(), taken: 0 };
        let beginning = Step { range: ByteRange::new(Bytes::ZERO, BEGINNING), of: Of::Volume };
        scan.add(Found { ranges: Vec::new(), steps: vec![beginning] });
        scan
    }

    /// Returns the ranges of the next steps, at most `most`; none at the end. A step stays among the next
    /// steps until taken or left out.
    pub fn next(&self, most: usize) -> impl Iterator<Item = ByteRange> {
        self.steps.iter().take(most).map(|step| step.range)
    }

    /// Takes the bytes of a step.
    pub fn take(&mut self, range: ByteRange, bytes: &[u8]) {
        let Some(of) = self.remove(range) else { return };
        let found = match of {
            Of::Volume => partitions::look(bytes, range.start).unwrap_or_default(),
            Of::Partition => file_system(bytes, range.start),
            Of::Ext4(descriptors) => descriptors.look(bytes),
            Of::XfsGroup(group) => group.look(bytes),
            Of::XfsTree(tree) => tree.look(bytes),
            Of::Btrfs(node) => node.look(bytes),
        };
        self.add(found);
    }

    /// Leaves out a step with unreadable bytes.
    pub fn leave_out(&mut self, range: ByteRange) {
        self.remove(range);
    }

    fn remove(&mut self, range: ByteRange) -> Option<Of> {
        let place = self.steps.iter().position(|step| step.range == range)?;
        self.taken += 1;
        self.steps.remove(place).map(|step| step.of)
    }

    /// Returns the metadata found, at the end of the scan.
    pub fn finish(self) -> Structures {
        Structures::new(self.ranges)
    }

    fn add(&mut self, found: Found) {
        let within = |range: ByteRange| {
            let end = range.end.min(self.volume);
            (range.start < end).then_some(ByteRange { end, ..range })
        };
        let room = MOST_RANGES - self.ranges.len();
        self.ranges.extend(found.ranges.into_iter().filter_map(within).take(room));
        let room = MOST_STEPS.saturating_sub(self.taken + self.steps.len());
        let steps =
            found.steps.into_iter().filter_map(|step| Some(Step { range: within(step.range)?, ..step }));
        self.steps.extend(steps.filter(|step| step.range.len() <= LONGEST_STEP).take(room));
    }
}

/// Recognises the file system that begins at `start` of the volume.
fn file_system(bytes: &[u8], start: Bytes) -> Found {
    let found = ext4::superblock(bytes, start).or_else(|| xfs::superblock(bytes, start));
    found.or_else(|| btrfs::superblock(bytes, start)).unwrap_or_default()
}

/// Returns a range within a file system, if the range ends at 2^62 or below.
fn range_at(start: Bytes, offset: u64, len: u64) -> Option<ByteRange> {
    let from = start.0.checked_add(offset)?;
    let end = from.checked_add(len).filter(|&end| end <= 1 << 62)?;
    Some(ByteRange { start: Bytes(from), end: Bytes(end) })
}

/// Little-endian numbers of ext4, btrfs and GPT.
mod little {
    pub fn u16(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
    }

    pub fn u32(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
    }

    pub fn u64(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
    }
}

/// Big-endian numbers of XFS.
mod big {
    pub fn u16(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?).into())
    }

    pub fn u32(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?).into())
    }
}

#[cfg(test)]
#[path = "structures/tests.rs"]
mod tests;
