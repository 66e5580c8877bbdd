//! Setup of a simulation: plain data, so a sweep is a list of setups.

use crate::{DeviceSetup, MadePolicy};
use braid_base::{Arrival, Bytes, KIB, Nanos};
use braid_engine::Readahead;
use braid_model::network::Params;
use braid_trace::Options;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// One simulation: devices, volume, load, and measurements. The same setup gives the same outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Devices of the volume.
    pub devices: Vec<DeviceSetup>,
    /// Network between the devices' nodes; `None` if all devices are on the host.
    pub network: Option<Params>,
    /// The policy, as `name,key=value,…`.
    pub policy: String,
    /// Active policy instead of `policy`, for a policy without a name.
    pub made_policy: Option<MadePolicy>,
    /// The load.
    pub load: Load,
    /// Seed of workload, devices and schedule.
    pub seed: u64,
    /// Size of the volume. `None` for the size that the load needs, or, under a trace that is not compacted,
    /// for the whole capacity of the devices.
    pub size: Option<Bytes>,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent.
    pub copies: u8,
    /// Extents in the memory cache; 0 for none.
    pub cache_extents: usize,
    /// When a read brings its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for read-ahead of streams; 0 for none.
    pub ahead: Bytes,
    /// A write-back cache of protected memory between guests and volume; 0 for none.
    pub dram: Bytes,
    /// Ranges that hold bytes before the load begins.
    pub prefill: Prefill,
    /// The policy that places prefilled data, or [`crate::OWN`] for the simulated policy. `None` for the
    /// neutral placement common to all compared policies (see `fill.rs`), except policies that are a
    /// placement rule.
    pub prefill_policy: Option<String>,
    /// Whole extents on SSDs before the load begins, in order. Other prefilled data is on disks, and
    /// `prefill_policy` is ignored. For baselines that know beforehand which data deserves an SSD.
    pub prefill_ssd: Option<Vec<Range<Bytes>>>,
    /// Length of the warm-up, before measuring.
    pub warm_up: WarmUp,
    /// Measured time after the warm-up; `None` for until the load ends.
    pub duration: Option<Nanos>,
    /// Requests after which the load ends, warm-up included; `None` for all requests of the load.
    pub requests: Option<u64>,
    /// Open loop: speed-up of arrivals over the written times. 1 is as written.
    pub speed: f64,
    /// Open loop: most requests in the volume at the same time. Further requests wait outside, which counts
    /// as queue time.
    pub outstanding: usize,
    /// Handling of requests beyond the volume's end.
    pub beyond: Beyond,
    /// Closed loop: processors shared by all thinking clients, as by the processes of a machine; `None` for a
    /// processor for each client.
    pub processors: Option<usize>,
    /// True to verify every read, by a tag of 8 bytes for each block of the volume and of the devices.
    pub verify: bool,
    /// True to measure the burstiness of arrivals, in up to 64 MiB of memory.
    pub burstiness: bool,
    /// True to measure the cost of blocks, in some 100 bytes for each accessed block.
    pub block_costs: bool,
    /// True to list the extents with homes on SSDs at the end.
    pub list_homes: bool,
    /// File that receives a line for each measured request.
    pub request_log: Option<PathBuf>,
    /// Length of an interval of the time series; `None` for a length that fits.
    pub interval: Option<Nanos>,
    /// Starts of batches of requests with separate sums of latencies, from the beginning of the load, in
    /// rising order; empty for no batches. Requests before the first start are in no batch.
    pub batches: Vec<Nanos>,
}

/// A load: requests and their times.
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// A generated workload, as `name,key=value,…`.
    Workload(String),
    /// A recorded load.
    Trace(Trace),
    /// Several generated workloads on the same volume, each for a period.
    Parts(Vec<Part>),
    /// Requests in memory, each with its own time.
    Recorded(Arc<Recorded>),
}

/// Requests in memory, each with its own time, and the volume's contents beforehand.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// Name of the load.
    pub name: String,
    /// The requests, in order of time.
    pub arrivals: Vec<Arrival>,
    /// End of the requests' addresses.
    pub span: Bytes,
    /// Ranges that hold data before the load begins, in order, without overlap.
    pub filled: Vec<Range<Bytes>>,
}

/// A generated workload as a part of a load.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The workload, as `name,key=value,…`.
    pub workload: String,
    /// Seed of the workload. Two parts with the same seed and span prefer the same places.
    pub seed: u64,
    /// Start of the part, from the beginning of the load.
    pub from: Nanos,
    /// End of the part; `Nanos::MAX` for the end of the workload.
    pub until: Nanos,
    /// Number of first requests (open loop) or first clients (closed loop) to leave out: another part makes
    /// them.
    pub skip: u64,
    /// Address in the volume of the workload's first byte.
    pub offset: Bytes,
    /// True if the ranges used by the part hold data before the load begins.
    pub is_filled: bool,
}

impl Part {
    /// A part that runs a workload from the beginning to the end of the load.
    pub fn whole(workload: impl Into<String>, seed: u64) -> Part {
        let workload = workload.into();
        Part {
            workload,
            seed,
            from: Nanos::ZERO,
            until: Nanos::MAX,
            skip: 0,
            offset: Bytes::ZERO,
            is_filled: true,
        }
    }
}

