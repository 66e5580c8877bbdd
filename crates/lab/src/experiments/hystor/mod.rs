//! Chen, Koufaty and Zhang, "Hystor: Making the Best Use of Solid State Drives in High Performance Storage
//! Systems", as presented. Covers the strengths of an SSD, three benchmarks with SSDs of 20 to 100 % of their
//! data, metadata, scrubbing and chunk size.
//!
//! The paper itself was not available; a talk about the paper names its figures by subject. The axis is the
//! size of the SSD, as a share of the load's data, in per cent, unless an experiment says otherwise.

pub mod chunk;
pub mod email;
pub mod metadata;
pub mod metrics;
pub mod patterns;
pub mod postmark;
pub mod scrub;
pub mod tpch;

use crate::experiment::{
    Axis, Baseline, Bound, Experiment, Measure, Paper, Published, Quantity, Series, Test,
};
use braid_base::Bytes;
use braid_base::DeviceClass::{self, Hdd, Ssd};
use braid_engine::Readahead;

/// In the order of the talk.
pub const ALL: &[&Experiment] = &[
    &patterns::EXPERIMENT,
    &metrics::EMAIL,
    &metrics::POSTMARK,
    &metrics::TPCC,
    &metrics::NETAPP,
    &metrics::DBENCH,
    &postmark::EXPERIMENT,
    &email::EXPERIMENT,
    &tpch::EXPERIMENT,
    &metadata::EXPERIMENT,
    &scrub::EXPERIMENT,
    &chunk::EXPERIMENT,
];

const PAPER: Paper = Paper {
    title: "Chen, Koufaty and Zhang, \"Hystor: Making the Best Use of Solid State Drives in High Performance Storage Systems\", as presented",
    year: 2011,
    system: "hystor",
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(4 << 10),
    own_fill: false,
    differs: &[
        "The devices are models: an Intel X25-E, of the size on the axis, and a Seagate Cheetah 15K.5. The inner workings of the X25-E are assumed in part \
         (crates/model/src/library says which); neither was fitted to a result of this paper.",
        "The workloads are generated (crates/workload/src/postmark.rs, email.rs, tpch.rs, ext3_file.rs say what is assumed). The talk gives neither the sizes of files nor \
         what the page cache answered.",
        "All data has a place on the disk before a run begins, and the SSD is empty. The first run of a programme is measured, with what the monitor learns in it, but for \
         reads behind indirect blocks.",
        "A search for high-cost blocks begins every second (`period=1s`): the talk gives no interval, and whole runs take 5 to 400 s. The water marks, 75 and \
         50 % of the write-back area, are ours, too.",
        "Guests' requests that are divided between SSD and disk count once for each device in the hit ratio.",
        "The engine, the kernel and file systems take no time of the processor.",
    ],
};

const SSD_ALONE: &[(DeviceClass, &str)] = &[(Ssd, "32GB,model=x25-e")];
const HDD_ALONE: &[(DeviceClass, &str)] = &[(Hdd, "73GB,model=cheetah-15k5")];
/// The disk with its write cache off.
const HDD_THROUGH: &[(DeviceClass, &str)] = &[(Hdd, "73GB,model=cheetah-15k5,write-cache=off")];
const BOTH: &[(DeviceClass, &str)] = &[(Ssd, "{x}%,model=x25-e"), (Hdd, "73GB,model=cheetah-15k5")];

const SSD: &str = "SSD only";
const HDD: &str = "disk only";
const HYSTOR: &str = "hystor";
const NO_WRITE_BACK: &str = "hystor, no write-back area";

const POLICY: &str = "hystor,as-published,period=1s";
const POLICY_NO_WRITE_BACK: &str = "hystor,as-published,period=1s,write-back=0%";

const SIZES: Axis = Axis::Numbers { label: "SSD, % of the working set", places: &[20, 40, 60, 80, 100] };

/// The SSD alone, the disk alone, and the policy with and without its write-back area.
const fn all(load: &'static str) -> [Series; 4] {
    [
        series(SSD, SSD_ALONE, "ssd-only", load),
        series(HDD, HDD_ALONE, "hdd-only", load),
        series(HYSTOR, BOTH, POLICY, load),
        series(NO_WRITE_BACK, BOTH, POLICY_NO_WRITE_BACK, load),
    ]
}

const fn series(
    label: &'static str,
    devices: &'static [(DeviceClass, &'static str)],
    policy: &'static str,
    load: &'static str,
) -> Series {
    Series {
        label,
        devices,
        network: None,
        copies: 1,
        policy,
        load,
        block_size: None,
        metric: None,
        dram: None,
        variant_of: None,
    }
}

const fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}

/// Baseline at a place: time on the disk alone as a multiple of the time on the SSD alone.
const fn devices(at: u32, published: f64) -> [Baseline; 1] {
    let quantity = Quantity::Ratio { measure: Measure::Time, of: HDD, to: &[SSD], at };
    [Baseline { quantity, published }]
}

/// Time of a series as a multiple of another's at a place: the published number, and our bound.
const fn times_longer(
    of: &'static str,
    to: &'static [&'static str],
    at: u32,
    published: Published,
    bound: Bound,
) -> Test {
    test(Quantity::Ratio { measure: Measure::Time, of, to, at }, published, bound)
}

/// Share of requests served by the SSD at a place.
const fn hits(series: &'static str, at: u32, published: Published, bound: Bound) -> Test {
    test(Quantity::Value { measure: Measure::HitRatio, series, at }, published, bound)
}
