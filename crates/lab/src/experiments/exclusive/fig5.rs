//! Figure 5: Financial 1, mostly writes with little locality.

use super::{F1, PAGES_10, RATE_30_DOUBLE, STANDS_STILL, figure, is_best, ratio, series, series_of};
use crate::experiment::Bound::LessThan;
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Quantity::{BestPlace, Ratio, RatioOfBests};
use crate::experiment::{Claim, Experiment, Origin, Quantity, Series};
use crate::experiments::with;

/// Table 1: requests of 16.1 KB, 15.4 % reads; figure 4: 57 % of them to a fifth of the areas.
pub(super) const LOAD: &str = "financial1-like,figures=hayashi,rate=122,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";

/// The same, with popularity that moves.
pub(super) const MOVING_LOAD: &str = "financial1-like,figures=hayashi,rate=122,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,drift=720,requests=endless";

/// Both methods with SSDs of twice the size, as popularity moves.
pub(super) const MOVING: [Series; 2] = [
    series(EXISTING, RATE_30_DOUBLE, PAGES_10.existing, MOVING_LOAD),
    series(PROPOSED, RATE_30_DOUBLE, PAGES_10.proposed, MOVING_LOAD),
];
const EXISTING: &str = "F1-60% existing, moving";
const PROPOSED: &str = "F1-60% proposed, moving";

/// The combination beside the proposed method, each at its best, as popularity moves.
pub(super) const INSTEAD: &[Quantity] = &[
    Ratio { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED], at: 60 },
    RatioOfBests { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED] },
    BestPlace { measure: VolumeLatency, series: EXISTING },
];

/// The declaration.
pub const EXPERIMENT: Experiment = figure(
    "exclusive/fig5",
    "Mean response time of Financial 1, by SSD cache rate",
    "figure 5 and section 5.1",
    &with::<8>(&series_of(&F1, PAGES_10, LOAD), &MOVING),
    &[
        Claim {
            sentence: "With an SSD rate of 10 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F1.proposed[0], &[F1.existing[0]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With an SSD rate of 20 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F1.proposed[1], &[F1.existing[1]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With an SSD rate of 30 %, the combination is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F1.existing[2], &[F1.proposed[2]]),
            why: STANDS_STILL,
            instead: INSTEAD,
        },
        Claim {
            sentence: "With a low SSD cache rate the proposed method is faster than the combination.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[
                ratio(F1.proposed[0], &[F1.existing[0]], 20, LessThan(1.0)),
                ratio(F1.proposed[1], &[F1.existing[1]], 20, LessThan(1.0)),
                ratio(F1.proposed[2], &[F1.existing[2]], 20, LessThan(1.0)),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With a high SSD rate and a high SSD cache rate the combination is faster.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[ratio(F1.existing[2], &[F1.proposed[2]], 80, LessThan(1.0))],
            why: STANDS_STILL,
            instead: &[Ratio { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED], at: 80 }],
        },
    ],
);
