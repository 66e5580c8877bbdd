//! `braid demo dbench`: the comparison of Wu and Reddy's paper in one command, on any machine.
//!
//! Each policy serves a volume of two files with the timing of an SSD and of a 15,000 rpm disk. The volume is
//! attached as a kernel block device with ext4. The real dbench runs with 1, 4 and 10 clients, one after the
//! other on the same file system. Without root, FUSE or loop devices, fio runs over NBD.
//!
//! Fairness: every policy gets fresh devices, equal seeds of the models and the same order of clients. A
//! learning policy keeps its state from one number of clients to the next, as on a long-lived volume. The
//! first fifth of each run is warm-up and does not count, neither for dbench nor in the daemon's figures.

use super::dbench::{self, Outcome};
use super::fio;
use super::guard::Guard;
use super::machine::{self, Over};
use super::measure::Interval;
use super::memory_group::{self, MemoryGroup};
use super::report::{DbenchRun, Report, count};
use super::stage::{Program, Stage};
use super::volume::{Plan, Volume};
use super::{NAME, make_directory, read_policies};
use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Compare policies under real dbench, with the timing of an old SSD and an old hard disk
///
/// Makes a volume from two files, attaches the volume, makes ext4, and runs dbench in 1 GiB of memory under
/// each policy. Prints one table, and removes everything, also when interrupted. Takes less than five
/// minutes. Needs root, FUSE, loop devices and dbench; otherwise runs fio over NBD.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid demo dbench
  braid demo dbench --quick
  braid demo dbench --policies 'ssd-only wardrop wardrop,no-migration' --clients 10 --seconds 60
  braid demo dbench --ssd transcend-16g

JSON: conditions (sentences), too_slow (why figures do not count, and the remedy; null if all count), wall_seconds, runs: policy, clients, throughput_mb_per_second,
operation_ms_mean, operation_ms_max, volume: measured_seconds, requests, latency_ns_p99, guest_bytes,
migrations, lateness_share, too_late, devices: class, data_share, requests_share, requests, all_response_ns_mean, flushes,
flush_response_ns_mean, lateness_ns_mean.")]
pub struct Arguments {
    /// One short run for each policy, to check that everything works on this machine
    #[arg(long)]
    quick: bool,
    /// Policies, separated by blanks
    #[arg(long, default_value = "ssd-only hdd-only stripe static,ssd=80% equi,mode=auto")]
    policies: String,
    /// Numbers of clients [default: 1,4,10]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: Vec<u32>,
    /// Length of a run in seconds, warm-up included [default: 15]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=86400))]
    seconds: Option<u32>,
    /// Model of the SSD
    #[arg(long, default_value = "x25-m")]
    ssd: String,
    /// Model of the disk
    #[arg(long, default_value = "mba3073")]
    hdd: String,
    /// Size of the volume
    #[arg(long, default_value = "4GiB")]
    size: Bytes,
    /// Memory limit of the workload, page cache included
    #[arg(long, default_value = "1GiB")]
    memory: Bytes,
    /// Options of dbench
    #[arg(long, default_value = DBENCH_OPTIONS, allow_hyphen_values = true)]
    dbench_options: String,
    /// Mount options of ext4
    #[arg(long, default_value = MOUNT_OPTIONS)]
    mount_options: String,
    /// Directory for the files [default: /var/tmp, or another directory with room on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the last volume, served and mounted
    #[arg(long)]
    keep: bool,
    /// Way to the volume, instead of the best way on this machine
    #[arg(long, hide = true)]
    over: Option<Over>,
}

/// With `-s` every write waits for the volume (O_SYNC). Without `-s`, a page cache of 1 GiB absorbs files
/// that dbench writes and soon deletes; then two processor cores are the limit, not the devices.
const DBENCH_OPTIONS: &str = "-s";

/// Without writes of inode tables in the background, and without barriers, the default of ext3 in the paper's
/// kernel. An fsync then waits for its writes, but not for a flush of every device's cache. With such flushes
/// the disk would be too slow to deserve any share of the data.
const MOUNT_OPTIONS: &str = "noinit_itable,barrier=0";

