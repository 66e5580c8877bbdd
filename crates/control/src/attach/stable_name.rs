//! Name of a volume's block device that stays: `/dev/braid/NAME`, a symbolic link to the loop or ublk device.
//!
//! The rules of udev (packaging/60-braid.rules) make the same link, and systemd learns of the device by udev
//! alone. Without udev, in a container for example, this link is the only one. A loop device shows its volume
//! by the path of its file. The volume of a ublk device stands in a file of [`NAMES`], for udev.

use crate::state::state_dir::{StateDir, VolumeName};
use braid_ublk::number_of;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Directory of the links to the volumes of [`OF_MACHINE`].
const DIRECTORY: &str = "/dev/braid";
/// Directory of files `ublkbN` with a line `BRAID_VOLUME=NAME`.
const NAMES: &str = "/run/braid/devices";
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

/// Notes the volume of a ublk device, and lets udev look at the device again.
fn tell_udev(name: &VolumeName, device: &Path) -> io::Result<()> {
    let note = format!("BRAID_VOLUME={name}\n");
    let file = note_of(device);
    if fs::read_to_string(&file).is_ok_and(|known| known == note) {
        return Ok(());
    }
    fs::create_dir_all(NAMES)?;
    fs::write(file, note)?;
    let device = device.file_name().unwrap_or_default();
    fs::write(Path::new("/sys/class/block").join(device).join("uevent"), "change")
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

/// Removes the link to one of these block devices. A failure is logged.
pub(super) fn remove(state: &StateDir, name: &VolumeName, devices: &[PathBuf]) {
    for device in devices.iter().filter(|device| number_of(device).is_some()) {
        // There is a note only for volumes of the machine.
        let _ = fs::remove_file(note_of(device));
    }
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
