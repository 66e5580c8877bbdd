//! `braid demo cache`: an SSD as a cache for a disk with a file system, and the disk given back.
//!
//! The demo adopts an image with ext4, and programs commit records: first to the disk alone, then with the
//! SSD as a write-back cache. The policy changes, and the SSD is removed, while the programs run. Then the
//! volume is stopped and forgotten, the image is checked and mounted without Braid, and every record is
//! looked for.

use super::guard::Guard;
use super::pass::commits::{Kept, Writers};
use super::show::{CommitRun, MOUNT_OPTIONS, SIZE, Show, ShowSettings, too_slow};
use super::volume::{Plan, Volume};
use super::{NAME, count};
use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Result, StatusReport};
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Show an SSD as a cache for a disk with a file system, and the disk given back
///
/// An image with ext4 becomes a volume, with its data in place. Programs commit records: first to the disk
/// alone, then with an SSD as a write-back cache. The SSD is removed while the programs run. Then the image
/// is checked and mounted without Braid, and all records are looked for. Takes a minute and a half, and
/// leaves nothing behind. Needs root, FUSE and loop devices.
///
/// The load is Braid's own, neither PostMark nor pgbench: each program writes a record of 4 KiB and makes the
/// record durable, like a commit of a database. The programs need no installation and note each acknowledged
/// record, so no missing record goes unnoticed after the removal. Small, scattered, flushed writes are the
/// best load for a cache. Attach a volume (braid attach) to run a program of your own.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid demo cache
  braid demo cache --quick
  braid demo cache --ssd sata-ssd --hdd mba3073

JSON: conditions (sentences), too_slow (why figures do not count, and the remedy; null if all count), wall_seconds, runs: policy,
clients, measured_seconds, commits_per_second, lateness_share, too_late; dirty_highest_bytes,
removal_seconds, kept_commits, lost_commits.")]
pub struct Arguments {
    #[command(flatten)]
    settings: ShowSettings,
}

/// The compared runs, and the records found on the disk afterwards.
#[derive(Serialize)]
pub struct Report {
    conditions: Vec<String>,
    too_slow: Option<String>,
    runs: Vec<CommitRun>,
    dirty_highest_bytes: u64,
    removal_seconds: f64,
    kept_commits: u64,
    lost_commits: u64,
    wall_seconds: f64,
}

const ALONE: &str = "hdd-only";
const CACHED: &str = "cache,mode=write-back";
/// Longest removal of the SSD.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the command. Exit status 3 if an acknowledged commit is missing.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let settings = &arguments.settings;
    let (mut report, wall_seconds) = settings.show(&policies(), 2, 30, |stage, directory| {
        play(&settings.scene(stage, NAME, directory, &directory.join("state")))
    })?;
    report.wall_seconds = wall_seconds;
    output.show(&report, || report.text());
    Ok(report.exit_status())
}

/// The compared policies: the disk alone, and the cache.
pub fn policies() -> [String; 2] {
    [ALONE, CACHED].map(str::to_owned)
}

/// Shows the speed with and without the cache, and the disk given back, without the time in the report.
pub fn play(show: &Show) -> Result<Report> {
    Cache { show }.run()
}

/// The demonstration.
struct Cache<'a> {
    show: &'a Show<'a>,
}

