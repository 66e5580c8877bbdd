//! What other policies would give a volume's load: `braid advise`, run as a process of its own with a low
//! priority, for one volume at a time. The latest advice about each volume is kept in memory.

use crate::events::unix_seconds;
use braid_control::{Error, ErrorKind, Result, VolumeName};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Longest recording before the simulations.
pub(crate) const LONGEST_RECORDING: Duration = Duration::from_secs(24 * 3600);
/// Longest advice taken from the process: policies and their figures fit many times.
const LONGEST_ADVICE: u64 = 4 << 20;
/// Nice value of the process: it gets a tenth of the processor time of a daemon that wants all, not a
/// hundredth, so that the advice ends on a busy machine, too.
const NICE: i32 = 10;

/// Advice about the volumes of the machine.
pub(crate) struct Advisor {
    /// The program `braid`; without it, there is no advice.
    program: Option<PathBuf>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    running: Option<Running>,
    ended: BTreeMap<VolumeName, Ended>,
}

/// The process that makes an advice.
struct Running {
    name: VolumeName,
    process: Pid,
    recorded_until_unix_seconds: u64,
}

/// The latest advice about a volume, or its failure.
#[derive(Clone, Serialize)]
struct Ended {
    unix_seconds: u64,
    /// The report of `braid advise --json`.
    advice: Option<Value>,
    error: Option<Value>,
}

/// State of the advice about a volume.
#[derive(Serialize)]
pub(crate) struct AdviceReport {
    /// True while requests are recorded or simulated.
    is_running: bool,
    /// End of the recording; null unless the advice is being made.
    recorded_until_unix_seconds: Option<u64>,
    /// The latest advice.
    #[serde(flatten)]
    ended: Option<Ended>,
}

impl Advisor {
    /// Returns an adviser that runs the program `braid`.
    pub fn new(program: Option<PathBuf>) -> Advisor {
        Advisor { program, kept: Arc::default() }
    }

    /// Begins to record the guests' requests for a time; the simulations follow.
    ///
    /// # Errors
    /// `Busy` while an advice is being made, about any volume; `Usage` if the time is too long; `Unsupported`
    /// without the program; `Io` if the program does not start.
    pub fn begin(&self, name: VolumeName, length: Duration) -> Result<()> {
        let Some(program) = &self.program else {
            return Err(Error::new(ErrorKind::Unsupported, "this dashboard gives no advice: braid advise"));
        };
        if length.is_zero() || length > LONGEST_RECORDING {
            let problem = format!("record for 1 to {} seconds", LONGEST_RECORDING.as_secs());
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        let mut kept = lock(&self.kept);
        if let Some(running) = &kept.running {
            let problem = format!("advice about volume '{}' is being made: wait, or end it", running.name);
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        let seconds = length.as_secs();
        let mut child = Command::new(program)
            .args(["advise", name.as_str(), "--for", &format!("{seconds}s"), "--policies-only", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Error::io(format_args!("starting {}", program.display()), &error))?;
        let process = Pid::from_child(&child);
        if let Err(error) = setpriority_process(Some(process), NICE) {
            tracing::warn!(%error, "advice runs with the priority of the dashboard");
        }
        let recorded_until_unix_seconds = unix_seconds() + seconds;
        kept.running = Some(Running { name: name.clone(), process, recorded_until_unix_seconds });
        drop(kept);
        let kept = self.kept.clone();
        spawn_blocking(move || {
            let result = outcome(&mut child);
            let mut kept = lock(&kept);
            // The number of the process is free for others from here on.
            kept.running = None;
            let ended = child.wait().map_err(|error| Error::io("the end of braid advise", &error));
            let (advice, error) = match ended.and(result) {
                Ok(Advised { error: Some(error), .. }) => (None, Some(error)),
                Ok(Advised { advice, .. }) => (advice, None),
                Err(error) => (None, Some(serde_json::json!(error))),
            };
            kept.ended.insert(name, Ended { unix_seconds: unix_seconds(), advice, error });
        });
        Ok(())
    }

    /// Ends the recording early; the simulations follow. During the simulations, ends them without an advice.
    ///
    /// # Errors
    /// `Invalid` if no advice about the volume is being made.
    pub fn end(&self, name: &VolumeName) -> Result<()> {
        match lock(&self.kept).running.as_mut().filter(|running| running.name == *name) {
            Some(running) => {
                running.recorded_until_unix_seconds = running.recorded_until_unix_seconds.min(unix_seconds());
                signal(running, Signal::INT);
                Ok(())
            }
            None => {
                let problem = format!("no advice about volume '{name}' is being made");
                Err(Error::new(ErrorKind::Invalid, problem))
            }
        }
    }

    /// Returns the state of the advice about a volume.
    pub fn report(&self, name: &VolumeName) -> AdviceReport {
        let kept = lock(&self.kept);
        let running = kept.running.as_ref().filter(|running| running.name == *name);
        AdviceReport {
            is_running: running.is_some(),
            recorded_until_unix_seconds: running.map(|running| running.recorded_until_unix_seconds),
            ended: kept.ended.get(name).cloned(),
        }
    }
}

impl Drop for Advisor {
    /// Ends the process, which removes its recording.
    fn drop(&mut self) {
        if let Some(running) = &lock(&self.kept).running {
            signal(running, Signal::TERM);
        }
    }
}

/// Standard output of the program.
struct Advised {
    advice: Option<Value>,
    error: Option<Value>,
}

/// Waits for the output of the program.
fn outcome(child: &mut Child) -> Result<Advised> {
    let mut text = String::new();
    let output = child.stdout.take().expect("the output is a pipe");
    let read = output.take(LONGEST_ADVICE).read_to_string(&mut text);
    read.map_err(|error| Error::io("the output of braid advise", &error))?;
    let mut advice: Value = serde_json::from_str(&text).map_err(|_| {
        Error::new(ErrorKind::Io, "braid advise ended without an advice: see the log, or run it by hand")
    })?;
    let error = advice.get_mut("error").map(Value::take);
    Ok(Advised { advice: error.is_none().then_some(advice), error })
}

/// Signals a process that nobody has waited for: its number is its own.
fn signal(running: &Running, signal: Signal) {
    if let Err(error) = kill_process(running.process, signal) {
        tracing::warn!(%error, "braid advise takes no signal");
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
