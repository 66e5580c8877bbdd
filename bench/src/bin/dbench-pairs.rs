//! Real dbench under two policies, side by side. The defaults are one client, and `wardrop` against
//! `hdd-only`, the better single device.
//!
//! `cargo build --release && cargo run --release -p braid-bench --bin dbench-pairs -- [seconds [policy policy
//! [clients]]]`
//!
//! Two consecutive runs differ by some 4 % on a shared machine, whose speed varies over minutes, whatever the
//! policies are. Here both volumes exist at the same time, each in a `braid demo dbench` of its own, and
//! their clients take turns. The clients of one volume are stopped while the other clients work, in the order
//! 1 2 2 1. The result is the ratio of neighbouring turns. As in dbench itself, the first fifth is not
//! counted. Needs root, and the requirements of the demo.

use anyhow::{Context, Result, bail, ensure};
use braid_bench::demo::{Demo, PATIENCE, figure};
use braid_bench::{machine, median};
use rustix::process::{Signal, kill_process};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Length of a turn.
const TURN: Duration = Duration::from_secs(10);
/// Time after clients continue or stop that is not counted, because requests are in flight.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes written and read by guests after which the clients are known to work: far more than making a file
/// system takes. A dbench that is stopped during its start gives up.
const AT_WORK: f64 = 32e6;

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

/// A demo under one policy, with its clients stopped outside their turns.
struct Side {
    demo: Demo,
}

impl Side {
    fn begin(braid: &Path, policy: &str, clients: &str) -> Result<Side> {
        // Longer than the benchmark: the demo is interrupted, not awaited.
        let mut side = Side { demo: Demo::begin(braid, policy, clients, 86_400)? };
        let start = Instant::now();
        while side.demo.clients().is_empty() || !side.written().is_ok_and(|(_, bytes)| bytes > AT_WORK) {
            side.demo.check()?;
            ensure!(start.elapsed() < PATIENCE, "no client of {policy} works after {PATIENCE:?}");
            sleep(Duration::from_millis(100));
        }
        side.signal(Signal::STOP)?;
        Ok(side)
    }

    /// Lets the clients work for a turn. Returns the megabytes written and read per second.
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

    /// Uptime of the volume in seconds, and the bytes written and read by guests.
    fn written(&self) -> Result<(f64, f64)> {
        let status = self.demo.status()?;
        let bytes = figure(&status, "/guests/write/bytes")? + figure(&status, "/guests/read/bytes")?;
        Ok((figure(&status, "/uptime_seconds")?, bytes))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let clients = self.demo.clients();
        ensure!(!clients.is_empty(), "dbench has ended");
        clients.into_iter().try_for_each(|pid| kill_process(pid, signal)).context("a signal to dbench")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Stopped processes cannot end.
        let _ended = self.signal(Signal::CONT);
    }
}
