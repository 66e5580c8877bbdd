//! `braid demo pass`: the speed of an SSD with a disk that is always a safe copy; then the SSD is gone.
//!
//! Programs commit records on ext4 on an attached volume: first on a synchronous mirror of the two devices, then under `pass,order=epoch`, while
//! what the disk lacks is shown live. Then the daemon is killed and the SSD deleted; `braid recover` goes on from the disk alone, ext4 is mounted
//! from it, and every record is looked for.

pub(super) mod commits;

use super::guard::Guard;
use super::machine;
use super::stage::Stage;
use super::volume::{Plan, Volume};
use super::{count, make_directory};
use crate::output::Output;
use braid_base::{Bytes, MIB};
use braid_control::{Error, ErrorKind, Result};
use clap::Args;
use commits::{Commits, Kept, Writers};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Show a disk as the safe copy of an SSD: its speed, how far it is behind, and the loss of the SSD
///
/// Programs commit records on ext4, on a synchronous mirror and under pass, on the same emulated devices; then the SSD is taken away, the volume goes
/// on from the disk, and all records are looked for. Takes two minutes, and leaves nothing behind. Needs root, FUSE and loop devices.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid demo pass
  braid demo pass --quick
  braid demo pass --ssd sata-ssd --hdd mba3073 --max-lag-time 5s

JSON: conditions (sentences), wall_seconds, runs: policy, clients, measured_seconds, commits_per_second; behind_highest_bytes,
kept_commits, lost_commits, lost_seconds.")]
pub struct Arguments {
    /// Runs of three seconds: does everything work here?
    #[arg(long)]
    quick: bool,
    /// Length of each of the two runs in seconds [default: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Programs that commit at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// How long ago the oldest commit is, at most, that the disk lacks
    #[arg(long, default_value = "2s")]
    max_lag_time: String,
    /// Model of the SSD
    #[arg(long, default_value = "x25-e")]
    ssd: String,
    /// Model of the disk
    #[arg(long, default_value = "barracuda-7200.12")]
    hdd: String,
    /// Where to put the files [default: /var/tmp, or where there is room on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What is compared, and what was lost.
#[derive(Serialize)]
struct Report {
    conditions: Vec<String>,
    runs: Vec<Run>,
    behind_highest_bytes: u64,
    kept_commits: u64,
    lost_commits: u64,
    lost_seconds: f64,
    wall_seconds: f64,
}

/// One policy.
#[derive(Serialize)]
struct Run {
    policy: String,
    clients: u32,
    measured_seconds: f64,
    commits_per_second: f64,
}

/// Small, so that the first copy of all of it is soon on the disk.
const SIZE: Bytes = Bytes(512 << 20);
/// Inode tables are not written behind the programs' back.
const MOUNT_OPTIONS: &str = "noinit_itable";
/// How long the first copy, and a last one, may take.
const PATIENCE: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);

/// Runs the verb.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    machine::choose_kernel(&[("e2fsck", "e2fsprogs")])?;
    let seconds = arguments.seconds.unwrap_or(if arguments.quick { 3 } else { 20 });
    let policy = format!("pass,order=epoch,max-lag=64MiB,max-lag-time={}", arguments.max_lag_time);
    let policies = ["raid1".to_owned(), policy];
    super::check_policies(&policies, &arguments.ssd, &arguments.hdd)?;
    let parent = machine::choose_directory(arguments.dir.as_deref(), machine::room(SIZE * 2))?;
    let stage = Stage::new(SECOND * (2 * seconds + 25))?;
    let mut guard = Guard::default();
    let directory = make_directory(&parent, &mut guard)?;
    stage.say(&format!("$ cd {}; export BRAID_STATE_DIR=$PWD/state", directory.display()));
    let (ssd, hdd) = (arguments.ssd.clone(), arguments.hdd.clone());
    let show = Show {
        plan: Plan { directory, ssd, hdd, size: SIZE },
        stage,
        clients: arguments.clients,
        time: SECOND * seconds,
    };
    let start = Instant::now();
    let shown = show.run(&policies);
    show.stage.clear();
    let mut report = shown?;
    guard.finish();
    report.wall_seconds = start.elapsed().as_secs_f64();
    output.show(&report, || report.text());
    Ok(0)
}

/// What is to be shown.
struct Show {
    plan: Plan,
    stage: Stage,
    clients: u32,
    time: Duration,
}

impl Show {
    fn run(&self, [mirror, pass]: &[String; 2]) -> Result<Report> {
        self.stage.say("\nA mirror first: a commit waits for both devices.");
        let mirrored = self.mirror(mirror)?;
        self.stage.say("\nNow pass: a commit waits for the SSD, and the disk gets whole epochs.");
        let mut guard = Guard::default();
        let volume = self.plan.create_and_serve(pass, &self.stage, &mut guard)?;
        let (run, highest, commits) = self.pass(pass, &volume, &mut guard)?;
        self.stage.say("\nThe SSD is gone: the daemon is killed, and its file deleted.");
        volume.kill();
        let commits = commits.end();
        guard.finish();
        let ssd = self.plan.ssd_file();
        std::fs::remove_file(&ssd).map_err(|e| Error::io(format_args!("removing {}", ssd.display()), &e))?;
        let kept = self.recover(&commits)?;
        Ok(Report {
            conditions: self.conditions(),
            runs: vec![mirrored, run],
            behind_highest_bytes: highest.0,
            kept_commits: kept.commits,
            lost_commits: kept.lost,
            lost_seconds: kept.lost_time.as_secs_f64(),
            wall_seconds: 0.0,
        })
    }

