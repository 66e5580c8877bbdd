//! What tells that an adopted disk was changed elsewhere: no mark of ours lies on it, so two sums of what is there are kept on the SSD.
//!
//! *File systems* is a sum of what changes when a disk gets another file system, or is mounted to be written elsewhere: the partition
//! table, and of each file system the UUID; of ext2 to ext4 the time and the number of its mounts, too. It may be compared at
//! any time. *Content* is a sum of all bytes that are looked at: the first and last MiB of the disk, and 128 KiB of each partition. It may be
//! compared after a shutdown.
//!
//! Known are ext2 to ext4 (`s_uuid`, `s_mtime`, `s_mnt_count`), XFS (`sb_uuid`) and btrfs (`fsid`), on the disk itself or in a partition of a GPT or
//! an MBR. Of others only the bytes count. A change that leaves all these bytes as they were is not noticed.

use braid_base::{Bytes, KIB, MIB};
use std::ops::Range;

/// What an adopted disk held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fingerprint {
    /// Of its partition table and its file systems.
    pub file_systems: u32,
    /// Of all bytes that are looked at.
    pub content: u32,
}

/// How much is looked at, at the start and at the end of a disk.
pub const EDGE: Bytes = MIB;
/// How much of the start tells the file systems: a GPT takes 34 sectors of at most 4 KiB.
pub const TABLES: Bytes = Bytes(160 << 10);
/// How much is looked at at the start of a partition: the superblock of btrfs lies at 64 KiB.
pub const PARTITION_START: Bytes = Bytes(128 << 10);
/// The most partitions that are looked at.
const MOST_PARTITIONS: usize = 32;

/// Where what tells the file systems lies: the partition table, as far as most reach, and superblocks. Guests write there rarely.
pub fn telling_places(start: &[u8]) -> Vec<Range<Bytes>> {
    let superblocks = |at: Bytes| [at..at + KIB * 4, at + KIB * 64..at + KIB * 68];
    let of_parts = partitions(start).into_iter().flat_map(superblocks);
    [Bytes::ZERO..KIB * 20].into_iter().chain(superblocks(Bytes::ZERO)).chain(of_parts).collect()
}

/// Where to look: the start, the end, and the start of each partition that the bytes of the start (of [`EDGE`] at most) name.
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
    /// Of the bytes at the [`places`], in their order.
    pub fn of(looked_at: &[Vec<u8>]) -> Fingerprint {
        let mut file_systems = crc32c::crc32c(looked_at.first().map_or(&[], |start| partition_table(start)));
        let mut content = 0;
        for (i, bytes) in looked_at.iter().enumerate() {
            content = crc32c::crc32c_append(content, bytes);
            // The end holds no file system.
            if i != 1 {
                file_systems = file_system(bytes).fold(file_systems, crc32c::crc32c_append);
            }
        }
        Fingerprint { file_systems, content }
    }
}

/// The bytes that tell a file system, and how often it was mounted; none if it is not known.
fn file_system(start: &[u8]) -> impl Iterator<Item = &[u8]> {
    let has = |at: usize, magic: &[u8]| start.get(at..at + magic.len()) == Some(magic);
    // The magic bytes come first.
    let fields: &[Range<usize>] = if has(0x438, &[0x53, 0xef]) {
        // The superblock of ext4 lies at 1024: s_magic, s_mtime, s_mnt_count, s_uuid.
        &[0x438..0x43a, 1024 + 0x2c..1024 + 0x30, 1024 + 0x34..1024 + 0x36, 1024 + 0x68..1024 + 0x78]
    } else if has(0, b"XFSB") {
        &[0..4, 32..48]
    } else if has(0x1_0040, b"_BHRfS_M") {
        &[0x1_0040..0x1_0048, 0x1_0020..0x1_0030]
    } else {
        &[]
    };
    fields.iter().filter_map(move |field| start.get(field.clone()))
}

/// The bytes of a partition table.
fn partition_table(start: &[u8]) -> &[u8] {
    match (gpt_sector(start), start) {
        (Some(sector), _) => start.get(..sector * 34).unwrap_or(start),
        (None, [..]) if has_mbr(start) => &start[446..512],
        _ => &[],
    }
}

/// Where partitions begin. The bytes may be anything.
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
        // Nearly every table: 128 entries of 128 bytes behind the header.
        let entries = start.get(sector * 2..).unwrap_or_default().chunks_exact(128).take(128);
        entries.filter(|entry| entry[..16] != [0; 16]).for_each(|entry| add(sector, u64_at(entry, 32)));
    } else if has_mbr(start) {
        // A disk whose sectors have 4 KiB counts in these: both places are looked at.
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

/// The size of a sector, if there is a GPT: its header is the second one.
fn gpt_sector(start: &[u8]) -> Option<usize> {
    [512, 4096].into_iter().find(|&sector| start.get(sector..sector + 8) == Some(b"EFI PART"))
}

/// Whether the first sector ends as an MBR does, and is no file system's.
fn has_mbr(start: &[u8]) -> bool {
    let ends = start.get(510..512) == Some(&[0x55, 0xaa]);
    ends && start.len() >= 512 && start[446..510].chunks_exact(16).all(|entry| matches!(entry[0], 0 | 0x80))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, Rng};

    /// An ext4 superblock at the start of some bytes, as far as it is looked at.
    fn ext4(mounts: u8) -> Vec<u8> {
        let mut bytes = vec![0; EDGE.as_usize()];
        bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        bytes[1024 + 0x34] = mounts;
        bytes[1024 + 0x68..1024 + 0x78].fill(5);
        bytes
    }

    fn of(bytes: Vec<u8>) -> Fingerprint {
        Fingerprint::of(&[bytes, vec![0; 512]])
    }

    #[test]
    fn a_mount_elsewhere_changes_what_may_be_compared_at_any_time() {
        let before = of(ext4(1));
        assert_eq!(before, of(ext4(1)));
        let mounted = of(ext4(2));
        assert!(mounted.file_systems != before.file_systems && mounted.content != before.content);
        let mut written = ext4(1);
        written[5000] = 1;
        let written = of(written);
        assert!(written.file_systems == before.file_systems && written.content != before.content);
    }

    #[test]
    fn file_systems_are_told_from_each_other() {
        let mut xfs = vec![0; EDGE.as_usize()];
        xfs[..4].copy_from_slice(b"XFSB");
        xfs[32] = 1;
        let mut btrfs = vec![0; EDGE.as_usize()];
        btrfs[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
        btrfs[0x1_0020] = 1;
        let sums: Vec<u32> = [ext4(1), xfs, btrfs, vec![0; EDGE.as_usize()]]
            .into_iter()
            .map(|bytes| of(bytes).file_systems)
            .collect();
        let mut distinct = sums.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), sums.len(), "{sums:?}");
    }

    #[test]
    fn partitions_are_looked_at_where_the_table_says() {
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
    fn a_look_at_the_start_alone_tells_the_same_file_systems() {
        let mut gpt = ext4(1);
        gpt[512..520].copy_from_slice(b"EFI PART");
        gpt[1024 + 0x38] = 1;
        let short = gpt[..TABLES.as_usize()].to_vec();
        assert_eq!(of(gpt.clone()).file_systems, Fingerprint::of(&[short.clone(), Vec::new()]).file_systems);
        assert_eq!(telling_places(&gpt), telling_places(&short));
    }

    #[test]
    fn any_bytes_have_a_fingerprint_and_bounded_places() {
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
                assert_eq!(Fingerprint::of(&[bytes.clone()]), Fingerprint::of(&[bytes]));
            }
        }
    }
}
