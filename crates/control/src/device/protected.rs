//! Write-protected devices. The kernel opens a read-only block device for writing, and refuses each write.

use rustix::fs::{Access, access, major, minor};
use rustix::io::Errno;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Explains why a device cannot be written, with the remedy; `None` if nothing is known against writing.
/// Opens and changes nothing.
pub(crate) fn write_protection(path: &Path) -> Option<String> {
    let (found, shown) = (std::fs::metadata(path).ok()?, path.display());
    if !found.file_type().is_block_device() {
        let is_read_only = access(path, Access::WRITE_OK) == Err(Errno::ROFS);
        return is_read_only.then(|| {
            format!(
                "{shown} is on a read-only file system: see the kernel's log for the reason, and remount \
                 the file system (mount -o remount,rw)"
            )
        });
    }
    let (major, minor) = (major(found.rdev()), minor(found.rdev()));
    let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).ok()?;
    (told.trim() == "1").then(|| {
        format!(
            "{shown} is read-only: see the kernel's log for the reason, and make the device writable \
             (blockdev --setrw {shown})"
        )
    })
}
