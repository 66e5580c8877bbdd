//! `braid demo cache`: an SSD before a disk that has a file system on it, and the disk given back.
//!
//! An image with ext4 on it is adopted, and programs commit records there: to the disk alone first, then with the SSD as a write-back cache, which takes
//! charge while they work. While they work, too, the SSD is removed. Then the volume is stopped and forgotten, the image is checked and mounted
//! without Braid, and every record is looked for.

use super::guard::Guard;
use super::machine;
use super::pass::commits::{Kept, Writers};
use super::stage::Stage;
use super::volume::{Plan, Volume};
use super::{count, make_directory};
use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Show a cache before a disk that has a file system on it, and the disk given back
///
/// An image with ext4 on it becomes a volume as it is. Programs commit records there: to the disk alone, then with an SSD as a write-back cache. The SSD is
/// removed while they work, and the image is checked and mounted without Braid: all records are looked for. Takes a minute and a half, and leaves
/// nothing behind. Needs root, FUSE and loop devices.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid demo cache
  braid demo cache --quick
  braid demo cache --ssd sata-ssd --hdd mba3073

JSON: conditions (sentences), wall_seconds, runs: policy, clients, measured_seconds, commits_per_second; dirty_highest_bytes,
removal_seconds, kept_commits, lost_commits.")]
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

/// What is compared, and what came back.
#[derive(Serialize)]
struct Report {
    conditions: Vec<String>,
    runs: Vec<Run>,
    dirty_highest_bytes: u64,
    removal_seconds: f64,
    kept_commits: u64,
    lost_commits: u64,
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

const SIZE: Bytes = Bytes(512 << 20);
/// Inode tables are not written behind the programs' back.
const MOUNT_OPTIONS: &str = "noinit_itable";
const ALONE: &str = "hdd-only";
const CACHED: &str = "cache,mode=write-back";
/// How long the removal of the SSD may take.
const PATIENCE: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);

/// Runs the verb.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    machine::choose_kernel(&[("e2fsck", "e2fsprogs")])?;
    let seconds = arguments.seconds.unwrap_or(if arguments.quick { 3 } else { 20 });
    super::check_policies(&[ALONE.to_owned(), CACHED.to_owned()], &arguments.ssd, &arguments.hdd)?;
    let parent = machine::choose_directory(arguments.dir.as_deref(), machine::room(SIZE * 2))?;
    let stage = Stage::new(SECOND * (2 * seconds + 30))?;
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
    let shown = show.run();
    show.stage.clear();
    let mut report = shown?;
    guard.finish();
    report.wall_seconds = start.elapsed().as_secs_f64();
    output.show(&report, || report.text());
    Ok(if report.lost_commits == 0 { 0 } else { 3 })
}

/// What is to be shown.
struct Show {
    plan: Plan,
    stage: Stage,
    clients: u32,
    time: Duration,
}

impl Show {
    fn run(&self) -> Result<Report> {
        self.stage.say("\nA disk with a file system on it becomes a volume as it is.");
        let (mut guard, point) = (Guard::default(), self.plan.mount_point());
        let volume = self.plan.adopt_and_serve(ALONE, &self.stage, &mut guard)?;
        let device = volume.attach(&mut guard)?;
        volume.mount(&device, &point, MOUNT_OPTIONS, &mut guard)?;
        let writers = Writers::start(&point, self.clients as usize)?;
        let alone = self.measure(ALONE, &writers, |_| Ok(()))?;
        self.stage.say("\nNow the SSD caches it, and the programs go on.");
        volume.change_policy(CACHED)?;
        let mut highest = Bytes::ZERO;
        let cached = self.measure(CACHED, &writers, |per_second| {
            let status = volume.status()?;
            let (extra, dirty) = (Bytes(status.extra_bytes), Bytes(status.dirty_bytes));
            highest = highest.max(dirty);
            self.stage.say(&format!(
                "  {per_second:>6} commits/s; {extra} on the SSD, {dirty} of that to be written back"
            ));
            Ok(())
        })?;
        self.stage.say("\nThe SSD leaves, and the programs go on.");
        let removal = self.remove_ssd(&volume)?;
        let commits = writers.end();
        self.stage.say("\nThe volume is stopped and forgotten: what is left is a plain disk.");
        guard.finish();
        volume.forget()?;
        let kept = self.look_at_disk(|point| commits.look_for(point))?;
        Ok(Report {
            conditions: self.conditions(),
            runs: vec![alone, cached],
            dirty_highest_bytes: highest.0,
            removal_seconds: removal.as_secs_f64(),
            kept_commits: kept.commits,
            lost_commits: kept.lost,
            wall_seconds: 0.0,
        })
    }

