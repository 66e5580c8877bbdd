//! Figure 7: dbench on one SSD and four disks.

use super::{
    BY_PERIOD, DBENCH, DBENCH_COUNTS, HDD_ONLY, ONE_AND_FOUR, ONE_AND_ONE, PAPER, PROCESSES, STRIPE, WARDROP,
    by_period, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::MoreThan;
use crate::experiment::Measure::{Latency, LatencyP99, Settling, Throughput};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Origin, Times};

const WITH_ONE: &str = "wardrop, 1 disk";
const BY_PERIOD_WITH_ONE: &str = "R by period, 1 disk";
const STATIC_80: &str = "80/20";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig7",
    title: "dbench on one SSD and four disks",
    paper: &PAPER,
    place: "figure 7 and section III-C",
    axis: PROCESSES,
    series: &[
        series(WARDROP, ONE_AND_FOUR, "wardrop,as-published", DBENCH),
        by_period(BY_PERIOD, WARDROP, ONE_AND_FOUR, DBENCH),
        series(WITH_ONE, ONE_AND_ONE, "wardrop,as-published", DBENCH),
        by_period(BY_PERIOD_WITH_ONE, WITH_ONE, ONE_AND_ONE, DBENCH),
        series(HDD_ONLY, ONE_AND_FOUR, "hdd-only", DBENCH),
        series(STRIPE, ONE_AND_FOUR, "stripe", DBENCH),
        series(STATIC_80, ONE_AND_FOUR, "static,ssd=80%", DBENCH),
    ],
    measures: &[Throughput, Latency, LatencyP99, Settling],
    counting: Some(DBENCH_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 120, measured: 60 },
    jitter: super::DBENCH_JITTER,
    baselines: &[],
    claims: &[
        Claim {
            sentence: "Four disks instead of one improve the policy's throughput.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: WARDROP, to: &[WITH_ONE], at: 10 },
                Words,
                MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With four disks the policy is ahead of striping over all five devices, of the four disks alone, and of \
                       the split of 80/20.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[
                test(Ratio { measure: Throughput, of: WARDROP, to: &[STRIPE], at: 10 }, Words, MoreThan(1.0)),
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[HDD_ONLY], at: 10 },
                    Words,
                    MoreThan(1.0),
                ),
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[STATIC_80], at: 10 },
                    Words,
                    MoreThan(1.0),
                ),
            ],
            why: "The processors are the limit of all of these.",
            instead: &[],
        },
    ],
    published: "The curves are plotted only, not published as numbers.",
    calibrated: &[
        "The processor's 0.1 ms for a request follows from the SSD's peak of 620 MB/s in figure 5. All else is predicted.",
    ],
    contradictions: &[],
    differs: &["The disks alone are striped by extents of 128 KiB, as the volume places them."],
};
