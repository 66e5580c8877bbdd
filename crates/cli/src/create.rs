//! `braid create`.

use crate::output::Output;
use crate::volume_options::VolumeOptions;
use braid_base::Bytes;
use braid_control::{CreateReport, Durability, Result, StateDir, Unfitting, VolumeName};
use clap::Args;

/// Make a volume on devices; what lies on them is lost, but for a disk that is adopted
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
    text += &other_policies(report);
    text + &format!("Next: braid serve {name}")
}

/// What is left for other policies, which of them fit later, and what would make the others fit; nothing of a
/// volume without a choice.
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
        "Left for other policies: {}{share}; {name} uses it meanwhile. These fit later (braid policy): {}\n",
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
        text += &format!("  These do not: {} ({remedy})\n", policies.join(", "));
    }
    text
}

/// What would make a policy fit.
fn remedy(unfitting: &Unfitting) -> String {
    match (unfitting.needed_copies, unfitting.fitting_bytes) {
        (Some(copies), _) => format!("create with --copies {copies}"),
        (None, Some(size)) => {
            format!("create with --size {} at most", braid_base::written(&format!("{size}B")))
        }
        (None, None) => "not on these devices".to_owned(),
    }
}
