//! A disk that a volume adopts: what it is known by, since no mark of ours lies on it, and whether something else uses it.

use crate::{Error, ErrorKind, Result};
use braid_format::Uuid;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a disk is known by: of a block device its serial number, or that of its disk and where it begins there; of a file, and of a device without
/// a serial number, its path.
///
/// # Errors
/// If there is no such disk.
pub(crate) fn identity(path: &Path) -> Result<Uuid> {
    let found = fs::metadata(path).map_err(|e| Error::io(path.display(), &e))?;
    let absolute = fs::canonicalize(path).map_err(|e| Error::io(path.display(), &e))?;
    let by_path = || format!("path {}", absolute.display());
    let known = match found.file_type().is_block_device() {
        true => serial(found.rdev()).unwrap_or_else(by_path),
        false => by_path(),
    };
    Ok(sum(&known))
}

/// The size of the logical sectors of a block device; none for a file, whose content tells.
pub(crate) fn sector(path: &Path) -> Option<u32> {
    let file = fs::File::open(path).ok()?;
    let is_block_device = file.metadata().ok()?.file_type().is_block_device();
    is_block_device.then(|| rustix::fs::ioctl_blksszget(&file).ok()).flatten()
}

/// Where the kernel shows a block device.
fn shown(rdev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// What the kernel says that a block device is, wherever it is plugged in.
fn serial(rdev: u64) -> Option<String> {
    let device = shown(rdev)?;
    let read = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let is_partition = device.join("partition").exists();
    let disk = if is_partition { device.parent()?.to_owned() } else { device.clone() };
    let places =
        ["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/serial", "serial", "loop/backing_file"];
    let serial =
        places.iter().find_map(|place| read(disk.join(place)).map(|text| format!("{place} {text}")))?;
    match is_partition {
        true => Some(format!("{serial} from {}", read(device.join("start"))?)),
        false => Some(serial),
    }
}

/// A text as an identity: FNV-1a of 128 bits.
fn sum(text: &str) -> Uuid {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let sum = text.bytes().fold(BASIS, |sum, byte| (sum ^ u128::from(byte)).wrapping_mul(PRIME));
    Uuid(sum.to_le_bytes())
}

/// Refuses a disk that the kernel uses: what is mounted writes to it past the volume.
///
/// # Errors
/// `Busy`: names what uses it, and what to do.
pub(crate) fn refuse_used(path: &Path) -> Result<()> {
    let found = fs::metadata(path).map_err(|e| Error::io(path.display(), &e))?;
    let devices = match found.file_type().is_block_device() {
        true => with_parts(found.rdev()),
        false => loops_over(path),
    };
    let busy = |problem: String| Err(Error::new(ErrorKind::Busy, problem));
    let (shown, mounts) = (path.display(), fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    for &device in &devices {
        if let Some(point) = mounts.lines().find_map(|line| mount_of(line, device)) {
            return busy(format!(
                "{shown} is mounted on {point}: unmount it before a volume adopts it (umount {point})"
            ));
        }
        if let Some(swap) = swaps().find(|swap| rdev(swap) == Some(device)) {
            let swap = swap.display();
            return busy(format!(
                "{shown} is swap space ({swap}): end that before a volume adopts it (swapoff {swap})"
            ));
        }
        if let Some(holder) = holder(device) {
            return busy(format!("{shown} is in use by {holder}: end that before a volume adopts it"));
        }
    }
    match (found.is_file(), devices.first()) {
        (true, Some(&device)) => {
            let minor = rustix::fs::minor(device);
            busy(format!(
                "{shown} is attached as /dev/loop{minor}: detach it before a volume adopts it (losetup -d /dev/loop{minor})"
            ))
        }
        _ => Ok(()),
    }
}

fn rdev(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(|found| found.file_type().is_block_device()).map(|found| found.rdev())
}

/// A block device, and its partitions.
fn with_parts(device: u64) -> Vec<u64> {
    let entries = shown(device).and_then(|shown| fs::read_dir(shown).ok());
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let parts = paths.filter(|path| path.join("partition").exists()).filter_map(|path| number(&path));
    std::iter::once(device).chain(parts).collect()
}

/// The number of a block device that the kernel shows there.
fn number(shown: &Path) -> Option<u64> {
    let text = fs::read_to_string(shown.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Loop devices over a file, with their partitions.
fn loops_over(path: &Path) -> Vec<u64> {
    let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
    let is_over = |shown: &PathBuf| {
        let backing = fs::read_to_string(shown.join("loop/backing_file")).unwrap_or_default();
        Path::new(backing.trim_end()) == path
    };
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(is_over)
        .filter_map(|shown| number(&shown))
        .flat_map(with_parts)
        .collect()
}

/// Where a line of mountinfo mounts a device. What has several devices, such as btrfs, names one of them as its source.
fn mount_of(line: &str, device: u64) -> Option<String> {
    let (before, behind) = line.split_once(" - ")?;
    let mut words = before.split(' ');
    let number = words.nth(2)?.split_once(':')?;
    let point = words.nth(1)?;
    let is_it = number.0.parse() == Ok(rustix::fs::major(device))
        && number.1.parse() == Ok(rustix::fs::minor(device));
    let is_source = || behind.split(' ').nth(1).is_some_and(|source| rdev(Path::new(source)) == Some(device));
    (is_it || is_source()).then(|| point.replace("\\040", " "))
}

fn swaps() -> impl Iterator<Item = PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths: Vec<PathBuf> =
        text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(PathBuf::from).collect();
    paths.into_iter()
}

/// What the kernel has put over a device: a device mapper target, an array.
fn holder(device: u64) -> Option<String> {
    let mut holders = fs::read_dir(shown(device)?.join("holders")).ok()?;
    let name = holders.next()?.ok()?.file_name().into_string().ok()?;
    Some(format!("/dev/{name}"))
}

/// Makes the file of a record: all of its room is taken now, so that it never lacks any.
pub(crate) fn make_record(path: &Path, len: u64) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let taken = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len);
    let sized = match taken {
        // A file system without that: then it is sparse.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(len),
        taken => taken.map_err(io::Error::from),
    };
    sized.and_then(|()| file.sync_all()).inspect_err(|_| drop(fs::remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_path_whatever_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, other, link) =
            (dir.path().join("disk"), dir.path().join("other"), dir.path().join("link"));
        fs::write(&disk, "x").unwrap();
        fs::write(&other, "x").unwrap();
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        assert_eq!(identity(&disk).unwrap(), identity(&link).unwrap());
        assert_ne!(identity(&disk).unwrap(), identity(&other).unwrap());
        assert!(identity(&dir.path().join("none")).is_err());
        refuse_used(&disk).unwrap();
    }

    #[test]
    fn a_mount_is_found_by_the_number_of_its_device() {
        let line = r"36 35 98:0 / /mnt/a\040b rw,noatime master:1 - ext4 /dev/none rw";
        let device = rustix::fs::makedev(98, 0);
        assert_eq!(mount_of(line, device).as_deref(), Some("/mnt/a b"));
        assert_eq!(mount_of(line, rustix::fs::makedev(98, 1)), None);
        assert_eq!(mount_of("nonsense", device), None);
    }

    #[test]
    fn a_record_takes_its_room_and_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        make_record(&path, 1 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        assert!(make_record(&path, 1 << 20).is_err());
    }
}
