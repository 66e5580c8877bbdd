//! What an experiment is: a declaration of which systems run which loads on which devices, what is measured
//! of them, and what the paper says of it. Data only: [`crate::study`] runs it, [`crate::judge`] compares,
//! [`crate::report`] shows.
//!
//! `{x}` in a device, a policy or a load stands for the place on the axis, `{x*512}` for 512 times it (bytes
//! of so many sectors), `{half}` for half the length of the runs, as in `30000ms`, `{name}` for a parameter
//! of that name in [`Experiment::jitter`].
//!
//! A declaration is a constant of this crate or a file in TOML with the same fields
//! ([`Experiment::from_toml`]). What a file says stays in memory as long as the program runs, so both are of
//! the same type.

use crate::Prefill;
use crate::block_costs::Metric;
use braid_base::{Bytes, DeviceClass};
use braid_engine::Readahead;
use serde::{Deserialize, Serialize};

mod check;
mod claim;
mod text;

pub use claim::{Baseline, Bound, Claim, Jitter, Origin, Pair, Published, Quantity, Test};

/// A table or figure of a paper, as it is made again here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// `system/figure`, as in `wardrop/fig5`.
    #[serde(deserialize_with = "text::text")]
    pub id: &'static str,
    /// What it shows.
    #[serde(deserialize_with = "text::text")]
    pub title: &'static str,
    /// Where it comes from.
    #[serde(deserialize_with = "text::paper")]
    pub paper: &'static Paper,
    /// Which figure or table, and which part of the text speaks of it.
    #[serde(default, deserialize_with = "text::text")]
    pub place: &'static str,
    /// What runs from left to right.
    pub axis: Axis,
    /// What is compared, each at every place of the axis.
    #[serde(deserialize_with = "text::list")]
    pub series: &'static [Series],
    /// What is measured, one table and one plot each.
    #[serde(deserialize_with = "text::list")]
    pub measures: &'static [Measure],
    /// The load's own programme, if that counts what is measured; none if the volume does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counting: Option<Counting>,
    /// What holds data before a run begins.
    #[serde(default = "text::nothing")]
    pub prefill: Prefill,
    /// How long each run is.
    pub times: Times,
    /// What the seed draws beside what loads and devices draw by themselves.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub jitter: &'static [Jitter],
    /// The paper's rows of single devices, which must come out before a policy is judged.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub baselines: &'static [Baseline],
    /// What the paper says, and how it is tested here.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub claims: &'static [Claim],
    /// Which values the paper gives in numbers, and which only in a plot.
    #[serde(default, deserialize_with = "text::text")]
    pub published: &'static str,
    /// Which of the paper's own results went into the models: all else is predicted.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub calibrated: &'static [&'static str],
    /// Where the paper itself says otherwise elsewhere.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub contradictions: &'static [&'static str],
    /// What is not as it was in the paper, beyond what [`Paper::differs`] says of all its experiments.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub differs: &'static [&'static str],
}

/// A paper.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Authors and title: `Wu and Reddy, "A Novel Approach …"`.
    #[serde(deserialize_with = "text::text")]
    pub title: &'static str,
    /// The year in which it was published.
    pub year: u16,
    /// The system, in a word: what ids begin with.
    #[serde(deserialize_with = "text::text")]
    pub system: &'static str,
    /// When its memory cache reads an extent whole.
    #[serde(default = "text::readahead", with = "text::parsed")]
    pub readahead: Readahead,
    /// Processors of its machine, which the processes of a load share; none if each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<usize>,
    /// Size of its volume; none for as much as a load needs.
    #[serde(default, with = "text::parsed_option", skip_serializing_if = "Option::is_none")]
    pub volume: Option<Bytes>,
    /// Extents in the memory cache of all its systems.
    #[serde(default = "text::cache_extents")]
    pub cache_extents: usize,
    /// What its SSD caches cache: a block.
    #[serde(default = "text::block_size", with = "text::parsed")]
    pub block_size: Bytes,
    /// Whether data lies where each policy places it before the load begins; otherwise as `fill.rs` says.
    #[serde(default)]
    pub own_fill: bool,
    /// What is not as it was in the paper, in all of its experiments.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub differs: &'static [&'static str],
}

impl Paper {
    /// Its authors.
    pub fn authors(&self) -> &'static str {
        self.title.split(", \"").next().unwrap_or(self.title)
    }
}

