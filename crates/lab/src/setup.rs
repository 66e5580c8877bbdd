//! What shall be simulated: plain data, so that a sweep is a list of it.

use crate::DeviceSetup;
use braid_base::{Bytes, KIB, Nanos};
use braid_trace::Options;
use std::path::PathBuf;

/// One simulation: devices, volume, load, and what is measured of it. The same setup gives the same outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// What the volume is made of.
    pub devices: Vec<DeviceSetup>,
    /// The policy, as `name,key=value,…`.
    pub policy: String,
    /// Who asks for what, and when.
    pub load: Load,
    /// Seed of workload, devices and schedule.
    pub seed: u64,
    /// The volume's size; none for what the load needs, or, under a trace that is not compacted, all that the devices hold.
    pub size: Option<Bytes>,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent.
    pub copies: u8,
    /// Extents in the memory cache; 0 for none.
    pub cache_extents: usize,
    /// What holds bytes before the load begins.
    pub prefill: Prefill,
    /// The policy that places what is prefilled, [`crate::OWN`] for the one that is simulated; none for the same for all that are
    /// compared (`fill.rs` says which), but for those that are themselves a rule of where data lies.
    pub prefill_policy: Option<String>,
    /// For how long the load runs before anything is measured.
    pub warm_up: Nanos,
    /// For how long it is measured then; none for until the load ends.
    pub duration: Option<Nanos>,
    /// After how many requests the load ends, warm-up included; none for as many as it has.
    pub requests: Option<u64>,
    /// Open loop: how much faster than written requests come. 1 is as written.
    pub speed: f64,
    /// Open loop: requests in the volume at the same time, at most. More wait outside, which counts as queue time.
    pub outstanding: usize,
    /// What becomes of requests beyond the volume's end.
    pub beyond: Beyond,
    /// Whether every read is verified, by a tag of 8 bytes for each block of the volume and of the devices.
    pub tags: bool,
    /// Length of an interval of the time series; none for one that fits.
    pub interval: Option<Nanos>,
}

/// Who asks for what, and when.
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// A generated workload, as `name,key=value,…`.
    Workload(String),
    /// A recorded one.
    Trace(Trace),
}

/// A recorded load.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// The file.
    pub path: PathBuf,
    /// How it is read. Its layout is not used: devices lie one after another.
    pub options: Options,
    /// Whether the extents that it touches are numbered without the gaps between them, in order of address.
    pub compact: bool,
    /// How many clients replay it, each taking the next request when its last one is complete: closed loop. None for
    /// the times of the trace: open loop.
    pub clients: Option<usize>,
    /// How long a client waits before each request.
    pub think: Nanos,
}

/// What holds bytes before the load begins. What was never written reads as zeros without touching a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefill {
    /// Nothing.
    None,
    /// What the workload says: usually all that it uses. Under a trace, all the extents that it touches, or, where it is not
    /// compacted, all up to the end of its last device.
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

impl Setup {
    /// The usual: extents of 128 KiB, blocks of 4 KiB, one copy, 100 extents of memory cache, filled as the workload says,
    /// no warm-up, measured until the load ends, seed 1, tags off.
    pub fn new(devices: Vec<DeviceSetup>, policy: impl Into<String>, load: Load) -> Setup {
        Setup {
            devices,
            policy: policy.into(),
            load,
            seed: 1,
            size: None,
            extent_size: KIB * 128,
            block_size: KIB * 4,
            copies: 1,
            cache_extents: 100,
            prefill: Prefill::Used,
            prefill_policy: None,
            warm_up: Nanos::ZERO,
            duration: None,
            requests: None,
            speed: 1.0,
            outstanding: 256,
            beyond: Beyond::Refuse,
            tags: false,
            interval: None,
        }
    }
}

impl Trace {
    /// The usual: told by content, compacted, at its own times; a line that cannot be read is counted.
    pub fn new(path: impl Into<PathBuf>) -> Trace {
        let options = Options::default();
        Trace { path: path.into(), options, compact: true, clients: None, think: Nanos::ZERO }
    }
}

impl Load {
    /// The load with this many clients that each wait so long before a request; a workload takes both as its settings. A
    /// trace for which only the wait is given has one client.
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
        }
    }
}
