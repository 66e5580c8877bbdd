//! Shared parts of benchmarks: workloads, processor time, medians, and a line that describes the machine.

pub mod balance;
pub mod cells;
pub mod demo;
#[cfg(test)]
mod tests;
pub mod wire;

use anyhow::{Context, Result};
use braid_base::{Bytes, KIB};
use std::time::Duration;

/// Processor time used by the current thread.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Processor time used by the present threads of a process.
pub fn process_cpu_time(process: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanos = times.split(' ').next().context("schedstat begins with processor time")?;
        sum += Duration::from_nanos(nanos.parse()?);
    }
    Ok(sum)
}

/// Memory of this process that is in use.
pub fn resident() -> Result<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(KIB * kib.context("/proc/self/status has VmRSS")?.parse::<u64>()?)
}

/// The median of some figures, with the smallest and the largest.
pub fn median(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
}

/// The processor and the kernel, for the head of a report.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or(": unknown");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores{}, Linux {}", model.trim_start_matches(['\t', ' ']), kernel.trim())
}
