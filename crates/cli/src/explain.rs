//! `braid explain`.

use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Client, CopyReport, ExplainReport, Result, StateDir, VolumeName};
use clap::Args;

/// Show where a byte of a volume lies, and why
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid explain vault 0
  braid explain vault 1.5GiB

JSON: name, offset_bytes, extent, home, second, extra (each null, or device, class, path,
device_offset_bytes, copy_state), written, cached, policy, reason.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// Offset of the byte from 0: 4096, 128KiB, 1.5GiB
    offset: Bytes,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let report = Client::connect(state, &arguments.name)?.explain(arguments.offset)?;
    output.show(&report, || describe(&report));
    Ok(0)
}

fn describe(report: &ExplainReport) -> String {
    let ExplainReport { offset_bytes, name, extent, policy, reason, .. } = report;
    let mut text = format!("byte {offset_bytes} of volume '{name}', in extent {extent}\n");
    match &report.home {
        None => text += "  home    none: never written, or discarded; it reads as zero\n",
        Some(copy) => text += &format!("  home    {}\n", describe_copy(copy)),
    }
    for (kind, copy) in [("second", &report.second), ("extra ", &report.extra)] {
        if let Some(copy) = copy {
            text += &format!("  {kind}  {}, {}\n", describe_copy(copy), copy.copy_state);
        }
    }
    if report.home.is_some() && !report.written {
        text += "  not written since its extent was allocated: it reads as zero\n";
    }
    if report.cached {
        text += "  cached  in the daemon's memory\n";
    }
    text + &format!("  why     {reason}\n  policy  {policy}")
}

fn describe_copy(copy: &CopyReport) -> String {
    let CopyReport { device, class, path, device_offset_bytes, .. } = copy;
    let at = device_offset_bytes.map_or_else(String::new, |at| format!(" at byte {at}"));
    format!("{device} ({class}, {path}){at}")
}
