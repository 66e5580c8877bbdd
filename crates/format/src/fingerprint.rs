//! Detects changes of an adopted disk by another system. Braid writes no mark to an adopted disk, and instead
//! keeps sums of the disk's content elsewhere.
//!
//! *Content* is a sum of the first and last MiB of the disk, and of 128 KiB of each partition. Contents are
//! comparable after a clean shutdown.
//!
//! A *mark* is the part of a sector that changes when the disk is mounted read-write elsewhere or is
//! partitioned again. Marks are comparable at any time ([`sums`](crate::sums)). Each mark has an identity and
//! a change:
//!
//! | sector | identity | change |
//! |---|---|---|
//! | superblock of ext2 to ext4 | `s_uuid` | `s_mtime`, `s_mnt_count`: each mount |
//! | superblock of XFS | `sb_uuid` | `sb_lsn`: each write of the superblock, as at a mount and its end |
//! | superblock of btrfs | `fsid` | `generation`: each transaction |
//! | header of a GPT | disk GUID | the header, with the sum of all entries |
//! | MBR | disk signature | the four entries |
//!
//! Marks are searched on the disk itself and in the partitions of a GPT or an MBR. Other contents are
//! compared only by their bytes.

use crate::Uuid;
use braid_base::{Bytes, KIB, MIB, SECTOR};
use std::ops::Range;

/// The identity of an adopted disk without a serial number: only its sums identify the disk.
pub const NO_SERIAL: Uuid = Uuid([0xff; 16]);

/// The content of an adopted disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fingerprint {
    /// Sum of all bytes at the [`places`].
    pub content: u32,
}

/// The identity and the change of a file system or a partition table, from one sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Sum of the bytes that stay for the life of the file system.
    pub identity: u32,
    /// Sum of the bytes that change when the file system is mounted elsewhere.
    pub change: u32,
}

/// Bytes in the sum at the start, and at the end, of a disk.
pub const EDGE: Bytes = MIB;
/// Bytes at the start of a disk that locate the partitions: a GPT takes 34 sectors of at most 4 KiB.
pub const TABLES: Bytes = Bytes(160 << 10);
/// Bytes in the sum at the start of a partition: the superblock of btrfs lies at 64 KiB.
pub const PARTITION_START: Bytes = Bytes(128 << 10);
/// The most partitions in the sum.
const MOST_PARTITIONS: usize = 31;

/// The sectors of a disk that may hold marks, in order. `start` is at least the first [`TABLES`] of the disk.
pub fn marked_sectors(start: &[u8], size: Bytes) -> Vec<Bytes> {
    let of_disk = [0, 512, 1024, 4096, 65536].map(Bytes);
    let of_part = |at: Bytes| [at, at + KIB, at + KIB * 64];
    let mut sectors: Vec<Bytes> =
        of_disk.into_iter().chain(partitions(start).into_iter().flat_map(of_part)).collect();
    sectors.retain(|&at| at + SECTOR <= size);
    sectors.sort_unstable();
    sectors.dedup();
    sectors
}

/// The mark in the bytes of a sector.
pub fn mark_in(sector: &[u8]) -> Option<Mark> {
    let has = |at: usize, magic: &[u8]| sector.get(at..at + magic.len()) == Some(magic);
    // The kind's magic, the identity, then the change.
    let (magic, identity, change): (Range<usize>, Range<usize>, [Range<usize>; 2]) = if has(0, b"XFSB") {
        (0..4, 32..48, [240..248, 0..0])
    } else if has(0, b"EFI PART") {
        (0..8, 0x38..0x48, [0..92, 0..0])
    } else if has(0x40, b"_BHRfS_M") {
        (0x40..0x48, 0x20..0x30, [0x48..0x50, 0..0])
    } else if has(0x38, &[0x53, 0xef]) {
        (0x38..0x3a, 0x68..0x78, [0x2c..0x30, 0x34..0x36])
    } else if has_mbr(sector) {
        (510..512, 440..444, [446..510, 0..0])
    } else {
        return None;
    };
    let sum = |sum: u32, range: &Range<usize>| Some(crc32c::crc32c_append(sum, sector.get(range.clone())?));
    let identity = sum(sum(0, &magic)?, &identity)?;
    let change = change.iter().try_fold(0, sum)?;
    Some(Mark { identity, change })
}

/// The ranges in the sum: the start, the end, and the start of each partition that `start` (at most [`EDGE`])
/// names.
pub fn places(start: &[u8], size: Bytes) -> Vec<Range<Bytes>> {
    let end = size.saturating_sub(EDGE).align_up(KIB * 4).min(size);
    let mut places = vec![Bytes::ZERO..EDGE.min(size), end..size];
    for at in partitions(start) {
        if at < size {
            places.push(at..(at + PARTITION_START).min(size));
        }
    }
    places
}

impl Fingerprint {
    /// The fingerprint of the bytes at the [`places`], in their order.
    pub fn of(looked_at: &[Vec<u8>]) -> Fingerprint {
        Fingerprint { content: looked_at.iter().fold(0, |sum, bytes| crc32c::crc32c_append(sum, bytes)) }
    }
}

