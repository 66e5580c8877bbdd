//! Present uses of a device: a mount, swap space, another device over it, or a program with exclusive access.

use crate::device::place::{Place, number_of, shown};
use crate::device::remote::is_address;
use crate::{Error, ErrorKind, Result};
use rustix::fs::{OFlags, major, minor};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Refuses a device in use by any of its names: a partition of the device, a loop device over the device, or
/// the disk that holds the device. The users of a remote device are not known here. `task` is the intended
/// use, as in "a volume adopts it".
///
/// # Errors
/// `Busy`: names the user, and the command that ends the use.
pub(crate) fn refuse_used(path: &Path, task: &str) -> Result<()> {
    if is_address(path) {
        return Ok(());
    }
    let place = Place::of(path).map_err(|e| Error::io(path.display(), &e))?;
    let own = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
    let own = own.map(|found| found.rdev());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (shown, busy) = (path.display(), |problem: String| Err(Error::new(ErrorKind::Busy, problem)));
    for device in overlapping(&place) {
        if let Some(point) = mounts.lines().find_map(|line| mount_of(line, device.number)) {
            return busy(format!("{shown} is mounted on {point}: unmount it before {task} (umount {point})"));
        }
        if let Some(swap) = swaps().find(|swap| number_at(swap) == Some(device.number)) {
            let swap = swap.display();
            return busy(format!(
                "{shown} is swap space ({swap}): disable the swap space before {task} (swapoff {swap})"
            ));
        }
        // A target lies on this device, or this device is the target.
        if let Some(holder) = device.holder().filter(|_| device.is_upon) {
            return busy(format!("{shown} is in use by {holder}: end {holder} before {task}"));
        }
        if device.is_part && own != Some(device.number) && device.is_claimed() {
            let path = device.path.display();
            return busy(format!(
                "{shown} is in use through {path}: end that use before {task} (`fuser -v {path}` shows the \
                 program)"
            ));
        }
    }
    Ok(())
}

/// Returns the loop devices over a file.
pub(crate) fn loops_over(path: &Path) -> Vec<PathBuf> {
    let Ok(place) = Place::of(path) else { return Vec::new() };
    let upon = overlapping(&place).into_iter().filter(|device| device.is_upon);
    upon.map(|device| device.path)
        .filter(|path| path.as_os_str().as_encoded_bytes().starts_with(b"/dev/loop"))
        .collect()
}

/// A block device that shares bytes with the device in question.
struct Overlapping {
    number: u64,
    path: PathBuf,
    /// Shares bytes for certain, and not by a device mapper target.
    is_upon: bool,
    /// All its bytes are bytes of the device in question. False for a disk with the device as a partition:
    /// other partitions may be in use.
    is_part: bool,
}

impl Overlapping {
    /// Returns the device that the kernel has put over this device: a device mapper target, or an array.
    fn holder(&self) -> Option<String> {
        let mut holders = fs::read_dir(shown(self.number)?.join("holders")).ok()?;
        let name = holders.next()?.ok()?.file_name().into_string().ok()?;
        Some(format!("/dev/{name}"))
    }

    /// True if a program, or a mount in any mount namespace, has exclusive access.
    fn is_claimed(&self) -> bool {
        let flags = (OFlags::EXCL | OFlags::NONBLOCK).bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&self.path);
        opened.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
    }
}

/// Returns all block devices of the machine that share bytes with this device, including the device itself.
fn overlapping(place: &Place) -> Vec<Overlapping> {
    let entries = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let number = number_of(&entry.path())?;
        let other = Place::of_device(number);
        let path = Path::new("/dev").join(entry.file_name());
        let (is_upon, is_part) = (other.is_upon(place), other.is_part_of(place));
        other.overlaps(place).then_some(Overlapping { number, path, is_upon, is_part })
    });
    found.collect()
}

fn number_at(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(|found| found.file_type().is_block_device()).map(|found| found.rdev())
}

/// Returns the mount point if a line of mountinfo mounts the device. A file system on several devices, such
/// as btrfs, names one device as its source.
fn mount_of(line: &str, device: u64) -> Option<String> {
    let (before, behind) = line.split_once(" - ")?;
    let mut words = before.split(' ');
    let number = words.nth(2)?.split_once(':')?;
    let point = words.nth(1)?;
    let is_it = number.0.parse() == Ok(major(device)) && number.1.parse() == Ok(minor(device));
    let is_source =
        || behind.split(' ').nth(1).is_some_and(|source| number_at(Path::new(source)) == Some(device));
    (is_it || is_source()).then(|| point.replace("\\040", " "))
}

fn swaps() -> impl Iterator<Item = PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths: Vec<PathBuf> =
        text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(PathBuf::from).collect();
    paths.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_is_found_by_device_number() {
        let line = r"36 35 98:0 / /mnt/a\040b rw,noatime master:1 - ext4 /dev/none rw";
        let device = rustix::fs::makedev(98, 0);
        assert_eq!(mount_of(line, device).as_deref(), Some("/mnt/a b"));
        assert_eq!(mount_of(line, rustix::fs::makedev(98, 1)), None);
        assert_eq!(mount_of("nonsense", device), None);
    }

    #[test]
    fn unused_file_is_free() {
        let file = tempfile::NamedTempFile::new().unwrap();
        refuse_used(file.path(), "a test uses it").unwrap();
        assert!(loops_over(file.path()).is_empty());
    }
}
