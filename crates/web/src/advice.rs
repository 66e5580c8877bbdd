//! What other policies would give a volume's load: `braid advise`, run as a process of its own with a low
//! priority, for one volume at a time. The latest advice about each volume is kept in memory.

use crate::events::unix_seconds;
use braid_control::{Error, ErrorKind, Result, VolumeName};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, setpriority_process, waitid};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// Longest recording before the simulations.
const LONGEST_RECORDING: Duration = Duration::from_secs(3600);
/// Longest advice taken from the process: policies and their figures fit many times.
const LONGEST_ADVICE: u64 = 4 << 20;
/// Nice value of the process. A daemon of the same control group that wants all gets ten times its processor
/// time; not a hundred times, so that the advice ends on a busy machine, too.
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
    recorded_until: Instant,
    /// The process records until this end of its input is closed.
    recording: Option<ChildStdin>,
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
    /// Time to the end of the recording; null unless requests are recorded.
    recording_left_seconds: Option<f64>,
    /// The latest advice.
    #[serde(flatten)]
    ended: Option<Ended>,
}

impl Running {
    /// Time to the end of the recording; none once the recording has ended.
    fn recording_left(&self) -> Option<Duration> {
        let left = self.recorded_until.saturating_duration_since(Instant::now());
        (self.recording.is_some() && !left.is_zero()).then_some(left)
    }
}

impl Kept {
    /// The process that makes an advice about a volume.
    fn about(&mut self, name: &VolumeName) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| running.name == *name)
    }
}

impl Advisor {
    /// Returns an advisor that runs the program `braid`.
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
            let problem = format!("advice about volume '{}' is being made: wait, or cancel it", running.name);
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        let length_text = format!("{}s", length.as_secs());
        // A group of its own: Ctrl-C at the terminal of the dashboard is not for the advice.
        let mut child = Command::new(program)
            .arg0("braid")
            .args(["advise", name.as_str(), "--for", &length_text, "--policies-only", "--attended", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| Error::io(format_args!("starting {}", program.display()), &error))?;
        let process = Pid::from_child(&child);
        if let Err(error) = setpriority_process(Some(process), NICE) {
            tracing::warn!(%error, "advice runs with the priority of the dashboard");
        }
        let (recorded_until, recording) = (Instant::now() + length, child.stdin.take());
        kept.running = Some(Running { name: name.clone(), process, recorded_until, recording });
        drop(kept);
        let kept = self.kept.clone();
        spawn_blocking(move || {
            let result = outcome(&mut child);
            // Waits without taking the exit status: until then the number belongs to the process.
            let waited = waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let mut kept = lock(&kept);
            kept.running = None;
            let ended = waited.map_err(Into::into).and_then(|_| child.wait());
            let ended = ended.map_err(|error| Error::io("the end of braid advise", &error));
            let (advice, error) = match ended.and(result) {
                Ok(Advised { error: Some(error), .. }) => (None, Some(error)),
                Ok(Advised { advice, .. }) => (advice, None),
                Err(error) => (None, Some(serde_json::json!(error))),
            };
            kept.ended.insert(name, Ended { unix_seconds: unix_seconds(), advice, error });
        });
        Ok(())
    }

    /// Ends the recording early; the simulations follow.
    ///
    /// # Errors
    /// `Invalid` if no requests of the volume are being recorded.
    pub fn simulate(&self, name: &VolumeName) -> Result<()> {
        let mut kept = lock(&self.kept);
        match kept.about(name).filter(|running| running.recording_left().is_some()) {
            Some(running) => {
                running.recording = None;
                Ok(())
            }
            None => {
                let problem = format!("no requests of volume '{name}' are being recorded for an advice");
                Err(Error::new(ErrorKind::Invalid, problem))
            }
        }
    }

    /// Ends the recording or the simulations without an advice.
    ///
    /// # Errors
    /// `Invalid` if no advice about the volume is being made.
    pub fn cancel(&self, name: &VolumeName) -> Result<()> {
        match lock(&self.kept).about(name) {
            Some(running) => {
                terminate(running);
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
        let mut kept = lock(&self.kept);
        let running = kept.about(name);
        let left = running.as_ref().and_then(|running| running.recording_left());
        AdviceReport {
            is_running: running.is_some(),
            recording_left_seconds: left.map(|left| left.as_secs_f64()),
            ended: kept.ended.get(name).cloned(),
        }
    }

    /// Forgets the advice about volumes that are not among the given ones any more.
    pub fn forget_others(&self, known: &[VolumeName]) {
        lock(&self.kept).ended.retain(|name, _| known.contains(name));
    }
}

impl Drop for Advisor {
    /// Ends the process, which removes its recording. If the dashboard dies, the kernel ends the process.
    fn drop(&mut self) {
        if let Some(running) = &lock(&self.kept).running {
            terminate(running);
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
        let problem = "braid advise ended without an advice: its messages are among those of braid web";
        Error::new(ErrorKind::Io, problem)
    })?;
    let error = advice.get_mut("error").map(Value::take);
    Ok(Advised { advice: error.is_none().then_some(advice), error })
}

/// Ends a process whose exit status is not taken yet: the number still belongs to the process.
fn terminate(running: &Running) {
    if let Err(error) = kill_process(running.process, Signal::TERM) {
        tracing::warn!(%error, "braid advise takes no signal");
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
