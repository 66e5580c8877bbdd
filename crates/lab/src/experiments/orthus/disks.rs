//! Not in the paper: the same experiment above disks.

use super::{CACHE, LATENCY, ORTHUS, PAPER};
use crate::Prefill;
use crate::experiment::Bound::Between;
use crate::experiment::Measure::{SsdWritten, Throughput, VolumeLatency, VolumeLatencyP99};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Origin, Times};
use crate::experiments::tiers::{CLIENTS, DISKS, SMALL_HITS, series, test, variant};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "orthus/disks",
    title: "a cache on an SSD above four disks, 95 % of hits",
    paper: &PAPER,
    place: "ours",
    axis: CLIENTS,
    series: &[
        series(CACHE, DISKS, "cache", SMALL_HITS),
        series(ORTHUS, DISKS, "orthus", SMALL_HITS),
        variant(ORTHUS, series(LATENCY, DISKS, "orthus,target=latency", SMALL_HITS)),
    ],
    measures: &[Throughput, VolumeLatency, VolumeLatencyP99, SsdWritten],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 120, measured: 60 },
    jitter: &[],
    baselines: &[],
    claims: &[Claim {
        sentence: "Disks serve a hundredth of the hits that an SSD does: there is no share to give away, and a cache that tries some loses nothing that counts.",
        place: "ours",
        origin: Origin::Aim,
        tests: &[
            test(Ratio { measure: Throughput, of: ORTHUS, to: &[CACHE], at: 16 }, Words, Between(0.9, 1.1)),
            test(Ratio { measure: Throughput, of: ORTHUS, to: &[CACHE], at: 64 }, Words, Between(0.9, 1.1)),
        ],
        why: "",
        instead: &[],
    }],
    published: "Nothing: the paper has no disks.",
    calibrated: &[],
    contradictions: &[],
    differs: &["The hierarchy is not the paper's."],
};
