//! The main result: throughput as the load grows, on devices of similar speed.

use super::{CACHE, LATENCY, ORTHUS, PAPER};
use crate::Prefill;
use crate::experiment::Bound::{Between, MoreThan, Shown};
use crate::experiment::Measure::{SsdWritten, Throughput, VolumeLatency, VolumeLatencyP99};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{BestRatio, Ratio};
use crate::experiment::{Claim, Experiment, Origin, Times};
use crate::experiments::tiers::{CLIENTS, HITS, NEAR_CACHE, series, test, variant};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "orthus/load",
    title: "a cache of Optane above flash, 95 % of hits",
    paper: &PAPER,
    place: "the evaluation of Orthus-CAS",
    axis: CLIENTS,
    series: &[
        series(CACHE, NEAR_CACHE, "cache", HITS),
        series(ORTHUS, NEAR_CACHE, "orthus", HITS),
        variant(ORTHUS, series(LATENCY, NEAR_CACHE, "orthus,target=latency", HITS)),
    ],
    measures: &[Throughput, VolumeLatency, VolumeLatencyP99, SsdWritten],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 20, measured: 5 },
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "With more load than the cache serves, non-hierarchical caching has a higher throughput than classic caching.",
            place: "the abstract",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: ORTHUS, to: &[CACHE], at: 64 },
                Words,
                MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The throughput is up to twice that of classic caching, of all hierarchies and loads of the paper.",
            place: "the abstract",
            origin: Origin::Paper,
            tests: &[test(BestRatio { measure: Throughput, of: ORTHUS, to: &[CACHE] }, Number(2.0), Shown)],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With one client nothing is to be gained, and nothing is lost.",
            place: "ours",
            origin: Origin::Aim,
            tests: &[test(
                Ratio { measure: Throughput, of: ORTHUS, to: &[CACHE], at: 1 },
                Words,
                Between(0.95, 1.05),
            )],
            why: "",
            instead: &[],
        },
    ],
    published: "The abstract gives the largest gain, twice. The curves were not at hand.",
    calibrated: &[
        "The rates and latencies of both devices are those that Tu et al. measured. All else is predicted.",
    ],
    contradictions: &[],
    differs: &[],
};
