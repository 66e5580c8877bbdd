//! `braid demo`: demonstrations of Braid on any machine, in minutes, with nothing left behind.
//!
//! A demonstration serves and attaches volumes by ordinary `braid` commands, and prints each command.
//!
//! ```text
//! tour.rs      the next two, with the dashboard beside them
//! pass/        the safe copy, and programs that commit          cache.rs        a disk that is adopted and given back
//! changing/    one load in four phases, policy beside policy    comparison.rs   dbench with more and more clients
//! show.rs      what pass and cache share                        report.rs       the table of the comparison
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
mod tour;
mod volume;

use crate::output::Output;
use braid_base::DeviceClass;
use braid_control::{DeviceSpec, Error, ErrorKind, Result, check_policy};
use clap::{Args, Subcommand};
use guard::Guard;
use report::count;
use std::path::{Path, PathBuf};

/// Show a lost SSD that costs two seconds, and a disk that gets a cache, in a browser
///
/// Shows two claims, and checks both: a disk is the safe copy of a fast SSD (braid demo pass), and an SSD
/// becomes the cache of a disk with a file system, and leaves again (braid demo cache). Prints the address of
/// a dashboard to watch meanwhile. The devices are files with the timing of an SSD and a disk. Removes
/// everything, also when interrupted. Takes less than three minutes. Needs root, FUSE and loop devices;
/// braid demo policies needs neither.
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
  braid demo --web 127.0.0.1:7070
  braid demo policies
  braid demo dbench

JSON: wall_seconds; pass and cache, each with conditions (sentences), too_slow (why figures do not count, and the remedy;
null if all count), wall_seconds, kept_commits, lost_commits, runs: policy, clients, measured_seconds, commits_per_second,
lateness_share, too_late; of pass: behind_highest_bytes, lost_seconds; of cache: dirty_highest_bytes, removal_seconds."
)]
pub struct Arguments {
    #[command(subcommand)]
    show: Option<Demo>,
    #[command(flatten)]
    tour: tour::TourSettings,
}

/// Single demonstrations.
#[derive(Subcommand)]
enum Demo {
    Pass(pass::Arguments),
    Cache(cache::Arguments),
    Policies(changing::Settings),
    Dbench(Box<comparison::Arguments>),
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.show {
        Some(Demo::Pass(arguments)) => pass::run(arguments, output),
        Some(Demo::Cache(arguments)) => cache::run(arguments, output),
        Some(Demo::Policies(settings)) => changing::run(settings, output),
        Some(Demo::Dbench(arguments)) => comparison::run(arguments, output),
        None => tour::run(&arguments.tour, output),
    }
}

/// Name of the volume of a single demonstration.
const NAME: &str = "demo";

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

/// Creates a directory for one of several volumes.
fn make_directory_in(directory: &Path, name: &str) -> Result<PathBuf> {
    let place = directory.join(name);
    let made = std::fs::create_dir_all(place.join("mnt"));
    made.map_err(|e| Error::io(format_args!("cannot make {}", place.display()), &e))?;
    Ok(place)
}
