//! `braid create`.

use crate::output::Output;
use crate::volume_options::VolumeOptions;
use braid_base::Bytes;
use braid_control::{CreateReport, Durability, Result, StateDir, VolumeName};
use clap::Args;

/// Make a volume on devices; what lies on them is lost, but for a disk that is adopted
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid create vault --ssd /dev/nvme0n1 --hdd /dev/sda --hdd /dev/sdb
  braid create safe --ssd /dev/nvme0n1 --hdd /dev/sda --copies 2 --policy ssd-first
  braid create media --adopt /dev/disk/by-id/ata-WDC_1 --ssd /dev/nvme0n1p4 --policy cache
  braid create trial --ssd fast.img,size=2GiB,model=x25-m --hdd slow.img,size=8GiB,model=mba3073

JSON: name, uuid, size_bytes, extent_bytes, policy, durability (power_cut or daemon_crash: what a
flush survives), over_committed_bytes, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing).")]
pub struct Arguments {
    /// The volume's name: letters, digits, '-', '_' and '.'
    name: VolumeName,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let new = arguments.volume.new_volume(arguments.name.clone())?;
    let report = braid_control::create(state, &new)?;
    output.show(&report, || describe(&report));
    Ok(0)
}

/// That files may not have the room that they promise; nothing if they have.
pub fn over_committed(bytes: u64) -> String {
    if bytes == 0 {
        return String::new();
    }
    format!(
        "  NOTE: its files are sparse, and may grow by {} more than their file systems have free: guests get errors if these are full\n",
        Bytes(bytes)
    )
}

fn describe(report: &CreateReport) -> String {
    let CreateReport { name, policy, .. } = report;
    let mut text = format!("volume '{name}' of {}, policy {policy}\n", Bytes(report.size_bytes));
    for (place, device) in report.devices.iter().enumerate() {
        let model = device.model.as_ref().map_or_else(String::new, |model| format!(", timing of {model}"));
        let (class, size) = (&device.class, Bytes(device.size_bytes));
        let adopted = if device.adopted { ", adopted with all that is on it" } else { "" };
        text += &format!("  d{place}  {class}  {size}  {}{model}{adopted}\n", device.name());
    }
    if report.durability == Durability::DaemonCrash {
        text += "Emulated devices keep their bytes in files of this machine: a flush survives the death of the daemon, \
                 not a power cut.\n";
    }
    text += &over_committed(report.over_committed_bytes);
    text + &format!("Next: braid serve {name}")
}
