//! Not in the paper: the same experiment with an SSD and disks.

use super::{COLLOID, MOST, ORTHUS, PAPER, TIERS};
use crate::Prefill;
use crate::experiment::Bound::Between;
use crate::experiment::Measure::{SsdWritten, Throughput, VolumeLatency, VolumeLatencyP99};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Origin, Times};
use crate::experiments::tiers::{CLIENTS, DISKS, SMALL_HITS, TIERING, series, test};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "most/disks",
    title: "an SSD for three tenths of the data, and four disks",
    paper: &PAPER,
    place: "ours",
    axis: CLIENTS,
    series: &[
        series(TIERS, DISKS, TIERING, SMALL_HITS),
        series(ORTHUS, DISKS, "orthus,mode=write-back", SMALL_HITS),
        series(COLLOID, DISKS, "colloid,latency=all", SMALL_HITS),
        series(MOST, DISKS, "most", SMALL_HITS),
    ],
    measures: &[Throughput, VolumeLatency, VolumeLatencyP99, SsdWritten],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 120, measured: 60 },
    jitter: &[],
    baselines: &[],
    claims: &[Claim {
        sentence: "The latencies of an SSD and of disks never meet: the offload ratio stays at 0, and MOST is plain tiering.",
        place: "ours",
        origin: Origin::Aim,
        tests: &[test(
            Ratio { measure: Throughput, of: MOST, to: &[TIERS], at: 16 },
            Words,
            Between(0.8, 1.25),
        )],
        why: "",
        instead: &[],
    }],
    published: "Nothing: the paper has no disks.",
    calibrated: &[],
    contradictions: &[],
    differs: &["The hierarchy is not the paper's."],
};
