//! `braid recover`.

use crate::output::Output;
use crate::simulate::clock;
use braid_base::Bytes;
use braid_control::{Apply, LookReport, NbdAddress, RecoverReport, Result, StateDir, VolumeName};
use clap::Args;
use jiff::Timestamp;

/// Recover a volume whose SSDs are lost, from its disk alone
///
/// For a volume with policy pass and order=epoch that is not served and whose SSDs are missing. The disk
/// holds the whole volume as of the end of the newest epoch, which was the last commit that reached the disk
/// whole: max-lag bounds the data that the SSDs had beyond that. Later writes are lost, and reported as
/// ranges, which may be larger than the writes. From then on braid serve opens the volume from the disk, at
/// once: data in the disk's journal is read from the journal, and moves to its place in the background. Once
/// all data is in place (braid status), or after --apply, any other program, too, finds the volume's bytes at
/// the same addresses of the disk. To add a new SSD: braid device replace.
///
/// With --read-only nothing on the disk changes: the volume is served by NBD to readers, in the foreground,
/// until SIGTERM, SIGINT or SIGHUP, so that you can inspect the remaining data before you decide.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid recover vault --read-only
  braid recover vault && braid serve vault
  braid recover vault --apply

JSON: name, epoch, epoch_ended_unix_seconds, age_seconds (from then to now), outdated, given_up (devices), only_on_missing (device, offset_bytes, length_bytes),
unapplied_bytes (in the journal, not yet in place), lost (ranges that read as errors: offset_bytes, length_bytes), recovered_before;
with --read-only also nbd_uris, in one line when ready.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// Change nothing: serve the volume to readers as a recovery would make it
    #[arg(long)]
    read_only: bool,
    /// Write the data in the disk's journal to its place before the command ends, for other programs to find
    #[arg(long, conflicts_with = "read_only")]
    apply: bool,
    /// Address of the NBD export of --read-only, instead of a socket in the state directory. Repeat the
    /// option for more addresses
    #[arg(long, value_name = "unix:PATH|HOST:PORT", requires = "read_only")]
    nbd: Vec<NbdAddress>,
}

/// Runs the command.
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
    let RecoverReport { name, epoch, outdated, given_up, only_on_missing, lost, recovered_before, .. } =
        report;
    let newer: Bytes = only_on_missing.iter().map(|range| Bytes(range.length_bytes)).sum();
    let ago = when(report);
    let given_up = given_up.join(", ");
    let mut text = match recovered_before {
        true => format!(
            "volume '{name}' was recovered before, as it was at the end of epoch {epoch}{ago}, without {given_up}: writes since the recovery are kept\n"
        ),
        false => {
            format!("volume '{name}' is as it was at the end of epoch {epoch}{ago}, without {given_up}\n")
        }
    };
    if *outdated {
        text += "the disk was out of use during the last use of the SSDs: no bound holds for the data that the SSDs had beyond that\n";
    } else if newer > Bytes::ZERO && report.age_seconds.is_some() {
        text += "the disk does not know how much longer the SSDs were in use: max-lag, and max-lag-time if set, bound the data that the SSDs had beyond that\n";
    }
    if newer > Bytes::ZERO {
        text += &format!("later writes, in up to {newer}, are lost:\n");
    }
    for range in only_on_missing {
        text += &format!("  {} from byte {}\n", Bytes(range.length_bytes), range.offset_bytes);
    }
    if !lost.is_empty() {
        let bytes: Bytes = lost.iter().map(|range| Bytes(range.length_bytes)).sum();
        text += &format!(
            "{bytes} cannot be read: a part of the disk's journal is damaged: they read as errors until their whole extents are written or discarded:\n"
        );
    }
    for range in lost {
        text += &format!("  {} from byte {}\n", Bytes(range.length_bytes), range.offset_bytes);
    }
    text
}

/// End of the epoch, as date and as age: a volume may be found long after its last use.
fn when(RecoverReport { epoch_ended_unix_seconds, age_seconds, .. }: &RecoverReport) -> String {
    let Some(ended) = epoch_ended_unix_seconds else { return String::new() };
    let before = age_seconds.map_or_else(String::new, |age| format!(" ({} before now)", clock(age)));
    format!(", at {}{before}", calendar(*ended as u64))
}

/// A time since 1970 as `2026-11-25 09:15:12 UTC`; in seconds if out of the calendar's range.
fn calendar(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{seconds} s after 1970"), |time| time.strftime("%F %T UTC").to_string())
}

fn next_steps(RecoverReport { name, given_up, unapplied_bytes, .. }: &RecoverReport) -> String {
    let mut text = String::new();
    if *unapplied_bytes > 0 {
        let unapplied = Bytes(*unapplied_bytes);
        text = format!(
            "{unapplied} are in the disk's journal, and move to their place while the volume is served, or with braid recover {name} --apply: \
             until then no other program may use the disk\n"
        );
    }
    let lost = &given_up[0];
    text + &format!(
        "open it: braid serve {name}; a new SSD in the place of the lost one: braid device replace {name} {lost} PATH"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_seconds_are_shown_as_utc_calendar_time() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(calendar(seconds), shown);
        }
    }

    /// Bug: a volume found a day later was reported to have lost a day.
    #[test]
    fn recover_report_shows_end_and_age_of_the_epoch() {
        let report = RecoverReport {
            name: "vault".to_owned(),
            epoch: 7,
            epoch_ended_unix_seconds: Some(1_798_761_599.5),
            age_seconds: Some(90_000.0),
            outdated: false,
            given_up: vec!["d0".to_owned()],
            only_on_missing: Vec::new(),
            unapplied_bytes: 0,
            lost: Vec::new(),
            recovered_before: false,
        };
        let text = describe(&report);
        assert!(text.contains("2026-12-31 23:59:59 UTC") && text.contains("25:00:00 h before now"), "{text}");
    }
}
