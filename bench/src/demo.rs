//! A running `braid demo dbench`, whose volume and clients a benchmark watches.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest time until clients work.
pub const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORY: &str = "/var/tmp";

/// Real dbench on emulated devices. Ends when dropped.
pub struct Demo {
    braid: PathBuf,
    child: Child,
}

impl Demo {
    /// Starts a demo through the kernel, under one policy, with the numbers of clients, each for `seconds`.
    pub fn begin(braid: &Path, policy: &str, clients: &str, seconds: u64) -> Result<Demo> {
        let mut command = Command::new(braid);
        command.args(["demo", "dbench", "--over", "kernel", "--dir", DIRECTORY]);
        command.args(["--policies", policy, "--clients", clients, "--seconds", &seconds.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("running {}", braid.display()))?;
        Ok(Demo { braid: braid.to_owned(), child })
    }

    /// Fails if the demo has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!(
                "the demo ended ({status}): try `{} demo dbench --over kernel --quick`",
                self.braid.display()
            ),
        }
    }

    /// Output of `braid status --json` for the demo's volume.
    pub fn status(&self) -> Result<Value> {
        let state = Path::new(DIRECTORY).join(format!("braid-demo-{}/state", self.child.id()));
        let mut command = Command::new(&self.braid);
        let output = command.args(["status", "demo", "--json"]).env("BRAID_STATE_DIR", state).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Processes of dbench in the demo: the first process, and one for each client.
    pub fn clients(&self) -> Vec<Pid> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let all: Vec<Process> = processes.filter_map(|entry| Process::read(&entry.path())).collect();
        let mut family = vec![self.child.id() as i32];
        let mut known = 0;
        while known < family.len() {
            let parent = family[known];
            family.extend(all.iter().filter(|process| process.parent == parent).map(|process| process.id));
            known += 1;
        }
        let is_client = |process: &&Process| process.name == "dbench" && family.contains(&process.id);
        all.iter().filter(is_client).filter_map(|process| Pid::from_raw(process.id)).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The demo removes its files after the signal. The demo may already have ended.
        let demo = Pid::from_raw(self.child.id() as i32);
        let _ended = demo.map(|demo| kill_process(demo, Signal::INT));
        if let Err(error) = self.child.wait() {
            eprintln!("the demo: {error}");
        }
    }
}

/// A figure of a report in JSON.
pub fn figure(report: &Value, path: &str) -> Result<f64> {
    report.pointer(path).and_then(Value::as_f64).with_context(|| format!("a report has {path}"))
}

/// A process of the machine.
struct Process {
    id: i32,
    parent: i32,
    name: String,
}

impl Process {
    /// Reads a process from its directory in `/proc`; none if the directory is no process.
    fn read(directory: &Path) -> Option<Process> {
        let id = directory.file_name()?.to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(directory.join("stat")).ok()?;
        // `1234 (name) state parent ...`; the name may contain anything.
        let (start, end) = (line.find('(')?, line.rfind(')')?);
        let parent = line[end + 1..].split_whitespace().nth(1)?.parse().ok()?;
        Some(Process { id, parent, name: line[start + 1..end].to_owned() })
    }
}
