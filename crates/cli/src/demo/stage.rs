//! Waits with a progress bar, signals, and child processes.
//!
//! SIGINT, SIGTERM and SIGHUP only set a flag. After a signal every wait returns an error, and the guards of
//! the callers undo their steps. Programs run in process groups of their own: Ctrl-C in the terminal reaches
//! the demo alone, and the demo then ends its programs in order.

use braid_control::{Error, ErrorKind, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// State of a running demonstration: the flag of signals, and the progress bar.
#[derive(Clone)]
pub struct Stage {
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
    terminal: bool,
}

/// Interval between two checks of a wait.
const GLANCE: Duration = Duration::from_millis(20);
/// Time between SIGTERM and SIGKILL for a program that does not end.
const PATIENCE: Duration = Duration::from_secs(15);

impl Stage {
    /// Creates a stage for work of about `length`. From now on, signals set the flag.
    pub fn new(length: Duration) -> Result<Stage> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let noted = signal_hook::flag::register(signal, interrupted.clone());
            noted.map_err(|e| Error::io("catching signals", &e))?;
        }
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(length.as_millis() as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:12} {percent:>3} %  about {eta} left  {wide_msg}");
        bar.set_style(style.map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?);
        Ok(Stage { interrupted, bar, terminal })
    }

    /// Prints a permanent line to stderr, above the bar.
    pub fn say(&self, line: &str) {
        if self.terminal { self.bar.println(line) } else { eprintln!("{line}") }
    }

    /// Shows the current step beside the bar.
    pub fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Fails if a signal has arrived.
    pub fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Io,
                "interrupted; all files and devices of the demo are removed",
            ));
        }
        Ok(())
    }

    /// Waits for `condition`, at most `time`; true if the condition was met. Advances the bar.
    ///
    /// # Errors
    /// After a signal.
    pub fn wait_for(&self, time: Duration, mut condition: impl FnMut() -> bool) -> Result<bool> {
        let (start, mut shown) = (Instant::now(), Duration::ZERO);
        loop {
            self.check()?;
            if condition() {
                return Ok(true);
            }
            let passed = start.elapsed();
            self.bar.inc((passed - shown).as_millis() as u64);
            shown = passed;
            if passed >= time {
                return Ok(false);
            }
            std::thread::sleep(GLANCE.min(time - passed));
        }
    }

    /// Waits for `time`. Fails after a signal.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        self.wait_for(time, || false).map(drop)
    }

    /// Runs a program. Fails after a signal, or if the program fails; the error contains the program's
    /// stderr.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.check()?;
        run(program, arguments)
    }
}

/// Runs a program, regardless of signals. Fails if the program fails; the error contains its stderr.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    let Output { status, stdout, stderr } =
        command.output().map_err(|e| Error::io(format_args!("running {program}"), &e))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&stderr);
    let line = format!("{program} {}: {status}: {}", arguments.join(" "), said.trim());
    Err(Error::new(ErrorKind::Io, line))
}

/// A program in the background, in a process group of its own; ended when dropped.
pub struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts a program, with stdout in `output` and stderr in `complaints`.
    pub fn start(mut command: Command, output: &Path, complaints: &Path) -> Result<Program> {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = |path: &Path| {
            std::fs::File::create(path)
                .map_err(|e| Error::io(format_args!("cannot make {}", path.display()), &e))
        };
        command.stdin(Stdio::null()).stdout(file(output)?).stderr(file(complaints)?).process_group(0);
        let child = command.spawn().map_err(|e| Error::io(format_args!("starting {name}"), &e))?;
        Ok(Program { name, child })
    }

    /// Exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for the end of the program, at most `time`.
    ///
    /// # Errors
    /// After a signal, or if the program still runs after `time`.
    pub fn wait(&mut self, stage: &Stage, time: Duration) -> Result<ExitStatus> {
        let mut status = None;
        stage.wait_for(time, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })?;
        let late = || Error::new(ErrorKind::Io, format!("{} has not ended after {time:?}", self.name));
        status.ok_or_else(late)
    }

    /// Kills the program at once, by SIGKILL.
    pub fn kill(&mut self) {
        // Not an error: the program may have ended already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }

    /// Ends the process group of the program: by SIGTERM, and after `PATIENCE` by SIGKILL.
    pub fn end(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        // Not an error: the program may end between the check and the signal.
        let _gone = signal(Signal::TERM);
        let start = Instant::now();
        while self.ended().is_none() {
            if start.elapsed() > PATIENCE {
                let _gone = signal(Signal::KILL);
                let _status = self.child.wait();
                return;
            }
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
