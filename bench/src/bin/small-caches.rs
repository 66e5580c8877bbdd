//! Caches smaller than the span of a load, beside the disk alone, in virtual time: ratio of the time of a
//! request; 1.00 is equal, less is faster. `cargo run --release -p braid-bench --bin small-caches -- [POLICY
//! …]`.
//!
//! `SSD=x25-e HDD=cheetah-15k5 SEED=1` choose models and seed, `SHARES=5,20,50` the room of the SSD in per
//! cent of a load's span. `LOADS=email,web` chooses the loads with one of these words in their text. All data
//! is on the disk beforehand, the cache is empty, and memory holds nothing. For a generated load with clients
//! that wait for their answers, the figure is the time for each request, flushes included, in 120 s. For open
//! loops (two generated loads and the real traces) the figure is the mean latency. Traces are read from
//! ../shared/traces, and skipped with a message if the folder is missing.

use anyhow::{Context, Result};
use braid_base::{DeviceClass, Nanos};
use braid_bench::cells::{TRACES, folder, variable};
use braid_lab::{DeviceSetup, Load, Outcome, Prefill, Readahead, Setup, Trace, sweep};

const POLICIES: [&str; 4] = ["cache", "cache,mode=write-back", "hystor", "exclusive"];

/// Generated loads, and true for an open loop.
const LOADS: [(&str, bool); 19] = [
    ("email-like", false),
    ("email-like,clients=4", false),
    ("postmark-like,clients=4,files=8000,low=4000,high=64000,transactions=1000000", false),
    ("postmark-like,files=20000,low=500,high=75000,cached=90%,transactions=1000000", false),
    ("postmark-like,files=4000,transactions=1000000", false),
    ("postmark-like,files=1000,low=500,high=1000000,transactions=1000000", false),
    ("webserver-like,span=1GiB", false),
    ("db2-like,span=1GiB", false),
    ("zipf,clients=4,span=1GiB", false),
    ("hot-cold", false),
    ("random,read=50%,clients=4,span=1GiB", false),
    ("random,read=0%,size=16KiB,clients=8,span=1GiB", false),
    ("sequential,read=50%,size=64KiB,span=1GiB", false),
    ("tpch-q1-like", false),
    ("netapp-like", false),
    ("dbench-like", false),
    ("iometer-like,span=1GiB,clients=4", false),
    ("financial1-like", true),
    ("financial2-like", true),
];

/// Measured time of a generated load.
const DURATION: Nanos = Nanos::from_secs(120);

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let usual = || POLICIES.map(str::to_owned).to_vec();
    let policies = if given.is_empty() { usual() } else { given };
    let shares = variable("SHARES", "5,20,50");
    let wanted = variable("LOADS", "");
    let is_wanted = |name: &str| wanted.split(',').any(|part| name.contains(part));
    println!("| load, with an SSD for {shares} % | {} |", policies.join(" | "));
    println!("|---|{}", "---|".repeat(policies.len()));
    for (load, is_open) in LOADS.into_iter().filter(|(load, _)| is_wanted(load)) {
        row(load, &Load::Workload(load.to_owned()), 1.0, is_open, &policies, &shares)?;
    }
    let folder = folder();
    if !folder.exists() {
        println!("SKIPPED: {} is not there", folder.display());
        return Ok(());
    }
    for &(file, name, speed) in TRACES.iter().filter(|(_, name, _)| is_wanted(name)) {
        row(name, &Load::Trace(Trace::new(folder.join(file))), speed, true, &policies, &shares)?;
    }
    Ok(())
}

fn row(name: &str, load: &Load, speed: f64, is_open: bool, policies: &[String], shares: &str) -> Result<()> {
    let time = |outcome: &Outcome| match is_open {
        true => outcome.all.latency.mean,
        false => 1.0 / outcome.requests_per_second,
    };
    let alone = run(&[setup("hdd-only", None, load, speed)?])?;
    let alone = time(alone.first().context("one run for one setup")?);
    print!("| `{name}` |");
    for policy in policies {
        let setups: Result<Vec<Setup>> =
            shares.split(',').map(|share| setup(policy, Some(share), load, speed)).collect();
        let ratios: Vec<String> =
            run(&setups?)?.iter().map(|outcome| format!("{:.2}", time(outcome) / alone)).collect();
        print!(" {} |", ratios.join(", "));
    }
    println!();
    Ok(())
}

fn run(setups: &[Setup]) -> Result<Vec<Outcome>> {
    sweep(setups, None, |_| ()).into_iter().map(|run| Ok(run?.outcome)).collect()
}

fn setup(policy: &str, share: Option<&str>, load: &Load, speed: f64) -> Result<Setup> {
    let disk = format!("73GB,model={}", variable("HDD", "cheetah-15k5"));
    let mut devices = vec![DeviceSetup::parse(DeviceClass::Hdd, &disk)?];
    if let Some(share) = share {
        let ssd = format!("{share}%,model={}", variable("SSD", "x25-e"));
        devices.insert(0, DeviceSetup::parse(DeviceClass::Ssd, &ssd)?);
    }
    Ok(Setup {
        seed: variable("SEED", "1").parse()?,
        cache_extents: 0,
        readahead: Readahead::Off,
        prefill: Prefill::All,
        prefill_policy: Some("hdd-only".to_owned()),
        duration: matches!(load, Load::Workload(_)).then_some(DURATION),
        speed,
        outstanding: 1 << 16,
        interval: Some(Nanos::from_secs(3600)),
        ..Setup::new(devices, policy, load.clone())
    })
}
