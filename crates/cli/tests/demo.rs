//! Short runs of the whole demo, over a block device and over NBD, to the end and interrupted. The demo
//! leaves nothing behind.

#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tempfile::TempDir;

/// One demo at a time: the machine is small.
static TURN: Mutex<()> = Mutex::new(());

/// Options for a small volume, filled in a short time.
const SMALL: [&str; 2] = ["--size", "64MiB"];

/// A directory on a disk for a demo's files, with checks for leftovers.
struct Stand {
    directory: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Stand {
    fn new() -> Stand {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Stand { directory, _turn: turn }
    }

    fn demo(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.arg("demo").args(words).args(["--quick", "--dir"]).arg(self.directory.path());
        command
    }

    fn policies(&self, more: &[&str]) -> Command {
        self.demo(&[&["policies"], &SMALL[..], more].concat())
    }

    fn dbench(&self, over: &str, more: &[&str]) -> Command {
        self.demo(&[&["dbench", "--over", over], more].concat())
    }

    /// Panics if a file, mount, loop device, process or control group is left.
    fn assert_nothing_left(&self, demo: u32) {
        let path = self.directory.path();
        let left: Vec<PathBuf> = fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "files: {left:?}");
        let name = path.to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(name), "mounts: {mounts}");
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            assert!(!backing.contains(name), "{:?} over {backing}", entry.path());
        }
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            assert!(!words.contains(name), "process {:?}: {words}", entry.path());
        }
        for parent in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"] {
            let group = Path::new(parent).join(format!("braid-demo-{demo}"));
            assert!(!group.exists(), "{}", group.display());
        }
    }
}

/// True if the demo lacks a requirement of this machine. Reports the reason to stderr, past the capture of
/// test output.
fn skipped(words: &str, output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let missing = said
        .lines()
        .find_map(|line| line.split_once("the demo ").filter(|(_, rest)| rest.contains(" needs ")));
    if output.status.success() || missing.is_none() {
        return false;
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: the demo {words}: {}", said.trim());
    true
}

fn end(child: std::process::Child) -> (u32, Output) {
    (child.id(), child.wait_with_output().unwrap())
}

fn start(mut command: Command) -> std::process::Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn kernel_dbench_prints_row_per_policy_and_cleans_up() {
    let stand = Stand::new();
    let (id, output) = end(start(stand.dbench("kernel", &[])));
    stand.assert_nothing_left(id);
    if skipped("kernel", &output) {
        return;
    }
    let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    for policy in ["ssd-only", "hdd-only", "stripe", "static,ssd=80%", "equi,mode=auto"] {
        assert_eq!(table.lines().filter(|line| line.starts_with(policy)).count(), 1, "{policy}: {table}");
    }
    assert!(
        said.contains("$ braid serve --temporary demo") && said.contains("$ braid attach demo"),
        "{said}"
    );
}

#[test]
fn nbd_dbench_reports_runs_in_json_and_cleans_up() {
    let stand = Stand::new();
    let (id, output) =
        end(start(stand.dbench("nbd", &["--json", "--policies", "stripe wardrop", "--clients", "1,2"])));
    stand.assert_nothing_left(id);
    if skipped("nbd", &output) {
        return;
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let runs = report["runs"].as_array().unwrap();
    let seen: Vec<_> =
        runs.iter().map(|run| (run["policy"].as_str().unwrap(), run["clients"].as_u64().unwrap())).collect();
    assert_eq!(seen, [("stripe", 1), ("stripe", 2), ("wardrop", 1), ("wardrop", 2)]);
    for run in runs {
        assert!(run["throughput_mb_per_second"].as_f64().unwrap() > 0.0, "{run}");
        let volume = &run["volume"];
        assert!(volume["latency_ns_p99"].as_u64().unwrap() > 0, "{run}");
        let shares =
            volume["devices"].as_array().unwrap().iter().map(|d| d["requests_share"].as_f64().unwrap());
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6, "{run}");
    }
}

#[test]
fn quick_comparison_prints_every_policy_phase_and_cleans_up() {
    let stand = Stand::new();
    let (id, output) = end(start(stand.policies(&["--policies", "cache,mode=write-back equi,mode=auto"])));
    stand.assert_nothing_left(id);
    if skipped("", &output) {
        return;
    }
    let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    for policy in ["cache,mode=write-back", "equi,mode=auto"] {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(policy));
        let cells = row.unwrap_or_else(|| panic!("{policy}: {table}")).split_whitespace().skip(1);
        let figures = cells.filter(|cell| cell.trim_end_matches(['*', '?']).parse::<u64>().is_ok());
        assert_eq!(figures.count(), 4, "{table}");
        assert_eq!(
            said.lines().filter(|line| line.starts_with(&format!("  {policy}, "))).count(),
            4,
            "{said}"
        );
    }
    let told = table.lines().filter(|line| line.starts_with("equi,mode=auto beside the best: "));
    assert_eq!(told.count(), 1, "{table}");
}

