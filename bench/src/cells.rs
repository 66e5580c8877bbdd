//! Real traces as loads: list, speed, and devices.
//!
//! `SSD=x25-m HDD=mba3073 SEED=1` of the environment choose models and seed, `CLIENTS=8` plays in closed
//! loop.

use anyhow::Result;
use braid_base::{DeviceClass, Nanos};
use braid_lab::{DeviceSetup, Load, Setup, Trace};
use std::path::{Path, PathBuf};

/// File, name, and speed-up over the recorded times: as fast as the disk of one volume can serve. The times
/// of `dtrs` were stretched a hundred times.
pub const TRACES: &[(&str, &str, f64)] = &[
    ("financial1-first10000.spc.zst", "financial", 1.0),
    ("cloudphysics-sample.csv.zst", "cloudphysics", 1.0),
    ("ms-dtrs-127k.ascii.zst", "dtrs", 25.0),
    ("ms-tpcc-small.ascii.zst", "tpcc", 1.0 / 300.0),
    ("msr-cut10k-rw_20_80.105.trace.zst", "msr-20", 1.0),
    ("msr-cut10k-rw_40_60.1370.trace.zst", "msr-40", 1.0),
    ("websearch1-60s.mqsim.zst", "websearch", 0.2),
    ("iozone.disksim.zst", "iozone", 1.0),
    ("msn-fs-30s.ms.zst", "msn-fs", 0.125),
];

/// Folder of the traces, which may be missing.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces")
}

/// The models of the SSD and of the disk.
pub fn models() -> [String; 2] {
    [variable("SSD", "x25-m"), variable("HDD", "mba3073")]
}

/// A variable of the environment, or the usual value.
pub fn variable(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.to_owned())
}

/// A trace with an SSD for a share, in per cent, of the trace's touched bytes.
pub fn setup(trace: &Path, speed: f64, share: &str) -> Result<Setup> {
    let [ssd, hdd] = models();
    let devices = vec![
        DeviceSetup::parse(DeviceClass::Ssd, &format!("{share}%,model={ssd}"))?,
        DeviceSetup::parse(DeviceClass::Hdd, &format!("120%,model={hdd}"))?,
    ];
    let clients = std::env::var("CLIENTS").ok().map(|clients| clients.parse()).transpose()?;
    let load = Load::Trace(Trace { clients, ..Trace::new(trace) });
    let (setup, seed) = (Setup::new(devices, "hdd-only", load), variable("SEED", "1").parse()?);
    Ok(Setup { speed, seed, outstanding: 1 << 16, interval: Some(Nanos::from_secs(3600)), ..setup })
}
