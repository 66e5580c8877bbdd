//! `braid resize`.

use crate::output::Output;
use braid_base::Bytes;
use braid_control::{ResizeReport, Result, StateDir, VolumeName};
use clap::Args;

/// Change the size of a volume, served or not
///
/// A served volume grows under its guests: their requests wait for a moment, and no request fails. An
/// attached block device has the new size at once; the file system on it grows by its own command (resize2fs,
/// xfs_growfs, btrfs filesystem resize). A virtual machine by vhost-user sees the new size at once; NBD
/// clients see the new size when they connect again. A size that the devices cannot hold is refused, and the
/// message names the largest: braid device add makes room.
///
/// A volume shrinks if nothing is stored beyond the new end: shrink the file system first, and discard the
/// rest (blkdiscard). A volume with NBD clients or an attached block device does not shrink. A disk with its
/// contents (braid create --adopt) keeps its size.
///
/// After a power cut the volume has the old or the new size. The command can be repeated.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid resize vault 12TiB
  braid device add vault --hdd /dev/sdd && braid resize vault 16TB && resize2fs /dev/braid/vault

JSON: name, size_bytes, former_bytes, left_bytes (by which the volume could grow further), block_device, \
untold_guests (have the former size until they connect again).")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// New size, such as 500GiB or 4TB
    size: Bytes,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let report = braid_control::resize(state, &arguments.name, arguments.size)?;
    output.show(&report, || describe(&report));
    Ok(0)
}

fn describe(report: &ResizeReport) -> String {
    let (name, size, former) = (&report.name, Bytes(report.size_bytes), Bytes(report.former_bytes));
    let mut text = match size == former {
        true => format!("volume '{name}' has {size} already"),
        false => format!("volume '{name}' has {size}, before {former}"),
    };
    if report.left_bytes > 0 {
        text += &format!("; it could grow by {} more", Bytes(report.left_bytes));
    }
    if let Some(device) = &report.block_device {
        let device = device.display();
        text +=
            &format!("\n{device} has this size. Next: grow its file system, for example resize2fs {device}");
    }
    for guest in &report.untold_guests {
        text += &format!("\n{guest} has the former size until it connects again");
    }
    text
}
