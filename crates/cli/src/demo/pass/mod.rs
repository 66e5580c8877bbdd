//! `braid demo pass`: the speed of an SSD with a disk as the safe copy, and the loss of the SSD.
//!
//! Programs commit records on ext4 on an attached volume: first on a synchronous mirror of the two devices,
//! then under `pass,order=epoch`, with the lag of the disk shown live. Then the daemon is killed and the SSD
//! deleted. `braid recover` continues from the disk alone, ext4 is mounted, and every record is looked for.

pub(super) mod commits;

use super::guard::Guard;
use super::show::{CommitRun, MOUNT_OPTIONS, SIZE, Show, ShowSettings, too_slow};
use super::volume::{Plan, Volume};
use super::{NAME, count};
use crate::output::Output;
use braid_base::{Bytes, MIB};
use braid_control::{Error, Result, StatusReport};
use clap::Args;
use commits::{Commits, Kept, Writers};
use serde::Serialize;
use std::time::Duration;

/// Show a disk as the safe copy of an SSD: speed, lag of the disk, and loss of the SSD
///
/// Programs commit records on ext4, on a synchronous mirror and under pass, on the same emulated devices.
/// Then the SSD is deleted, the volume is recovered from the disk, and all records are looked for. Takes two
/// minutes, and leaves nothing behind. Needs root, FUSE and loop devices.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid demo pass
  braid demo pass --quick
  braid demo pass --ssd sata-ssd --hdd mba3073 --max-lag-time 5s

JSON: conditions (sentences), too_slow (why figures do not count, and the remedy; null if all count), wall_seconds, runs: policy,
clients, measured_seconds, commits_per_second, lateness_share, too_late; behind_highest_bytes,
kept_commits, lost_commits, lost_seconds.")]
pub struct Arguments {
    #[command(flatten)]
    settings: ShowSettings,
    /// Highest age of a commit that the disk lacks
    #[arg(long, default_value = "2s")]
    max_lag_time: String,
}

/// The compared runs, and the commits lost with the SSD.
#[derive(Serialize)]
pub struct Report {
    conditions: Vec<String>,
    too_slow: Option<String>,
    runs: Vec<CommitRun>,
    behind_highest_bytes: u64,
    kept_commits: u64,
    lost_commits: u64,
    lost_seconds: f64,
    wall_seconds: f64,
}

/// Longest first copy to the disk.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let (settings, policies) = (&arguments.settings, policies(&arguments.max_lag_time));
    let (mut report, wall_seconds) = settings.show(&policies, 2, 25, |stage, directory| {
        play(&settings.scene(stage, NAME, directory, &directory.join("state")), &policies)
    })?;
    report.wall_seconds = wall_seconds;
    output.show(&report, || report.text());
    Ok(0)
}

/// The compared policies: a synchronous mirror, and the safe copy.
pub fn policies(max_lag_time: &str) -> [String; 2] {
    ["raid1".to_owned(), format!("pass,order=epoch,max-lag=64MiB,max-lag-time={max_lag_time}")]
}

/// Shows the speed of both policies and the loss of the SSD, without the time in the report.
pub fn play(show: &Show, policies: &[String; 2]) -> Result<Report> {
    Pass { show }.run(policies)
}

/// The demonstration.
struct Pass<'a> {
    show: &'a Show<'a>,
}

