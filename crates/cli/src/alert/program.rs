//! The owner's program, run for one event after the other on a thread of its own: a program that hangs delays
//! only the program's further events.

use super::watch::Event;
use braid_control::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time of a run.
const LONGEST: Duration = Duration::from_secs(60);
/// Events that wait for the program at most; further events are only printed.
const MOST_WAITING: usize = 1000;

/// The thread that runs the program.
pub struct AlertProgram {
    events: Option<SyncSender<Event>>,
    thread: Option<JoinHandle<()>>,
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
        let thread = std::thread::spawn(move || run_all(&path, &waiting));
        Ok(AlertProgram { events: Some(events), thread: Some(thread) })
    }

    /// Runs the program for an event, after all earlier events.
    pub fn tell(&self, event: Event) {
        let Some(events) = &self.events else { return };
        if let Err(TrySendError::Full(event)) = events.try_send(event) {
            tracing::warn!("{MOST_WAITING} events wait for the program, the limit: not told: {event:?}");
        }
    }
}

/// Waits for the runs of all told events.
impl Drop for AlertProgram {
    fn drop(&mut self) {
        drop(self.events.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread of the program has panicked");
        }
    }
}

fn run_all(path: &Path, events: &Receiver<Event>) {
    for event in events {
        if let Err(problem) = run(path, &event) {
            tracing::warn!("{} for {}: {problem}", path.display(), event.event);
        }
    }
}

fn run(path: &Path, event: &Event) -> std::result::Result<(), String> {
    let mut command = Command::new(path);
    command.arg(event.event).stdin(Stdio::null());
    command.env("BRAID_VOLUME", &event.name).env("BRAID_EVENT", event.event);
    command.env("BRAID_DEVICE", event.device.as_deref().unwrap_or("")).env("BRAID_LEVEL", event.level.name());
    command.env("BRAID_STATE", if event.begins { "begins" } else { "ends" });
    command.env("BRAID_MESSAGE", event.message.replace('\0', ""));
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + LONGEST;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) => std::thread::sleep(pause),
            Err(error) => return Err(error.to_string()),
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    end(&mut child).map_err(|error| error.to_string())?;
    Err(format!("ended after {LONGEST:?}"))
}

fn end(child: &mut Child) -> std::io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}
