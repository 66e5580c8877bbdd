//! Figure 1: every static split between SSD and disk; the motivation for the paper's automatic search for the
//! best split.

use super::{DBENCH_COUNTS, ONE_AND_ONE, PAPER, series, test};
use crate::Prefill;
use crate::experiment::Bound::{MoreThan, Shown};
use crate::experiment::Measure::{Latency, LatencyP99, Settling, Throughput};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{BestPlace, Peak};
use crate::experiment::{Axis, Claim, Experiment, Origin, Times};

const SPLIT: &str = "static,ssd={x}%";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig1",
    title: "dbench under static splits between one SSD and one disk",
    paper: &PAPER,
    place: "figure 1 and section II",
    axis: Axis::Numbers {
        label: "per cent on the SSD",
        places: &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100],
    },
    series: &[
        series("2 processes", ONE_AND_ONE, SPLIT, "dbench-like,think={think}us,clients=2,requests=endless"),
        series("6 processes", ONE_AND_ONE, SPLIT, "dbench-like,think={think}us,clients=6,requests=endless"),
        series("10 processes", ONE_AND_ONE, SPLIT, "dbench-like,think={think}us,clients=10,requests=endless"),
    ],
    measures: &[Throughput, Latency, LatencyP99, Settling],
    counting: Some(DBENCH_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 20, measured: 60 },
    jitter: super::DBENCH_JITTER,
    baselines: &[],
    claims: &[
        Claim {
            sentence: "With 2 and with 6 processes all data belongs on the SSD.",
            place: "section II",
            origin: Origin::Paper,
            tests: &[
                test(BestPlace { measure: Throughput, series: "2 processes" }, Number(100.0), Shown),
                test(
                    Peak { measure: Throughput, series: "2 processes", from: 100, to: 100 },
                    Words,
                    MoreThan(1.0),
                ),
                test(BestPlace { measure: Throughput, series: "6 processes" }, Number(100.0), Shown),
                test(
                    Peak { measure: Throughput, series: "6 processes", from: 100, to: 100 },
                    Words,
                    MoreThan(1.0),
                ),
            ],
            why: "With 2 processes memory holds all files and the page cache has time to write back; with 6 the processors are the limit.",
            instead: &[],
        },
        Claim {
            sentence: "With 10 processes throughput is highest with about 80 % on the SSD, and latency lowest with about 70 %: \
                       a disk beside the SSD helps once there is enough to do at the same time.",
            place: "section II",
            origin: Origin::Paper,
            tests: &[
                test(BestPlace { measure: Throughput, series: "10 processes" }, Number(80.0), Shown),
                test(
                    Peak { measure: Throughput, series: "10 processes", from: 70, to: 90 },
                    Words,
                    MoreThan(1.0),
                ),
                test(BestPlace { measure: Latency, series: "10 processes" }, Number(70.0), Shown),
                test(
                    Peak { measure: Latency, series: "10 processes", from: 60, to: 80 },
                    Words,
                    MoreThan(1.0),
                ),
            ],
            why: "The processors are the limit at the best split. Why more of the data belongs on the disk than in the paper is not known.",
            instead: &[],
        },
    ],
    published: "The text gives the best splits. The curves are plotted only, not published as numbers.",
    calibrated: &[
        "The processor's 0.1 ms for a request follows from the SSD's peak of 620 MB/s in figure 5. All else is predicted.",
    ],
    contradictions: &[],
    differs: &[],
};
