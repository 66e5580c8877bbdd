//! Influence of each constant of `equi`: half and double its value, on a few traces and generated loads, in
//! virtual time.
//!
//! `cargo run --release -p braid-bench --bin equi-sweep -- [POLICY …]`; `SEEDS=1,2` are the seeds,
//! `LOADS=random,msr-40/15,…` a selection of loads. With policies, prints their costs, load by load; without
//! policies, the table of docs/benchmarks.md, on the loads of [`SWEPT`]. Traces are read from
//! ../shared/traces, and skipped with a message if the folder is missing.
//!
//! The cost of a load is the time of a request: mean latency of a trace in open loop, time over requests of
//! generated loads in closed loop.

use anyhow::{Context, Result, ensure};
use braid_base::{DeviceClass, Nanos};
use braid_bench::cells;
use braid_lab::{DeviceSetup, Load, Prefill, Setup, WarmUp, sweep};

/// Setting, its usual value, and its unit. The reasons are in crates/policy/src/equi/constants.rs.
const CONSTANTS: &[(&str, f64, &str)] = &[
    ("memory", 16.0, "s"),
    ("horizon", 10.0, "s"),
    ("plans", 20.0, ""),
    ("known", 4096.0, ""),
    ("group", 8.0, ""),
    ("streams", 64.0, ""),
    ("guessed", 16.0, ""),
    ("long", 8192.0, ""),
    ("short", 512.0, ""),
    ("margin", 2.0, ""),
    ("step", 0.1, ""),
    ("least", 0.01, ""),
    ("idle", 0.1, ""),
    ("disk", 8.0, ""),
    ("ssd", 0.1, ""),
    ("transfer", 10.0, ""),
];

/// Trace, and size of the SSD in per cent of the trace's touched bytes.
const CELLS: &[&str] =
    &["financial/15", "cloudphysics/50", "msr-20/50", "msr-40/15", "websearch/15", "iozone/15", "msn-fs/50"];

/// Placement of data before a load begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// No data: all writes are new.
    Nothing,
    /// As for all compared policies.
    Usual,
    /// All data on the disk.
    OnDisk,
}

/// Name, load, earlier placement, sizes of SSD and disk in GiB, and seconds of warm-up and of measurement.
type Generated = (&'static str, &'static str, Before, [u64; 2], [u64; 2]);
const GENERATED: &[Generated] = &[
    ("random", "random,clients=32,size=16KiB,read=50%,span=1GiB", Before::OnDisk, [2, 2], [30, 30]),
    ("zipf", "zipf,clients=16,size=4KiB,read=70%,span=3GiB", Before::Usual, [1, 4], [60, 30]),
    ("hot-cold", "hot-cold,clients=8,span=4GiB,size=8KiB,every=40K", Before::Usual, [1, 6], [30, 60]),
    ("dbench", "dbench-like,clients=10", Before::Usual, [2, 8], [30, 30]),
    ("new-dbench", "dbench-like,clients=10", Before::Nothing, [2, 8], [30, 30]),
    ("new-postmark", "postmark-like,clients=4", Before::Nothing, [4, 24], [30, 30]),
    ("refill", "refill,clients=8,span=3GiB", Before::Usual, [1, 4], [30, 30]),
];

/// Loads of the table: loads that are simulated within a second.
const SWEPT: &str = "financial/15,msr-20/50,msr-40/15,random,zipf,hot-cold,new-dbench,refill";

fn main() -> Result<()> {
    let policies: Vec<String> = std::env::args().skip(1).collect();
    let loads = loads(if policies.is_empty() { SWEPT } else { "" })?;
    if policies.is_empty() { table(&loads) } else { compare(&loads, &policies) }
}

/// Costs of policies, load by load, and of each to the first.
fn compare(loads: &[(String, Setup)], policies: &[String]) -> Result<()> {
    println!("| load | {} |", policies.join(" | "));
    println!("|---|{}", "---|".repeat(policies.len()));
    let costs = policies.iter().map(|policy| costs(loads, policy)).collect::<Result<Vec<_>>>()?;
    for (place, (name, _)) in loads.iter().enumerate() {
        print!("| {name} |");
        for of in &costs {
            print!(" {:.4} ({:.3}) |", of[place], of[place] / costs[0][place]);
        }
        println!();
    }
    for (policy, of) in policies.iter().zip(&costs) {
        let ratios = ratios(of, &costs[0]);
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        println!("{policy}: {:.3}, worst {worst:.3}", geometric_mean(&ratios));
    }
    Ok(())
}

