//! Figure 11: dbench on a disk and an SSD with slower writes than the disk, the Transcend of 16 GB.

use super::{
    BY_PERIOD, DBENCH, DBENCH_COUNTS, HDD_ONLY, PAPER, PROCESSES, SSD_ONLY, WARDROP, WITH_TRANSCEND,
    by_period, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, MoreThan};
use crate::experiment::Measure::{Latency, LatencyP99, Settling, SsdShare, Throughput};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Origin, Times};

const STATIC_10: &str = "10/90";
const STATIC_20: &str = "20/80";
const STATIC_30: &str = "30/70";
const STATIC_50: &str = "50/50";
const STATIC_70: &str = "70/30";

/// Little memory, so that most reads reach the devices.
const DBENCH_SMALL: &str = "dbench-like,think={think}us,clients={x},memory=100MB,requests=endless";
const WARDROP_SMALL: &str = "wardrop, memory of 100 MB";
const HDD_SMALL: &str = "disk only, memory of 100 MB";
const STATIC_10_SMALL: &str = "10/90, memory of 100 MB";
const STATIC_20_SMALL: &str = "20/80, memory of 100 MB";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig11",
    title: "dbench on a Transcend of 16 GB and one disk",
    paper: &PAPER,
    place: "figure 11 and section III-C",
    axis: PROCESSES,
    series: &[
        series(WARDROP, WITH_TRANSCEND, "wardrop,as-published", DBENCH),
        by_period(BY_PERIOD, WARDROP, WITH_TRANSCEND, DBENCH),
        series(SSD_ONLY, WITH_TRANSCEND, "ssd-only", DBENCH),
        series(HDD_ONLY, WITH_TRANSCEND, "hdd-only", DBENCH),
        series(STATIC_10, WITH_TRANSCEND, "static,ssd=10%", DBENCH),
        series(STATIC_20, WITH_TRANSCEND, "static,ssd=20%", DBENCH),
        series(STATIC_30, WITH_TRANSCEND, "static,ssd=30%", DBENCH),
        series(STATIC_50, WITH_TRANSCEND, "static,ssd=50%", DBENCH),
        series(STATIC_70, WITH_TRANSCEND, "static,ssd=70%", DBENCH),
        series(WARDROP_SMALL, WITH_TRANSCEND, "wardrop,as-published", DBENCH_SMALL),
        series(HDD_SMALL, WITH_TRANSCEND, "hdd-only", DBENCH_SMALL),
        series(STATIC_10_SMALL, WITH_TRANSCEND, "static,ssd=10%", DBENCH_SMALL),
        series(STATIC_20_SMALL, WITH_TRANSCEND, "static,ssd=20%", DBENCH_SMALL),
    ],
    measures: &[Throughput, Latency, LatencyP99, SsdShare, Settling],
    counting: Some(DBENCH_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 120, measured: 60 },
    jitter: super::DBENCH_JITTER,
    baselines: &[],
    claims: &[
        Claim {
            sentence: "The disk alone is ahead of the SSD alone, which writes badly.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: HDD_ONLY, to: &[SSD_ONLY], at: 10 },
                Words,
                MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The policy matches the best static split.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Ratio {
                    measure: Throughput,
                    of: WARDROP,
                    to: &[HDD_ONLY, STATIC_10, STATIC_20, STATIC_30, STATIC_50, STATIC_70],
                    at: 10,
                },
                Words,
                AtLeast(0.95),
            )],
            why: "What was written before the SSD was found out to be slow stays there, since the page cache answers reads and nothing is hot. Instead: memory of 100 MB. The policy is then nearer to \
                  the best split, but not level.",
            instead: &[Ratio {
                measure: Throughput,
                of: WARDROP_SMALL,
                to: &[HDD_SMALL, STATIC_10_SMALL, STATIC_20_SMALL],
                at: 10,
            }],
        },
        Claim {
            sentence: "Even here both devices together are ahead of the better one alone.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 10 },
                Words,
                MoreThan(1.0),
            )],
            why: "Memory answers the reads, and the disk writes many times as fast as this SSD, so that there is next to nothing to be gained. Instead: memory of 100 MB, and a static split.",
            instead: &[Ratio { measure: Throughput, of: STATIC_10_SMALL, to: &[HDD_SMALL], at: 10 }],
        },
    ],
    published: "The curves are plotted only, not published as numbers.",
    calibrated: &[
        "The processor's 0.1 ms for a request follows from the SSD's peak of 620 MB/s in figure 5. All else is predicted.",
    ],
    contradictions: &[],
    differs: &[
        "Which static split the paper found best is not said: the best of five is taken, and of the disk alone.",
    ],
};
