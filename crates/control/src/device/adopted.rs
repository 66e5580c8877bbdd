//! A disk that a volume adopts: its identity, since Braid leaves no mark on the disk, and its present use.

use crate::device::place::shown;
use crate::device::used;
use crate::{Error, ErrorKind, Result};
use braid_format::Uuid;
use braid_format::fingerprint::NO_SERIAL;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns the identity of a disk. For a block device, the identity is the serial number; for a partition,
/// the serial number of the disk and the start of the partition.
///
/// A file, and a device without a serial number, such as a loop device or a virtio disk, has only its content
/// as identity ([`NO_SERIAL`]): its path may lead to another disk tomorrow.
///
/// # Errors
/// If there is no such disk.
pub(crate) fn identity(path: &Path) -> Result<Uuid> {
    let found = fs::metadata(path).map_err(|e| Error::io(path.display(), &e))?;
    let serial = found.file_type().is_block_device().then(|| serial(found.rdev())).flatten();
    Ok(serial.map_or(NO_SERIAL, |serial| sum(&serial)))
}

/// Returns the logical sector size of a block device; `None` for a file, whose content tells.
pub(crate) fn sector(path: &Path) -> Option<u32> {
    let file = fs::File::open(path).ok()?;
    let is_block_device = file.metadata().ok()?.file_type().is_block_device();
    is_block_device.then(|| rustix::fs::ioctl_blksszget(&file).ok()).flatten()
}

/// Returns the kernel's identification of a block device, independent of its connector.
fn serial(rdev: u64) -> Option<String> {
    let device = shown(rdev)?;
    let read = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let is_partition = device.join("partition").exists();
    let disk = if is_partition { device.parent()?.to_owned() } else { device.clone() };
    let places = ["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/serial", "serial"];
    let serial =
        places.iter().find_map(|place| read(disk.join(place)).map(|text| format!("{place} {text}")))?;
    match is_partition {
        true => Some(format!("{serial} from {}", read(device.join("start"))?)),
        false => Some(serial),
    }
}

/// Hashes a text to an identity with 128-bit FNV-1a.
fn sum(text: &str) -> Uuid {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let sum = text.bytes().fold(BASIS, |sum, byte| (sum ^ u128::from(byte)).wrapping_mul(PRIME));
    Uuid(sum.to_le_bytes())
}

/// Refuses a disk in use: a mount would write to the disk without the volume's knowledge. A loop device over
/// a file counts as a use, since it keeps bytes in memory.
///
/// # Errors
/// `Busy`: names the user, and the remedy.
pub(crate) fn refuse_used(path: &Path) -> Result<()> {
    used::refuse_used(path, "a volume adopts it")?;
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let Some(device) = used::loops_over(path).into_iter().next().filter(|_| is_file) else { return Ok(()) };
    let (shown, device) = (path.display(), device.display());
    let problem = format!(
        "{shown} is attached as {device}: detach {shown} before a volume adopts it (losetup -d {device})"
    );
    Err(Error::new(ErrorKind::Busy, problem))
}

/// Makes the file of a record. The whole room is allocated now, so that later writes cannot run out of space.
/// The remains of an interrupted creation are removed.
pub(crate) fn make_record(path: &Path, len: u64) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let taken = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len);
    let sized = match taken {
        // A file system without allocation: the file is sparse.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(len),
        taken => taken.map_err(io::Error::from),
    };
    sized.and_then(|()| file.sync_all()).inspect_err(|_| drop(fs::remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_no_serial_number_under_any_path() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, other, link) =
            (dir.path().join("disk"), dir.path().join("other"), dir.path().join("link"));
        fs::write(&disk, "x").unwrap();
        fs::write(&other, "x").unwrap();
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        assert_eq!([&disk, &other, &link].map(|path| identity(path).unwrap()), [NO_SERIAL; 3]);
        assert!(identity(&dir.path().join("none")).is_err());
        refuse_used(&disk).unwrap();
    }

    #[test]
    fn record_file_has_given_size_and_replaces_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        for len in [1 << 20, 1 << 16] {
            make_record(&path, len).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), len);
        }
    }
}
