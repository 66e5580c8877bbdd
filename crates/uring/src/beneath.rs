//! The file beneath a loop device. A daemon that uses the loop device shares the lock of that file, so that
//! nobody else uses the file by its own path meanwhile; whoever uses the file has its lock alone.

use rustix::fs::{major, minor};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path of the file or device that a loop device lies over, by the number of the loop device. None for
/// every other device, and for a loop device over a served volume: its daemon would wait for its own answer
/// if it looked at that file.
pub fn path_beneath(number: u64) -> Option<PathBuf> {
    let shown = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
    let mut text = fs::read(shown.join("loop/backing_file")).ok()?;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    let path = PathBuf::from(OsString::from_vec(text));
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let is_served = mounts.split(|&byte| byte == b'\n').any(|line| is_mount_of_volume(line, &path));
    (!is_served).then_some(path)
}

/// Whether a line of mountinfo is the mount of a served volume, with this file.
fn is_mount_of_volume(line: &[u8], file: &Path) -> bool {
    let mut words = line.split(|&byte| byte == b' ');
    let point = words.nth(4).unwrap_or_default();
    let is_volume = line.windows(SERVED.len()).any(|part| part == SERVED);
    // What is escaped there stands for one byte: equal ends are enough.
    let is_there = file
        .parent()
        .is_some_and(|directory| point.contains(&b'\\') || directory.as_os_str().as_bytes() == point);
    is_volume && is_there
}

/// The kind of such a mount, behind the separator of its line.
const SERVED: &[u8] = b" - fuse.braid ";

/// The file beneath the disk of an open block device, opened for reading. None if there is none, or it cannot
/// be reached from here.
pub(crate) fn file_beneath(device: &File) -> Option<(PathBuf, File)> {
    let path = path_beneath(disk_of(device.metadata().ok()?.rdev())?)?;
    // A loop device over a block device has the protection of that device.
    let file = File::open(&path).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
    Some((path, file))
}

/// The disk of a partition; of another device itself.
fn disk_of(number: u64) -> Option<u64> {
    let shown = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()?;
    if !shown.join("partition").exists() {
        return Some(number);
    }
    let text = fs::read_to_string(shown.parent()?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_served_volume_is_known_by_its_mount() {
        let line = b"36 35 0:52 / /state/vault/mount rw,nosuid - fuse.braid vault rw";
        assert!(is_mount_of_volume(line, Path::new("/state/vault/mount/volume")));
        assert!(!is_mount_of_volume(line, Path::new("/state/vault/other")));
        let other = b"36 35 0:52 / /state/vault/mount rw,nosuid - fuse.sshfs vault rw";
        assert!(!is_mount_of_volume(other, Path::new("/state/vault/mount/volume")));
        assert_eq!(path_beneath(rustix::fs::makedev(1, 3)), None);
    }
}
