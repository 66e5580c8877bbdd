//! `braid alert`: tells the owner of conditions that need attention.
//!
//! - `conditions.rs`: conditions in one report
//! - `watch.rs`: beginnings and ends of conditions
//! - `program.rs`: the owner's program

mod conditions;
mod program;
mod watch;

use crate::output::Output;
use crate::trace::record::catch_signals;
use braid_control::{Error, ErrorKind, Result, StateDir, VolumeName, volume_report};
use clap::Args;
use program::AlertProgram;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use watch::{Event, Watch};

/// Longest wait of the end for a signal.
const PAUSE: Duration = Duration::from_millis(100);

/// Run a program when a volume needs its owner, until SIGTERM or SIGINT
///
/// Asks the daemons of the volumes, and is no part of them. Prints a line when a condition begins and when it
/// ends, and runs PROGRAM for each. Conditions that last when the command starts begin then.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid alert --run /etc/braid/alert
  braid alert vault --json >> events.json

Events: device-failed, device-missing, device-slow, device-returning, device-errors (again after an hour),
ssd-life, degraded, dirty-stuck (the cache has data, and the disk is gone), data-lost, flush-failed,
no-answer, daemon-died, dead-mount, no-room, epoch-failed, apply-failed, device-lacking,
pending-log-failed.

PROGRAM gets the event as its argument, and the environment variables BRAID_VOLUME, BRAID_EVENT,
BRAID_DEVICE (d1; empty for a volume), BRAID_LEVEL (warning, bad), BRAID_STATE (begins, ends) and
BRAID_MESSAGE. Runs follow one another; a run is killed after a minute.

JSON, a line for each event: name, event, device, level, begins, message.")]
pub struct Arguments {
    /// Names of volumes [default: all volumes of this machine]
    name: Vec<VolumeName>,
    /// AlertProgram to run for each event
    #[arg(long, value_name = "PROGRAM")]
    run: Option<PathBuf>,
    /// Seconds between two questions to a daemon
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// An SSD with fewer days to live is an event, under the policy setting wear
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    life_days: u32,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let told_to_end = catch_signals()?;
    let known = state.names()?;
    if let Some(unknown) = arguments.name.iter().find(|name| !known.contains(name)) {
        let problem = format!("there is no volume '{unknown}' on this machine: see braid status");
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let program = arguments.run.as_deref().map(AlertProgram::start).transpose()?;
    let (mut watch, start) = (Watch::default(), Instant::now());
    let mut next = start;
    while !told_to_end.load(Ordering::Relaxed) {
        if Instant::now() < next {
            std::thread::sleep(PAUSE);
            continue;
        }
        for event in events(state, arguments, &mut watch, start.elapsed()) {
            output.announce(&event, || describe(&event));
            if let Some(program) = &program {
                program.tell(event);
            }
        }
        next = Instant::now() + Duration::from_secs(arguments.every);
    }
    Ok(0)
}

/// Asks all daemons, and returns what began and ended since the last time.
fn events(state: &StateDir, arguments: &Arguments, watch: &mut Watch, now: Duration) -> Vec<Event> {
    let names = match state.names() {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!("{error}");
            return Vec::new();
        }
    };
    let is_wanted = |name: &&VolumeName| arguments.name.is_empty() || arguments.name.contains(name);
    let wanted: Vec<&VolumeName> = names.iter().filter(is_wanted).collect();
    let known: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let mut events = watch.forget_others(&known);
    for name in wanted {
        match volume_report(state, name) {
            Ok(report) => {
                let conditions = conditions::of(&report, f64::from(arguments.life_days));
                events.extend(watch.step(name.as_str(), conditions, now));
            }
            Err(error) => tracing::warn!("{name}: {error}"),
        }
    }
    events
}

fn describe(event: &Event) -> String {
    let Event { name, event, level, begins, message, .. } = event;
    match begins {
        true => format!("{name}: {event} ({}): {message}", level.name()),
        false => format!("{name}: {event} has ended"),
    }
}
