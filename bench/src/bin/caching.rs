//! Effect of a cache on a disk, in virtual time: `cargo run --release -p braid-bench --bin caching -- [POLICY
//! …]`; `SEED=1`.
//!
//! An SSD of 1 GiB (100 µs to read and 60 µs to program a page, 8 channels) before a 7,200 rpm disk
//! (barracuda-7200.12, 320 GB), nothing in memory but the usual 100 extents. Two tables:
//!
//! - *Misses*: 8 clients, 4 KiB, 70 % reads, Zipf's law (1.1) over 3 GiB. After 3,000 s of warm-up, 600 s are
//!   measured, write-back included. In a separate run, other places become popular after 8 million requests:
//!   the ten seconds after the change, and ten seconds a minute later.
//! - *Hits*: 256 MiB that fit the cache, random, 70 % reads and all reads, against the same load on an SSD
//!   alone.

use anyhow::{Context, Result};
use braid_base::{DeviceClass, Nanos};
use braid_bench::cells::variable;
use braid_lab::{DeviceSetup, Load, Outcome, Setup, WarmUp, simulate};
use std::path::Path;

const POLICIES: [&str; 6] = [
    "hdd-only",
    "ssd-first",
    "cache",
    "cache,mode=write-back",
    "cache,mode=write-back,evict=s3-fifo",
    "cache,mode=write-back,evict=s3-fifo,threshold=1",
];
const ZIPF: &str = "zipf,theta=1.1,clients=8,span=3GiB,requests=endless";
/// Requests until other places become popular.
const MOVES_AFTER: u64 = 8_000_000;

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let usual = || POLICIES.map(str::to_owned).to_vec();
    let policies = if given.is_empty() { usual() } else { given };
    println!(
        "| policy | requests/s | p99 ms | written back MiB/s | 10 s after the move | 10 s a minute after it |"
    );
    println!("|---|---|---|---|---|---|");
    for policy in &policies {
        let steady = run(policy, ZIPF, [3_000, 600], Nanos::from_secs(60))?;
        let moved = match policy.contains("mode=") {
            true => moved(policy)?.map(|rate| format!("{rate:.0}")),
            // Reaching the change would take hours of simulated time.
            false => [String::from("-"), String::from("-")],
        };
        println!(
            "| `{policy}` | {:.0} | {:.1} | {:.2} | {} |",
            steady.requests_per_second,
            steady.all.latency.p99 as f64 / 1e6,
            steady.background.written_back_bytes as f64 / f64::from(1 << 20) / steady.measured_seconds,
            moved.join(" | ")
        );
    }
    println!();
    println!("| load that fits the cache | policy | requests/s | p99 µs | of `ssd-only` |");
    println!("|---|---|---|---|---|");
    for load in ["random,read=100%,clients=1", "random,read=100%,clients=32", "random,read=70%,clients=32"] {
        hits(load)?;
    }
    Ok(())
}

/// Requests a second in the ten seconds after the hot set has moved, and in ten seconds after a minute.
fn moved(policy: &str) -> Result<[f64; 2]> {
    let load = format!("{ZIPF},every={MOVES_AFTER}");
    let outcome = run(policy, &load, [1_000, 1_400], Nanos::from_secs(5))?;
    let mut before = outcome.warm_up_requests;
    let moved = outcome.intervals.iter().position(|interval| {
        before += interval.requests;
        before >= MOVES_AFTER
    });
    let moved = moved.context("the hot set does not move in the time that is measured")?;
    let length = outcome.intervals[moved].length_seconds;
    let rate = |from: f64, to: f64| {
        let place = |seconds: f64| moved + 1 + (seconds / length).round() as usize;
        let all = &outcome.intervals[place(from)..place(to)];
        all.iter().map(|interval| interval.requests).sum::<u64>() as f64 / (length * all.len() as f64)
    };
    Ok([rate(0.0, 10.0), rate(60.0, 70.0)])
}

fn hits(load: &str) -> Result<()> {
    let load = format!("{load},span=256MiB,requests=endless");
    let bare = run("ssd-only", &load, [60, 20], Nanos::from_secs(20))?;
    for policy in ["ssd-only", "cache", "cache,mode=write-back"] {
        let outcome = run(policy, &load, [2_000, 20], Nanos::from_secs(20))?;
        println!(
            "| `{load}` | `{policy}` | {:.0} | {:.0} | {:.2}, p99 {:.2} |",
            outcome.requests_per_second,
            outcome.all.latency.p99 as f64 / 1e3,
            outcome.requests_per_second / bare.requests_per_second,
            outcome.all.latency.p99 as f64 / bare.all.latency.p99 as f64
        );
    }
    Ok(())
}

fn run(policy: &str, load: &str, [warm_up, duration]: [u64; 2], interval: Nanos) -> Result<Outcome> {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("ssd-100-60.toml");
    let ssd = format!("1GiB,model={}", model.display());
    let devices = vec![
        DeviceSetup::parse(DeviceClass::Ssd, &ssd)?,
        DeviceSetup::parse(DeviceClass::Hdd, "320GB,model=barracuda-7200.12")?,
    ];
    let setup = Setup {
        seed: variable("SEED", "1").parse()?,
        warm_up: WarmUp::Time(Nanos::from_secs(warm_up)),
        duration: Some(Nanos::from_secs(duration)),
        interval: Some(interval),
        ..Setup::new(devices, policy, Load::Workload(load.to_owned()))
    };
    Ok(simulate(&setup)?.outcome)
}
