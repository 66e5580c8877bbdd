//! `braid recover`.

use crate::output::Output;
use braid_base::{Bytes, Nanos};
use braid_control::{LookReport, NbdAddress, RecoverReport, Result, StateDir, VolumeName};
use clap::Args;

/// Go on with a volume whose SSDs are lost, as its disk alone has it
///
/// For a volume with policy pass and order=epoch that is not served, and whose SSDs are missing. Its disk holds all of it as it was when the newest epoch
/// ended: no longer ago than max-lag says. What was written since is lost, and said, as ranges that may be larger. From then on braid serve opens it
/// from the disk; any other program finds the volume's bytes at the same addresses of the disk, too. A new SSD: braid device replace.
///
/// With --read-only nothing on the disk changes: the volume is served by NBD to readers, in the foreground, until SIGTERM, SIGINT or SIGHUP, so
/// that one can look at what is left before deciding.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid recover vault --read-only
  braid recover vault

JSON: name, epoch, age_seconds (of that epoch's end), given_up (devices), only_on_missing (device, offset_bytes, length_bytes);
with --read-only also nbd_uris, in one line when ready.")]
pub struct Arguments {
    /// The volume
    name: VolumeName,
    /// Change nothing: serve to readers what the volume would be
    #[arg(long)]
    read_only: bool,
    /// With --read-only, where to export it by NBD, instead of a socket in the state directory; may be repeated
    #[arg(long, value_name = "unix:PATH|HOST:PORT", requires = "read_only")]
    nbd: Vec<NbdAddress>,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let Arguments { name, read_only, nbd } = arguments;
    match read_only {
        true => braid_control::look(state, name, nbd, |look| output.announce(look, || describe_look(look)))?,
        false => {
            let report = braid_control::recover(state, name)?;
            output.show(&report, || describe(&report) + &next_steps(&report));
        }
    }
    Ok(0)
}

fn describe_look(look: &LookReport) -> String {
    let LookReport { recovered, nbd_uris } = look;
    format!("{}for readers, with nothing changed: {}", describe(recovered), nbd_uris.join(" "))
}

fn describe(report: &RecoverReport) -> String {
    let RecoverReport { name, epoch, age_seconds, given_up, only_on_missing } = report;
    let lost: Bytes = only_on_missing.iter().map(|range| Bytes(range.length_bytes)).sum();
    let ago = age_seconds.map_or_else(String::new, |age| format!(", {} ago", Nanos((age * 1e9) as u64)));
    let mut text = format!(
        "volume '{name}' is as it was at the end of epoch {epoch}{ago}, without {}\n",
        given_up.join(", ")
    );
    if lost > Bytes::ZERO {
        text += &format!("what was written after that, in up to {lost}, is lost:\n");
    }
    for range in only_on_missing {
        text += &format!("  {} from byte {}\n", Bytes(range.length_bytes), range.offset_bytes);
    }
    text
}

fn next_steps(RecoverReport { name, given_up, .. }: &RecoverReport) -> String {
    format!(
        "open it: braid serve {name}; a new SSD in the place of the lost one: braid device replace {name} {} PATH",
        given_up[0]
    )
}
