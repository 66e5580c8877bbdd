//! Real dbench on emulated devices, ten clients: `wardrop` against every static split, the baselines, another
//! SSD, and a change of load. `dbench-pairs` sees smaller differences between two policies.
//!
//! `cargo build --release && cargo run --release -p braid-bench --bin dbench-sweep -- [rounds [seconds
//! [demo's options]]]`
//!
//! Each round runs `braid demo dbench --json` once, with all policies one after the other. The order rotates
//! by one from round to round, so that other work of the machine affects all policies alike. Ratios are taken
//! within a round; of rounds the median is given with the smallest and the largest. Needs root, and the
//! requirements of the demo.

use anyhow::{Context, Error, Result, bail, ensure};
use braid_bench::demo::{Demo, PATIENCE, figure};
use braid_bench::{machine, median};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Throughput of each policy in each round.
type Rounds = BTreeMap<String, Vec<f64>>;

struct Bench {
    braid: PathBuf,
    rounds: usize,
    seconds: u32,
    options: Vec<String>,
}

const WARDROP: &str = "wardrop";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, usual: u32| match arguments.get(place) {
        Some(text) => {
            text.parse().with_context(|| format!("'{text}' is no number: [rounds [seconds [options]]]"))
        }
        None => Ok(usual),
    };
    let here = std::env::current_exe()?;
    let bench = Bench {
        braid: here.with_file_name("braid"),
        rounds: number(0, 3)? as usize,
        // In a shorter time `wardrop` still moves data off the SSD, the place of all data at first.
        seconds: number(1, 30)?,
        options: arguments.iter().skip(2).cloned().collect(),
    };
    println!("# dbench-sweep {}: {}", arguments.join(" "), machine());
    println!(
        "# x25-m and mba3073 unless said; models' seeds are fixed; {} rounds of {} s each",
        bench.rounds, bench.seconds
    );
    bench.sweep()?;
    bench.slower_ssd()?;
    bench.change_of_load()
}

impl Bench {
    /// At 10 clients: the best static split, and the baselines.
    fn sweep(&self) -> Result<()> {
        let splits = (1..10).rev().map(|tenth| format!("static,ssd={}%", tenth * 10));
        let baselines = ["ssd-only", "hdd-only", "stripe", WARDROP].map(str::to_owned);
        let policies: Vec<String> = splits.chain(baselines).collect();
        let rounds = self.compare(&policies)?;
        print_rounds(&rounds);
        let is_split = |policy: &str| policy.starts_with("static") || policy.ends_with("-only");
        let wardrop = rounds.get(WARDROP).context("wardrop ran")?;
        let splits = || rounds.iter().filter(|(policy, _)| is_split(policy));
        // Best by its median: the best of each round would reward luck.
        let best = splits().max_by(|a, b| median(a.1).0.total_cmp(&median(b.1).0)).context("a split ran")?;
        print_ratio(&format!("wardrop / best static split ({})", best.0), wardrop, best.1, "at least 0.95");
        for other in ["stripe", "ssd-only", "hdd-only"] {
            print_ratio(&format!("wardrop / {other}"), wardrop, &rounds[other], "above 1");
        }
        Ok(())
    }

    /// With an SSD slower than the disk, the share moves to the disk without intervention.
    fn slower_ssd(&self) -> Result<()> {
        println!("\nshare of requests on the SSD under wardrop, 10 clients");
        for ssd in ["x25-m", "transcend-16g"] {
            let mut shares = Vec::new();
            for _ in 0..self.rounds {
                let runs = self.demo(&[WARDROP.to_owned()], "10,10", self.seconds, &["--ssd", ssd])?;
                shares.push(100.0 * figure(last(&runs)?, "/volume/devices/0/requests_share")?);
            }
            println!("    {ssd:16} {} %", spread(&shares));
        }
        Ok(())
    }