impl Pass<'_> {
    fn run(&self, [mirror, pass]: &[String; 2]) -> Result<Report> {
        self.show.stage.say("\nA mirror first: a commit waits for both devices.");
        let mirrored = self.mirror(mirror)?;
        self.show.stage.say("\nNow pass: a commit waits for the SSD, and the disk gets whole epochs.");
        let mut guard = Guard::default();
        let volume = self.show.plan.create_and_serve(pass, self.show.stage, &mut guard)?;
        let (run, highest, commits) = self.pass(pass, &volume, &mut guard)?;
        self.show.stage.say("\nLoss of the SSD: the daemon is killed, and the SSD's file is deleted.");
        volume.kill();
        let commits = commits.end();
        guard.finish();
        let ssd = self.show.plan.ssd_file();
        std::fs::remove_file(&ssd).map_err(|e| Error::io(format_args!("removing {}", ssd.display()), &e))?;
        let kept = self.recover(&commits)?;
        let runs = vec![mirrored, run];
        Ok(Report {
            conditions: self.conditions(),
            too_slow: too_slow(&runs),
            runs,
            behind_highest_bytes: highest.0,
            kept_commits: kept.commits,
            lost_commits: kept.lost,
            lost_seconds: kept.lost_time.as_secs_f64(),
            wall_seconds: 0.0,
        })
    }

    fn mirror(&self, policy: &str) -> Result<CommitRun> {
        let mut guard = Guard::default();
        let volume = self.show.plan.serve_mirrored(policy, self.show.stage, &mut guard)?;
        volume.attach_and_mount(&self.show.plan.mount_point(), MOUNT_OPTIONS, &mut guard)?;
        let writers = Writers::start(&self.show.plan.mount_point(), self.show.clients as usize)?;
        let run = self.show.measure(policy, &volume, &writers, |_| Ok(()))?;
        writers.end();
        Ok(run)
    }

    /// Runs the programs under pass, after the first copy. Returns the figures, the highest lag of the disk,
    /// and the programs, which still run.
    fn pass(&self, policy: &str, volume: &Volume, guard: &mut Guard) -> Result<(CommitRun, Bytes, Writers)> {
        volume.attach_and_mount(&self.show.plan.mount_point(), MOUNT_OPTIONS, guard)?;
        self.show.stage.now("the disk gets its first copy");
        let is_copied = |status: &StatusReport| status.epoch.is_some() && status.deferred_bytes < MIB.0;
        self.show.wait_until(volume, PATIENCE, "the disk got no first copy", is_copied)?;
        let writers = Writers::start(&self.show.plan.mount_point(), self.show.clients as usize)?;
        let mut highest = Bytes::ZERO;
        let run = self.show.measure(policy, volume, &writers, |per_second| {
            let status = volume.status()?;
            let behind = Bytes(status.deferred_bytes);
            highest = highest.max(behind);
            let share = 100.0 * behind.0 as f64 / SIZE.0 as f64;
            let epoch = status.epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
            self.show.stage.say(&format!(
                "  {per_second:>6} commits/s; the disk lacks {behind} ({share:.1} %), and equals the volume at the end of epoch {epoch}"
            ));
            Ok(())
        })?;
        Ok((run, highest, writers))
    }

    /// Recovers the volume from the disk, and looks for the committed records.
    fn recover(&self, commits: &Commits) -> Result<Kept> {
        let mut guard = Guard::default();
        let volume = self.show.plan.recover_and_serve(self.show.stage, &mut guard)?;
        let point = self.show.plan.mount_point();
        let device = volume.attach(&mut guard)?;
        let mut mounted = Guard::default();
        volume.mount(&device, &point, MOUNT_OPTIONS, &mut mounted)?;
        let kept = commits.look_for(&point)?;
        mounted.finish();
        self.show.stage.say(&format!("$ e2fsck -fn {device}"));
        self.show.stage.run("e2fsck", &["-fn", &device])?;
        guard.finish();
        volume.forget()?;
        Ok(kept)
    }

    fn conditions(&self) -> Vec<String> {
        let Plan { ssd, hdd, .. } = &self.show.plan;
        vec![
            format!(
                "{} commit records of 4 KiB at scattered places (write, fdatasync), on ext4 with barriers on a loop device on FUSE; a volume of {SIZE} on \
                 two files with the timing of {ssd} and {hdd}.",
                count(self.show.clients, "program")
            ),
            format!(
                "{} s for each policy. e2fsck found nothing to repair on the disk.",
                self.show.time.as_secs()
            ),
        ]
    }
}

impl Report {
    /// The figures, and the commits lost with the SSD.
    pub fn text(&self) -> String {
        let [mirror, pass] = &self.runs[..] else { return String::new() };
        let mut text = format!(
            "{}\n{}, {:.1} times as many; the disk lacked at most {}\n\n",
            mirror.row("raid1 "),
            pass.row("pass  "),
            pass.commits_per_second / mirror.commits_per_second.max(1e-9),
            Bytes(self.behind_highest_bytes)
        );
        text += &format!(
            "After the loss of the SSD, ext4 mounts from the disk: {} commits are present, all acknowledged commits but the last {}",
            self.kept_commits, self.lost_commits
        );
        text += &match self.lost_commits {
            0 => ".\n\n".to_owned(),
            _ => format!(", from the last {:.2} s.\n\n", self.lost_seconds),
        };
        let lines: Vec<&str> = self.too_slow.iter().chain(&self.conditions).map(String::as_str).collect();
        text + &lines.join("\n")
    }
}