/// Policies, numbers of clients, and settings of all runs.
struct Comparison {
    policies: Vec<String>,
    clients: Vec<u32>,
    time: Duration,
    over: Over,
    dbench_options: String,
    mount_options: String,
    plan: Plan,
    /// Control group of the workload.
    group: Option<MemoryGroup>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let (clients, seconds) = if arguments.quick { (vec![2], 2) } else { (vec![1, 4, 10], 15) };
    let clients = if arguments.clients.is_empty() { clients } else { arguments.clients.clone() };
    let time = Duration::from_secs(arguments.seconds.unwrap_or(seconds).into());
    let policies = read_policies(&arguments.policies, &arguments.ssd, &arguments.hdd)?;
    let (over, missing) = machine::choose(arguments.over)?;
    let parent = machine::choose_directory(arguments.dir.as_deref(), machine::room(arguments.size))?;
    // A second more for each run: starts and ends of runs and volumes take time.
    let runs = (policies.len() * clients.len()) as u32;
    let stage = Stage::new((time + Duration::from_secs(1)) * runs)?;
    let mut guard = Guard::default();
    let mut conditions = Vec::new();
    if let Some(missing) = missing {
        conditions.push(format!("No block device (missing: {missing}): fio runs over NBD instead."));
        stage.say(&conditions[0]);
    }
    let directory = make_directory(&parent, &mut guard)?;
    stage.say(&format!("$ cd {}; export BRAID_STATE_DIR=$PWD/state", directory.display()));
    let group =
        if over == Over::Kernel { limit_memory(arguments.memory, &mut guard, &mut conditions) } else { None };
    let (ssd, hdd, size) = (arguments.ssd.clone(), arguments.hdd.clone(), arguments.size);
    let state = directory.join("state");
    let plan = Plan { name: NAME, directory, state, ssd, hdd, size };
    let (dbench_options, mount_options) = (arguments.dbench_options.clone(), arguments.mount_options.clone());
    let comparison = Comparison { policies, clients, time, over, dbench_options, mount_options, plan, group };
    comparison.describe(&mut conditions);
    let start = Instant::now();
    let compared = comparison.run(&stage, arguments.keep, &mut guard);
    stage.clear();
    let runs = compared?;
    guard.finish();
    // A late signal does not invalidate the results of completed runs.
    let report = Report::new(conditions, runs, start.elapsed().as_secs_f64());
    output.show(&report, || report.table(comparison.workload()));
    Ok(0)
}

fn limit_memory(limit: Bytes, guard: &mut Guard, conditions: &mut Vec<String>) -> Option<MemoryGroup> {
    match MemoryGroup::make(&format!("braid-demo-{}", std::process::id()), limit) {
        Ok(group) => {
            let directory = group.directory.clone();
            guard.after(format!("the control group {}", directory.display()), move || {
                memory_group::remove(&directory)
                    .map_err(|e| Error::io(format_args!("removing {}", directory.display()), &e))
            });
            conditions.push(format!("dbench ran in {limit} of memory, page cache included."));
            Some(group)
        }
        Err(why) => {
            conditions
                .push(format!("dbench ran without a memory limit ({why}): the page cache absorbs more."));
            None
        }
    }
}

