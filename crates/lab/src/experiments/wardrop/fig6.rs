//! Figure 6: the NetApp trace on one SSD and one disk: the paper's headline.

use super::{
    HDD_ONLY, NETAPP, NETAPP_COUNTS, ONE_AND_ONE, PAPER, PAPERS_RULE, PROCESSES, SSD_ONLY, STRIPE, WARDROP,
    papers_rule, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, AtMost};
use crate::experiment::Measure::{Finish, Latency, Throughput};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Claim, Experiment, Times};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig6",
    title: "NetApp trace on one SSD and one disk",
    paper: &PAPER,
    place: "figure 6 and section III-C",
    axis: PROCESSES,
    series: &[
        series(WARDROP, ONE_AND_ONE, "wardrop", NETAPP),
        papers_rule(PAPERS_RULE, WARDROP, ONE_AND_ONE, NETAPP),
        series(SSD_ONLY, ONE_AND_ONE, "ssd-only", NETAPP),
        series(HDD_ONLY, ONE_AND_ONE, "hdd-only", NETAPP),
        series(STRIPE, ONE_AND_ONE, "stripe", NETAPP),
    ],
    measures: &[Throughput, Latency, Finish],
    counting: Some(NETAPP_COUNTS),
    prefill: Prefill::Used,
    times: Times { warm_up: 240, measured: 120 },
    claims: &[
        Claim {
            sentence: "With 10 processes the policy has nearly 38 % more throughput than the SSD alone and nearly 16 % more than striping.",
            place: "section III-C and figure 6a",
            tests: &[
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[SSD_ONLY], at: 10 },
                    Number(1.38),
                    AtLeast(1.38),
                ),
                test(
                    Ratio { measure: Throughput, of: WARDROP, to: &[STRIPE], at: 10 },
                    Number(1.16),
                    AtLeast(1.16),
                ),
            ],
            why: "",
        },
        Claim {
            sentence: "With 10 processes its latency is nearly 28 % lower than the SSD's alone and 17 % lower than that of striping.",
            place: "section III-C and figure 6b",
            tests: &[
                test(
                    Ratio { measure: Latency, of: WARDROP, to: &[SSD_ONLY], at: 10 },
                    Number(0.72),
                    AtMost(0.72),
                ),
                test(
                    Ratio { measure: Latency, of: WARDROP, to: &[STRIPE], at: 10 },
                    Number(0.83),
                    AtMost(0.83),
                ),
            ],
            why: "",
        },
        Claim {
            sentence: "Under this workload the disk alone has more throughput than the SSD alone once there are many processes.",
            place: "section III-C",
            tests: &[test(
                Ratio { measure: Throughput, of: HDD_ONLY, to: &[SSD_ONLY], at: 10 },
                Words,
                AtLeast(1.0),
            )],
            why: "",
        },
    ],
    published: "The text gives the four ratios at 10 processes. The curves are plotted only, not published as numbers.",
    differs: &[],
};
