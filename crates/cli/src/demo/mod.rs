//! `braid demo`: demonstrations of Braid on any machine, in two minutes, with nothing left behind.
//!
//! The demonstrations: a changing load ([`changing`], without a subcommand), dbench as in a paper
//! ([`comparison`]), a safe copy ([`pass`]), and an adopted disk with a cache, given back later ([`cache`]).
//! The demo serves and attaches volumes by ordinary `braid` commands and prints each command.
//!
//! ```text
//! changing/    one load in four phases, policy beside policy    comparison.rs   dbench with more and more clients
//! pass/        the safe copy, and programs that commit          cache.rs        a disk that is adopted and given back
//! show.rs      what the last two share                          report.rs       the table of the comparison
//! machine.rs   what this machine allows, a place for files      stage.rs        waiting, the bar, Ctrl-C, programs
//! guard.rs     whatever is made is undone, last made first      volume.rs       serve, attach, mkfs, mount
//! measure.rs   two looks at the daemon's counters               late.rs         whether figures count
//! dbench.rs fio.rs   the workloads of the comparison            memory_group.rs 1 GiB for dbench, as in the paper
//! ```

mod cache;
mod changing;
mod comparison;
mod dbench;
mod fio;
mod guard;
mod late;
mod machine;
mod measure;
mod memory_group;
mod pass;
mod report;
mod show;
mod stage;
mod volume;

use crate::output::Output;
use braid_base::DeviceClass;
use braid_control::{DeviceSpec, Error, ErrorKind, Result, check_policy};
use clap::{Args, Subcommand};
use guard::Guard;
use report::count;
use std::path::{Path, PathBuf};

/// Show policies side by side under a load that changes three times
///
/// Makes a volume from two files with the timing of an old SSD and an old hard disk. Under each policy, fio
/// reads and writes the volume over NBD: a hot set, another hot set, a stream, then ten times the load.
/// Prints one table: the best policy of each phase, and the distance of the default policy from the best.
/// Removes everything, also when interrupted. Takes about two minutes. Needs fio with its nbd engine, but
/// neither root nor devices.
///
/// If this machine is too busy to keep the timing of the emulated devices, the demo prints a warning and
/// marks figures that do not count.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  braid demo
  braid demo --quick
  braid demo --policies 'ssd-only hystor equi' --seconds 15
  braid demo dbench
  braid demo pass
  braid demo cache

JSON: conditions (sentences), too_slow (why figures do not count, and the remedy; null if all count), wall_seconds, runs: policy,
phase, throughput_mb_per_second, share_of_best, operation_ms_mean, operation_ms_max, volume: measured_seconds, requests,
latency_ns_p99, guest_bytes, migrations, lateness_share, too_late, devices: class, data_share, requests_share, requests,
all_response_ns_mean, flushes, flush_response_ns_mean, lateness_ns_mean."
)]
pub struct Arguments {
    #[command(subcommand)]
    show: Option<Demo>,
    #[command(flatten)]
    changing: changing::Settings,
}

/// Demonstrations other than the changing load.
#[derive(Subcommand)]
enum Demo {
    Dbench(Box<comparison::Arguments>),
    Pass(pass::Arguments),
    Cache(cache::Arguments),
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.show {
        Some(Demo::Dbench(arguments)) => comparison::run(arguments, output),
        Some(Demo::Pass(arguments)) => pass::run(arguments, output),
        Some(Demo::Cache(arguments)) => cache::run(arguments, output),
        None => changing::run(&arguments.changing, output),
    }
}

/// Parses and checks a list of policies, before the demo creates anything.
fn read_policies(words: &str, ssd: &str, hdd: &str) -> Result<Vec<String>> {
    let policies: Vec<String> =
        words.split([' ', ';']).filter(|p| !p.is_empty()).map(str::to_owned).collect();
    check_policies(&policies, ssd, hdd)?;
    if policies.is_empty() {
        return Err(Error::new(
            ErrorKind::Usage,
            "--policies names none: for example --policies 'ssd-only wardrop'",
        ));
    }
    Ok(policies)
}

/// Checks that the policies are valid for an SSD and a disk of the given models.
fn check_policies(policies: &[String], ssd: &str, hdd: &str) -> Result<()> {
    let devices = [
        DeviceSpec::parse(DeviceClass::Ssd, &format!("ssd.img,model={ssd}"))?,
        DeviceSpec::parse(DeviceClass::Hdd, &format!("hdd.img,model={hdd}"))?,
    ];
    policies.iter().try_for_each(|policy| check_policy(policy, &devices))
}

fn make_directory(parent: &Path, guard: &mut Guard) -> Result<PathBuf> {
    let directory = parent.join(format!("braid-demo-{}", std::process::id()));
    let failed = |e| Error::io(format_args!("cannot make {}", directory.display()), &e);
    std::fs::create_dir(&directory).map_err(failed)?;
    let made = directory.clone();
    guard.after(format!("the directory {}", directory.display()), move || {
        let removed = std::fs::remove_dir_all(&made);
        removed.map_err(|e| Error::io(format_args!("removing {}", made.display()), &e))
    });
    std::fs::create_dir(directory.join("mnt")).map_err(failed)?;
    Ok(directory)
}
