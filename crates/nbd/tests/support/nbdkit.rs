//! nbdkit as a server, in a process of its own.
#![allow(dead_code, reason = "each test binary uses its part")]

use super::installed;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

/// A server of nbdkit behind a Unix socket. Killed when dropped.
pub struct Nbdkit {
    pub child: Child,
    pub socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Nbdkit {
    /// Starts nbdkit with these arguments. `None` if nbdkit is not installed.
    pub fn start(arguments: &[&str]) -> Option<Nbdkit> {
        if !installed("nbdkit", "nbdkit") {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nbdkit.sock");
        let mut command = Command::new("nbdkit");
        command.args(["-f", "--exit-with-parent", "-U"]).arg(&socket).args(arguments);
        let mut child = command.spawn().expect("nbdkit starts");
        while !socket.exists() {
            let ended = child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "nbdkit {arguments:?} has ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Nbdkit { child, socket, _directory: directory })
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Stops all threads, as Ctrl-Z does.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let folder = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: &PathBuf| {
            let stat = fs::read_to_string(task.join("stat")).expect("a thread");
            stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('T'))
        };
        let tasks = || fs::read_dir(&folder).expect("a process").map(|task| task.expect("a thread").path());
        while !tasks().all(|task| is_stopped(&task)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("nbdkit runs");
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("nbdkit ends");
    }
}
