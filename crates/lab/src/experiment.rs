//! Declaration of an experiment: systems, loads and devices, measures, and the statements of the paper. Data
//! only: [`crate::study`] runs a declaration, [`crate::judge`] compares, [`crate::report`] shows.
//!
//! In a device, a policy or a load, `{x}` stands for the place on the axis and `{x*512}` for 512 times the
//! place (bytes of a number of sectors). `{half}` stands for half the length of the runs, as in `30000ms`,
//! and `{name}` for a parameter of this name in [`Experiment::jitter`].
//!
//! A declaration is a constant of this crate or a TOML file with the same fields ([`Experiment::from_toml`]).
//! The contents of a file stay in memory until the program exits, so both are of the same type.

use crate::Prefill;
use crate::block_costs::Metric;
use braid_base::{Bytes, DeviceClass};
use braid_engine::Readahead;
use serde::{Deserialize, Serialize};

mod check;
mod claim;
mod text;

pub use claim::{Baseline, Bound, Claim, Jitter, Origin, Pair, Published, Quantity, Test};

/// A table or figure of a paper, reproduced here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// `system/figure`, as in `wardrop/fig5`.
    #[serde(deserialize_with = "text::text")]
    pub id: &'static str,
    /// Title of the figure.
    #[serde(deserialize_with = "text::text")]
    pub title: &'static str,
    /// Source of the figure.
    #[serde(deserialize_with = "text::paper")]
    pub paper: &'static Paper,
    /// Figure or table, and the part of the text about it.
    #[serde(default, deserialize_with = "text::text")]
    pub place: &'static str,
    /// The horizontal axis.
    pub axis: Axis,
    /// Systems compared, each at every place of the axis.
    #[serde(deserialize_with = "text::list")]
    pub series: &'static [Series],
    /// Measures, with one table and one plot each.
    #[serde(deserialize_with = "text::list")]
    pub measures: &'static [Measure],
    /// The load's own programme, if the programme counts the measures; `None` if the volume does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counting: Option<Counting>,
    /// Ranges that hold data before a run begins.
    #[serde(default = "text::nothing")]
    pub prefill: Prefill,
    /// Length of each run.
    pub times: Times,
    /// Parameters drawn by the seed, beside the draws of loads and devices.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub jitter: &'static [Jitter],
    /// The paper's rows of single devices; these must be reproduced before a policy is judged.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub baselines: &'static [Baseline],
    /// Claims of the paper, with their tests.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub claims: &'static [Claim],
    /// Values that the paper gives in numbers, and values given only in a plot.
    #[serde(default, deserialize_with = "text::text")]
    pub published: &'static str,
    /// Results of the paper used to calibrate the models; everything else is predicted.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub calibrated: &'static [&'static str],
    /// Places in which the paper contradicts itself.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub contradictions: &'static [&'static str],
    /// Differences from the paper, beyond [`Paper::differs`] for all its experiments.
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
    /// Year of publication.
    pub year: u16,
    /// The system in a word: prefix of the ids.
    #[serde(deserialize_with = "text::text")]
    pub system: &'static str,
    /// When the memory cache reads a whole extent.
    #[serde(default = "text::readahead", with = "text::parsed")]
    pub readahead: Readahead,
    /// Processors of the paper's machine, shared by the processes of a load; `None` if each process has its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<usize>,
    /// Size of the volume; `None` for as much as a load needs.
    #[serde(default, with = "text::parsed_option", skip_serializing_if = "Option::is_none")]
    pub volume: Option<Bytes>,
    /// Extents in the memory cache of all systems.
    #[serde(default = "text::cache_extents")]
    pub cache_extents: usize,
    /// Block size of the SSD caches.
    #[serde(default = "text::block_size", with = "text::parsed")]
    pub block_size: Bytes,
    /// True if each policy places the data before the load begins; otherwise as in `fill.rs`.
    #[serde(default)]
    pub own_fill: bool,
    /// Differences from the paper in all of its experiments.
    #[serde(default, deserialize_with = "text::texts", skip_serializing_if = "text::is_empty")]
    pub differs: &'static [&'static str],
}

impl Paper {
    /// Authors of the paper.
    pub fn authors(&self) -> &'static str {
        self.title.split(", \"").next().unwrap_or(self.title)
    }
}

impl Experiment {
    /// Number of simulations for each seed.
    pub fn simulations(&self) -> usize {
        self.series.len() * self.axis.places().len()
    }
}

/// The horizontal axis.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Axis {
    /// A run for each number.
    Numbers {
        /// Label of the numbers.
        #[serde(deserialize_with = "text::text")]
        label: &'static str,
        /// The numbers, rising.
        #[serde(deserialize_with = "text::list")]
        places: &'static [u32],
    },
    /// Parts of the same run, in sequence.
    Phases {
        /// Label of the numbers.
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
    /// Place of the phase on the axis.
    pub place: u32,
    /// Start of measuring, as a fraction of the run.
    pub from: f64,
    /// End of measuring, as a fraction of the run.
    pub to: f64,
}

