//! Read-ahead on beside off, in virtual time: ratio of the time of requests with read-ahead, in the mean and
//! at the 99th percentile; 1.00 is equal, less is faster. `cargo run --release -p braid-bench --bin
//! read-ahead`.
//!
//! `SSD=sata-ssd HDD=barracuda-7200.12 SEED=7 AHEAD=32MiB` choose models, seed and memory, `LOADS=email,web`
//! the loads with one of these words in their text. Three volumes: on an SSD, on a disk, and striped over two
//! of each. The data exists beforehand, and all other settings are the defaults of `serve`. A generated load
//! ends after its first 40,000 requests; real traces keep their own times. Traces are read from
//! ../shared/traces, and skipped with a message if the folder is missing.

use anyhow::Result;
use braid_base::{Bytes, DeviceClass, Nanos};
use braid_bench::cells::{TRACES, folder, variable};
use braid_lab::{DeviceSetup, Load, Outcome, Prefill, Setup, Trace, sweep};

/// Generated loads.
const LOADS: [&str; 21] = [
    "sequential,read=100%,size=16KiB,span=1GiB",
    "sequential,read=50%,size=64KiB,span=1GiB",
    "tpch-q1-like",
    "checkpoint,clients=4,state=64MiB,rounds=2,reads=2,compute=0s,size=128KiB,read=order",
    "checkpoint,clients=16,state=16MiB,rounds=2,reads=2,compute=0s,size=64KiB,read=stride",
    "email-like,clients=4",
    "postmark-like,files=4000,transactions=1000000",
    "postmark-like,files=1000,low=500,high=1000000,transactions=1000000",
    "webserver-like,span=1GiB",
    "db2-like,span=1GiB",
    "tpcc-like",
    "zipf,clients=4,span=1GiB",
    "hot-cold",
    "random,read=50%,clients=4,span=1GiB",
    "random,read=90%,size=64KiB,clients=8,span=1GiB",
    "netapp-like",
    "dbench-like",
    "iometer-like,span=1GiB,clients=4",
    "financial1-like",
    "financial2-like",
    "websearch-like",
];

/// Requests of a load.
const REQUESTS: u64 = 40_000;

/// SSDs and disks of a volume, and its policy.
struct Devices {
    ssds: u32,
    disks: u32,
    policy: &'static str,
}

const VOLUMES: [Devices; 3] = [
    Devices { ssds: 1, disks: 0, policy: "ssd-only" },
    Devices { ssds: 0, disks: 1, policy: "hdd-only" },
    Devices { ssds: 2, disks: 2, policy: "stripe" },
];

fn main() -> Result<()> {
    let wanted = variable("LOADS", "");
    let is_wanted = |name: &str| wanted.split(',').any(|part| name.contains(part));
    println!("| load | an SSD: mean, p99 | a disk | two of each |\n|---|---|---|---|");
    for load in LOADS.into_iter().filter(|load| is_wanted(load)) {
        row(load, &Load::Workload(load.to_owned()), 1.0)?;
    }
    let folder = folder();
    if !folder.exists() {
        println!("SKIPPED: {} is not there", folder.display());
        return Ok(());
    }
    for &(file, name, speed) in TRACES.iter().filter(|(_, name, _)| is_wanted(name)) {
        row(name, &Load::Trace(Trace::new(folder.join(file))), speed)?;
    }
    Ok(())
}

fn row(name: &str, load: &Load, speed: f64) -> Result<()> {
    print!("| `{name}` |");
    for volume in VOLUMES {
        let ahead: Bytes = variable("AHEAD", "32MiB").parse().map_err(anyhow::Error::msg)?;
        let setups = [Bytes::ZERO, ahead].map(|ahead| setup(&volume, load, speed, ahead));
        let setups = setups.into_iter().collect::<Result<Vec<Setup>>>()?;
        let runs: Vec<Outcome> =
            sweep(&setups, None, |_| ()).into_iter().map(|run| Ok(run?.outcome)).collect::<Result<_>>()?;
        let ratio = |of: fn(&Outcome) -> f64| of(&runs[1]) / of(&runs[0]);
        print!(" {:.2}, {:.2} |", ratio(|run| run.all.latency.mean), ratio(|run| run.all.latency.p99 as f64));
    }
    println!();
    Ok(())
}

fn setup(volume: &Devices, load: &Load, speed: f64, ahead: Bytes) -> Result<Setup> {
    let kinds = [
        (DeviceClass::Ssd, volume.ssds, "SSD", "sata-ssd"),
        (DeviceClass::Hdd, volume.disks, "HDD", "barracuda-7200.12"),
    ];
    let mut devices = Vec::new();
    for (class, count, name, usual) in kinds.into_iter().filter(|(_, count, ..)| *count > 0) {
        let text = format!("300GB,model={},count={count}", variable(name, usual));
        devices.push(DeviceSetup::parse(class, &text)?);
    }
    Ok(Setup {
        seed: variable("SEED", "7").parse()?,
        prefill: Prefill::Used,
        requests: Some(REQUESTS),
        speed,
        outstanding: 1 << 16,
        interval: Some(Nanos::from_secs(3600)),
        ahead,
        ..Setup::new(devices, volume.policy, load.clone())
    })
}