/// A recorded load.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// The file, or its parts to be merged by time: a folder of files, or files joined by `+`.
    pub path: PathBuf,
    /// Options of the reader. The layout is not used: devices lie one after another.
    pub options: Options,
    /// True if the touched extents are numbered without gaps, in order of address.
    pub compact: bool,
    /// Number of times that the trace is played, each time after the last request of the time before. Only
    /// the last time is measured.
    pub repeat: u32,
    /// Longest time between two requests; longer gaps are cut to this length.
    pub max_gap: Option<Nanos>,
    /// Closed loop: number of clients that replay the trace, each taking the next request when its last
    /// request is complete. `None` for the times of the trace: open loop.
    pub clients: Option<usize>,
    /// Wait of a client before each request.
    pub think: Nanos,
}

/// Length of a load's warm-up, before measuring.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WarmUp {
    /// Until this time has passed.
    Time(Nanos),
    /// Until this number of requests has begun.
    Requests(u64),
    /// Until this share of the load's requests has begun, 0.5 for half.
    Share(f64),
}

impl WarmUp {
    /// No warm-up.
    pub const NONE: WarmUp = WarmUp::Time(Nanos::ZERO);
}

impl FromStr for WarmUp {
    type Err = String;
    /// Reads `30s`, `10000req`, `50%`.
    fn from_str(text: &str) -> Result<WarmUp, String> {
        let wrong = || {
            format!(
                "'{text}' is not a warm-up: use a time such as 30s, requests such as 10000req, or a share such as 50%"
            )
        };
        if let Some(number) = text.strip_suffix("req") {
            return number.trim_end().parse().map(WarmUp::Requests).map_err(|_| wrong());
        }
        if let Some(percent) = text.strip_suffix('%') {
            let share = percent.parse::<f64>().map_err(|_| wrong())? / 100.0;
            return (0.0..1.0).contains(&share).then_some(WarmUp::Share(share)).ok_or_else(wrong);
        }
        text.parse().map(WarmUp::Time).map_err(|_| wrong())
    }
}

impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarmUp::Time(time) => write!(f, "{time}"),
            WarmUp::Requests(requests) => write!(f, "{requests} requests"),
            WarmUp::Share(share) => write!(f, "{} %", (share * 1e10).round() / 1e8),
        }
    }
}

/// Ranges that hold bytes before the load begins. Unwritten ranges read as zeros without touching a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefill {
    /// Nothing.
    None,
    /// The ranges that the workload declares, usually all used ranges. Under a trace, all touched extents,
    /// or, if the trace is not compacted, everything up to the end of its last device.
    Used,
    /// The whole volume.
    All,
}

/// Handling of requests beyond the volume's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// Such a request ends the simulation with an error.
    Refuse,
    /// The address is taken modulo the volume's size.
    Wrap,
    /// Such requests are left out and counted.
    Drop,
}

impl Recorded {
    /// Amount of data in the volume beforehand.
    pub fn data(&self) -> Bytes {
        self.filled.iter().fold(Bytes::ZERO, |sum, range| sum + (range.end - range.start))
    }
}

impl Setup {
    /// Defaults: extents of 128 KiB, blocks of 4 KiB, one copy, 100 extents of memory cache, filled as the
    /// workload declares, no warm-up, measured until the load ends, seed 1, reads not verified.
    pub fn new(devices: Vec<DeviceSetup>, policy: impl Into<String>, load: Load) -> Setup {
        Setup {
            devices,
            network: None,
            policy: policy.into(),
            made_policy: None,
            load,
            seed: 1,
            size: None,
            extent_size: KIB * 128,
            block_size: KIB * 4,
            copies: 1,
            cache_extents: 100,
            readahead: Readahead::default(),
            ahead: Bytes::ZERO,
            dram: Bytes::ZERO,
            prefill: Prefill::Used,
            prefill_policy: None,
            prefill_ssd: None,
            warm_up: WarmUp::NONE,
            duration: None,
            requests: None,
            speed: 1.0,
            outstanding: 256,
            beyond: Beyond::Refuse,
            processors: None,
            verify: false,
            burstiness: false,
            block_costs: false,
            list_homes: false,
            request_log: None,
            interval: None,
            batches: Vec::new(),
        }
    }
}

impl Trace {
    /// Defaults: format detected by content, compacted, played once at its own times. Unreadable lines are
    /// counted.
    pub fn new(path: impl Into<PathBuf>) -> Trace {
        let options = Options::default();
        let path = path.into();
        Trace { path, options, compact: true, repeat: 1, max_gap: None, clients: None, think: Nanos::ZERO }
    }
}

impl Load {
    /// The load with this number of clients and this wait before a request. A workload takes both as its
    /// settings. A trace with a wait only has one client. Other loads are unchanged.
    pub fn with_clients(self, clients: Option<u32>, think: Option<Nanos>) -> Load {
        match self {
            Load::Workload(mut text) => {
                if let Some(clients) = clients {
                    text += &format!(",clients={clients}");
                }
                if let Some(think) = think {
                    text += &format!(",think={}ns", think.0);
                }
                Load::Workload(text)
            }
            Load::Trace(trace) => Load::Trace(Trace {
                clients: clients.map(|clients| clients as usize).or(think.map(|_| 1)),
                think: think.unwrap_or(Nanos::ZERO),
                ..trace
            }),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_a_time_or_requests_or_a_share() {
        let read = |text: &str| text.parse::<WarmUp>();
        assert_eq!(read("30s"), Ok(WarmUp::Time(Nanos::from_secs(30))));
        assert_eq!((read("10000req"), read("50%")), (Ok(WarmUp::Requests(10_000)), Ok(WarmUp::Share(0.5))));
        for wrong in ["", "30", "100%", "-1%", "nan%", "req", "-3req", "1.5req", "5 apples"] {
            assert!(read(wrong).is_err_and(|why| why.contains("10000req")), "{wrong}");
        }
    }
}
