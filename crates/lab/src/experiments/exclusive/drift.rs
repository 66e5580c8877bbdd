//! Not in the paper: figures 5 and 7 at one split of the SSDs, with popularity moving at several speeds.
//! Tests the reason given in section 5.1 for the combination's lead at a high SSD rate: data that leaves the
//! tier is still in the cache.

use super::{CLOSE, F1, F2, other_axis, pairs_at};
use crate::experiment::Bound::LessThan;
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::WorstRatio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Test};

const LOADS: [&str; 2] = [
    "financial1-like,figures=hayashi,rate=122,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,drift={x},requests=endless",
    "financial2-like,figures=hayashi,rate=90,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,drift={x},requests=endless",
];

/// The declaration. A period has 100 s, so 36 areas an hour are one area in a period.
pub const EXPERIMENT: Experiment = other_axis(
    "exclusive/drift",
    "Popularity that moves, with an SSD rate of 30 % and a cache rate of 80 %",
    "section 5.1: \"high I/O frequency data remain allocated on the SSD cache even if the page allocated on the SSD tier is migrated\"",
    Axis::Numbers {
        label: "areas that become the most popular one, in an hour",
        places: &[0, 36, 72, 180, 360],
    },
    &pairs_at(LOADS, None),
    &[
        Claim {
            sentence: "Wherever popularity moves, the combination is faster with little locality (Financial 1).",
            place: "section 5.1",
            origin: Origin::Repeat,
            tests: &[Test {
                quantity: WorstRatio {
                    measure: VolumeLatency,
                    of: F1.existing[2],
                    to: &[F1.proposed[2]],
                    from: 36,
                },
                published: Words,
                bound: LessThan(1.0),
            }],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Wherever popularity moves, the proposed method is faster with much locality (Financial 2).",
            place: "section 5.1",
            origin: Origin::Repeat,
            tests: &[Test {
                quantity: WorstRatio {
                    measure: VolumeLatency,
                    of: F2.proposed[2],
                    to: &[F2.existing[2]],
                    from: 36,
                },
                published: Words,
                bound: LessThan(1.0),
            }],
            why: "",
            instead: &[],
        },
    ],
    CLOSE,
);
