//! Common parts of the safe copy ([`super::pass`]) and the cache ([`super::cache`]): programs that commit
//! records on ext4 on a volume of an SSD and a disk, under two policies for equal times.

use super::guard::Guard;
use super::late::{self, mark};
use super::machine;
use super::make_directory;
use super::measure::Interval;
use super::pass::commits::Writers;
use super::stage::Stage;
use super::volume::{Plan, Volume};
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result, StatusReport};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of the volume: small, so that the first copy on the disk is soon complete.
pub const SIZE: Bytes = Bytes(512 << 20);
/// Without writes of inode tables in the background.
pub const MOUNT_OPTIONS: &str = "noinit_itable";
const SECOND: Duration = Duration::from_secs(1);

/// Length of the runs, number of programs, devices and directory.
#[derive(Args)]
pub struct ShowSettings {
    /// Runs of three seconds, to check that everything works on this machine
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
    /// Directory for the files [default: /var/tmp, or another directory with room on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Figures of one policy.
#[derive(Serialize)]
pub struct CommitRun {
    policy: String,
    clients: u32,
    measured_seconds: f64,
    pub commits_per_second: f64,
    lateness_share: f64,
    too_late: bool,
    /// Figures of the volume during the run.
    #[serde(skip)]
    volume: Interval,
}

impl CommitRun {
    /// Row of the table: `name`, and commits per second.
    pub fn row(&self, name: &str) -> String {
        format!("{name} {:>8.0}{} commits/s", self.commits_per_second, mark(&self.volume))
    }
}

/// Reason why figures do not count, and the remedy; `None` if all count.
pub fn too_slow(runs: &[CommitRun]) -> Option<String> {
    late::too_slow(runs.iter().map(|run| (run.policy.clone(), &run.volume)))
}

/// Volume, progress bar, number of programs and length of a run.
pub struct Show<'a> {
    pub plan: Plan,
    pub stage: &'a Stage,
    pub clients: u32,
    pub time: Duration,
}

impl ShowSettings {
    /// Creates a directory, runs `play` with the directory, and removes everything. Returns the result of
    /// `play` and its duration in seconds. The progress bar expects `runs` runs and `beside` seconds.
    ///
    /// # Errors
    /// A missing requirement of the machine or a wrong setting, before anything is made; errors of `play`.
    pub fn show<T>(
        &self,
        policies: &[String],
        runs: u32,
        beside: u32,
        play: impl FnOnce(&Stage, &Path) -> Result<T>,
    ) -> Result<(T, f64)> {
        machine::choose_kernel(&[("e2fsck", "e2fsprogs")])?;
        super::check_policies(policies, &self.ssd, &self.hdd)?;
        let parent = machine::choose_directory(self.dir.as_deref(), machine::room(SIZE * 2))?;
        let stage = Stage::new(self.time() * runs + SECOND * beside)?;
        let mut guard = Guard::default();
        let directory = make_directory(&parent, &mut guard)?;
        let start = Instant::now();
        let shown = play(&stage, &directory);
        stage.clear();
        let shown = shown?;
        guard.finish();
        Ok((shown, start.elapsed().as_secs_f64()))
    }

    /// A volume called `name` in a directory, with the state of its daemons in `state`.
    pub fn scene<'a>(
        &self,
        stage: &'a Stage,
        name: &'static str,
        directory: &Path,
        state: &Path,
    ) -> Show<'a> {
        stage.say(&format!("$ cd {}; export BRAID_STATE_DIR={}", directory.display(), state.display()));
        let (directory, state) = (directory.to_owned(), state.to_owned());
        let plan = Plan { name, directory, state, ssd: self.ssd.clone(), hdd: self.hdd.clone(), size: SIZE };
        Show { plan, stage, clients: self.clients, time: self.time() }
    }

    fn time(&self) -> Duration {
        SECOND * self.seconds.unwrap_or(if self.quick { 3 } else { 20 })
    }
}

impl Show<'_> {
    /// Measures the programs for the length of a run. Every second `tell` receives the commits of the second.
    pub fn measure(
        &self,
        policy: &str,
        volume: &Volume<'_>,
        writers: &Writers,
        tell: impl FnMut(u64) -> Result<()>,
    ) -> Result<CommitRun> {
        self.stage.now(policy);
        let before = volume.status()?;
        let (measured_seconds, commits_per_second) = writers.watch(self.stage, self.time, tell)?;
        let interval = Interval::between(&before, &volume.status()?);
        self.stage.say(&format!("  {policy}: {commits_per_second:.0} commits/s"));
        Ok(CommitRun {
            policy: policy.to_owned(),
            clients: self.clients,
            measured_seconds,
            commits_per_second,
            lateness_share: interval.lateness_share,
            too_late: interval.too_late,
            volume: interval,
        })
    }

    /// Waits until `is_so` accepts the status of the volume. After `patience`, fails with `problem`.
    pub fn wait_until(
        &self,
        volume: &Volume<'_>,
        patience: Duration,
        problem: &str,
        is_so: impl Fn(&StatusReport) -> bool,
    ) -> Result<()> {
        let mut failed = Ok(());
        let came = self.stage.wait_for(patience, || match volume.status() {
            Ok(status) => is_so(&status),
            Err(error) => {
                failed = Err(error);
                true
            }
        })?;
        failed?;
        match came {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Io, format!("{problem} in {patience:?}"))),
        }
    }
}
