//! Figure 9: how much data the policy keeps on the SSD under the NetApp trace.

use super::{
    BY_PERIOD, NETAPP, NETAPP_COUNTS, ONE_AND_ONE, PAPER, PROCESSES, WARDROP, by_period, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::{AtMost, Within};
use crate::experiment::Measure::{Settling, SsdShare};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{Change, Value};
use crate::experiment::{Claim, Experiment, Times};

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
    ],
    measures: &[SsdShare, Settling],
    counting: Some(NETAPP_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 240, measured: 120 },
    claims: &[
        Claim {
            sentence: "About half of the data is on the SSD, and with many processes slightly less than half.",
            place: "section III-C",
            tests: &[test(
                Value { measure: SsdShare, series: WARDROP, at: 10 },
                Number(50.0),
                Within(40.0, 50.0),
            )],
            why: "With up to 8 processes memory holds the files, a disk with its write cache answers writes as fast as the SSD, and 19 to 43 % lie on \
                  the SSD. With ten it does not: reads come to the disk, which is slow at them, and 88 % go to the SSD, \
                  which is better here than it was in the paper, as figure 6 and table III show.",
        },
        Claim {
            sentence: "With more processes a little more of it is on the disk.",
            place: "section III-C",
            tests: &[test(
                Change { measure: SsdShare, series: WARDROP, at: 10, from: 2 },
                Words,
                AtMost(1.0),
            )],
            why: "The other way round, as said above: with few processes only writes come to the devices, and the disk's write cache takes \
                  them.",
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
