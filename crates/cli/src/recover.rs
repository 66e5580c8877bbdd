//! `braid recover`.

use crate::output::Output;
use braid_base::{Bytes, Nanos};
use braid_control::{Apply, LookReport, NbdAddress, RecoverReport, Result, StateDir, VolumeName};
use clap::Args;

/// Go on with a volume whose SSDs are lost, as its disk alone has it
///
/// For a volume with policy pass and order=epoch that is not served, and whose SSDs are missing. Its disk holds all of it as it was when the newest epoch
/// ended: no longer ago than max-lag says. What was written since is lost, and said, as ranges that may be larger. From then on braid serve opens it
/// from the disk, at once: what is in the disk's journal is read from there, and gets to its place in the background. Once all of it is there (braid status), or
/// after --apply, any other program finds the volume's bytes at the same addresses of the disk, too. A new SSD: braid device replace.
///
/// With --read-only nothing on the disk changes: the volume is served by NBD to readers, in the foreground, until SIGTERM, SIGINT or SIGHUP, so
/// that one can look at what is left before deciding.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid recover vault --read-only
  braid recover vault && braid serve vault
  braid recover vault --apply

JSON: name, epoch, age_seconds (of that epoch's end), given_up (devices), only_on_missing (device, offset_bytes, length_bytes),
unapplied_bytes (in the journal, not in their place), lost (ranges that read as errors: offset_bytes, length_bytes), recovered_before;
with --read-only also nbd_uris, in one line when ready.")]
pub struct Arguments {
    /// The volume
    name: VolumeName,
    /// Change nothing: serve to readers what the volume would be
    #[arg(long)]
    read_only: bool,
    /// Write what is in the disk's journal to its place before it ends, so that other programs find it there
    #[arg(long, conflicts_with = "read_only")]
    apply: bool,
    /// With --read-only, where to export it by NBD, instead of a socket in the state directory; may be repeated
    #[arg(long, value_name = "unix:PATH|HOST:PORT", requires = "read_only")]
    nbd: Vec<NbdAddress>,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let Arguments { name, read_only, apply, nbd } = arguments;
    if *read_only {
        braid_control::look(state, name, nbd, |look| output.announce(look, || describe_look(look)))?;
        return Ok(0);
    }
    let apply = if *apply { Apply::Now } else { Apply::WhileServed };
    let report = braid_control::recover(state, name, apply)?;
    output.show(&report, || describe(&report) + &next_steps(&report));
    Ok(if report.lost.is_empty() { 0 } else { 3 })
}

fn describe_look(look: &LookReport) -> String {
    let LookReport { recovered, nbd_uris } = look;
    format!("{}for readers, with nothing changed: {}", describe(recovered), nbd_uris.join(" "))
}

fn describe(report: &RecoverReport) -> String {
    let RecoverReport { name, epoch, age_seconds, given_up, only_on_missing, lost, recovered_before, .. } =
        report;
    let newer: Bytes = only_on_missing.iter().map(|range| Bytes(range.length_bytes)).sum();
    let ago = age_seconds.map_or_else(String::new, |age| format!(", {} ago", Nanos((age * 1e9) as u64)));
    let given_up = given_up.join(", ");
    let mut text = match recovered_before {
        true => format!(
            "volume '{name}' was recovered before, as it was at the end of epoch {epoch}{ago}, without {given_up}: what was written since the recovery is kept\n"
        ),
        false => {
            format!("volume '{name}' is as it was at the end of epoch {epoch}{ago}, without {given_up}\n")
        }
    };
    if newer > Bytes::ZERO {
        text += &format!("what was written after that, in up to {newer}, is lost:\n");
    }
    for range in only_on_missing {
        text += &format!("  {} from byte {}\n", Bytes(range.length_bytes), range.offset_bytes);
    }
    if !lost.is_empty() {
        let bytes: Bytes = lost.iter().map(|range| Bytes(range.length_bytes)).sum();
        text += &format!(
            "{bytes} cannot be read: a part of the disk's journal is damaged; they are errors until all of their extents is written or discarded:\n"
        );
    }
    for range in lost {
        text += &format!("  {} from byte {}\n", Bytes(range.length_bytes), range.offset_bytes);
    }
    text
}

fn next_steps(RecoverReport { name, given_up, unapplied_bytes, .. }: &RecoverReport) -> String {
    let mut text = String::new();
    if *unapplied_bytes > 0 {
        let unapplied = Bytes(*unapplied_bytes);
        text = format!(
            "{unapplied} are in the disk's journal, and get to their place while the volume is served, or with braid recover {name} --apply: \
             until then no other program may use the disk\n"
        );
    }
    let lost = &given_up[0];
    text + &format!(
        "open it: braid serve {name}; a new SSD in the place of the lost one: braid device replace {name} {lost} PATH"
    )
}
