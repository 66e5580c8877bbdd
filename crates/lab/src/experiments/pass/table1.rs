//! Table I: PostMark on the disk, on the SSD, and on RAID 1 of both, synchronous and with write-behind.

use super::{
    BOTH, HDD, PAPER, POSTMARK_CONTRADICTION, POSTMARK_COUNTS, POSTMARK_FITTED, RAID1, SSD, WRITE_BEHIND,
    alone, references, series, test, times, value,
};
use crate::Prefill;
use crate::experiment::Bound::Near;
use crate::experiment::Measure::{LatencyP99, Operations, Throughput};
use crate::experiment::Published::Number;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Times};

const LOAD: &str = "postmark-like,high={x}KB,cached=90%,transactions=10M";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "pass/table1",
    title: "PostMark on a disk, an SSD, and RAID 1 of both",
    paper: &PAPER,
    place: "table I and section II",
    axis: Axis::Numbers { label: "largest file, KB", places: &[100, 500] },
    series: &{
        let [hdd, ssd, raid1, fastest] = references(LOAD);
        [hdd, ssd, raid1, fastest, series(WRITE_BEHIND, BOTH, "raid1,write-behind", LOAD)]
    },
    measures: &[Operations, Throughput, LatencyP99],
    counting: Some(POSTMARK_COUNTS),
    prefill: Prefill::All,
    times: Times { warm_up: 120, measured: 120 },
    jitter: &[],
    baselines: &[alone(Operations, HDD, 100, 277.0), alone(Operations, SSD, 100, 2380.0)],
    claims: &[
        Claim {
            sentence: "The table: the disk alone, transactions a second, and MB/s read and written together.",
            place: "table I",
            origin: Origin::Paper,
            tests: &[value(Operations, HDD, 100, 277.0), value(Throughput, HDD, 100, 17.17)],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The table: the SSD alone, transactions a second, and MB/s read and written together.",
            place: "table I",
            origin: Origin::Fitted,
            tests: &[value(Operations, SSD, 100, 2380.0), value(Throughput, SSD, 100, 158.14)],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The table: RAID 1 and write-behind, transactions a second, and MB/s read and written together.",
            place: "table I",
            origin: Origin::Paper,
            tests: &[
                value(Operations, RAID1, 100, 288.0),
                value(Operations, WRITE_BEHIND, 100, 313.0),
                value(Throughput, RAID1, 100, 19.49),
                value(Throughput, WRITE_BEHIND, 100, 21.18),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "RAID 1, synchronous or with write-behind, is close to the disk alone.",
            place: "section II",
            origin: Origin::Paper,
            tests: &[
                test(Ratio { measure: Operations, of: RAID1, to: &[HDD], at: 100 }, Number(1.04), Near(0.15)),
                test(
                    Ratio { measure: Operations, of: WRITE_BEHIND, to: &[HDD], at: 100 },
                    Number(1.13),
                    Near(0.15),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The SSD alone has about 8 times the transactions of RAID 1 (derived from the table).",
            place: "section II",
            origin: Origin::Paper,
            tests: &[times(SSD, &[RAID1], 100, 8.26, Near(0.15))],
            why: "",
            instead: &[],
        },
    ],
    published: "All of the table is published as numbers; reading and writing are added up here, and the ratios are derived from it.",
    calibrated: &[POSTMARK_FITTED],
    contradictions: &[POSTMARK_CONTRADICTION],
    differs: &[],
};