impl Comparison {
    fn workload(&self) -> &'static str {
        match self.over {
            Over::Kernel => "dbench",
            Over::Nbd => "fio",
        }
    }

    /// Adds the meaning and origin of the figures, for the lines beneath the table.
    fn describe(&self, conditions: &mut Vec<String>) {
        let Plan { ssd, hdd, size, .. } = &self.plan;
        let (workload, seconds) = (self.workload(), self.time.as_secs());
        let devices = format!("two files with the timing of {ssd} and {hdd}");
        conditions.push(match self.over {
            Over::Kernel => format!(
                "dbench {} on ext4 ({}) on a loop device on FUSE; a volume of {size} on {devices}.",
                self.dbench_options, self.mount_options
            ),
            Over::Nbd => format!("fio over NBD, without page cache; a volume of {size} on {devices}."),
        });
        if self.over == Over::Kernel && self.dbench_options.contains("-s") {
            conditions.push(
                "With -s every write waits for the volume; without -s the page cache absorbs most, and processors are the limit."
                    .to_owned(),
            );
        }
        if self.over == Over::Kernel && self.mount_options.contains("barrier=0") {
            conditions.push(
                "barrier=0 is the default of ext3 in the paper's kernel; with barriers (--mount-options noinit_itable) every fsync \
                 waits for a flush of each written device, and the SSD alone is best."
                    .to_owned(),
            );
        }
        conditions.push(format!(
            "Runs of {seconds} s in this order, the first {} s of each do not count; a fresh volume and file system for each policy.",
            dbench::warm_up(self.time).as_secs()
        ));
        conditions.push(format!(
            "MB/s and mean: {workload}'s figures for its own operations. All other columns: from braid status, over the same time: \
             p99 of reads, writes and flushes of the volume; response times of the devices, flushes included."
        ));
    }

    /// Performs all runs, in order. With `keep`, the last volume stays, and so do all resources that `outer`
    /// guards.
    fn run(&self, stage: &Stage, keep: bool, outer: &mut Guard) -> Result<Vec<DbenchRun>> {
        let mut runs = Vec::new();
        for policy in &self.policies {
            let mut guard = Guard::default();
            self.run_policy(policy, stage, &mut guard, &mut runs)?;
            if keep && Some(policy) == self.policies.last() {
                let left = [outer.keep(), guard.keep()].concat();
                stage.say(&self.plan.how_to_remove(&left, self.over == Over::Kernel));
            }
        }
        Ok(runs)
    }

    fn run_policy(
        &self,
        policy: &str,
        stage: &Stage,
        guard: &mut Guard,
        runs: &mut Vec<DbenchRun>,
    ) -> Result<()> {
        stage.now(policy);
        let volume = self.plan.serve(policy, stage, guard)?;
        let point = self.plan.mount_point();
        match self.over {
            Over::Kernel => volume.attach_and_mount(&point, &self.mount_options, guard)?,
            Over::Nbd => {
                let most = self.clients.iter().copied().max().unwrap_or(1);
                let arguments = fio::fill(&volume.nbd_uri()?, fio::span(most));
                stage.run("fio", &arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
            }
        }
        for &clients in &self.clients {
            stage.now(&format!("{policy}, {}", count(clients, "client")));
            let run = self.run_clients(policy, clients, &volume, stage)?;
            stage.say(&run.line());
            runs.push(run);
        }
        Ok(())
    }

    /// Performs one run: the workload, and the daemon's counters after the warm-up and just before the end.
    fn run_clients(&self, policy: &str, clients: u32, volume: &Volume, stage: &Stage) -> Result<DbenchRun> {
        let warm_up = dbench::warm_up(self.time);
        let (command, parse): (_, fn(&str) -> Result<Outcome>) = match self.over {
            Over::Kernel => {
                let group = self.group.as_ref().map(MemoryGroup::processes);
                let point = self.plan.mount_point();
                (
                    dbench::command(&self.dbench_options, &point, clients, self.time, group.as_deref()),
                    dbench::parse,
                )
            }
            Over::Nbd => (fio::command(&volume.nbd_uri()?, clients, self.time, warm_up), fio::parse),
        };
        let (said, complained) = (self.plan.directory.join("run.out"), self.plan.directory.join("run.err"));
        let mut program = Program::start(command, &said, &complained)?;
        stage.sleep(warm_up)?;
        let before = volume.status()?;
        stage.sleep(self.time - warm_up)?;
        let after = volume.status()?;
        let status = program.wait(stage, LAST_STEPS)?;
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        if !status.success() {
            let problem = format!("{} failed, {status}: {}", self.workload(), read(&complained).trim());
            return Err(Error::new(ErrorKind::Io, problem));
        }
        Ok(DbenchRun::new(policy, clients, parse(&read(&said))?, Interval::between(&before, &after)))
    }
}

/// Time for the workload to remove its files and end.
const LAST_STEPS: Duration = Duration::from_secs(60);
