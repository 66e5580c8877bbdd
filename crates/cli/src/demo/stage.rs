//! Waiting: with a bar that shows how much is left, and an ear for Ctrl-C.
//!
//! SIGINT, SIGTERM and SIGHUP are noted, not obeyed: every wait ends with an error once one has come, and the
//! guards above it undo what was made. Programs are started in process groups of their own, so that a Ctrl-C
//! in the terminal reaches the demo alone, which then ends them in order.

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

/// Where the demo stands.
#[derive(Clone)]
pub struct Stage {
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
    terminal: bool,
}

/// How often a wait looks around.
const GLANCE: Duration = Duration::from_millis(20);
/// How long a program may take to end once it was told to, before it is killed.
const PATIENCE: Duration = Duration::from_secs(15);

impl Stage {
    /// A stage for work of about this length. From here on signals are noted.
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

    /// A line that stays, above the bar.
    pub fn say(&self, line: &str) {
        if self.terminal { self.bar.println(line) } else { eprintln!("{line}") }
    }

    /// What is being done, beside the bar.
    pub fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Fails once a signal has come.
    pub fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "interrupted; what the demo made is removed"));
        }
        Ok(())
    }

    /// Waits for `condition`, or until the time is over; says which. The bar moves.
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

    /// Waits.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        self.wait_for(time, || false).map(drop)
    }

    /// Runs a program that must succeed; its output is in the error otherwise.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.check()?;
        run(program, arguments)
    }
}

/// Runs a program that must succeed, whatever signals come.
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

/// A program that runs by itself, in a process group of its own; ended when dropped.
pub struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts it, with its output in `output` and its complaints in `complaints`.
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

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it has ended, for at most `time`.
    pub fn wait(&mut self, stage: &Stage, time: Duration) -> Result<ExitStatus> {
        let mut status = None;
        stage.wait_for(time, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })?;
        let late = || Error::new(ErrorKind::Io, format!("{} has not ended after {time:?}", self.name));
        status.ok_or_else(late)
    }

    /// Ends it at once, by SIGKILL.
    pub fn kill(&mut self) {
        // If it has ended by itself, that is as good.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }

    /// Ends it and whatever it started: by SIGTERM, and where that is not enough, by SIGKILL.
    pub fn end(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        // A program that ends between this look and the signal is what was wanted.
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
