//! Figure 8: amount of data on the SSD under dbench, with one, two and four disks.

use super::{
    DBENCH, DBENCH_COUNTS, ONE_AND_FOUR, ONE_AND_ONE, ONE_AND_TWO, PAPER, PROCESSES, by_period, series,
    slightly_less, test,
};
use crate::Prefill;
use crate::experiment::Bound::{Between, LessThan};
use crate::experiment::Measure::{Settling, SsdShare};
use crate::experiment::Published::{Range, Words};
use crate::experiment::Quantity::{Change, Fall, Ratio, Value};
use crate::experiment::{Claim, Experiment, Origin, Times};

const ONE: &str = "1 disk";
const ONE_BY_PERIOD: &str = "1 disk, R by period";
const TWO: &str = "2 disks";
const TWO_BY_PERIOD: &str = "2 disks, R by period";
const FOUR: &str = "4 disks";
const FOUR_BY_PERIOD: &str = "4 disks, R by period";
const LARGE_FILES: &str = "1 disk, files of 240 MiB";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "wardrop/fig8",
    title: "Data on the SSD under dbench",
    paper: &PAPER,
    place: "figure 8 and section III-C",
    axis: PROCESSES,
    series: &[
        series(ONE, ONE_AND_ONE, "wardrop,as-published", DBENCH),
        by_period(ONE_BY_PERIOD, ONE, ONE_AND_ONE, DBENCH),
        series(TWO, ONE_AND_TWO, "wardrop,as-published", DBENCH),
        by_period(TWO_BY_PERIOD, TWO, ONE_AND_TWO, DBENCH),
        series(FOUR, ONE_AND_FOUR, "wardrop,as-published", DBENCH),
        by_period(FOUR_BY_PERIOD, FOUR, ONE_AND_FOUR, DBENCH),
        series(
            LARGE_FILES,
            ONE_AND_ONE,
            "wardrop,as-published",
            "dbench-like,think={think}us,clients={x},files=240MiB,requests=endless",
        ),
    ],
    measures: &[SsdShare, Settling],
    counting: Some(DBENCH_COUNTS),
    prefill: Prefill::None,
    times: Times { warm_up: 120, measured: 60 },
    jitter: super::DBENCH_JITTER,
    baselines: &[],
    claims: &[
        Claim {
            sentence: "With one disk about 65 to 70 % of the data is on the SSD.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(
                Value { measure: SsdShare, series: ONE, at: 10 },
                Range(65.0, 70.0),
                Between(62.5, 72.5),
            )],
            why: "The share falls with the number of processes.",
            instead: &[],
        },
        Claim {
            sentence: "With four disks less of it is on the SSD than with one.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &[test(Ratio { measure: SsdShare, of: FOUR, to: &[ONE], at: 10 }, Words, LessThan(1.0))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With more processes a little more of it is on the disk.",
            place: "section III-C",
            origin: Origin::Paper,
            tests: &slightly_less(ONE),
            why: "Few processes write few files: nearly all are allocated while the SSD is idle, and nothing moves later, because memory answers the reads. Instead: files of 240 MiB for each \
                  process, not 24. The share then no longer falls, and is above the paper's.",
            instead: &[
                Change { measure: SsdShare, series: LARGE_FILES, at: 10, from: 2 },
                Fall { measure: SsdShare, series: LARGE_FILES, from: 2, to: 10 },
                Value { measure: SsdShare, series: LARGE_FILES, at: 10 },
            ],
        },
    ],
    published: "The text gives the range for one disk. The curves are plotted only, not published as numbers.",
    calibrated: &[
        "The processor's 0.1 ms for a request follows from the SSD's peak of 620 MB/s in figure 5. All else is predicted.",
    ],
    contradictions: &[],
    differs: &[],
};
