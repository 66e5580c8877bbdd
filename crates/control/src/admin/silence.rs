//! A daemon that does not answer: its process, the state of the process, and the remedy.

use crate::report::types::SilentReport;
use crate::state::lasting::Lasting;
use crate::state::lock::daemon;
use crate::state::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind};
use rustix::process::Pid;

/// State of a daemon that has not answered.
pub(crate) struct Silence {
    name: VolumeName,
    process: Option<Pid>,
    doing: Doing,
}

/// State of a process, by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Stopped,
    Traced,
    InKernel,
    /// Runs or waits, and has not opened the volume yet.
    Opening,
    Running,
    Unknown,
}

impl Silence {
    /// Examines the daemon's process.
    pub fn of(state: &StateDir, name: &VolumeName) -> Silence {
        let (process, is_open) =
            daemon(state, name).map_or((None, true), |(id, is_open)| (Some(id), is_open));
        let doing = match process.and_then(letter) {
            Some('T') => Doing::Stopped,
            Some('t') => Doing::Traced,
            _ if !is_open => Doing::Opening,
            Some('D') => Doing::InKernel,
            Some('R') => Doing::Running,
            _ => Doing::Unknown,
        };
        Silence { name: name.clone(), process, doing }
    }

    /// True if an answer can be expected once the volume is open.
    pub fn is_opening(&self) -> bool {
        self.doing == Doing::Opening
    }

    /// Returns the error for a command that needs an answer.
    pub fn error(&self) -> Error {
        let name = &self.name;
        let (process, id) = match self.process {
            Some(id) => (format!(" (process {id})"), id.to_string()),
            None => (String::new(), "PID".to_owned()),
        };
        let why = match self.doing {
            Doing::Stopped => format!("the daemon is stopped by a signal: kill -CONT {id}"),
            Doing::Traced => "the daemon is stopped by a debugger: end the debugger".to_owned(),
            Doing::InKernel => format!(
                "the daemon sleeps in the kernel, for example because a device or a file system hangs: see \
                 the kernel's log and /proc/{id}/stack, and let the device answer, or detach the device"
            ),
            Doing::Opening => {
                let problem = format!("the daemon of volume '{name}'{process} is still opening the volume");
                return Error::new(
                    ErrorKind::Busy,
                    problem + ": wait; if opening takes long, see the daemon's log",
                );
            }
            Doing::Running => {
                "the daemon or the machine is busy: try again; if the daemon stays silent, see its log"
                    .to_owned()
            }
            Doing::Unknown => format!(
                "a device may hang: see the daemon's log, the kernel's log, and /proc/{id}/stack; try again \
                 when the device answers"
            ),
        };
        Error::new(ErrorKind::Io, format!("the daemon of volume '{name}'{process} does not answer: {why}"))
    }

    /// Returns the error for `braid stop`: names the only command that ends the daemon, and the cost.
    pub fn error_of_stop(&self, state: &StateDir) -> Error {
        let (error, name) = (self.error(), &self.name);
        let Some(id) = self.process else { return error };
        let cost = match state.load(name) {
            Ok(record) if record.temporary => {
                "which loses the volume, because the volume is temporary".to_owned()
            }
            Ok(record) => match Lasting::left(state, &record) {
                Some(log) => format!(
                    "which loses no acknowledged write: {} has the unflushed data, for the next braid serve \
                     {name}",
                    log.display()
                ),
                None => "which may lose unflushed data".to_owned(),
            },
            Err(_) => "which may lose unflushed data".to_owned(),
        };
        let when = match self.doing {
            Doing::InKernel => ", after the kernel has ended the daemon's requests",
            _ => "",
        };
        Error::new(
            error.kind(),
            format!("{error}; to kill the daemon nevertheless: kill -9 {id}, {cost}{when}"),
        )
    }

    /// Returns the entry for a report of many volumes.
    pub fn report(&self) -> SilentReport {
        let process_state = match self.doing {
            Doing::Stopped => "stopped",
            Doing::Traced => "traced",
            Doing::InKernel => "in_kernel",
            Doing::Opening => "opening",
            Doing::Running => "running",
            Doing::Unknown => "unknown",
        };
        SilentReport {
            name: self.name.to_string(),
            served: true,
            process_id: self.process.map(|id| id.as_raw_pid() as u32),
            process_state: process_state.to_owned(),
            error: self.error(),
        }
    }
}

/// Returns the state in `/proc/PID/stat`. The state follows the name, which may have spaces and parentheses.
fn letter(process: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
