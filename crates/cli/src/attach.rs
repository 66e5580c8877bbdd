//! `braid attach` and `braid detach`.

use crate::output::{Output, complain};
use braid_control::{Attached, Result, StateDir, VolumeName};
use clap::Args;
use std::path::PathBuf;

/// Make a served volume a block device of this machine, and print its path
///
/// Needs root. Without it, use the volume by NBD: braid status prints the URI.
#[derive(Args)]
#[command(after_help = "\
Examples:
  mkfs.ext4 $(braid attach vault)
  braid attach vault --mount /mnt/vault

JSON: name, block_device, block_device_kind, mounted_on, file_system.")]
pub struct Arguments {
    /// The volume
    name: VolumeName,
    /// Mount the file system that is on it here
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
}

/// Unmount a volume's block device, and remove it; the daemon goes on
///
/// If the daemon has died, removes what it left: the block device, what is mounted on it, and the file under
/// it.
#[derive(Args)]
#[command(after_help = "JSON: name, unmounted (a list of directories), served (whether the daemon goes on).")]
pub struct DetachArguments {
    /// The volume
    name: VolumeName,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let mount = arguments.mount.as_ref().map(std::path::absolute).transpose();
    let mount = mount.map_err(|e| braid_control::Error::io("the directory to mount on", &e))?;
    let attached: Attached = braid_control::attach(state, &arguments.name, mount.as_deref())?;
    output.show(&attached, || attached.block_device.display().to_string());
    if let (Some(directory), Some(file_system)) = (&attached.mounted_on, &attached.file_system) {
        complain(&format!(
            "{file_system} is mounted on {}; braid detach {} ends it",
            directory.display(),
            attached.name
        ));
    }
    Ok(0)
}

/// Runs the verb.
pub fn detach(state: &StateDir, arguments: &DetachArguments, output: Output) -> Result<u8> {
    let detached = braid_control::detach(state, &arguments.name)?;
    output.show(&detached, || {
        let lines = detached.unmounted.iter().map(|directory| format!("unmounted {}\n", directory.display()));
        let goes_on = if detached.served { "it is still served" } else { "it is not served" };
        lines.collect::<String>()
            + &format!("volume '{}' is not a block device any more; {goes_on}", detached.name)
    });
    Ok(0)
}
