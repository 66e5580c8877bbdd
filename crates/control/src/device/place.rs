//! Place of a device's bytes, independent of its path. Two paths may lead to one device, a loop device lies
//! over a file, a partition on a disk, and a device mapper target on other devices.
//!
//! Each device is resolved to ranges of files and of devices that lie over nothing else. Two devices that
//! share a byte overlap.

use crate::device::remote::is_address;
use braid_uring::path_beneath;
use rustix::fs::{major, makedev, minor};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Place of a device's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The range that equals the device byte for byte.
    range: Range,
    /// Ranges that hold the bytes of a device mapper target or an array at unknown offsets.
    within: Vec<Range>,
}

/// A range of a [`Root`], in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    root: Root,
    start: u64,
    end: u64,
}

/// A file or device that lies over nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Root {
    /// A file, by the number of its file system and its inode number.
    File(u64, u64),
    /// A block device, by its number.
    Device(u64),
    /// A remote device, by its address.
    Remote(PathBuf),
}

/// Limit of devices stacked on devices: a deeper stack is a circle.
const DEEPEST: u32 = 8;

impl Place {
    /// Returns the place of a file, block device or remote device.
    ///
    /// # Errors
    /// If the path does not exist.
    pub fn of(path: &Path) -> io::Result<Place> {
        if is_address(path) {
            return Ok(Place::whole(Root::Remote(path.to_owned())));
        }
        Ok(Place::found(&fs::metadata(path)?, DEEPEST))
    }

    /// Returns the place of a block device, by its number.
    pub fn of_device(number: u64) -> Place {
        Place::device(number, DEEPEST)
    }

    fn found(found: &Metadata, depth: u32) -> Place {
        match found.file_type().is_block_device() {
            true => Place::device(found.rdev(), depth),
            false => Place::whole(Root::File(found.dev(), found.ino())),
        }
    }

    fn device(number: u64, depth: u32) -> Place {
        let own = Place::whole(Root::Device(number));
        let (Some(shown), Some(depth)) = (shown(number), depth.checked_sub(1)) else { return own };
        if shown.join("partition").exists() {
            let disk = shown.parent().and_then(number_of);
            let (start, len) = (figure(&shown.join("start")), figure(&shown.join("size")));
            return match (disk, start, len) {
                (Some(disk), Some(start), Some(len)) => {
                    Place::device(disk, depth).part(start * SECTOR, len * SECTOR)
                }
                _ => own,
            };
        }
        if let Some(found) = path_beneath(number).and_then(|path| fs::metadata(path).ok()) {
            let start = figure(&shown.join("loop/offset")).unwrap_or(0);
            let len = figure(&shown.join("loop/sizelimit")).filter(|&len| len > 0).unwrap_or(u64::MAX);
            return Place::found(&found, depth).part(start, len);
        }
        let slaves = fs::read_dir(shown.join("slaves")).into_iter().flatten().flatten();
        let beneath = slaves.filter_map(|slave| number_of(&slave.path()));
        let within = beneath.flat_map(|slave| {
            let place = Place::device(slave, depth);
            place.within.into_iter().chain([place.range])
        });
        Place { within: within.collect(), ..own }
    }

    fn whole(root: Root) -> Place {
        Place { range: Range { root, start: 0, end: u64::MAX }, within: Vec::new() }
    }

    fn part(mut self, start: u64, len: u64) -> Place {
        let range = &mut self.range;
        range.start = range.start.saturating_add(start).min(range.end);
        range.end = range.start.saturating_add(len).min(range.end);
        self
    }

    /// True if two devices certainly share bytes: one device, a partition and its disk, a loop device and its
    /// file.
    pub fn is_upon(&self, other: &Place) -> bool {
        self.range.meets(&other.range)
    }

    /// True if all bytes of this device are bytes of `other`.
    pub fn is_part_of(&self, other: &Place) -> bool {
        let (own, other) = (&self.range, &other.range);
        own.root == other.root && other.start <= own.start && own.end <= other.end
    }

    /// True if two devices share bytes, or a device mapper target or array may lie on the other device.
    pub fn overlaps(&self, other: &Place) -> bool {
        let lies_in =
            |upper: &Place, lower: &Place| upper.within.iter().any(|range| range.meets(&lower.range));
        self.is_upon(other) || lies_in(self, other) || lies_in(other, self)
    }
}

impl Range {
    fn meets(&self, other: &Range) -> bool {
        self.root == other.root && self.start < other.end && other.start < self.end
    }
}

/// Unit of sizes in sysfs.
const SECTOR: u64 = 512;

/// Returns the sysfs directory of a block device.
pub(crate) fn shown(number: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()
}

/// Returns the number of the block device with this sysfs directory.
pub(crate) fn number_of(shown: &Path) -> Option<u64> {
    let text = fs::read_to_string(shown.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn figure(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Place {
        Place::whole(Root::Device(8))
    }

    #[test]
    fn file_is_one_device_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let [file, hard, soft, other] = ["file", "hard", "soft", "other"].map(|name| dir.path().join(name));
        fs::write(&file, "x").unwrap();
        fs::write(&other, "x").unwrap();
        fs::hard_link(&file, &hard).unwrap();
        std::os::unix::fs::symlink(&file, &soft).unwrap();
        let place = Place::of(&file).unwrap();
        assert!(place.overlaps(&Place::of(&hard).unwrap()) && place.overlaps(&Place::of(&soft).unwrap()));
        assert!(!place.overlaps(&Place::of(&other).unwrap()));
        assert!(Place::of(&dir.path().join("none")).is_err());
    }

    #[test]
    fn partition_overlaps_the_whole_disk_but_no_second_partition() {
        let (first, second) = (disk().part(512, 1024), disk().part(1536, 1024));
        assert!(first.overlaps(&disk()) && disk().overlaps(&second));
        assert!(!first.overlaps(&second));
        assert!(first.is_part_of(&disk()) && !disk().is_part_of(&first));
        // A loop device with an offset that ends within the second range.
        assert!(disk().part(0, 1537).overlaps(&second));
        assert!(!disk().part(0, 1536).overlaps(&second));
    }

    #[test]
    fn mapped_target_overlaps_the_disk_beneath_but_no_sibling() {
        let target = |number| Place { within: vec![disk().range], ..Place::whole(Root::Device(number)) };
        assert!(target(253).overlaps(&disk()) && disk().overlaps(&target(254)));
        assert!(!target(253).overlaps(&target(254)) && !target(253).is_upon(&disk()));
    }
}
