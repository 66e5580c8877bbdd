//! The owner's program, run for one event after the other on a thread of its own: a program that hangs delays
//! only the program's further events.

use braid_control::{Alert, Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time of a run.
const LONGEST: Duration = Duration::from_secs(60);
/// Longest time for runs after the end of the command.
const LONGEST_END: Duration = Duration::from_secs(30);
/// Events that wait for the program at most; further events are only printed.
const MOST_WAITING: usize = 1000;

/// The thread that runs the program.
pub struct AlertProgram {
    events: Option<SyncSender<Alert>>,
    thread: Option<JoinHandle<()>>,
    /// Set at the end of the command: time by which all runs have ended.
    deadline: Arc<OnceLock<Instant>>,
}

impl AlertProgram {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Invalid` if the program is no executable file.
    pub fn start(path: &Path) -> Result<AlertProgram> {
        let shown = path.display();
        let path = path.canonicalize().map_err(|error| Error::io(format!("program {shown}"), &error))?;
        if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err() || !path.is_file() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{shown} is no executable file: chmod +x {shown}"),
            ));
        }
        let (events, waiting) = sync_channel(MOST_WAITING);
        let deadline = Arc::new(OnceLock::new());
        let shared = deadline.clone();
        let thread = std::thread::spawn(move || run_all(&path, &waiting, &shared));
        Ok(AlertProgram { events: Some(events), thread: Some(thread), deadline })
    }

    /// Runs the program for an event, after all earlier events.
    pub fn tell(&self, event: Alert) {
        let Some(events) = &self.events else { return };
        match events.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(event)) => {
                tracing::warn!("{MOST_WAITING} events wait for the program, the limit: not told: {event:?}");
            }
            Err(TrySendError::Disconnected(event)) => {
                tracing::warn!("the thread of the program has panicked: not told: {event:?}");
            }
        }
    }
}

/// Waits for the runs of all told events, up to [`LONGEST_END`].
impl Drop for AlertProgram {
    fn drop(&mut self) {
        self.deadline.get_or_init(|| Instant::now() + LONGEST_END);
        drop(self.events.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread of the program has panicked");
        }
    }
}

fn run_all(path: &Path, events: &Receiver<Alert>, end: &OnceLock<Instant>) {
    for event in events {
        if end.get().is_some_and(|end| Instant::now() >= *end) {
            tracing::warn!("not told to {}, at the end: {event:?}", path.display());
        } else if let Err(problem) = run(path, &event, end) {
            tracing::warn!("{} for {}: {problem}", path.display(), event.event);
        }
    }
}

/// Runs the program in a process group of its own: Ctrl-C does not end the run, and a run that takes too long
/// ends with the processes that it started.
fn run(path: &Path, event: &Alert, end: &OnceLock<Instant>) -> std::result::Result<(), String> {
    let mut command = Command::new(path);
    // Standard output is for events alone.
    command.arg(event.event).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
    command.env("BRAID_VOLUME", &event.name).env("BRAID_EVENT", event.event);
    command.env("BRAID_DEVICE", event.device.as_deref().unwrap_or("")).env("BRAID_LEVEL", event.level.name());
    command.env("BRAID_STATE", if event.begins { "begins" } else { "ends" });
    command.env("BRAID_MESSAGE", event.message.replace(char::is_control, " "));
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + LONGEST;
    let is_over = || Instant::now() >= end.get().map_or(deadline, |end| deadline.min(*end));
    let mut pause = Duration::from_millis(1);
    while !is_over() {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) => std::thread::sleep(pause),
            Err(error) => return Err(error.to_string()),
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    let group = Pid::from_child(&child);
    kill_process_group(group, Signal::KILL).map_err(|error| error.to_string())?;
    child.wait().map_err(|error| error.to_string())?;
    Err(format!("ended after {LONGEST:?}, or at the end of braid alert"))
}