    fn mirror(&self, policy: &str) -> Result<Run> {
        let mut guard = Guard::default();
        let volume = self.plan.serve_mirrored(policy, &self.stage, &mut guard)?;
        volume.attach_and_mount(&self.plan.mount_point(), MOUNT_OPTIONS, &mut guard)?;
        let writers = Writers::start(&self.plan.mount_point(), self.clients as usize)?;
        let run = self.measure(policy, &writers, |_| Ok(()))?;
        writers.end();
        Ok(run)
    }

    /// The programs go on when it returns.
    fn pass(&self, policy: &str, volume: &Volume, guard: &mut Guard) -> Result<(Run, Bytes, Writers)> {
        volume.attach_and_mount(&self.plan.mount_point(), MOUNT_OPTIONS, guard)?;
        self.stage.now("the disk gets its first copy");
        let mut failed = Ok(());
        let is_copy = self.stage.wait_for(PATIENCE, || match volume.status() {
            Ok(status) => status.epoch.is_some() && status.deferred_bytes < MIB.0,
            Err(error) => {
                failed = Err(error);
                true
            }
        })?;
        failed?;
        if !is_copy {
            return Err(Error::new(ErrorKind::Io, format!("the disk got no first copy in {PATIENCE:?}")));
        }
        let writers = Writers::start(&self.plan.mount_point(), self.clients as usize)?;
        let mut highest = Bytes::ZERO;
        let run = self.measure(policy, &writers, |per_second| {
            let status = volume.status()?;
            let behind = Bytes(status.deferred_bytes);
            highest = highest.max(behind);
            let share = 100.0 * behind.0 as f64 / SIZE.0 as f64;
            let epoch = status.epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
            self.stage.say(&format!(
                "  {per_second:>6} commits/s; the disk lacks {behind} ({share:.1} %), and is the volume at the end of epoch {epoch}"
            ));
            Ok(())
        })?;
        Ok((run, highest, writers))
    }

    /// Watches the programs for the length of a run, and tells every second how many commits it had.
    fn measure(&self, policy: &str, writers: &Writers, tell: impl FnMut(u64) -> Result<()>) -> Result<Run> {
        self.stage.now(policy);
        let (measured_seconds, commits_per_second) = writers.watch(&self.stage, self.time, tell)?;
        self.stage.say(&format!("  {policy}: {commits_per_second:.0} commits/s"));
        Ok(Run { policy: policy.to_owned(), clients: self.clients, measured_seconds, commits_per_second })
    }

    /// Goes on from the disk, and looks for what was committed.
    fn recover(&self, commits: &Commits) -> Result<Kept> {
        let mut guard = Guard::default();
        let volume = self.plan.recover_and_serve(&self.stage, &mut guard)?;
        let point = self.plan.mount_point();
        let device = volume.attach(&mut guard)?;
        let mut mounted = Guard::default();
        volume.mount(&device, &point, MOUNT_OPTIONS, &mut mounted)?;
        let kept = commits.look_for(&point)?;
        mounted.finish();
        self.stage.say(&format!("$ e2fsck -fn {device}"));
        self.stage.run("e2fsck", &["-fn", &device])?;
        Ok(kept)
    }

    fn conditions(&self) -> Vec<String> {
        let Plan { ssd, hdd, .. } = &self.plan;
        vec![
            format!(
                "{} commit records of 4 KiB at scattered places (write, fdatasync), on ext4 with barriers on a loop device on FUSE; a volume of {SIZE} on \
                 two files with the timing of {ssd} and {hdd}.",
                count(self.clients, "program")
            ),
            format!("{} s for each policy. e2fsck found nothing to repair on the disk.", self.time.as_secs()),
        ]
    }
}

impl Report {
    fn text(&self) -> String {
        let [mirror, pass] = &self.runs[..] else { return String::new() };
        let mut text = format!(
            "raid1  {:>8.0} commits/s\npass   {:>8.0} commits/s, {:.1} times as many; the disk lacked at most {}\n\n",
            mirror.commits_per_second,
            pass.commits_per_second,
            pass.commits_per_second / mirror.commits_per_second.max(1e-9),
            Bytes(self.behind_highest_bytes)
        );
        text += &format!(
            "After the loss of the SSD ext4 mounts from the disk: {} commits are there, all that were acknowledged but for the last {}",
            self.kept_commits, self.lost_commits
        );
        text += &match self.lost_commits {
            0 => ".\n\n".to_owned(),
            _ => format!(", of the last {:.2} s.\n\n", self.lost_seconds),
        };
        text + &self.conditions.join("\n")
    }
}
