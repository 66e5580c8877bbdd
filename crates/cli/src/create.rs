//! `braid create`.

use crate::output::Output;
use crate::volume_options::VolumeOptions;
use braid_base::Bytes;
use braid_control::{CreateReport, Durability, Result, StateDir, Unfitting, VolumeName};
use clap::Args;

/// Create a volume on devices: all data on the devices is lost, except on an adopted disk
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid create vault --ssd /dev/nvme0n1 --hdd /dev/sda --hdd /dev/sdb
  braid create safe --ssd /dev/nvme0n1 --hdd /dev/sda --copies 2 --policy ssd-first
  braid create media --adopt /dev/disk/by-id/ata-WDC_1 --ssd /dev/nvme0n1p4 --policy cache
  braid create trial --ssd fast.img,size=2GiB,model=x25-m --hdd slow.img,size=8GiB,model=mba3073

JSON: name, uuid, size_bytes, extent_bytes, policy, left_bytes, fitting_policies, unfitting_policies (policy,
fitting_bytes, needed_copies), durability (power_cut or daemon_crash: what a flush survives), over_committed_bytes, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing).")]
pub struct Arguments {
    /// Name of the volume: letters, digits, '-', '_' and '.'
    name: VolumeName,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let new = arguments.volume.new_volume(arguments.name.clone())?;
    let report = braid_control::create(state, &new)?;
    output.show(&report, || describe(&report));
    Ok(0)
}

/// Warning that sparse files may outgrow their file systems; empty if they cannot.
pub fn over_committed(bytes: u64) -> String {
    if bytes == 0 {
        return String::new();
    }
    format!(
        "  NOTE: sparse files: they may grow by {} more than their file systems have free: guests get errors if a file system is full\n",
        Bytes(bytes)
    )
}

fn describe(report: &CreateReport) -> String {
    let CreateReport { name, policy, .. } = report;
    let mut text = format!("volume '{name}' of {}, policy {policy}\n", Bytes(report.size_bytes));
    for (place, device) in report.devices.iter().enumerate() {
        let model = device.model.as_ref().map_or_else(String::new, |model| format!(", timing of {model}"));
        let (class, size) = (&device.class, Bytes(device.size_bytes));
        let adopted = if device.adopted { ", adopted with its data" } else { "" };
        text += &format!("  d{place}  {class}  {size}  {}{model}{adopted}\n", device.name());
    }
    if report.durability == Durability::DaemonCrash {
        text += "Emulated devices keep their data in files of this machine: a flush survives the death of the daemon, \
                 not a power cut.\n";
    }
    text += &over_committed(report.over_committed_bytes);
    text += &other_policies(report);
    text + &format!("Next: braid serve {name}")
}

/// Space left for other policies, policies that fit later, and remedies for the policies that do not fit.
/// Empty if the volume has no choice: without SSDs, without disks, or with an adopted disk.
fn other_policies(report: &CreateReport) -> String {
    let size = |class: &str| -> u64 {
        report.devices.iter().filter(|d| d.class == class).map(|d| d.size_bytes).sum()
    };
    let (ssds, disks) = (size("ssd"), size("hdd"));
    if ssds == 0 || disks == 0 || report.devices.iter().any(|device| device.adopted) {
        return String::new();
    }
    let share = match report.left_bytes as f64 / ssds as f64 {
        share if share <= 1.0 => format!(", {:.0} % of the SSDs", share * 100.0),
        _ => String::new(),
    };
    let name = report.policy.split(',').next().unwrap_or_default();
    let mut text = format!(
        "Left for other policies: {}{share}; {name} uses the space meanwhile. Policies that fit later (braid policy): {}\n",
        Bytes(report.left_bytes),
        report.fitting_policies.join(", ")
    );
    let mut remedies: Vec<(String, Vec<&str>)> = Vec::new();
    for unfitting in &report.unfitting_policies {
        let remedy = remedy(unfitting);
        match remedies.iter_mut().find(|(known, _)| *known == remedy) {
            Some((_, policies)) => policies.push(&unfitting.policy),
            None => remedies.push((remedy, vec![&unfitting.policy])),
        }
    }
    for (remedy, policies) in remedies {
        text += &format!("  Policies that do not fit: {} ({remedy})\n", policies.join(", "));
    }
    text
}

/// Remedy for a policy that does not fit.
fn remedy(unfitting: &Unfitting) -> String {
    match (unfitting.needed_copies, unfitting.fitting_bytes) {
        (Some(copies), _) => format!("create with --copies {copies}"),
        (None, Some(size)) => {
            format!("create with --size {} at most", braid_base::written(&format!("{size}B")))
        }
        (None, None) => "not possible on these devices".to_owned(),
    }
}