/// Length of runs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Seconds before measuring. Under [`Axis::Phases`] a part of the run's length.
    pub warm_up: u32,
    /// Measured seconds after the warm-up; 0 for until the load ends.
    pub measured: u32,
}

impl Times {
    /// The whole load is measured.
    pub const WHOLE: Times = Times { warm_up: 0, measured: 0 };
}

/// One of the compared systems.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name in tables and plots.
    #[serde(deserialize_with = "text::text")]
    pub label: &'static str,
    /// The devices, as on the command line: `80GB,model=x25-m,count=1`.
    #[serde(with = "text::devices")]
    pub devices: &'static [(DeviceClass, &'static str)],
    /// Network between the devices' nodes, as on the command line: `{x}Gbit` for the place on the axis.
    #[serde(default, deserialize_with = "text::option", skip_serializing_if = "Option::is_none")]
    pub network: Option<&'static str>,
    /// Unit of caching, if different from the paper's.
    #[serde(default, with = "text::parsed_option", skip_serializing_if = "Option::is_none")]
    pub block_size: Option<Bytes>,
    /// Metric that sorts the blocks, for [`Measure::Covered`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Required copies of all data. Two copies exist from the beginning, wherever the policy begins.
    #[serde(default = "text::one")]
    pub copies: u8,
    /// The policy.
    #[serde(deserialize_with = "text::text")]
    pub policy: &'static str,
    /// The workload.
    #[serde(deserialize_with = "text::text")]
    pub load: &'static str,
    /// Write-back cache of protected memory before the volume, as `20MiB` or `{x}MiB`.
    #[serde(default, deserialize_with = "text::option", skip_serializing_if = "Option::is_none")]
    pub dram: Option<&'static str>,
    /// Series that this series may replace in claims: another setting of the same system.
    #[serde(default, deserialize_with = "text::option", skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<&'static str>,
}

/// A programme that counts its own operations ([`crate::Programme`]), because the volume sees fewer: a page
/// cache answers, gathers and drops some.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counting {
    /// Name of the programme.
    #[serde(deserialize_with = "text::text")]
    pub programme: &'static str,
    /// Operations of one process from start to end.
    pub operations: f64,
}

/// A measure of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// MB/s, as counted by the load's programme.
    Throughput,
    /// Mean milliseconds of an operation, as counted and timed by the load's programme.
    Latency,
    /// 90th percentile of the same latency.
    LatencyP90,
    /// 99th percentile of the same latency.
    LatencyP99,
    /// Operations per second, as counted by the load's programme.
    Operations,
    /// Operations per minute, as counted by the load's programme: tpmC, if the operations are New-Orders.
    PerMinute,
    /// Seconds until each process has done its whole share.
    Finish,
    /// Seconds taken by the load.
    Time,
    /// Percentage of guests' requests served by SSDs, of all that reached a device. A divided request counts
    /// once on each device.
    HitRatio,
    /// Guests' requests that reached the SSDs, per second.
    DemandRate,
    /// Latency of the first blocks in the order of the series' metric, per cent of all. The place on the axis
    /// gives the number of hundredths of the blocks.
    Covered,
    /// Blocks of 4 KiB read from SSDs for write-back, per second.
    ScrubRate,
    /// Mean milliseconds of a read or write of the volume.
    VolumeLatency,
    /// 99th percentile of the latency of a read or write of the volume, in milliseconds.
    VolumeLatencyP99,
    /// Mean share of the time in which a device of this class had a request, per cent: activeness.
    Active(#[serde(with = "text::parsed")] DeviceClass),
    /// Share of data on SSDs at the end, per cent.
    SsdShare,
    /// Seconds from the load's beginning, warm-up included, until throughput stays within a tenth of its mean
    /// over the measured time. No value if throughput does not settle.
    Settling,
    /// Discrepancy: bytes missing from a copy, as a share of the volume, per cent; the mean over the measured
    /// time.
    Behind,
    /// Highest discrepancy at one time, per cent of the volume.
    BehindHighest,
    /// Data moved to SSDs by a policy since the load began, MB, as the policy counts (`extents_came`); 0
    /// under a policy that does not count.
    MovedToSsds,
    /// Bytes of moves between nodes in the measured time, MB; 0 on one host.
    MovedBetweenNodes,
    /// Bytes written to SSDs, by guests and in the background, MB/s.
    SsdWritten,
    /// Bits of entropy of arrivals in 2^k bins of equal length, k the place on the axis: k if arrivals are
    /// even, 0 in a single burst.
    Entropy,
}

impl Measure {
    /// Name of the measure.
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

    /// Unit of the measure.
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

    /// True if more is better.
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
    /// Label of the axis.
    pub fn label(&self) -> &'static str {
        match self {
            Axis::Numbers { label, .. } | Axis::Phases { label, .. } => label,
        }
    }

    /// Places on the axis, rising.
    pub fn places(&self) -> Vec<u32> {
        match self {
            Axis::Numbers { places, .. } => places.to_vec(),
            Axis::Phases { phases, .. } => phases.iter().map(|phase| phase.place).collect(),
        }
    }
}
