//! Name of a volume's block device that stays: `/dev/braid/NAME`, a symbolic link to the loop or ublk device.
//!
//! The rules of udev (packaging/60-braid.rules) make the same link, and systemd learns of the device by udev
//! alone. Without udev, in a container for example, this link is the only one. A loop device shows its volume
//! by the path of its file. The volume of a ublk device stands in a file of [`NAMES`], for udev.

use crate::state::state_dir::{StateDir, VolumeName};
use braid_ublk::number_of;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Directory of the links to the volumes of [`OF_MACHINE`].
const DIRECTORY: &str = "/dev/braid";
/// Directory of files `ublkbN` with a line `BRAID_VOLUME=NAME`.
const NAMES: &str = "/run/braid/devices";
/// The kernel's list of block devices.
const BLOCKS: &str = "/sys/class/block";
/// State directory of the machine. Names of volumes in other state directories may be equal.
const OF_MACHINE: &str = "/var/lib/braid";

/// Returns the path of a volume's link: in `BRAID_DEVICE_DIR`, else in `/dev/braid`. `None` if the volume is
/// not one of the machine's.
fn path(state: &StateDir, name: &VolumeName) -> Option<PathBuf> {
    let set = std::env::var_os("BRAID_DEVICE_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_machine = || (state.root() == Path::new(OF_MACHINE)).then(|| PathBuf::from(DIRECTORY));
    Some(set.or_else(of_machine)?.join(name.as_str()))
}

/// Makes or replaces the link to a block device. A failure is logged: the block device works without a link.
pub(super) fn make(state: &StateDir, name: &VolumeName, device: &Path) -> Option<PathBuf> {
    let link = path(state, name)?;
    if number_of(device).is_some() && state.root() == Path::new(OF_MACHINE) {
        let told = tell_udev(name, device);
        drop(
            told.inspect_err(|error| tracing::warn!("udev learns no name of {}: {error}", device.display())),
        );
    }
    let made = place(&link, device);
    made.inspect_err(|error| tracing::warn!("the link {} was not made: {error}", link.display())).ok()?;
    Some(link)
}

/// Removes the notes of block devices that are gone: a new device with such a number would get the name of
/// another volume from udev. A failure is logged.
pub(super) fn forget_gone() {
    forget_gone_of(Path::new(NAMES), Path::new(BLOCKS));
}

fn forget_gone_of(names: &Path, blocks: &Path) {
    for note in fs::read_dir(names).into_iter().flatten().flatten() {
        if blocks.join(note.file_name()).exists() {
            continue;
        }
        match fs::remove_file(note.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("the note {} stays: {error}", note.path().display());
            }
            _ => {}
        }
    }
}

/// Notes the volume of a ublk device, and lets udev look at the device again.
fn tell_udev(name: &VolumeName, device: &Path) -> io::Result<()> {
    let note = format!("BRAID_VOLUME={name}\n");
    let file = note_of(device);
    if fs::read_to_string(&file).is_ok_and(|known| known == note) {
        return Ok(());
    }
    // As a daemon makes the directory above it: for root alone.
    DirBuilder::new().recursive(true).mode(0o700).create(NAMES)?;
    fs::write(file, note)?;
    let device = device.file_name().unwrap_or_default();
    fs::write(Path::new(BLOCKS).join(device).join("uevent"), "change")
}

fn note_of(device: &Path) -> PathBuf {
    Path::new(NAMES).join(device.file_name().unwrap_or_default())
}

fn place(link: &Path, device: &Path) -> io::Result<()> {
    if fs::canonicalize(link).is_ok_and(|target| target == device) {
        return Ok(());
    }
    fs::create_dir_all(link.parent().unwrap_or(Path::new("/")))?;
    // By a new name: a program that opens the link finds the old or the new one.
    let new = link.with_file_name(format!(
        ".{}.{}",
        link.file_name().unwrap_or_default().display(),
        std::process::id()
    ));
    symlink(device, &new)?;
    fs::rename(&new, link).inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Removes the link to one of these block devices, and notes of devices that are gone. A failure is logged.
pub(super) fn remove(state: &StateDir, name: &VolumeName, devices: &[PathBuf]) {
    for device in devices.iter().filter(|device| number_of(device).is_some()) {
        // There is a note only for volumes of the machine.
        let _ = fs::remove_file(note_of(device));
    }
    forget_gone();
    let Some(link) = path(state, name) else { return };
    let Ok(target) = fs::read_link(&link) else { return };
    // The link of udev is relative.
    if !devices.iter().any(|device| device.file_name() == target.file_name()) {
        return;
    }
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("the link {} stays: {error}", link.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that went without `braid detach` left its note, and udev named the next device of this number
    /// after the earlier volume.
    #[test]
    fn notes_of_devices_that_are_gone_are_removed() {
        let (names, blocks) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["ublkb0", "ublkb1"] {
            fs::write(names.path().join(name), "BRAID_VOLUME=vault\n").unwrap();
        }
        fs::create_dir(blocks.path().join("ublkb1")).unwrap();
        forget_gone_of(names.path(), blocks.path());
        assert!(!names.path().join("ublkb0").exists() && names.path().join("ublkb1").exists());
        forget_gone_of(&names.path().join("missing"), blocks.path());
    }
}
