//! Not in the paper: figures 5 and 7 at one split of the SSDs, with popularity moving at several speeds.
//! Tests the reason given in section 5.1 for the combination's lead at a high SSD rate: data that leaves the
//! tier is still in the cache.

use super::{CLOSE, FromPlace, other_axis, pairs_at};
use crate::experiment::{Axis, Experiment};

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
    &FromPlace::<36>::claims(
        "Wherever popularity moves, the combination is faster with little locality (Financial 1).",
        "Wherever popularity moves, the proposed method is faster with much locality (Financial 2).",
    ),
    CLOSE,
);