impl Cache<'_> {
    fn run(&self) -> Result<Report> {
        self.show.stage.say("\nA disk with a file system becomes a volume, with its data in place.");
        let (mut guard, point) = (Guard::default(), self.show.plan.mount_point());
        let volume = self.show.plan.adopt_and_serve(ALONE, self.show.stage, &mut guard)?;
        let device = volume.attach(&mut guard)?;
        volume.mount(&device, &point, MOUNT_OPTIONS, &mut guard)?;
        let writers = Writers::start(&point, self.show.clients as usize)?;
        let alone = self.show.measure(ALONE, &volume, &writers, |_| Ok(()))?;
        self.show.stage.say("\nNow the SSD caches the disk, and the programs continue.");
        volume.change_policy(CACHED)?;
        let mut highest = Bytes::ZERO;
        let cached = self.show.measure(CACHED, &volume, &writers, |per_second| {
            let status = volume.status()?;
            let (extra, dirty) = (Bytes(status.extra_bytes), Bytes(status.dirty_bytes));
            highest = highest.max(dirty);
            self.show.stage.say(&format!(
                "  {per_second:>6} commits/s; {extra} on the SSD, including {dirty} of dirty data"
            ));
            Ok(())
        })?;
        self.show.stage.say("\nThe SSD is removed, and the programs continue.");
        let removal = self.remove_ssd(&volume)?;
        let commits = writers.end();
        self.show.stage.say("\nThe volume is stopped and forgotten; a plain disk remains.");
        guard.finish();
        volume.forget()?;
        let kept = self.look_at_disk(|point| commits.look_for(point))?;
        let runs = vec![alone, cached];
        Ok(Report {
            conditions: self.conditions(),
            too_slow: too_slow(&runs),
            runs,
            dirty_highest_bytes: highest.0,
            removal_seconds: removal.as_secs_f64(),
            kept_commits: kept.commits,
            lost_commits: kept.lost,
            wall_seconds: 0.0,
        })
    }

    /// Removes the SSD; returns the duration.
    fn remove_ssd(&self, volume: &Volume<'_>) -> Result<Duration> {
        let start = Instant::now();
        volume.remove_ssd()?;
        let has_left = |status: &StatusReport| status.devices.iter().all(|device| device.class != "ssd");
        self.show.wait_until(volume, PATIENCE, "the SSD was not removed", has_left)?;
        Ok(start.elapsed())
    }

    /// Checks the image's file system, mounts the image without Braid, and calls `look` with the mount point.
    fn look_at_disk(&self, look: impl FnOnce(&std::path::Path) -> Result<Kept>) -> Result<Kept> {
        let (image, point) = (self.show.plan.hdd_file(), self.show.plan.mount_point());
        let (shown, directory) = (image.to_string_lossy().into_owned(), point.to_string_lossy().into_owned());
        self.show.stage.say("$ e2fsck -fn hdd.img");
        self.show.stage.run("e2fsck", &["-fn", &shown])?;
        self.show.stage.say("$ mount -o loop,ro hdd.img mnt");
        let mut guard = Guard::default();
        self.show.stage.run("mount", &["-o", "loop,ro", &shown, &directory])?;
        guard.after(format!("the mount on {directory}"), move || super::volume::unmount(&directory));
        look(&point)
    }

    fn conditions(&self) -> Vec<String> {
        let Plan { ssd, hdd, .. } = &self.show.plan;
        vec![
            format!(
                "{} commit records of 4 KiB at scattered places (write, fdatasync), on ext4 with barriers on a loop device on FUSE; a disk of {SIZE} with the \
                 timing of {hdd}, and an SSD with that of {ssd}.",
                count(self.show.clients, "program")
            ),
            "The programs are Braid's own, neither PostMark nor pgbench: the demo notes each acknowledged record, and looks for each on the disk."
                .to_owned(),
            format!(
                "{} s for each policy. e2fsck found nothing to repair on the disk.",
                self.show.time.as_secs()
            ),
        ]
    }
}

impl Report {
    /// 3 if an acknowledged commit is missing, else 0.
    pub fn exit_status(&self) -> u8 {
        if self.lost_commits == 0 { 0 } else { 3 }
    }

    /// The figures, and the commits found on the disk.
    pub fn text(&self) -> String {
        let [alone, cached] = &self.runs[..] else { return String::new() };
        let lines: Vec<&str> = self.too_slow.iter().chain(&self.conditions).map(String::as_str).collect();
        format!(
            "{}\n{}, {:.1} times as many; at most {} of dirty data\n\n\
             The SSD was removed in {:.1} s, and the disk mounts without Braid: of all acknowledged commits, {} are present and {} are lost.\n\n{}",
            alone.row("disk alone "),
            cached.row("with cache "),
            cached.commits_per_second / alone.commits_per_second.max(1e-9),
            Bytes(self.dirty_highest_bytes),
            self.removal_seconds,
            self.kept_commits,
            self.lost_commits,
            lines.join("\n")
        )
    }
}