    /// Watches the programs for the length of a run, and tells every second how many commits it had.
    fn measure(&self, policy: &str, writers: &Writers, tell: impl FnMut(u64) -> Result<()>) -> Result<Run> {
        self.stage.now(policy);
        let (measured_seconds, commits_per_second) = writers.watch(&self.stage, self.time, tell)?;
        self.stage.say(&format!("  {policy}: {commits_per_second:.0} commits/s"));
        Ok(Run { policy: policy.to_owned(), clients: self.clients, measured_seconds, commits_per_second })
    }

    /// Removes the SSD; how long that took.
    fn remove_ssd(&self, volume: &Volume<'_>) -> Result<Duration> {
        let start = Instant::now();
        volume.remove_ssd()?;
        let mut failed = Ok(());
        let has_left = self.stage.wait_for(PATIENCE, || match volume.status() {
            Ok(status) => status.devices.iter().all(|device| device.class != "ssd"),
            Err(error) => {
                failed = Err(error);
                true
            }
        })?;
        failed?;
        match has_left {
            true => Ok(start.elapsed()),
            false => Err(Error::new(ErrorKind::Io, format!("the SSD has not left in {PATIENCE:?}"))),
        }
    }

    /// Checks the image's file system, and mounts it without Braid.
    fn look_at_disk(&self, look: impl FnOnce(&std::path::Path) -> Result<Kept>) -> Result<Kept> {
        let (image, point) = (self.plan.hdd_file(), self.plan.mount_point());
        let (shown, directory) = (image.to_string_lossy().into_owned(), point.to_string_lossy().into_owned());
        self.stage.say("$ e2fsck -fn hdd.img");
        self.stage.run("e2fsck", &["-fn", &shown])?;
        self.stage.say("$ mount -o loop,ro hdd.img mnt");
        let mut guard = Guard::default();
        self.stage.run("mount", &["-o", "loop,ro", &shown, &directory])?;
        guard.after(format!("the mount on {directory}"), move || super::volume::unmount(&directory));
        look(&point)
    }

    fn conditions(&self) -> Vec<String> {
        let Plan { ssd, hdd, .. } = &self.plan;
        vec![
            format!(
                "{} commit records of 4 KiB at scattered places (write, fdatasync), on ext4 with barriers on a loop device on FUSE; a disk of {SIZE} with the \
                 timing of {hdd}, and an SSD with that of {ssd}.",
                count(self.clients, "program")
            ),
            format!("{} s for each policy. e2fsck found nothing to repair on the disk.", self.time.as_secs()),
        ]
    }
}

impl Report {
    fn text(&self) -> String {
        let [alone, cached] = &self.runs[..] else { return String::new() };
        format!(
            "disk alone  {:>8.0} commits/s\nwith cache  {:>8.0} commits/s, {:.1} times as many; at most {} waited to be written back\n\n\
             The SSD left in {:.1} s, and the disk mounts without Braid: of all acknowledged commits, {} are there and {} are not.\n\n{}",
            alone.commits_per_second,
            cached.commits_per_second,
            cached.commits_per_second / alone.commits_per_second.max(1e-9),
            Bytes(self.dirty_highest_bytes),
            self.removal_seconds,
            self.kept_commits,
            self.lost_commits,
            self.conditions.join("\n")
        )
    }
}
