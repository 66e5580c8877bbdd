//! `braid demo policies`: one volume for each policy under a load that changes three times, and
//! the default policy beside the best policy of each phase.
//!
//! Fairness: every policy gets fresh devices, equal seeds of the models and of the load, and a volume filled
//! in the same way. A phase counts from its first request, so a policy pays for the time of its adaptation.

mod load;
mod report;

use super::guard::Guard;
use super::machine::{self, Over};
use super::measure::Interval;
use super::stage::{Program, Stage};
use super::volume::{Plan, Volume};
use super::{NAME, fio, make_directory, read_policies};
use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result};
use clap::Args;
use load::{PHASES, Phase};
use report::{PhaseRun, Report, best};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Show policies side by side under a load that changes three times
///
/// Makes a volume from two files with the timing of an SSD and a hard disk. Under each policy, fio reads and
/// writes the volume over NBD: a hot set, another hot set, a stream, then ten times the load. Prints one
/// table: the best policy of each phase, and the distance of the default policy from the best. Takes about
/// two minutes. Needs fio with its nbd engine, but neither root nor devices.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid demo policies
  braid demo policies --quick
  braid demo policies --policies 'ssd-only hystor equi' --seconds 15
  braid demo policies --ssd x25-m --hdd mba3073

JSON: conditions (sentences), too_slow (why figures do not count, and the remedy; null if all count), wall_seconds, runs: policy,
phase, throughput_mb_per_second, share_of_best, operation_ms_mean, operation_ms_max, volume: measured_seconds, requests,
latency_ns_p99, guest_bytes, migrations, lateness_share, too_late, devices: class, data_share, requests_share, requests,
all_response_ns_mean, flushes, flush_response_ns_mean, lateness_ns_mean.")]
pub struct Settings {
    /// Phases of one second, to check that everything works on this machine
    #[arg(long)]
    quick: bool,
    /// Policies, separated by blanks
    #[arg(long, default_value = POLICIES)]
    policies: String,
    /// Length of a phase in seconds [default: 6]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=86400))]
    seconds: Option<u32>,
    /// Model of the SSD
    #[arg(long, default_value = "sata-ssd")]
    ssd: String,
    /// Model of the disk
    #[arg(long, default_value = "exos-x20")]
    hdd: String,
    /// Size of the volume; the demo fills the volume first
    #[arg(long, default_value = "256MiB")]
    size: Bytes,
    /// Directory for the files [default: /var/tmp, or another directory with room on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the last volume, served
    #[arg(long)]
    keep: bool,
}

/// Each device alone, the cache most similar to products (write-back, the better of the two modes over the
/// corpus), and the default policy. The default comes last, so its figures appear beside figures of the
/// others.
const POLICIES: &str = "hdd-only ssd-only cache,mode=write-back equi,mode=auto";
const SECOND: Duration = Duration::from_secs(1);
/// Time for fio beyond the length of a phase.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tolerated factor between expected and real time of filling: slow models, or moves of a policy meanwhile.
const SLOWER: u32 = 20;

/// Policies, length of a phase, and volume.
struct Changing {
    policies: Vec<String>,
    time: Duration,
    plan: Plan,
}

/// Runs the demonstration.
pub fn run(settings: &Settings, output: Output) -> Result<u8> {
    let policies = read_policies(&settings.policies, &settings.ssd, &settings.hdd)?;
    machine::choose(Some(Over::Nbd))?;
    let parent = machine::choose_directory(settings.dir.as_deref(), machine::room(settings.size) * 2)?;
    let time = SECOND * settings.seconds.unwrap_or(if settings.quick { 1 } else { 6 });
    let length = (time * PHASES.len() as u32 + filling(settings.size)) * policies.len() as u32;
    let stage = Stage::new(length)?;
    let mut guard = Guard::default();
    let directory = make_directory(&parent, &mut guard)?;
    let (ssd, hdd, size) = (settings.ssd.clone(), settings.hdd.clone(), settings.size);
    let state = directory.join("state");
    let plan = Plan { name: NAME, directory, state, ssd, hdd, size };
    let changing = Changing { policies, time, plan };
    let conditions = changing.describe();
    let names: Vec<&str> = PHASES.iter().map(|phase| phase.name).collect();
    stage.say(&format!(
        "This takes about {} s: for each of {}, {} phases of {} s ({}).",
        length.as_secs(),
        changing.policies.join(" "),
        PHASES.len(),
        time.as_secs(),
        names.join(", ")
    ));
    stage.say(&format!("$ cd {}; export BRAID_STATE_DIR=$PWD/state", changing.plan.directory.display()));
    let start = Instant::now();
    let shown = changing.run(&stage, settings.keep, &mut guard);
    stage.clear();
    let runs = shown?;
    guard.finish();
    let report = Report::new(conditions, runs, start.elapsed().as_secs_f64());
    output.show(&report, || report.text());
    Ok(0)
}

