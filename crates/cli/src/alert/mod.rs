//! `braid alert`: tells the owner of conditions that need attention.
//!
//! - `program.rs`: the owner's program

mod program;

use crate::log::{LogForm, LogSettings};
use crate::output::Output;
use crate::trace::record::catch_signals;
use braid_control::{
    Alert, AlertLevel, AlertWatch, Error, ErrorKind, Findings, LIFE_DAYS, Result, StateDir, VolumeName,
    volume_report,
};
use clap::Args;
use program::AlertProgram;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Longest time until a signal ends the command.
const PAUSE: Duration = Duration::from_millis(100);

/// Run a program when a volume needs its owner, until SIGTERM or SIGINT
///
/// Asks the daemons of all volumes; the end of the command changes no volume. The beginning and the end of a
/// condition are events: each prints a line and runs PROGRAM. Present conditions begin when the command
/// starts.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid alert --run /etc/braid/alert
  braid alert vault --json >> events.json

Events: device-failed, device-missing, device-slow, device-returning, device-errors (again after an hour),
ssd-life, degraded, dirty-stuck (the cache has data, and all disks are gone), data-lost, flush-failed,
no-answer, daemon-died (after 30 s), dead-mount, no-room, epoch-failed, apply-failed, device-lacking,
pending-log-failed.

PROGRAM gets the event as its argument, and the environment variables BRAID_VOLUME, BRAID_EVENT,
BRAID_DEVICE (d1; empty for a volume), BRAID_LEVEL (warning, bad), BRAID_STATE (begins, ends) and
BRAID_MESSAGE; its standard output goes to standard error. Runs follow one another; a run is killed
after a minute, and 30 s after the end of this command.

JSON, a line for each event: name, event, device, level, begins, message.")]
pub struct Arguments {
    /// Names of volumes [default: all volumes of this machine]
    name: Vec<VolumeName>,
    /// Program to run for each event
    #[arg(long, value_name = "PROGRAM")]
    run: Option<PathBuf>,
    /// Seconds between two questions to a daemon
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Form of the events: text (lines on standard output), or journal (entries in the journal of systemd,
    /// with the fields BRAID_VOLUME, BRAID_DEVICE, and the event as BRAID_CODE)
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: LogForm,
    /// An SSD with fewer days to live is an event, under the policy setting wear
    #[arg(long, value_name = "DAYS", default_value_t = LIFE_DAYS)]
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
    let tell = |events: Vec<Alert>| {
        for event in events {
            match arguments.log {
                LogForm::Text => output.announce(&event, || describe(&event)),
                LogForm::Journal => enter(&event),
            }
            if let Some(program) = &program {
                program.tell(event);
            }
        }
    };
    let (mut watch, start) = (AlertWatch::default(), Instant::now());
    let mut survey = Survey::new(state, arguments);
    let mut next = start;
    while !told_to_end.load(Ordering::Relaxed) {
        if let Some((name, findings)) = survey.next(PAUSE) {
            tell(watch.step(name.as_str(), findings, start.elapsed()));
        }
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_secs(arguments.every);
            match survey.ask() {
                Ok(known) => tell(watch.forget_others(&known)),
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
    Ok(0)
}

/// Questions to daemons: one at a time to each, on a thread of its own, since a daemon may hang.
struct Survey<'a> {
    state: &'a StateDir,
    arguments: &'a Arguments,
    asked: BTreeSet<VolumeName>,
    sender: Sender<(VolumeName, Findings)>,
    answers: Receiver<(VolumeName, Findings)>,
}

impl<'a> Survey<'a> {
    fn new(state: &'a StateDir, arguments: &'a Arguments) -> Survey<'a> {
        let (sender, answers) = channel();
        Survey { state, arguments, asked: BTreeSet::new(), sender, answers }
    }

    /// Asks the daemons that have answered the last question. Returns the names of all watched volumes.
    fn ask(&mut self) -> Result<Vec<String>> {
        let mut names = self.state.names()?;
        let wanted = &self.arguments.name;
        names.retain(|name| wanted.is_empty() || wanted.contains(name));
        for name in names.iter().filter(|name| self.asked.insert((*name).clone())) {
            let (state, name, sender) = (self.state.clone(), name.clone(), self.sender.clone());
            let life_days = self.arguments.life_days;
            std::thread::spawn(move || {
                let report = volume_report(&state, &name);
                let findings = Findings::of(report.as_ref(), life_days);
                // The command may have ended.
                let _ = sender.send((name, findings));
            });
        }
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Returns the next answer within a time.
    fn next(&mut self, longest: Duration) -> Option<(VolumeName, Findings)> {
        let (name, findings) = self.answers.recv_timeout(longest).ok()?;
        self.asked.remove(&name);
        Some((name, findings))
    }
}

impl Arguments {
    /// Returns the log of the command.
    pub fn log(&self) -> LogSettings {
        // Ends of conditions are entries of level info.
        let level = if self.log == LogForm::Journal { "info" } else { "warn" };
        LogSettings { form: self.log, level, volume: None }
    }
}

/// Enters an event in the journal.
fn enter(event: &Alert) {
    let (volume, code, device) = (event.name.as_str(), event.event, event.device.as_deref());
    let text = describe(event);
    match (event.begins, event.level) {
        (false, _) => tracing::info!(volume, device, code, "{text}"),
        (true, AlertLevel::Warning) => tracing::warn!(volume, device, code, "{text}"),
        (true, AlertLevel::Bad) => tracing::error!(volume, device, code, "{text}"),
    }
}

fn describe(event: &Alert) -> String {
    let Alert { name, event, level, begins, message, .. } = event;
    match begins {
        true => format!("{name}: {event} ({}): {message}", level.name()),
        false => format!("{name}: {event} has ended"),
    }
}
