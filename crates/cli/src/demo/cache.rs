//! `braid demo cache`: an SSD before a disk that has a file system on it, and the disk given back.
//!
//! An image with ext4 on it is adopted, and programs commit records there: to the disk alone first, then with
//! the SSD as a write-back cache, which takes charge while they work. While they work, too, the SSD is
//! removed. Then the volume is stopped and forgotten, the image is checked and mounted without Braid, and
//! every record is looked for.

use super::count;
use super::guard::Guard;
use super::pass::commits::{Kept, Writers};
use super::show::{CommitRun, MOUNT_OPTIONS, SIZE, Show, ShowSettings, too_slow};
use super::volume::{Plan, Volume};
use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Result, StatusReport};
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Show a cache before a disk that has a file system on it, and the disk given back
///
/// An image with ext4 on it becomes a volume as it is. Programs commit records there: to the disk alone, then
/// with an SSD as a write-back cache. The SSD is removed while they work, and the image is checked and
/// mounted without Braid: all records are looked for. Takes a minute and a half, and leaves nothing behind.
/// Needs root, FUSE and loop devices.
///
/// The load is Braid's own, and neither PostMark nor pgbench: programs that write a record of 4 KiB and make
/// it durable, as a database commits. They need nothing installed, and know of each record whether it was
/// acknowledged, so that after the removal none can be missing unnoticed. It is the kindest load to a cache:
/// small, scattered, and flushed. Attach a volume (braid attach) to run a programme of your own.
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

/// What is compared, and what came back.
#[derive(Serialize)]
struct Report {
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
/// How long the removal of the SSD may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the verb.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let policies = [ALONE, CACHED].map(str::to_owned);
    let (mut report, wall_seconds) = arguments.settings.show(&policies, 30, |show| Cache { show }.run())?;
    report.wall_seconds = wall_seconds;
    output.show(&report, || report.text());
    Ok(if report.lost_commits == 0 { 0 } else { 3 })
}

/// The show.
struct Cache<'a> {
    show: &'a Show,
}

impl Cache<'_> {
    fn run(&self) -> Result<Report> {
        self.show.stage.say("\nA disk with a file system on it becomes a volume as it is.");
        let (mut guard, point) = (Guard::default(), self.show.plan.mount_point());
        let volume = self.show.plan.adopt_and_serve(ALONE, &self.show.stage, &mut guard)?;
        let device = volume.attach(&mut guard)?;
        volume.mount(&device, &point, MOUNT_OPTIONS, &mut guard)?;
        let writers = Writers::start(&point, self.show.clients as usize)?;
        let alone = self.show.measure(ALONE, &volume, &writers, |_| Ok(()))?;
        self.show.stage.say("\nNow the SSD caches it, and the programs go on.");
        volume.change_policy(CACHED)?;
        let mut highest = Bytes::ZERO;
        let cached = self.show.measure(CACHED, &volume, &writers, |per_second| {
            let status = volume.status()?;
            let (extra, dirty) = (Bytes(status.extra_bytes), Bytes(status.dirty_bytes));
            highest = highest.max(dirty);
            self.show.stage.say(&format!(
                "  {per_second:>6} commits/s; {extra} on the SSD, {dirty} of that to be written back"
            ));
            Ok(())
        })?;
        self.show.stage.say("\nThe SSD leaves, and the programs go on.");
        let removal = self.remove_ssd(&volume)?;
        let commits = writers.end();
        self.show.stage.say("\nThe volume is stopped and forgotten: what is left is a plain disk.");
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

    /// Removes the SSD; how long that took.
    fn remove_ssd(&self, volume: &Volume<'_>) -> Result<Duration> {
        let start = Instant::now();
        volume.remove_ssd()?;
        let has_left = |status: &StatusReport| status.devices.iter().all(|device| device.class != "ssd");
        self.show.wait_until(volume, PATIENCE, "the SSD has not left", has_left)?;
        Ok(start.elapsed())
    }

    /// Checks the image's file system, and mounts it without Braid.
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
            "The programs are Braid's own, and neither PostMark nor pgbench: they know of each record whether it was acknowledged, so that each can be looked for."
                .to_owned(),
            format!(
                "{} s for each policy. e2fsck found nothing to repair on the disk.",
                self.show.time.as_secs()
            ),
        ]
    }
}

impl Report {
    fn text(&self) -> String {
        let [alone, cached] = &self.runs[..] else { return String::new() };
        let lines: Vec<&str> = self.too_slow.iter().chain(&self.conditions).map(String::as_str).collect();
        format!(
            "{}\n{}, {:.1} times as many; at most {} waited to be written back\n\n\
             The SSD left in {:.1} s, and the disk mounts without Braid: of all acknowledged commits, {} are there and {} are not.\n\n{}",
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