/// Expected time of a policy beside its phases: starts of the daemon and fio, and filling of the volume.
/// Older SSDs write 70 MB/s in order.
fn filling(size: Bytes) -> Duration {
    SECOND * 3 + Duration::from_secs(size.0 / 70_000_000)
}

impl Changing {
    /// Meaning and origin of the figures, for the lines beneath the table.
    fn describe(&self) -> Vec<String> {
        let Plan { ssd, hdd, size, .. } = &self.plan;
        let mut conditions: Vec<String> =
            PHASES.iter().map(|phase| format!("{}: {}.", phase.name, phase.about)).collect();
        conditions.push(
            format!(
                "fio over NBD, phases of {} s one after the other, each policy on a fresh volume of {size}, filled first, on two files with \
                 the timing of {ssd} and {hdd}, each large enough for the whole volume.",
                self.time.as_secs()
            ),
        );
        conditions
    }

    /// Performs all runs, in order. With `keep`, the last volume stays, and so do all resources that `outer`
    /// guards.
    fn run(&self, stage: &Stage, keep: bool, outer: &mut Guard) -> Result<Vec<PhaseRun>> {
        let mut runs = Vec::new();
        for policy in &self.policies {
            let mut guard = Guard::default();
            stage.now(&format!("{policy}: the volume is filled"));
            let volume = self.plan.serve(policy, stage, &mut guard)?;
            let mut fill = Command::new("fio");
            fill.args(fio::fill(&volume.nbd_uri()?, self.plan.size));
            self.fio(fill, filling(self.plan.size) * SLOWER, stage, || Ok(()))?;
            for phase in &PHASES {
                let run = self.run_phase(policy, phase, &volume, &runs, stage)?;
                runs.push(run);
            }
            if keep && Some(policy) == self.policies.last() {
                let left = [outer.keep(), guard.keep()].concat();
                stage.say(&self.plan.how_to_remove(&left, false));
            }
        }
        Ok(runs)
    }

    /// Performs one phase. Every second, shows the current figure beside the best figure of earlier policies.
    fn run_phase(
        &self,
        policy: &str,
        phase: &Phase,
        volume: &Volume,
        before: &[PhaseRun],
        stage: &Stage,
    ) -> Result<PhaseRun> {
        let command = phase.command(&volume.nbd_uri()?, self.plan.size, self.time);
        let figure = |bytes_per_second| format!("{} {}", phase.figure(bytes_per_second), phase.unit());
        let beside = best(before, phase).map_or(String::new(), |best| {
            format!(", best so far {} {}", best.policy, phase.figure(best.throughput_mb_per_second * 1e6))
        });
        stage.now(&format!("{policy}, {}", phase.name));
        let begun = volume.status()?;
        let mut last = begun.clone();
        let said = self.fio(command, self.time, stage, || {
            let now = volume.status()?;
            let second = Interval::between(&last, &now);
            let now_figure = figure(second.guest_bytes as f64 / second.measured_seconds.max(1e-9));
            stage.now(&format!("{policy}, {}: {now_figure}{beside}", phase.name));
            last = now;
            Ok(())
        })?;
        let interval = Interval::between(&begun, &volume.status()?);
        let run = PhaseRun::new(policy, phase, fio::parse(&said)?, interval);
        let (mean, share) = (figure(run.throughput_mb_per_second * 1e6), run.volume.ssd_share() * 100.0);
        stage.say(&format!("  {policy}, {}: {mean}, {share:.0} % by the SSD{beside}", phase.name));
        Ok(run)
    }

    /// Runs fio, with an expected time of `length`, and calls `look` every second meanwhile. Returns the
    /// output of fio.
    ///
    /// # Errors
    /// If fio fails or has not ended after `length` and `PATIENCE`; errors of `look`; a signal.
    fn fio(
        &self,
        command: Command,
        length: Duration,
        stage: &Stage,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<String> {
        let (said, complained) = (self.plan.directory.join("run.out"), self.plan.directory.join("run.err"));
        let mut program = Program::start(command, &said, &complained)?;
        let (start, limit) = (Instant::now(), length + PATIENCE);
        while start.elapsed() < limit && !stage.wait_for(SECOND, || program.ended().is_some())? {
            look()?;
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        match program.ended() {
            Some(status) if status.success() => Ok(read(&said)),
            Some(status) => {
                Err(Error::new(ErrorKind::Io, format!("fio failed, {status}: {}", read(&complained).trim())))
            }
            None => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "fio has not ended after {limit:?}: the volume or this machine is too slow; try --quick"
                ),
            )),
        }
    }
}
