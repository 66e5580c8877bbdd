//! Real dbench under two policies, side by side: with one client, `wardrop` against the better single device unless told.
//!
//! `cargo build --release && cargo run --release -p braid-bench --bin dbench-pairs -- [seconds [policy policy [clients]]]`
//!
//! Two runs one after the other differ by some 4 % on a shared machine, whose speed comes and goes over minutes, whatever the
//! policies are. Here both volumes are there at the same time, each by a `braid demo` of its own, and their clients take turns: those of
//! one are stopped while the others work, in the order 1 2 2 1. The ratio of neighbouring turns is what counts. As dbench does by
//! itself, the first fifth is not counted. Needs root and what the demo needs.

use anyhow::{Context, Result, bail, ensure};
use braid_bench::{machine, median};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long one works while the other is stopped.
const TURN: Duration = Duration::from_secs(10);
/// What is under way when clients are stopped or go on, is not counted.
const PAUSE: Duration = Duration::from_secs(1);
/// How much a volume has been asked to write and read once its clients work: far more than the making of a file system takes. A
/// dbench that is stopped while it starts gives up.
const AT_WORK: f64 = 32e6;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORY: &str = "/var/tmp";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: u64 = arguments.first().map_or(Ok(600), |text| text.parse()).context("how many seconds?")?;
    let policies = match &arguments[arguments.len().min(1)..] {
        [] => ["hdd-only", "wardrop"],
        [one, other, ..] => [one.as_str(), other],
        [_] => bail!("two policies, or none"),
    };
    let clients = arguments.get(3).map_or("1", String::as_str);
    let rounds = seconds / (2 * (TURN + 2 * PAUSE).as_secs());
    ensure!(rounds >= 5, "so few turns show nothing: 120 seconds at least, and 600 are usual");
    println!("# dbench-pairs {}: {}", arguments.join(" "), machine());
    println!("# x25-m and mba3073; {clients} client(s), {rounds} turns of {} s each", TURN.as_secs());
    let braid = std::env::current_exe()?.with_file_name("braid");
    let sides = [Side::begin(&braid, policies[0], clients)?, Side::begin(&braid, policies[1], clients)?];
    let mut figures = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let first = (round % 2) as usize;
        for side in [first, 1 - first] {
            let figure = sides[side].turn()?;
            if round >= rounds.div_ceil(5) {
                figures[side].push(figure);
            }
        }
    }
    for (policy, figures) in policies.iter().zip(&figures) {
        let (middle, least, most) = median(figures);
        println!("    {policy:16} {middle:6.1} MB/s ({least:.1} to {most:.1})");
    }
    let ratios: Vec<f64> = figures[1].iter().zip(&figures[0]).map(|(other, one)| other / one).collect();
    let (middle, least, most) = median(&ratios);
    let n = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / n;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (n - 1.0);
    println!(
        "  {} / {}: median {middle:.3} ({least:.2} to {most:.2}), mean {mean:.3}, standard error {:.3}",
        policies[1],
        policies[0],
        (variance / n).sqrt()
    );
    Ok(())
}

/// A demo under one policy, with its clients stopped but for their turns. It ends when dropped.
struct Side {
    braid: PathBuf,
    demo: Child,
}

impl Side {
    fn begin(braid: &Path, policy: &str, clients: &str) -> Result<Side> {
        let mut command = Command::new(braid);
        // Longer than it takes: the end is not waited for.
        command.args(["demo", "--over", "kernel", "--seconds", "86400", "--dir", DIRECTORY]);
        command.args(["--policies", policy, "--clients", clients]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let demo = command.spawn().with_context(|| format!("running {}", braid.display()))?;
        let mut side = Side { braid: braid.to_owned(), demo };
        let start = Instant::now();
        while side.clients().is_empty() || !side.written().is_ok_and(|(_, bytes)| bytes > AT_WORK) {
            if let Some(status) = side.demo.try_wait()? {
                bail!("the demo ended ({status}): try `{} demo --over kernel --quick`", braid.display());
            }
            ensure!(start.elapsed() < PATIENCE, "no client of {policy} works after {PATIENCE:?}");
            sleep(Duration::from_millis(100));
        }
        side.signal(Signal::STOP)?;
        Ok(side)
    }

    /// Lets the clients work for a turn; gives the megabytes that they wrote and read in a second.
    fn turn(&self) -> Result<f64> {
        self.signal(Signal::CONT)?;
        sleep(PAUSE);
        let before = self.written()?;
        sleep(TURN);
        let after = self.written()?;
        self.signal(Signal::STOP)?;
        sleep(PAUSE);
        ensure!(after.1 > before.1, "the clients have asked for nothing in a whole turn");
        Ok((after.1 - before.1) / (after.0 - before.0) / 1e6)
    }

    /// How long the volume has been served, in seconds, and the bytes that guests have written and read.
    fn written(&self) -> Result<(f64, f64)> {
        let state = Path::new(DIRECTORY).join(format!("braid-demo-{}/state", self.demo.id()));
        let mut command = Command::new(&self.braid);
        let output = command.args(["status", "demo", "--json"]).env("BRAID_STATE_DIR", state).output()?;
        let status: Value = serde_json::from_slice(&output.stdout)?;
        let figure =
            |path: &str| status.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path}"));
        Ok((figure("/uptime_seconds")?, figure("/guests/write/bytes")? + figure("/guests/read/bytes")?))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let clients = self.clients();
        ensure!(!clients.is_empty(), "dbench has ended");
        clients.into_iter().try_for_each(|pid| kill_process(pid, signal)).context("a signal to dbench")
    }

    /// The processes of dbench that the demo started.
    fn clients(&self) -> Vec<Pid> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let all: Vec<Process> = processes.filter_map(|entry| Process::read(&entry.path())).collect();
        let mut family = vec![self.demo.id() as i32];
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

impl Drop for Side {
    fn drop(&mut self) {
        // Stopped processes cannot end, and the demo removes what it made once it is told.
        let _ended = self.signal(Signal::CONT);
        let demo = Pid::from_raw(self.demo.id() as i32);
        let _ended = demo.map(|demo| kill_process(demo, Signal::INT));
        if let Err(error) = self.demo.wait() {
            eprintln!("the demo: {error}");
        }
    }
}

/// A process of this machine.
struct Process {
    id: i32,
    parent: i32,
    name: String,
}

impl Process {
    /// From its directory in `/proc`; none where that is not one.
    fn read(directory: &Path) -> Option<Process> {
        let id = directory.file_name()?.to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(directory.join("stat")).ok()?;
        // `1234 (name) state parent ...`, where the name may hold anything.
        let (start, end) = (line.find('(')?, line.rfind(')')?);
        let parent = line[end + 1..].split_whitespace().nth(1)?.parse().ok()?;
        Some(Process { id, parent, name: line[start + 1..end].to_owned() })
    }
}
