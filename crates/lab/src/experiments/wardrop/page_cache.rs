//! Not in the paper: effect of the undescribed page cache on the paper's claims.

use super::{DBENCH_COUNTS, HDD_ONLY, ONE_AND_ONE, PAPER, SSD_ONLY, WARDROP, series, test, variant};
use crate::Prefill;
use crate::experiment::Bound::MoreThan;
use crate::experiment::Measure::{Latency, LatencyP99, Settling, Throughput};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Times};

const DBENCH: &str = "dbench-like,think={think}us,clients=10,dirty={x}MB,requests=endless";
const NETAPP: &str = "netapp-like,think={netapp_think}us,clients=10,dirty={x}MB,requests=endless";
const LESS_MEMORY: &str =
    "netapp-like,think={netapp_think}us,clients=10,dirty={x}MB,memory=700MB,requests=endless";

const NETAPP_WARDROP: &str = "NetApp, wardrop";
const NETAPP_SSD: &str = "NetApp, SSD only";
const NETAPP_HDD: &str = "NetApp, disk only";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/page-cache",
    title: "Ten processes and the size of the page cache",
    paper: &PAPER,
    place: "section III-A, which gives 1 GB of memory and no more",
    axis: Axis::Numbers { label: "MB that may be dirty", places: &[50, 200] },
    series: &[
        series(WARDROP, ONE_AND_ONE, "wardrop,as-published", DBENCH),
        series(SSD_ONLY, ONE_AND_ONE, "ssd-only", DBENCH),
        series(HDD_ONLY, ONE_AND_ONE, "hdd-only", DBENCH),
        series(NETAPP_WARDROP, ONE_AND_ONE, "wardrop,as-published", NETAPP),
        variant("NetApp, wardrop, 700 MB", NETAPP_WARDROP, ONE_AND_ONE, "wardrop,as-published", LESS_MEMORY),
        series(NETAPP_SSD, ONE_AND_ONE, "ssd-only", NETAPP),
        variant("NetApp, SSD only, 700 MB", NETAPP_SSD, ONE_AND_ONE, "ssd-only", LESS_MEMORY),
        series(NETAPP_HDD, ONE_AND_ONE, "hdd-only", NETAPP),
        variant("NetApp, disk only, 700 MB", NETAPP_HDD, ONE_AND_ONE, "hdd-only", LESS_MEMORY),
    ],
    measures: &[Throughput, Latency, LatencyP99, Settling],
    counting: Some(DBENCH_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 240, measured: 120 },
    jitter: &[super::DBENCH_JITTER[0], super::NETAPP_JITTER[0]],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "Whether half as much or twice as much may be dirty as elsewhere here, ten processes of dbench have more \
                       throughput under the policy than on either device alone.",
            place: "section III-C, for one machine",
            origin: Origin::Repeat,
            tests: &[
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 50 },
                    Words,
                    MoreThan(1.0),
                ),
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 200 },
                    Words,
                    MoreThan(1.0),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The same of ten processes of the NetApp trace, whether memory holds 900 MB of their files or 700.",
            place: "section III-C, for one machine",
            origin: Origin::Repeat,
            tests: &[
                test(
                    Ratio { measure: Throughput, of: NETAPP_WARDROP, to: &[NETAPP_SSD, NETAPP_HDD], at: 50 },
                    Words,
                    MoreThan(1.0),
                ),
                test(
                    Ratio { measure: Throughput, of: NETAPP_WARDROP, to: &[NETAPP_SSD, NETAPP_HDD], at: 200 },
                    Words,
                    MoreThan(1.0),
                ),
            ],
            why: "The processors are the limit of the policy and of the SSD alone.",
            instead: &[],
        },
    ],
    published: "The paper has no such figure: it says how much memory the machine had, and nothing of what it cached.",
    calibrated: &["The processor's time of each load is that of figures 5 and 6. All else is predicted."],
    contradictions: &[],
    differs: &[
        "The paper ran one machine. Elsewhere here 100 MB may be dirty, and memory holds 900 MB of files.",
    ],
};
