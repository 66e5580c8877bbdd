//! Table III: one process of the NetApp trace becomes ten, and the policy follows.

use super::{
    BY_PERIOD, HDD_ONLY, NETAPP_COUNTS, ONE_AND_ONE, PAPER, SSD_ONLY, WARDROP, allocation_only, by_period,
    no_migration, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, AtMost, Shown, Within};
use crate::experiment::Measure::{Latency, LatencyP99, Settling, SsdShare, Throughput};
use crate::experiment::Published::Number;
use crate::experiment::Quantity::{Change, Ratio, RatioToSum, Value};
use crate::experiment::{Axis, Claim, Experiment, Phase, Times};

const NETAPP_THAT_GROWS: &str = "netapp-like,think=950us,clients=10,join={half},requests=endless";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/table3",
    title: "One process of the NetApp trace that becomes ten",
    paper: &PAPER,
    place: "table III and section III-C",
    axis: Axis::Phases {
        label: "processes",
        phases: &[Phase { place: 1, from: 0.25, to: 0.5 }, Phase { place: 10, from: 0.75, to: 1.0 }],
    },
    series: &[
        series(HDD_ONLY, ONE_AND_ONE, "hdd-only", NETAPP_THAT_GROWS),
        series(SSD_ONLY, ONE_AND_ONE, "ssd-only", NETAPP_THAT_GROWS),
        series(WARDROP, ONE_AND_ONE, "wardrop,as-published", NETAPP_THAT_GROWS),
        by_period(BY_PERIOD, WARDROP, ONE_AND_ONE, NETAPP_THAT_GROWS),
        no_migration(ONE_AND_ONE, NETAPP_THAT_GROWS),
        allocation_only(ONE_AND_ONE, NETAPP_THAT_GROWS),
    ],
    measures: &[Throughput, Latency, LatencyP99, SsdShare, Settling],
    counting: Some(NETAPP_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 0, measured: 600 },
    claims: &[
        Claim {
            sentence: "The table.",
            place: "table III",
            tests: &[
                test(Value { measure: Throughput, series: HDD_ONLY, at: 1 }, Number(12.3106), Shown),
                test(Value { measure: Throughput, series: HDD_ONLY, at: 10 }, Number(25.9799), Shown),
                test(Value { measure: Throughput, series: SSD_ONLY, at: 1 }, Number(12.413), Shown),
                test(Value { measure: Throughput, series: SSD_ONLY, at: 10 }, Number(23.6754), Shown),
                test(Value { measure: Throughput, series: WARDROP, at: 1 }, Number(11.5769), Shown),
                test(Value { measure: Throughput, series: WARDROP, at: 10 }, Number(36.8594), Shown),
                test(Value { measure: Latency, series: HDD_ONLY, at: 1 }, Number(0.2), Shown),
                test(Value { measure: Latency, series: HDD_ONLY, at: 10 }, Number(0.894), Shown),
                test(Value { measure: Latency, series: SSD_ONLY, at: 1 }, Number(0.199), Shown),
                test(Value { measure: Latency, series: SSD_ONLY, at: 10 }, Number(0.933), Shown),
                test(Value { measure: Latency, series: WARDROP, at: 1 }, Number(0.214), Shown),
                test(Value { measure: Latency, series: WARDROP, at: 10 }, Number(0.613), Shown),
                test(Value { measure: SsdShare, series: WARDROP, at: 1 }, Number(65.25), Shown),
                test(Value { measure: SsdShare, series: WARDROP, at: 10 }, Number(55.08), Shown),
            ],
            why: "",
        },
        Claim {
            sentence: "With 10 processes the policy is ahead of either device alone.",
            place: "section III-C",
            tests: &[
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 10 },
                    Number(1.419),
                    AtLeast(1.0),
                ),
                test(
                    Ratio { measure: Latency, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 10 },
                    Number(0.686),
                    AtMost(1.0),
                ),
            ],
            why: "The SSD alone is at the processors' limit here, with 2.1 times the table's throughput, so that the policy can only be level with it, and is; the \
                  disk has 0.68 of its throughput there.",
        },
        Claim {
            sentence: "With 10 processes it has about three quarters of what both devices have alone, added up (derived from \
                       the table).",
            place: "table III",
            tests: &[test(
                RatioToSum { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 10 },
                Number(0.742),
                AtLeast(0.7),
            )],
            why: "",
        },
        Claim {
            sentence: "With 1 process it is a little behind the better device, for there is nothing to do at the same time.",
            place: "section III-C",
            tests: &[test(
                Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY, HDD_ONLY], at: 1 },
                Number(0.933),
                Within(0.85, 1.01),
            )],
            why: "",
        },
        Claim {
            sentence: "The share of data on the SSD follows the load: less of it with 10 processes.",
            place: "section III-C",
            tests: &[test(
                Change { measure: SsdShare, series: WARDROP, at: 10, from: 1 },
                Number(0.844),
                AtMost(0.99),
            )],
            why: "With R measured by period, nearly all data stays on the SSD, with one process as with ten. With R by requests the share falls as \
                  the paper says.",
        },
    ],
    published: "All of the table is published as numbers; the ratios are derived from it.",
    calibrated: &[
        "The processor's 0.95 ms for a request follows from the 12.4 MB/s of 1 process in table III, on the SSD and on the disk alone. All \
         else is predicted, all values of the policy among it.",
    ],
    contradictions: &[
        "Figure 6 and its text give the policy 38 % more throughput than the SSD alone with 10 processes, and a latency 28 % lower; by this \
         table it is 56 and 34 %. Figure 9 shows about half of the data on the SSD, where the table has 65 and 55 %.",
    ],
    differs: &[
        "Each half is measured over its second half: how fast the policy follows is another question. How long the paper's run was is not said.",
    ],
};
