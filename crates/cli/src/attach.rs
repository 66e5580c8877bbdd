//! `braid attach` and `braid detach`.

use crate::output::{Output, complain};
use braid_control::{Attached, Result, StateDir, VolumeName};
use clap::Args;
use std::path::PathBuf;

/// Attach a served volume as a block device of this machine, and print the device's path
///
/// Needs root. Without root, use the volume by NBD: braid status prints the URI.
#[derive(Args)]
#[command(after_help = "\
Examples:
  mkfs.ext4 $(braid attach vault)
  braid attach vault --mount /mnt/vault

JSON: name, block_device, block_device_kind, mounted_on, file_system.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// Mount the volume's file system on this directory
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
}

/// Unmount and remove a volume's block device; the daemon continues
///
/// After the death of the daemon, removes its remains: the block device, the mounts on the block device, and
/// the file beneath.
#[derive(Args)]
#[command(after_help = "JSON: name, unmounted (a list of directories), served (the daemon continues).")]
pub struct DetachArguments {
    /// Name of the volume
    name: VolumeName,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let mount = arguments.mount.as_ref().map(std::path::absolute).transpose();
    let mount = mount.map_err(|e| braid_control::Error::io("the directory to mount on", &e))?;
    let attached: Attached = braid_control::attach(state, &arguments.name, mount.as_deref())?;
    output.show(&attached, || attached.block_device.display().to_string());
    if let (Some(directory), Some(file_system)) = (&attached.mounted_on, &attached.file_system) {
        complain(&format!(
            "{file_system} is mounted on {}: to unmount: braid detach {}",
            directory.display(),
            attached.name
        ));
    }
    Ok(0)
}

/// Runs the command.
pub fn detach(state: &StateDir, arguments: &DetachArguments, output: Output) -> Result<u8> {
    let detached = braid_control::detach(state, &arguments.name)?;
    output.show(&detached, || {
        let lines = detached.unmounted.iter().map(|directory| format!("unmounted {}\n", directory.display()));
        let goes_on = if detached.served { "still served" } else { "not served" };
        lines.collect::<String>()
            + &format!("volume '{}' detached from its block device; {goes_on}", detached.name)
    });
    Ok(0)
}
