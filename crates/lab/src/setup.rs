//! What shall be simulated: plain data, so that a sweep is a list of it.

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

/// One simulation: devices, volume, load, and what is measured of it. The same setup gives the same outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// What the volume is made of.
    pub devices: Vec<DeviceSetup>,
    /// What joins the nodes that devices are on; none if they are all on the host.
    pub network: Option<Params>,
    /// The policy, as `name,key=value,…`.
    pub policy: String,
    /// The policy that is in charge in its place.
    pub made_policy: Option<MadePolicy>,
    /// Which client asks for what, and when.
    pub load: Load,
    /// Seed of workload, devices and schedule.
    pub seed: u64,
    /// The volume's size; none for what the load needs, or, under a trace that is not compacted, all that the
    /// devices hold.
    pub size: Option<Bytes>,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent.
    pub copies: u8,
    /// Extents in the memory cache; 0 for none.
    pub cache_extents: usize,
    /// When a read brings all of its extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for what is read ahead of streams; 0 for none.
    pub ahead: Bytes,
    /// A write-back cache of protected memory between guests and volume; 0 for none.
    pub dram: Bytes,
    /// What holds bytes before the load begins.
    pub prefill: Prefill,
    /// The policy that places what is prefilled, [`crate::OWN`] for the one that is simulated; none for the
    /// same for all that are compared (`fill.rs` says which), but for those that are themselves a rule of
    /// where data lies.
    pub prefill_policy: Option<String>,
    /// Whole extents that lie on SSDs before the load begins, in order; what else is prefilled lies on disks,
    /// and `prefill_policy` has no say. For baselines that know beforehand what is worth an SSD.
    pub prefill_ssd: Option<Vec<Range<Bytes>>>,
    /// How far the load runs before anything is measured.
    pub warm_up: WarmUp,
    /// For how long it is measured then; none for until the load ends.
    pub duration: Option<Nanos>,
    /// After how many requests the load ends, warm-up included; none for as many as it has.
    pub requests: Option<u64>,
    /// Open loop: how much faster than written requests come. 1 is as written.
    pub speed: f64,
    /// Open loop: requests in the volume at the same time, at most. More wait outside, which counts as queue
    /// time.
    pub outstanding: usize,
    /// What becomes of requests beyond the volume's end.
    pub beyond: Beyond,
    /// Closed loop: processors that all clients share while they think, as the processes of a machine; none
    /// for one for each client.
    pub processors: Option<usize>,
    /// Whether every read is verified, by a tag of 8 bytes for each block of the volume and of the devices.
    pub verify: bool,
    /// Whether the burstiness of the requests' arrivals is measured, in up to 64 MiB of memory.
    pub burstiness: bool,
    /// Whether it is measured which blocks cost how much, in some 100 bytes for each block that is accessed.
    pub block_costs: bool,
    /// Whether the outcome lists which extents have their homes on SSDs at the end.
    pub list_homes: bool,
    /// A file that gets a line for each request that is measured.
    pub request_log: Option<PathBuf>,
    /// Length of an interval of the time series; none for one that fits.
    pub interval: Option<Nanos>,
    /// When each batch of requests begins whose latencies are summed up apart, from the beginning of the
    /// load, in rising order; none for no batches. What comes before the first is in none.
    pub batches: Vec<Nanos>,
}

/// Which client asks for what, and when.
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// A generated workload, as `name,key=value,…`.
    Workload(String),
    /// A recorded one.
    Trace(Trace),
    /// Several generated workloads on the same volume, each for a time of its own.
    Parts(Vec<Part>),
    /// Requests in memory, each at a time of its own.
    Recorded(Arc<Recorded>),
}

/// Requests in memory, each at a time of its own, and what the volume holds before.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// What to call them.
    pub name: String,
    /// The requests, in order of time.
    pub arrivals: Vec<Arrival>,
    /// Where requests end.
    pub span: Bytes,
    /// What holds data before the load begins: ranges in order, without overlap.
    pub filled: Vec<Range<Bytes>>,
}

/// A generated workload as a part of a load.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The workload, as `name,key=value,…`.
    pub workload: String,
    /// Its seed. Two parts with one seed and the same span prefer the same places.
    pub seed: u64,
    /// When it begins, from the beginning of the load.
    pub from: Nanos,
    /// When it ends; `Nanos::MAX` for when the workload ends.
    pub until: Nanos,
    /// So many of its first requests are left out in an open loop, and so many of its first clients in a
    /// closed loop: another part makes them.
    pub skip: u64,
    /// Where its first byte is in the volume.
    pub offset: Bytes,
    /// Whether what it uses holds data before the load begins.
    pub is_filled: bool,
}

impl Part {
    /// A workload from the beginning to the end of the load.
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
    /// The file; or its parts, to be merged by time: a folder of files, or files joined by `+`.
    pub path: PathBuf,
    /// How it is read. Its layout is not used: devices lie one after another.
    pub options: Options,
    /// Whether the extents that it touches are numbered without the gaps between them, in order of address.
    pub compact: bool,
    /// How often it is played, each time after the last request of the time before. Only the last time is
    /// measured.
    pub repeat: u32,
    /// The longest time between two requests; longer ones are cut to it.
    pub max_gap: Option<Nanos>,
    /// How many clients replay it, each taking the next request when its last one is complete: closed loop.
    /// None for the times of the trace: open loop.
    pub clients: Option<usize>,
    /// How long a client waits before each request.
    pub think: Nanos,
}

/// How far a load runs before anything is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WarmUp {
    /// For so long.
    Time(Nanos),
    /// Until so many requests have begun.
    Requests(u64),
    /// Until this share of the load's requests have begun, 0.5 for half of them.
    Share(f64),
}

impl WarmUp {
    /// None at all.
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

/// What holds bytes before the load begins. What was never written reads as zeros without touching a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefill {
    /// Nothing.
    None,
    /// What the workload says: usually all that it uses. Under a trace, all the extents that it touches, or,
    /// where it is not compacted, all up to the end of its last device.
    Used,
    /// The whole volume.
    All,
}

/// What becomes of requests beyond the volume's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// They end the simulation with an error.
    Refuse,
    /// Their address is taken modulo the volume's size.
    Wrap,
    /// They are left out and counted.
    Drop,
}

impl Recorded {
    /// How much data the volume holds before.
    pub fn data(&self) -> Bytes {
        self.filled.iter().fold(Bytes::ZERO, |sum, range| sum + (range.end - range.start))
    }
}

impl Setup {
    /// The usual: extents of 128 KiB, blocks of 4 KiB, one copy, 100 extents of memory cache, filled as the
    /// workload says, no warm-up, measured until the load ends, seed 1, reads not verified.
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
    /// The usual: told by content, compacted, played once at its own times; a line that cannot be read is
    /// counted.
    pub fn new(path: impl Into<PathBuf>) -> Trace {
        let options = Options::default();
        let path = path.into();
        Trace { path, options, compact: true, repeat: 1, max_gap: None, clients: None, think: Nanos::ZERO }
    }
}

impl Load {
    /// The load with this many clients that each wait so long before a request; a workload takes both as its
    /// settings. A trace for which only the wait is given has one client. Others stay as they are.
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
