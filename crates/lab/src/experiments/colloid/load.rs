//! The main result: throughput as the load grows.

use super::{COLLOID, PAPER, TIERS};
use crate::Prefill;
use crate::experiment::Bound::{Between, MoreThan};
use crate::experiment::Measure::{Settling, SsdWritten, Throughput, VolumeLatency, VolumeLatencyP99};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Origin, Times};
use crate::experiments::tiers::{CLIENTS, NEAR, READS, TIERING, series, test};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "colloid/load",
    title: "all data on the faster tier, and more and more load",
    paper: &PAPER,
    place: "the evaluation with HeMem",
    axis: CLIENTS,
    series: &[series(TIERS, NEAR, TIERING, READS), series(COLLOID, NEAR, "colloid", READS)],
    measures: &[Throughput, VolumeLatency, VolumeLatencyP99, SsdWritten, Settling],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 20, measured: 5 },
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "If the faster tier is overloaded, a system that balances loaded latencies has a higher throughput than one that puts what is hot there.",
            place: "the abstract, as we remember it",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: COLLOID, to: &[TIERS], at: 64 },
                Words,
                MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With one client nothing is to be gained, and nothing is lost.",
            place: "ours",
            origin: Origin::Aim,
            tests: &[test(
                Ratio { measure: Throughput, of: COLLOID, to: &[TIERS], at: 1 },
                Words,
                Between(0.95, 1.05),
            )],
            why: "",
            instead: &[],
        },
    ],
    published: "A public reading note has existing systems up to 2.3 times off the best. The curves were not at hand.",
    calibrated: &[],
    contradictions: &[],
    differs: &[],
};