#[test]
fn quick_comparison_json_marks_late_figures() {
    let stand = Stand::new();
    let (id, output) = end(start(stand.policies(&["--json", "--policies", "ssd-only stripe"])));
    stand.assert_nothing_left(id);
    if skipped("--json", &output) {
        return;
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let runs = report["runs"].as_array().unwrap();
    let seen: Vec<_> =
        runs.iter().map(|run| (run["policy"].as_str().unwrap(), run["phase"].as_str().unwrap())).collect();
    let phases = ["hot set", "moved", "stream", "ten times"];
    let expected = ["ssd-only", "stripe"].map(|policy| phases.map(|phase| (policy, phase))).concat();
    assert_eq!(seen, expected);
    for phase in phases {
        let of_phase = runs.iter().filter(|run| run["phase"] == phase);
        let shares: Vec<f64> = of_phase.map(|run| run["share_of_best"].as_f64().unwrap()).collect();
        assert!(
            shares.contains(&1.0) && shares.iter().all(|share| *share > 0.0 && *share <= 1.0),
            "{report}"
        );
    }
    let late = runs.iter().filter(|run| run["volume"]["too_late"].as_bool().unwrap()).count();
    assert_eq!(report["too_slow"].is_string(), late > 0, "{report}");
    // Emulated devices are never early, and never exact.
    assert!(runs.iter().all(|run| run["volume"]["lateness_share"].as_f64().unwrap() > 0.0), "{report}");
}

#[test]
fn interrupted_demo_cleans_up() {
    let dbench = |over| ["dbench", "--over", over, "--seconds", "60", "--clients", "4"];
    for (words, sign, signal) in [
        (&dbench("kernel")[..], "$ mkfs.ext4", Signal::INT),
        (&dbench("kernel"), "$ braid attach", Signal::TERM),
        (&dbench("nbd"), "$ braid serve", Signal::INT),
        (&["policies", "--seconds", "60"], "$ braid serve", Signal::INT),
        (&["policies", "--size", "64MiB", "--policies", "equi"], "equi, hot set: ", Signal::TERM),
        (&["--seconds", "60"], "Watch the volumes in a browser: ", Signal::INT),
        (&["--seconds", "60"], "Now pass: ", Signal::TERM),
    ] {
        let stand = Stand::new();
        let mut child = start(stand.demo(words));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let begun = lines.by_ref().any(|line| {
            said.push(line.clone());
            line.contains(sign)
        });
        if begun {
            // Interrupt in the middle of the workload, or during the attach of the block device.
            let wait = if sign.contains("attach") { 20 } else { 1_500 };
            std::thread::sleep(Duration::from_millis(wait));
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        said.extend(lines);
        let (id, mut output) = end(child);
        output.stderr = said.join("\n").into_bytes();
        stand.assert_nothing_left(id);
        if skipped(&words.join(" "), &output) {
            continue;
        }
        assert!(begun, "{said:?}");
        assert_eq!(output.status.code(), Some(1), "{said:?}");
        assert!(said.iter().any(|line| line.contains("interrupted")), "{said:?}");
        assert!(!said.iter().any(|line| line.contains("could not be undone")), "{said:?}");
    }
}

#[test]
fn invalid_demo_arguments_are_refused_before_any_change() {
    let stand = Stand::new();
    for (words, expected) in [
        (&["policies", "--policies", "wardrop,speed=9"][..], "speed"),
        (&["policies", "--ssd", "x26"], "x25-m"),
        (&["policies", "--policies", " "], "names none"),
        (&["--seconds", "0"], "seconds"),
        (&["--web", "7070"], "--web"),
        (&["dbench", "--policies", "wardrop,speed=9"], "speed"),
        (&["dbench", "--clients", "0"], "clients"),
    ] {
        let (id, output) = end(start(stand.demo(words)));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
        stand.assert_nothing_left(id);
    }
}