/// Half and double of each constant, to the usual value. Names of loads end in the seed.
fn table(loads: &[(String, Setup)]) -> Result<()> {
    let usual = costs(loads, "equi")?;
    println!("| constant | value | half: mean, worst | double: mean, worst |");
    println!("|---|---|---|---|");
    for &(name, value, unit) in CONSTANTS {
        let with = |value: f64| format!("equi,research.{name}={value}{unit}");
        ensure!(settings(&with(value))? == settings("equi")?, "{name} is usually not {value}{unit}");
        print!("| `{name}` | {value}{unit} |");
        for value in [value / 2.0, value * 2.0] {
            let ratios = ratios(&costs(loads, &with(value))?, &usual);
            let (load, worst) = worst(loads, &ratios);
            print!(" {:+.1} %, {:+.0} % ({load}) |", percent(geometric_mean(&ratios)), percent(worst));
        }
        println!();
    }
    Ok(())
}

fn settings(policy: &str) -> Result<String> {
    Ok(braid_policy::parse(policy, &[])?.settings())
}

/// Returns each load for all seeds, one seed after the other. `LOADS` of the environment, or else `usual`,
/// names the loads; an empty list means all loads.
fn loads(usual: &str) -> Result<Vec<(String, Setup)>> {
    let mut loads = Vec::new();
    let folder = cells::folder();
    if folder.exists() {
        for name in CELLS {
            let (trace, share) = name.split_once('/').context("a cell is a trace and a share")?;
            let known = cells::TRACES.iter().find(|(_, name, _)| *name == trace);
            let &(file, _, speed) = known.with_context(|| format!("no trace is called {trace}"))?;
            loads.push((name.to_string(), cells::setup(&folder.join(file), speed, share)?));
        }
    } else {
        println!("SKIPPED: traces, since {} is not there", folder.display());
    }
    let [ssd_model, hdd_model] = cells::models();
    for &(name, load, before, [ssd, hdd], [warm_up, measured]) in GENERATED {
        let devices = vec![
            DeviceSetup::parse(DeviceClass::Ssd, &format!("{ssd}GiB,model={ssd_model}"))?,
            DeviceSetup::parse(DeviceClass::Hdd, &format!("{hdd}GiB,model={hdd_model}"))?,
        ];
        let setup = Setup::new(devices, "equi", Load::Workload(load.to_owned()));
        let setup = Setup {
            prefill: if before == Before::Nothing { Prefill::None } else { Prefill::Used },
            prefill_policy: (before == Before::OnDisk).then(|| "hdd-only".to_owned()),
            warm_up: WarmUp::Time(Nanos::from_secs(warm_up)),
            duration: Some(Nanos::from_secs(measured)),
            interval: Some(Nanos::from_secs(3600)),
            ..setup
        };
        loads.push((name.to_owned(), setup));
    }
    let wanted = cells::variable("LOADS", usual);
    loads.retain(|(name, _)| wanted.is_empty() || wanted.split(',').any(|one| one == name));
    let mut all = Vec::new();
    for seed in cells::variable("SEEDS", "1").split(',') {
        let seed: u64 = seed.parse()?;
        all.extend(
            loads.iter().map(|(name, setup)| (format!("{name} {seed}"), Setup { seed, ..setup.clone() })),
        );
    }
    Ok(all)
}

/// Time of a request under a policy, in milliseconds, by load.
fn costs(loads: &[(String, Setup)], policy: &str) -> Result<Vec<f64>> {
    let with = |(_, setup): &(String, Setup)| Setup { policy: policy.to_owned(), ..setup.clone() };
    let setups: Vec<Setup> = loads.iter().map(with).collect();
    let runs = sweep(&setups, Some(1), |_| ());
    let cost = |(run, setup): (braid_lab::Result<braid_lab::Run>, &Setup)| {
        let outcome = run?.outcome;
        Ok(match setup.load {
            Load::Workload(_) | Load::Parts(_) => 1e3 / outcome.requests_per_second,
            Load::Trace(_) | Load::Recorded(_) => outcome.all.latency.mean / 1e6,
        })
    };
    runs.into_iter().zip(&setups).map(cost).collect()
}

fn ratios(costs: &[f64], to: &[f64]) -> Vec<f64> {
    costs.iter().zip(to).map(|(cost, to)| cost / to).collect()
}

fn geometric_mean(all: &[f64]) -> f64 {
    (all.iter().map(|x| x.ln()).sum::<f64>() / all.len().max(1) as f64).exp()
}

/// Returns the run with the largest ratio.
fn worst<'a>(loads: &'a [(String, Setup)], ratios: &[f64]) -> (&'a str, f64) {
    let all = loads.iter().map(|(name, _)| name.as_str()).zip(ratios.iter().copied());
    all.fold(("", 0.0), |a, b| if b.1 > a.1 { b } else { a })
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}
