//! Figure 9: amount of data on the SSD under the NetApp trace.

use super::{
    BY_PERIOD, HDD_ONLY, NETAPP, NETAPP_COUNTS, ONE_AND_ONE, PAPER, PROCESSES, SSD_ONLY, WARDROP, by_period,
    series, slightly_less, test,
};
use crate::Prefill;
use crate::experiment::Bound::Between;
use crate::experiment::Measure::{Settling, SsdShare, Throughput};
use crate::experiment::Published::Number;
use crate::experiment::Quantity::Value;
use crate::experiment::{Claim, Experiment, Origin, Times};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig9",
    title: "Data on the SSD under the NetApp trace",
    paper: &PAPER,
    place: "figure 9 and section III-C",
    axis: PROCESSES,
    series: &[
        series(WARDROP, ONE_AND_ONE, "wardrop,as-published", NETAPP),
        by_period(BY_PERIOD, WARDROP, ONE_AND_ONE, NETAPP),
        series(SSD_ONLY, ONE_AND_ONE, "ssd-only", NETAPP),
        series(HDD_ONLY, ONE_AND_ONE, "hdd-only", NETAPP),
    ],
    measures: &[SsdShare, Settling, Throughput],
    counting: Some(NETAPP_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 240, measured: 120 },
    jitter: super::NETAPP_JITTER,
    baselines: super::TABLE_III,
    claims: &[
        Claim {
            sentence: "About half of the data is on the SSD, and with many processes slightly less than half.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Value { measure: SsdShare, series: WARDROP, at: 10 },
                Number(50.0),
                Between(45.0, 50.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With more processes a little more of it is on the disk.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &slightly_less(WARDROP),
            why: "",
            instead: &[],
        },
    ],
    published: "The text gives about 50 %, and slightly more than 50 % on the disk at many processes. The curves are plotted only, not published as numbers.",
    calibrated: &[
        "The processor's 0.95 ms for a request follows from the 12.4 MB/s of 1 process in table III, on the SSD and on the disk alone. All \
         else is predicted, all values of the policy among it.",
    ],
    contradictions: &[
        "Table III has 65 % of the data on the SSD with 1 process, and 55 % with 10: not half, and not less than half.",
    ],
    differs: &[],
};
