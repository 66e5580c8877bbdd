//! The bottom of a loop device, through any loop devices between: a range of a file, or of another block
//! device.
//!
//! A daemon on the loop device shares the lock of the file, which excludes a daemon on the file's own path:
//! such a daemon takes the lock alone. And the daemon locks the range, against other loop devices over the
//! same bytes.

use rustix::fs::{major, minor};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Path of the file or device under a loop device, by the number of the loop device. None for every other
/// device, and for a loop device over a served volume: a daemon that looked at the file of its own volume
/// would wait for its own answer.
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

/// True if a line of mountinfo is the mount of a served volume with this file.
fn is_mount_of_volume(line: &[u8], file: &Path) -> bool {
    let mut words = line.split(|&byte| byte == b' ');
    let point = words.nth(4).unwrap_or_default();
    let is_volume = line.windows(SERVED.len()).any(|part| part == SERVED);
    // In mountinfo an escape stands for one byte. If the mount point contains an escape, any mount of a
    // volume counts.
    let is_there = file
        .parent()
        .is_some_and(|directory| point.contains(&b'\\') || directory.as_os_str().as_bytes() == point);
    is_volume && is_there
}

/// The kind of such a mount, behind the separator of its line.
const SERVED: &[u8] = b" - fuse.braid ";

/// Bottom of a loop device, or of a partition of a loop device.
#[derive(Debug)]
pub(crate) struct Beneath {
    pub path: PathBuf,
    /// First byte of the device in the file.
    pub start: u64,
}

/// Longest chain of devices over devices. A longer chain is a circle.
const DEEPEST: u32 = 8;

/// Bottom of a block device, by its number. None if the device is no loop device and lies on none.
pub(crate) fn beneath(mut number: u64) -> Option<Beneath> {
    let (mut start, mut bottom) = (0u64, None);
    for _ in 0..DEEPEST {
        let shown = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()?;
        if let Some(first) = figure(&shown.join("start")).filter(|_| shown.join("partition").exists()) {
            start = start.checked_add(first.checked_mul(SECTOR)?)?;
            number = number_of(shown.parent()?)?;
            continue;
        }
        let Some(path) = path_beneath(number) else { break };
        start = start.checked_add(figure(&shown.join("loop/offset"))?)?;
        let found = fs::metadata(&path).ok()?;
        bottom = Some(path);
        if found.is_file() {
            break;
        }
        number = found.rdev();
    }
    bottom.map(|path| Beneath { path, start })
}

/// Unit of a partition's start in sysfs.
const SECTOR: u64 = 512;

fn figure(shown: &Path) -> Option<u64> {
    fs::read_to_string(shown).ok()?.trim().parse().ok()
}

fn number_of(shown: &Path) -> Option<u64> {
    let text = fs::read_to_string(shown.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_a_served_volume_is_recognized_by_mount() {
        let line = b"36 35 0:52 / /state/vault/mount rw,nosuid - fuse.braid vault rw";
        assert!(is_mount_of_volume(line, Path::new("/state/vault/mount/volume")));
        assert!(!is_mount_of_volume(line, Path::new("/state/vault/other")));
        let other = b"36 35 0:52 / /state/vault/mount rw,nosuid - fuse.sshfs vault rw";
        assert!(!is_mount_of_volume(other, Path::new("/state/vault/mount/volume")));
        assert_eq!(path_beneath(rustix::fs::makedev(1, 3)), None);
    }
}