impl Experiment {
    /// How many simulations each seed takes.
    pub fn simulations(&self) -> usize {
        self.series.len() * self.axis.places().len()
    }
}

/// What runs from left to right.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Axis {
    /// A run for each number.
    Numbers {
        /// What the numbers are.
        #[serde(deserialize_with = "text::text")]
        label: &'static str,
        /// The numbers, rising.
        #[serde(deserialize_with = "text::list")]
        places: &'static [u32],
    },
    /// Parts of the same run, one after the other.
    Phases {
        /// What the numbers are.
        #[serde(deserialize_with = "text::text")]
        label: &'static str,
        /// The parts.
        #[serde(deserialize_with = "text::list")]
        phases: &'static [Phase],
    },
}

/// A part of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its place on the axis.
    pub place: u32,
    /// Where measuring begins, as a part of the run.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

/// How long runs are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Seconds before anything is measured. Under [`Axis::Phases`] a part of the run's length.
    pub warm_up: u32,
    /// Seconds that are measured then; 0 for until the load ends.
    pub measured: u32,
}

impl Times {
    /// The load is measured whole.
    pub const WHOLE: Times = Times { warm_up: 0, measured: 0 };
}

/// One of the systems that are compared.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What it is called in tables and plots.
    #[serde(deserialize_with = "text::text")]
    pub label: &'static str,
    /// The devices, as on the command line: `80GB,model=x25-m,count=1`.
    #[serde(with = "text::devices")]
    pub devices: &'static [(DeviceClass, &'static str)],
    /// What joins the nodes that they are on, as on the command line: `{x}Gbit` for the place on the axis.
    #[serde(default, deserialize_with = "text::option", skip_serializing_if = "Option::is_none")]
    pub network: Option<&'static str>,
    /// The unit of caching, if it is not the paper's.
    #[serde(default, with = "text::parsed_option", skip_serializing_if = "Option::is_none")]
    pub block_size: Option<Bytes>,
    /// The metric that its blocks are sorted by, for [`Measure::Covered`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Required copies of everything. Two of them are there from the beginning, wherever the policy begins.
    #[serde(default = "text::one")]
    pub copies: u8,
    /// The policy.
    #[serde(deserialize_with = "text::text")]
    pub policy: &'static str,
    /// The workload.
    #[serde(deserialize_with = "text::text")]
    pub load: &'static str,
    /// A write-back cache of protected memory before the volume, as `20MiB` or `{x}MiB`.
    #[serde(default, deserialize_with = "text::option", skip_serializing_if = "Option::is_none")]
    pub dram: Option<&'static str>,
    /// The series whose place it may take in claims: another setting of the same system.
    #[serde(default, deserialize_with = "text::option", skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<&'static str>,
}

/// A programme that counts by itself what it does ([`crate::Programme`]), since the volume sees less of it: a
/// page cache answers, gathers and forgets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counting {
    /// What it is called.
    #[serde(deserialize_with = "text::text")]
    pub programme: &'static str,
    /// Operations of one process from start to end.
    pub operations: f64,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// MB/s that the load's programme counts.
    Throughput,
    /// Mean milliseconds of an operation that the load's programme counts, each of them timed.
    Latency,
    /// Likewise, what 9 of 10 operations take at most.
    LatencyP90,
    /// Likewise, 99 of 100.
    LatencyP99,
    /// Operations per second that the load's programme counts.
    Operations,
    /// Likewise per minute: tpmC, if these are New-Orders.
    PerMinute,
    /// Seconds until each process has done its whole share.
    Finish,
    /// Seconds that the load took.
    Time,
    /// Guests' requests that SSDs served, of all that reached a device, per cent. One that is divided counts
    /// once on each device.
    HitRatio,
    /// Guests' requests that reached the SSDs, per second.
    DemandRate,
    /// Latency of the first blocks, so many in a hundred as the place on the axis says, in the order of the
    /// series' metric, per cent of all.
    Covered,
    /// Blocks of 4 KiB that were read from SSDs to be written back, per second.
    ScrubRate,
    /// Mean milliseconds of a read or write of the volume.
    VolumeLatency,
    /// Likewise, what 99 of 100 take at most.
    VolumeLatencyP99,
    /// Share of the time in which a device of this class had a request, on average, per cent: activeness.
    Active(#[serde(with = "text::parsed")] DeviceClass),
    /// Share of data on SSDs at the end, per cent.
    SsdShare,
    /// Seconds from the load's beginning, warm-up included, until throughput stays within a tenth of its mean
    /// over the measured time; none if it does not.
    Settling,
    /// Discrepancy: bytes that a copy lacks, as a share of the volume, per cent; the mean over the measured
    /// time.
    Behind,
    /// Likewise, the most at one time.
    BehindHighest,
    /// Data that a policy has moved to SSDs since the load began, MB: as the policy counts it
    /// (`extents_came`); 0 under one that does not.
    MovedToSsds,
    /// Bytes of moves that went from one node to another in the measured time, MB; 0 on one host.
    MovedBetweenNodes,
    /// Bytes that SSDs were given to write, by guests and in the background, MB/s.
    SsdWritten,
    /// Bits of entropy of arrivals in 2^k bins of equal length, k the place on the axis: k if they come
    /// evenly, 0 in a single burst.
    Entropy,
}

