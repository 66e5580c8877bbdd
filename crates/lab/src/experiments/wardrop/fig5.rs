//! Figure 5: dbench on one SSD and one disk, compared with each device alone and with the best static split
//! of figure 1.

use super::{
    BY_PERIOD, DBENCH, DBENCH_COUNTS, HDD_ONLY, ONE_AND_ONE, PAPER, PROCESSES, SSD_ONLY, WARDROP,
    allocation_only, by_period, no_migration, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, Between, LessThan, MoreThan, Near, Shown};
use crate::experiment::Measure::{Latency, LatencyP99, Operations, Settling, Throughput};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{Best, BestPlace, Fall, Peak, Ratio, Rise, WorstRatio};
use crate::experiment::{Baseline, Claim, Experiment, Origin, Times};

const STATIC_80: &str = "80/20";
const STATIC_70: &str = "70/30";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig5",
    title: "dbench on one SSD and one disk",
    paper: &PAPER,
    place: "figure 5 and section III-C",
    axis: PROCESSES,
    series: &[
        series(WARDROP, ONE_AND_ONE, "wardrop,as-published", DBENCH),
        by_period(BY_PERIOD, WARDROP, ONE_AND_ONE, DBENCH),
        no_migration(ONE_AND_ONE, DBENCH),
        allocation_only(ONE_AND_ONE, DBENCH),
        series(SSD_ONLY, ONE_AND_ONE, "ssd-only", DBENCH),
        series(HDD_ONLY, ONE_AND_ONE, "hdd-only", DBENCH),
        series(STATIC_80, ONE_AND_ONE, "static,ssd=80%", DBENCH),
        series(STATIC_70, ONE_AND_ONE, "static,ssd=70%", DBENCH),
    ],
    measures: &[Throughput, Latency, LatencyP99, Operations, Settling],
    counting: Some(DBENCH_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 120, measured: 60 },
    jitter: super::DBENCH_JITTER,
    baselines: &[Baseline { quantity: Best { measure: Throughput, series: SSD_ONLY }, published: 620.0 }],
    claims: &[
        Claim {
            sentence: "The policy does nearly as well as the split of 80/20, or better, whatever the number of processes.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                WorstRatio { measure: Throughput, of: WARDROP, to: &[STATIC_80], from: 1 },
                Words,
                AtLeast(0.95),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With many processes the policy reaches a higher throughput than the SSD alone or the disk alone.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 10 },
                Words,
                MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Splits of 70/30 and 80/20 perform alike.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: STATIC_70, to: &[STATIC_80], at: 10 },
                Words,
                Between(0.95, 1.05),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The SSD's throughput rises with the number of processes to its peak at about 8, and falls after that.",
            place: "sections II and III-C",
            origin: Origin::Paper,
            tests: &[
                test(BestPlace { measure: Throughput, series: SSD_ONLY }, Number(8.0), Shown),
                test(Peak { measure: Throughput, series: SSD_ONLY, from: 6, to: 10 }, Words, MoreThan(1.0)),
                test(Rise { measure: Throughput, series: SSD_ONLY, from: 1, to: 8 }, Words, AtLeast(1.0)),
                test(Fall { measure: Throughput, series: SSD_ONLY, from: 8, to: 12 }, Words, LessThan(1.0)),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The peak is about 620 MB/s.",
            place: "sections II and III-C",
            origin: Origin::Fitted,
            tests: &[test(Best { measure: Throughput, series: SSD_ONLY }, Number(620.0), Near(0.15))],
            why: "",
            instead: &[],
        },
    ],
    published: "The text gives the SSD's peak. The curves are plotted only, not published as numbers.",
    calibrated: &[
        "The processor's 0.1 ms for a request follows from the SSD's peak of 620 MB/s in figure 5. All else is predicted.",
    ],
    contradictions: &[],
    differs: &[],
};
