//! `braid check`.

use crate::output::Output;
use crate::serve::device_id;
use braid_base::{Bytes, DeviceId};
use braid_control::{CheckReport, LostRange, MissingRange, Result, StateDir, VolumeName};
use clap::Args;

/// Check the metadata of a volume that is not served
///
/// Reads superblocks, both images of the map, and the journal; changes nothing. Exit status: 0 clean, 1
/// damage that another copy repairs, or a missing or stale device, 3 lost bytes. --repair keeps all data that
/// can be proved and lists the ranges that cannot. It guesses nothing: these ranges read as errors until they
/// are written whole or discarded.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid check vault
  braid check vault --repair

JSON: name, clean, repairable, fatal, degraded (lists of sentences), lost (offset_bytes,
length_bytes), only_on_missing (device, offset_bytes, length_bytes), resync_bytes, mapped_extents, journal_batches, repaired.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// Rewrite superblocks and map from sound copies, and check again
    #[arg(long)]
    repair: bool,
    /// Discard the data of a device, by its place: d1. See braid serve --distrust
    #[arg(long, value_name = "DEVICE", value_parser = device_id, requires = "repair")]
    distrust: Vec<DeviceId>,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let report = match arguments.repair {
        false => braid_control::check(state, &arguments.name)?,
        true => braid_control::repair(state, &arguments.name, &arguments.distrust)?,
    };
    output.show(&report, || describe(&report));
    Ok(report.exit_status())
}

/// End of the line for a device that is present and being resynchronised.
const RETURNING: &str = "is returning";

/// Part of the line for a device that became shorter.
const CUT: &str = " was cut";

/// Part of the line for a device that lost acknowledged writes.
const FORGOT: &str = " lost writes that it had flushed";

/// Most ranges shown in text.
const SHOWN: usize = 20;

/// The report of a check as text.
pub fn describe(report: &CheckReport) -> String {
    let CheckReport { name, mapped_extents, journal_batches, .. } = report;
    let mut text = String::new();
    for damage in &report.fatal {
        text += &format!("damaged: {damage}\n");
    }
    for damage in &report.repairable {
        text += &format!("damaged, repairable from another copy: {damage}\n");
    }
    for device in &report.degraded {
        text += &format!("degraded: {device}\n");
    }
    let verb = if report.repaired || report.fatal.is_empty() {
        "lost"
    } else {
        "cannot be proved, discarded by a repair"
    };
    for LostRange { offset_bytes, length_bytes } in &report.lost {
        text += &format!("{verb}: {} from byte {offset_bytes}\n", Bytes(*length_bytes));
    }
    let only = |range: &MissingRange| range.device.clone();
    for of_device in report.only_on_missing.chunk_by(|a, b| a.device == b.device) {
        let bytes = Bytes(of_device.iter().map(|range| range.length_bytes).sum());
        text += &format!("{} alone holds the newest writes, in up to {bytes}:\n", only(&of_device[0]));
        for MissingRange { offset_bytes, length_bytes, .. } in of_device.iter().take(SHOWN) {
            text += &format!("  {} from byte {offset_bytes}\n", Bytes(*length_bytes));
        }
        if of_device.len() > SHOWN {
            text += &format!("  and {} more ranges (--json lists all)\n", of_device.len() - SHOWN);
        }
    }
    let given_up = report.only_on_missing.first().map(only);
    let verdict = match (report.fatal.is_empty() && report.lost.is_empty(), report.clean) {
        (true, true) if report.repaired => "repaired, and now clean".to_owned(),
        (true, true) if let Some(device) = given_up => format!(
            "degraded, with its last flush on {device} alone: bring the device back and braid serve {name}; or, if a disk of the volume keeps epochs, \
             continue from the last epoch: braid recover {name}; or discard the data that {device} alone holds: braid serve {name} --distrust {device}"
        ),
        (true, true) if report.degraded.iter().any(|device| device.contains(CUT)) => format!(
            "degraded, with one good copy of the data of the device that was cut: braid serve {name} copies the data again once the device has its \
             old size; exclude a smaller device (--distrust) or replace it (braid device replace)"
        ),
        (true, true) if report.degraded.iter().any(|device| device.contains(FORGOT)) => format!(
            "degraded, with one good copy of the data of the device that lost writes: braid serve {name} copies the data again"
        ),
        (true, true)
            if !report.degraded.is_empty()
                && report.degraded.iter().all(|device| device.ends_with(RETURNING)) =>
        {
            format!("degraded; nothing is lost: braid serve {name} continues the resynchronisation")
        }
        (true, true) if !report.degraded.is_empty() => {
            format!("degraded; nothing is lost: bring the device back and braid serve {name}")
        }
        (true, true) => "clean".to_owned(),
        (true, false) => format!("damaged; nothing is lost: braid check {name} --repair"),
        (false, _) if report.repaired => {
            "repaired, except lost ranges: restore them from a backup".to_owned()
        }
        (false, _) if report.fatal.is_empty() => {
            "sound, except lost ranges: restore them from a backup, or discard them".to_owned()
        }
        (false, _) => format!("damaged: braid check {name} --repair keeps all but the listed ranges"),
    };
    let resync = match report.resync_bytes {
        0 => String::new(),
        bytes => format!(", {} to resynchronise", Bytes(bytes)),
    };
    text + &format!(
        "volume '{name}' is {verdict} ({mapped_extents} extents mapped, {journal_batches} journal batches to replay{resync})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(degraded: &[&str]) -> CheckReport {
        CheckReport {
            name: "vault".to_owned(),
            clean: true,
            repairable: Vec::new(),
            fatal: Vec::new(),
            degraded: degraded.iter().map(|&device| device.to_owned()).collect(),
            lost: Vec::new(),
            only_on_missing: Vec::new(),
            resync_bytes: 0,
            mapped_extents: 0,
            journal_batches: 0,
            repaired: false,
        }
    }

    /// Bug: after a stop during the return of a device, the check said "bring the device back" of a device
    /// that was present.
    #[test]
    fn check_does_not_request_return_of_a_present_device() {
        let returning = format!("d1 {RETURNING}");
        let asked_for = |degraded: &[&str]| describe(&report(degraded)).contains("bring the device back");
        assert!(
            !asked_for(&[&returning])
                && asked_for(&["d1 is missing"])
                && asked_for(&[&returning, "d0 is missing"])
        );
    }
}
