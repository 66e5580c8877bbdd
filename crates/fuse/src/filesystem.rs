//! Content of a volume: the kind of file system, and its sector size.

use crate::mount_options::MountOptions;
use crate::mounts::mounts;
use braid_engine::{Error, ErrorKind, Result};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file system, recognised by its superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// ext4; also ext2 and ext3, mounted by the same driver.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FileSystem {
    /// Name of the file system in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// Identifies a file system by the first 68 KiB of a device or volume.
    fn identify(first: &[u8]) -> Option<FileSystem> {
        if at(first, 0) == Some(*b"XFSB") {
            return Some(FileSystem::Xfs);
        }
        if at(first, 1024 + 56) == Some([0x53, 0xef]) {
            return Some(FileSystem::Ext4);
        }
        (at(first, (64 << 10) + 64) == Some(*b"_BHRfS_M")).then_some(FileSystem::Btrfs)
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Mounts the file system of `device` on `directory` without options, as [`mount_with`].
pub fn mount(device: &Path, directory: &Path) -> Result<FileSystem> {
    mount_with(device, directory, &MountOptions::default())
}

/// Mounts the file system of `device` on `directory`, and returns its kind. A present mount there stays as it
/// is.
///
/// # Errors
/// If no file system is recognised, or the kernel refuses the mount.
pub fn mount_with(device: &Path, directory: &Path, options: &MountOptions) -> Result<FileSystem> {
    let mut first = vec![0; 68 << 10];
    let opened = File::open(device).map_err(|error| Error::io(device.display(), &error))?;
    opened.read_exact_at(&mut first, 0).map_err(|error| Error::io(device.display(), &error))?;
    drop(opened);
    let Some(found) = FileSystem::identify(&first) else {
        let device = device.display();
        let message = format!(
            "{device} has no ext4, XFS or btrfs: make a file system, for example with 'mkfs.ext4 \
             {device}'"
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    let of_file_system = options.of_file_system();
    match rustix::mount::mount(device, directory, found.name(), options.flags(), of_file_system) {
        Ok(()) => Ok(found),
        Err(Errno::BUSY) if is_mounted(device, directory)? => Ok(found),
        Err(error) => {
            let (device, directory) = (device.display(), directory.display());
            let with = if options.is_empty() { String::new() } else { format!(" with options {options}") };
            let attempt = format!("mounting the {found} on {device} on {directory}{with}");
            Err(Error::io(attempt, &error.into()))
        }
    }
}

fn is_mounted(device: &Path, directory: &Path) -> Result<bool> {
    let point = directory.canonicalize().map_err(|error| Error::io(directory.display(), &error))?;
    Ok(mounts()?.iter().any(|mount| mount.source == device && mount.point == point))
}

/// Sector size for a block device over a volume of `size` bytes that begins with `first`.
///
/// 4096, so that no guest sends a request for which the engine must read a block first. But 512 if 4096 would
/// make the volume unreadable or shorter. Unreadable: the volume was filled through a door with sectors of
/// 512 bytes (NBD, a virtual machine), and its content counts in such sectors. Shorter: its size is no
/// multiple of 4096.
pub fn sector_size(first: &[u8], size: u64) -> u32 {
    const PREFERRED: u32 = 4096;
    const SMALL: u32 = 512;
    let holds_small_sectors = match FileSystem::identify(first) {
        Some(FileSystem::Xfs) => at(first, 102).map(u16::from_be_bytes) < Some(PREFERRED as u16),
        Some(FileSystem::Ext4) => at(first, 1024 + 24).map(u32::from_le_bytes) < Some(PREFERRED.ilog2() - 10),
        Some(FileSystem::Btrfs) => false,
        None => has_partitions_in_small_sectors(first),
    };
    if holds_small_sectors || !size.is_multiple_of(PREFERRED.into()) { SMALL } else { PREFERRED }
}

/// True for a GPT header in the second sector, or for an MBR, unless the MBR only protects a GPT. An MBR does
/// not tell its sector size.
fn has_partitions_in_small_sectors(first: &[u8]) -> bool {
    const GPT: [u8; 8] = *b"EFI PART";
    const PROTECTIVE: u8 = 0xee;
    let is_mbr = at(first, 510) == Some([0x55, 0xaa]);
    let kinds = (0..4).filter_map(|entry| at::<1>(first, 446 + 16 * entry + 4)).map(|[kind]| kind);
    at(first, 512) == Some(GPT) || is_mbr && kinds.into_iter().any(|kind| kind != 0 && kind != PROTECTIVE)
}

fn at<const LEN: usize>(bytes: &[u8], offset: usize) -> Option<[u8; LEN]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_bytes(pieces: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 68 << 10];
        for (offset, piece) in pieces {
            bytes[*offset..][..piece.len()].copy_from_slice(piece);
        }
        bytes
    }

    #[test]
    fn empty_volume_has_4096_byte_sectors_if_size_allows() {
        assert_eq!(sector_size(&[0; 68 << 10], 1 << 30), 4096);
        assert_eq!(sector_size(&[0; 68 << 10], (1 << 30) + 512), 512);
    }

    #[test]
    fn sector_size_follows_the_existing_file_system() {
        let small_xfs = first_bytes(&[(0, b"XFSB"), (102, &512u16.to_be_bytes())]);
        let large_xfs = first_bytes(&[(0, b"XFSB"), (102, &4096u16.to_be_bytes())]);
        let small_ext4 = first_bytes(&[(1080, &[0x53, 0xef]), (1048, &0u32.to_le_bytes())]);
        let large_ext4 = first_bytes(&[(1080, &[0x53, 0xef]), (1048, &2u32.to_le_bytes())]);
        let small_gpt = first_bytes(&[(510, &[0x55, 0xaa]), (450, &[0xee]), (512, b"EFI PART")]);
        let large_gpt = first_bytes(&[(510, &[0x55, 0xaa]), (450, &[0xee]), (4096, b"EFI PART")]);
        let mbr = first_bytes(&[(510, &[0x55, 0xaa]), (450, &[0x83])]);
        for small in [small_xfs, small_ext4, small_gpt, mbr] {
            assert_eq!(sector_size(&small, 1 << 30), 512);
        }
        for large in [large_xfs, large_ext4, large_gpt] {
            assert_eq!(sector_size(&large, 1 << 30), 4096);
        }
    }
}
