//! `braid check`.

use crate::output::Output;
use braid_control::{CheckReport, Result, StateDir, VolumeName};
use clap::Args;

/// Check the metadata of a volume that is not served
///
/// Reads superblocks, both images of the map, and the journal. Exit status: 0 clean, 1 damage that --repair can make
/// good, 3 damage that it cannot.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid check vault
  braid check vault --repair

JSON: name, clean, repairable, fatal (lists of sentences), mapped_extents, journal_batches, repaired.")]
pub struct Arguments {
    /// The volume
    name: VolumeName,
    /// Write superblocks and map anew from what is sound, and check again
    #[arg(long)]
    repair: bool,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let report = match arguments.repair {
        false => braid_control::check(state, &arguments.name)?,
        true => braid_control::repair(state, &arguments.name)?,
    };
    output.show(&report, || describe(&report));
    Ok(report.exit_status())
}

/// What a check found, for people.
pub fn describe(report: &CheckReport) -> String {
    let CheckReport { name, mapped_extents, journal_batches, .. } = report;
    let mut text = String::new();
    for damage in &report.fatal {
        text += &format!("lost: {damage}\n");
    }
    for damage in &report.repairable {
        text += &format!("damaged, and whole elsewhere: {damage}\n");
    }
    let verdict = match (report.clean, report.fatal.is_empty()) {
        (true, _) if report.repaired => "repaired; it is clean now".to_owned(),
        (true, _) => "clean".to_owned(),
        (false, true) => format!("damaged; nothing is lost: braid check {name} --repair"),
        (false, false) => "damaged beyond repair: restore it from another copy".to_owned(),
    };
    text + &format!(
        "volume '{name}' is {verdict} ({mapped_extents} extents mapped, {journal_batches} journal batches to replay)"
    )
}
