//! `braid attach` and `braid detach`.

use crate::output::{Output, complain};
use braid_control::{
    AttachConfig, Attached, Detach, Error, ErrorKind, Mount, MountOptions, Result, StateDir, Via,
};
use braid_control::{VolumeConfig, VolumeName};
use clap::Args;
use std::path::PathBuf;

/// Attach a served volume as a block device of this machine, and print the device's path
///
/// Needs root. Without root, use the volume by NBD: braid status prints the URI. Settings that the command
/// line lacks are read from /etc/braid/NAME.toml, if that file exists.
///
/// A block device by ublk outlives the daemon: if the daemon dies or is replaced, requests wait, and the next
/// braid serve continues them. A loop device fails all requests then.
#[derive(Args)]
#[command(after_help = "\
Examples:
  mkfs.ext4 $(braid attach vault)
  braid attach vault --mount /mnt/vault --options noatime,nodev
  braid attach vault --via loop

/etc/braid/NAME.toml, all keys optional:
  [attach]
  via = 'ublk'
  mount = '/srv/vault'
  options = 'noatime,nodev'

JSON: name, block_device, block_device_link, block_device_kind, mounted_on, file_system.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// Kind of the block device: ublk (needs Linux 6.12 or later with the module ublk_drv), or loop (a loop
    /// device over a FUSE file) [default: ublk where possible]
    #[arg(long, value_name = "KIND")]
    via: Option<Via>,
    /// Mount the volume's file system on this directory
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Options of the mount, as in fstab: options of the kernel and of the file system
    #[arg(long, value_name = "OPTION[,OPTION...]")]
    options: Option<MountOptions>,
    /// Mount nothing, although the configuration names a directory
    #[arg(long = "no-mount", conflicts_with_all = ["mount", "options"])]
    no_mount: bool,
}

/// Unmount and remove a volume's block device; the daemon continues
///
/// After the death of the daemon, removes its remains: the block device, the mounts on the block device, and
/// the file beneath. Refuses if a block device by ublk is in use: the next braid serve continues the device,
/// and nothing is lost.
#[derive(Args)]
#[command(after_help = "JSON: name, unmounted (a list of directories), served (the daemon continues).")]
pub struct DetachArguments {
    /// Name of the volume
    name: VolumeName,
    /// Remove only remains of a dead daemon that no daemon can continue; refuse if the volume is served
    #[arg(long)]
    dead: bool,
    /// Remove a block device by ublk without a daemon although it is in use: requests that wait fail, and
    /// unsynced writes of mounted file systems are lost
    #[arg(long, conflicts_with = "dead")]
    force: bool,
    /// Detach once for each line of standard input, for the daemon
    #[arg(long, hide = true, conflicts_with_all = ["dead", "force"])]
    on_request: bool,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let configured = VolumeConfig::read(&arguments.name)?.attach;
    let via = arguments.via.or(configured.via);
    let mount = mount(arguments, configured)?;
    let attached: Attached = braid_control::attach(state, &arguments.name, via, mount.as_ref())?;
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

/// Returns the mount that the command line and the configuration describe together.
fn mount(arguments: &Arguments, configured: AttachConfig) -> Result<Option<Mount>> {
    if arguments.no_mount {
        return Ok(None);
    }
    let options = arguments.options.clone();
    let Some(directory) = arguments.mount.clone().or(configured.mount) else {
        return match options {
            Some(_) => Err(Error::new(ErrorKind::Usage, "--options without a directory: add --mount DIR")),
            None => Ok(None),
        };
    };
    let directory =
        std::path::absolute(directory).map_err(|error| Error::io("the directory to mount on", &error))?;
    Ok(Some(Mount { directory, options: options.or(configured.options).unwrap_or_default() }))
}

/// Runs the command.
pub fn detach(state: &StateDir, arguments: &DetachArguments, output: Output) -> Result<u8> {
    let extent = match (arguments.dead, arguments.force) {
        (true, _) => Detach::OnlyDead,
        (_, true) => Detach::Forced,
        _ => Detach::Safe,
    };
    if arguments.on_request {
        braid_control::answer_requests(|| {
            if let Err(error) = braid_control::detach(state, &arguments.name, extent) {
                complain(&format!("braid: {error}"));
            }
        })?;
        return Ok(0);
    }
    let detached = braid_control::detach(state, &arguments.name, extent)?;
    output.show(&detached, || {
        let lines = detached.unmounted.iter().map(|directory| format!("unmounted {}\n", directory.display()));
        let goes_on = if detached.served { "still served" } else { "not served" };
        lines.collect::<String>()
            + &format!("volume '{}' detached from its block device; {goes_on}", detached.name)
    });
    Ok(0)
}