impl Measure {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Throughput => "throughput",
            Measure::Latency => "mean latency of an operation",
            Measure::LatencyP90 => "90th percentile of the latency of an operation",
            Measure::LatencyP99 => "99th percentile of the latency of an operation",
            Measure::Operations => "operations per second",
            Measure::PerMinute => "operations per minute",
            Measure::Finish => "time to finish the workload",
            Measure::Time => "execution time",
            Measure::HitRatio => "hit ratio",
            Measure::DemandRate => "demand requests to the SSD",
            Measure::Covered => "latency of the first blocks",
            Measure::ScrubRate => "scrub requests to the SSD",
            Measure::VolumeLatency => "mean latency of the volume's reads and writes",
            Measure::VolumeLatencyP99 => "99th percentile of the latency of the volume's reads and writes",
            Measure::Active(DeviceClass::Ssd) => "activeness of the SSDs",
            Measure::Active(DeviceClass::Hdd) => "activeness of the disks",
            Measure::SsdShare => "share of data on SSDs",
            Measure::Settling => "time to equilibrium",
            Measure::Behind => "discrepancy",
            Measure::BehindHighest => "highest discrepancy",
            Measure::MovedToSsds => "data moved to SSDs",
            Measure::MovedBetweenNodes => "data moved between nodes",
            Measure::SsdWritten => "written to SSDs",
            Measure::Entropy => "entropy of arrivals",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Throughput | Measure::SsdWritten => "MB/s",
            Measure::MovedToSsds | Measure::MovedBetweenNodes => "MB",
            Measure::Latency
            | Measure::LatencyP90
            | Measure::LatencyP99
            | Measure::VolumeLatency
            | Measure::VolumeLatencyP99 => "ms",
            Measure::Operations | Measure::DemandRate | Measure::ScrubRate => "1/s",
            Measure::PerMinute => "1/min",
            Measure::Finish | Measure::Settling | Measure::Time => "s",
            Measure::SsdShare
            | Measure::Active(_)
            | Measure::HitRatio
            | Measure::Covered
            | Measure::Behind
            | Measure::BehindHighest => "%",
            Measure::Entropy => "bits",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        match self {
            Measure::Throughput
            | Measure::Operations
            | Measure::PerMinute
            | Measure::SsdShare
            | Measure::Active(_)
            | Measure::HitRatio
            | Measure::Covered
            | Measure::DemandRate => true,
            Measure::Latency
            | Measure::LatencyP90
            | Measure::LatencyP99
            | Measure::VolumeLatency
            | Measure::VolumeLatencyP99
            | Measure::Finish
            | Measure::Time
            | Measure::ScrubRate
            | Measure::Settling
            | Measure::Behind
            | Measure::BehindHighest
            | Measure::MovedToSsds
            | Measure::MovedBetweenNodes
            | Measure::SsdWritten
            | Measure::Entropy => false,
        }
    }
}

impl Axis {
    /// What its numbers are.
    pub fn label(&self) -> &'static str {
        match self {
            Axis::Numbers { label, .. } | Axis::Phases { label, .. } => label,
        }
    }

    /// Its places, rising.
    pub fn places(&self) -> Vec<u32> {
        match self {
            Axis::Numbers { places, .. } => places.to_vec(),
            Axis::Phases { phases, .. } => phases.iter().map(|phase| phase.place).collect(),
        }
    }
}