    /// From 1 to 10 clients: response times of the devices 40 to 60 s after the change.
    fn change_of_load(&self) -> Result<()> {
        println!(
            "\nresponse times of the devices under wardrop, 40 to 60 s after a change from 1 to 10 clients: ms ssd / hdd"
        );
        for _ in 0..self.rounds {
            let mut demo = Demo::begin(&self.braid, WARDROP, "1,10", 65)?;
            let start = Instant::now();
            while demo.clients().len() <= 10 {
                demo.check()?;
                ensure!(start.elapsed() < PATIENCE * 3, "ten clients do not work after {:?}", PATIENCE * 3);
                sleep(Duration::from_millis(100));
            }
            sleep(Duration::from_secs(40));
            let mut seen = vec![demo.status()?];
            for _ in 0..10 {
                sleep(Duration::from_secs(2));
                seen.push(demo.status()?);
            }
            let [before, after] = [&seen[0], &seen[seen.len() - 1]];
            let guests =
                |device| Ok::<_, Error>(Answers::of(after, device)?.since(&Answers::of(before, device)?));
            let alike = |device| mean_of(&seen, &format!("/devices/{device}/policy_figures/response_ms"));
            let (ssd, hdd) = (guests(0)?, guests(1)?);
            println!(
                "    of guests {}, {:.0} % of them on the ssd; for the same requests {} (within 20)",
                apart(ssd.mean_ms(), hdd.mean_ms()),
                100.0 * ssd.requests / (ssd.requests + hdd.requests),
                apart(alike(0)?, alike(1)?),
            );
        }
        Ok(())
    }

    /// Throughput of each policy in each round, at 10 clients.
    fn compare(&self, policies: &[String]) -> Result<Rounds> {
        let mut rounds = Rounds::new();
        for round in 0..self.rounds {
            let mut order = policies.to_vec();
            order.rotate_left(round % policies.len());
            for run in self.demo(&order, "10", self.seconds, &[])? {
                let policy = run["policy"].as_str().context("a run names its policy")?;
                rounds.entry(policy.to_owned()).or_default().push(figure(&run, "/throughput_mb_per_second")?);
            }
        }
        Ok(rounds)
    }

    fn demo(&self, policies: &[String], clients: &str, seconds: u32, more: &[&str]) -> Result<Vec<Value>> {
        let mut command = Command::new(&self.braid);
        command.args(["demo", "dbench", "--json", "--over", "kernel", "--clients", clients]);
        command.args(["--policies", &policies.join(" "), "--seconds", &seconds.to_string()]);
        command.args(more).args(&self.options).stderr(Stdio::piped());
        let output = command.output().with_context(|| format!("running {}", self.braid.display()))?;
        if !output.status.success() {
            bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        let report: Value = serde_json::from_slice(&output.stdout)?;
        Ok(report["runs"].as_array().context("a report has runs")?.clone())
    }
}

fn last(runs: &[Value]) -> Result<&Value> {
    runs.last().context("a report has a run")
}

/// Requests of guests to a device, flushes included, and their total time.
#[derive(Clone, Copy)]
struct Answers {
    requests: f64,
    ms: f64,
}

impl Answers {
    /// Since the daemon started.
    fn of(status: &Value, device: usize) -> Result<Answers> {
        let figure = |name: &str| figure(status, &format!("/devices/{device}/{name}"));
        let (transfers, flushes) =
            (figure("guest_read_requests")? + figure("guest_write_requests")?, figure("flushes")?);
        let ns = transfers * figure("response_ns_mean")? + flushes * figure("flush_response_ns_mean")?;
        Ok(Answers { requests: transfers + flushes, ms: ns / 1e6 })
    }

    fn since(self, before: &Answers) -> Answers {
        Answers { requests: self.requests - before.requests, ms: self.ms - before.ms }
    }

    fn mean_ms(self) -> f64 {
        self.ms / self.requests
    }
}

/// The mean of a figure of several reports.
fn mean_of(reports: &[Value], path: &str) -> Result<f64> {
    let sum: f64 = reports.iter().map(|report| figure(report, path)).sum::<Result<f64>>()?;
    Ok(sum / reports.len() as f64)
}

/// Formats two response times, and the relative difference between them.
fn apart(ssd: f64, hdd: f64) -> String {
    format!("{ssd:.2} / {hdd:.2}, {:.0} % apart", 100.0 * (ssd - hdd).abs() / ssd.max(hdd))
}

fn print_rounds(rounds: &Rounds) {
    println!("\n10 clients: MB/s of dbench, median (smallest to largest)");
    for (policy, figures) in rounds {
        println!("    {policy:16} {}", spread(figures));
    }
}

/// Ratios round by round: a slow machine slows both.
fn print_ratio(what: &str, ones: &[f64], others: &[f64], wanted: &str) {
    let ratios: Vec<f64> = ones.iter().zip(others).map(|(one, other)| one / other).collect();
    let (middle, least, most) = median(&ratios);
    println!("  {what}: {middle:.2} ({least:.2} to {most:.2}); wanted: {wanted}");
}

fn spread(figures: &[f64]) -> String {
    let (middle, least, most) = median(figures);
    format!("{middle:6.1} ({least:.1} to {most:.1})")
}
