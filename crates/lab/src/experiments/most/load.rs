//! The main result: throughput as the load grows, with reads alone and with writes alone.

use super::{COLLOID, MOST, ORTHUS, PAPER, TIERS};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, MoreThan};
use crate::experiment::Measure::{SsdWritten, Throughput, VolumeLatency, VolumeLatencyP99};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Origin, Series, Times};
use crate::experiments::tiers::{CLIENTS, NEAR, READS, TIERING, WRITES, series, test};

/// The four systems under a load.
const fn all(load: &'static str) -> [Series; 4] {
    [
        series(TIERS, NEAR, TIERING, load),
        series(ORTHUS, NEAR, "orthus,mode=write-back", load),
        series(COLLOID, NEAR, "colloid,latency=all", load),
        series(MOST, NEAR, "most", load),
    ]
}

/// Reads alone.
pub const READ: Experiment = Experiment {
    id: "most/reads",
    title: "reads of a skewed working set as large as the performance device",
    paper: &PAPER,
    place: "the evaluation under static loads",
    axis: CLIENTS,
    series: &all(READS),
    measures: &[Throughput, VolumeLatency, VolumeLatencyP99, SsdWritten],
    counting: None,
    prefill: Prefill::Used,
    // The ratio takes 10 s to reach its end before anything is mirrored.
    times: Times { warm_up: 30, measured: 5 },
    jitter: &[],
    baselines: &[],
    claims: CLAIMS,
    published: "The curves are plotted, and were not at hand. In bursts MOST has 1.53 times the reads of HeMem, and 1.48 times the writes.",
    calibrated: &["The rates and latencies of both devices are the paper's. All else is predicted."],
    contradictions: &[],
    differs: &[],
};

/// Writes alone.
pub const WRITE: Experiment = Experiment {
    id: "most/writes",
    title: "writes to a skewed working set as large as the performance device",
    series: &all(WRITES),
    ..READ
};

const CLAIMS: &[Claim] = &[
    Claim {
        sentence: "Under more load than the performance device serves, MOST has a higher throughput than tiering by heat.",
        place: "the abstract and the evaluation",
        origin: Origin::Paper,
        tests: &[test(Ratio { measure: Throughput, of: MOST, to: &[TIERS], at: 64 }, Words, MoreThan(1.0))],
        why: "",
        instead: &[],
    },
    Claim {
        sentence: "Under such a load MOST has at least the throughput of Orthus and of Colloid, which moves what MOST mirrors.",
        place: "the abstract and the evaluation",
        origin: Origin::Paper,
        tests: &[test(
            Ratio { measure: Throughput, of: MOST, to: &[ORTHUS, COLLOID], at: 64 },
            Words,
            AtLeast(1.0),
        )],
        why: "",
        instead: &[],
    },
];