/// The starts of the partitions. `start` may be arbitrary bytes.
fn partitions(start: &[u8]) -> Vec<Bytes> {
    let u32_at = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let u64_at = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let mut found: Vec<Bytes> = Vec::new();
    let mut add = |sector: usize, first: u64| {
        if let Some(at) = first.checked_mul(sector as u64).filter(|&at| at > 0) {
            found.push(Bytes(at));
        }
    };
    if let Some(sector) = gpt_sector(start) {
        // The usual layout: 128 entries of 128 bytes behind the header.
        let entries = start.get(sector * 2..).unwrap_or_default().chunks_exact(128).take(128);
        entries.filter(|entry| entry[..16] != [0; 16]).for_each(|entry| add(sector, u64_at(entry, 32)));
    } else if has_mbr(start) {
        // A disk with 4 KiB sectors counts in 4 KiB units: both places are included.
        let entries = start[446..510].chunks_exact(16).filter(|entry| entry[4] != 0);
        for entry in entries {
            [512, 4096].into_iter().for_each(|sector| add(sector, u64::from(u32_at(entry, 8))));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST_PARTITIONS);
    found
}

/// The sector size, if there is a GPT: the GPT header is in the second sector.
fn gpt_sector(start: &[u8]) -> Option<usize> {
    [512, 4096].into_iter().find(|&sector| start.get(sector..sector + 8) == Some(b"EFI PART"))
}

/// True if the first sector ends like an MBR and is not the boot sector of a file system.
fn has_mbr(start: &[u8]) -> bool {
    let ends = start.get(510..512) == Some(&[0x55, 0xaa]);
    ends && start.len() >= 512 && start[446..510].chunks_exact(16).all(|entry| matches!(entry[0], 0 | 0x80))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, Rng};

    /// Some bytes of a sector, each with its place.
    type Fields<'a> = &'a [(usize, &'a [u8])];

    fn sector(fields: Fields<'_>) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        for (at, field) in fields {
            bytes[*at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    #[test]
    fn mark_changes_with_each_mount_and_keeps_identity() {
        let uuid = [5; 16];
        let kinds: [(Fields<'_>, usize); 4] = [
            (&[(0x38, &[0x53, 0xef]), (0x68, &uuid)], 0x34),
            (&[(0, b"XFSB"), (32, &uuid)], 247),
            (&[(0x40, b"_BHRfS_M"), (0x20, &uuid)], 0x48),
            (&[(0, b"EFI PART"), (0x38, &uuid)], 0x10),
        ];
        for (fields, counter) in kinds {
            let before = sector(fields);
            let mut after = before.clone();
            after[counter] = 1;
            let (before, after) = (mark_in(&before).unwrap(), mark_in(&after).unwrap());
            assert!(before.identity == after.identity && before.change != after.change);
            let mut other = sector(fields);
            let at = fields[1].0;
            other[at] = 6;
            assert_ne!(mark_in(&other).unwrap().identity, before.identity);
        }
        let mbr = sector(&[(510, &[0x55, 0xaa]), (440, &[1, 2, 3, 4])]);
        assert!(mark_in(&mbr).is_some() && mark_in(&[0; 512]).is_none() && mark_in(b"XFSB").is_none());
    }

    #[test]
    fn the_content_tells_every_byte() {
        let mut bytes = vec![0; EDGE.as_usize()];
        let before = Fingerprint::of(&[bytes.clone(), vec![0; 512]]);
        bytes[5000] = 1;
        assert_ne!(before, Fingerprint::of(&[bytes, vec![0; 512]]));
    }

    #[test]
    fn partitions_are_found_and_looked_at() {
        let mut mbr = vec![0; EDGE.as_usize()];
        mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
        mbr[446 + 4] = 0x83;
        mbr[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
        let start = |place: &Range<Bytes>| place.start;
        let found: Vec<Bytes> = places(&mbr, GIB).iter().map(start).collect();
        assert_eq!(found, [Bytes::ZERO, GIB - MIB, MIB, MIB * 8]);
        for sector in [512, 4096] {
            let mut gpt = vec![0; EDGE.as_usize()];
            gpt[sector..sector + 8].copy_from_slice(b"EFI PART");
            let entry = &mut gpt[sector * 2..sector * 2 + 128];
            entry[0] = 1;
            entry[32..40].copy_from_slice(&2048u64.to_le_bytes());
            let found: Vec<Bytes> = places(&gpt, GIB).iter().map(start).collect();
            assert_eq!(found, [Bytes::ZERO, GIB - MIB, Bytes(2048 * sector as u64)]);
        }
    }

    #[test]
    fn places_and_marks_of_random_bytes_are_bounded() {
        let mut rng = Rng::new(3);
        for len in [0, 511, 512, 1100, 70_000, EDGE.as_usize()] {
            for magic in [&b""[..], b"EFI PART", b"XFSB", &[0x55, 0xaa]] {
                let mut bytes = vec![0; len];
                rng.fill(&mut bytes);
                for at in [0, 510, 512, 4096] {
                    if let Some(place) = bytes.get_mut(at..at + magic.len()) {
                        place.copy_from_slice(magic);
                    }
                }
                let places = places(&bytes, MIB * 5);
                assert!(places.len() <= 2 + MOST_PARTITIONS && places.iter().all(|p| p.end <= MIB * 5));
                let sectors = marked_sectors(&bytes, MIB * 5);
                assert!(sectors.len() <= crate::sums::MOST_MARKS && sectors.iter().all(|&at| at < MIB * 5));
                let _ = mark_in(&bytes);
            }
        }
    }
}
