//! `braid policy`.

use crate::output::Output;
use braid_control::{Result, StateDir, VolumeName};
use clap::Args;

/// Show or change the policy that places a volume's data
///
/// A change copies no data at once: data that the new policy wants elsewhere moves in the background, while
/// the volume is served. A policy that reserves a part of the SSDs for extra copies (cache, orthus, most,
/// hystor, exclusive, inclusive, ssd-first) is accepted only if the rest has room for the whole volume:
/// create such a volume with --size, or add a disk first. docs/policies/ describes all settings.
#[derive(Args)]
#[command(after_help = "\
Policies: wardrop, equi, working-set, pass, hystor, exclusive, inclusive, raid1, ssd-first, cache, orthus, colloid, most, ssd-only, hdd-only, stripe, static.

Examples:
  braid policy vault
  braid policy vault wardrop,period=1s
  braid policy vault static,ssd=80%
  braid policy vault exclusive,cache=20%

JSON: name, policy.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// New policy [default: show the present policy]
    #[arg(value_name = "POLICY[,KEY=VALUE...]")]
    policy: Option<String>,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let report = match &arguments.policy {
        None => braid_control::policy(state, &arguments.name)?,
        Some(policy) => braid_control::set_policy(state, &arguments.name, policy)?,
    };
    output.show(&report, || report.policy.clone());
    Ok(0)
}
