//! Figure 6: Financial 1 with reads for writes, mostly reads with little locality.

use super::{
    F1_RW, PAGES_10, RATE_10, RATE_20, RATE_30, RATE_30_DOUBLE, STANDS_STILL, figure, is_best, ratio, series,
    series_of, test,
};
use crate::experiment::Bound::{Between, MoreThan};
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::{Peak, Ratio, RatioOfBests};
use crate::experiment::{Claim, Experiment, Origin, Quantity, Series, Test};
use crate::experiments::with;

/// As figure 5's, with the share of reads swapped.
pub(super) const LOAD: &str = "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";

/// The same, with popularity that moves.
const MOVING_LOAD: &str = "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,drift=720,requests=endless";
/// As much locality between areas, and none within an area.
const EVEN_LOAD: &str = "hot-cold,hot=20%,to-hot=57%,unit=10MiB,every=never,size=8KiB,read=84.6%,rate=1220,span=5000MiB,requests=endless";

/// Both methods with SSDs of twice the size, as popularity moves.
pub(super) const MOVING: [Series; 2] = [
    series(EXISTING, RATE_30_DOUBLE, PAGES_10.existing, MOVING_LOAD),
    series(PROPOSED, RATE_30_DOUBLE, PAGES_10.proposed, MOVING_LOAD),
];
const EXISTING: &str = "F1-rw-60% existing, moving";
const PROPOSED: &str = "F1-rw-60% proposed, moving";
const EXISTING_20: &str = "F1-rw-20% existing, moving";
const PROPOSED_20: &str = "F1-rw-20% proposed, moving";
const EXISTING_30: &str = "F1-rw-30% existing, moving";
const PROPOSED_30: &str = "F1-rw-30% proposed, moving";
const EVEN: &str = "F1-rw-10%, even areas";

const REASONS: &[Series] = &[
    series(EXISTING_20, RATE_20, PAGES_10.existing, MOVING_LOAD),
    series(PROPOSED_20, RATE_20, PAGES_10.proposed, MOVING_LOAD),
    series(EXISTING_30, RATE_30, PAGES_10.existing, MOVING_LOAD),
    series(PROPOSED_30, RATE_30, PAGES_10.proposed, MOVING_LOAD),
    series(EVEN, RATE_10, PAGES_10.existing, EVEN_LOAD),
];

/// Time of the combination as a multiple of the proposed method's, as popularity moves.
pub(super) const INSTEAD: &[Quantity] = &[
    Ratio { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED], at: 60 },
    Ratio { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED], at: 80 },
];

/// Range of "no significant difference", for which the paper gives no number.
const ALIKE: (f64, f64) = (0.95, 1.05);

const fn alike(rate: usize, to: &'static [&'static str], at: u32) -> Test {
    ratio(F1_RW.proposed[rate], to, at, Between(ALIKE.0, ALIKE.1))
}

/// The declaration.
pub const EXPERIMENT: Experiment = figure(
    "exclusive/fig6",
    "Mean response time of Financial 1 with reads for writes, by SSD cache rate",
    "figure 6 and section 5.1",
    &with::<13>(&series_of(&F1_RW, PAGES_10, LOAD), &with::<7>(&MOVING, REASONS)),
    &[
        Claim {
            sentence: "With an SSD rate of 10 %, volume tiering alone is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[
                test(
                    Peak { measure: VolumeLatency, series: F1_RW.proposed[0], from: 0, to: 0 },
                    Words,
                    MoreThan(1.0),
                ),
                test(
                    Peak { measure: VolumeLatency, series: F1_RW.existing[0], from: 0, to: 0 },
                    Words,
                    MoreThan(1.0),
                ),
            ],
            why: "In the load a few places of an area get most of its requests, which a cache of 8 KiB segments finds and a tier of pages does not. Instead: areas as popular as \
                  before, and all places of an area alike.",
            instead: &[Peak { measure: VolumeLatency, series: EVEN, from: 0, to: 0 }],
        },
        Claim {
            sentence: "With an SSD rate of 20 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F1_RW.proposed[1], &[F1_RW.existing[1]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With an SSD rate of 30 %, the combination is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F1_RW.existing[2], &[F1_RW.proposed[2]]),
            why: STANDS_STILL,
            instead: INSTEAD,
        },
        Claim {
            sentence: "With an SSD rate of 10 or 20 % the two methods are about as fast.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[
                alike(0, &[F1_RW.existing[0]], 20),
                alike(0, &[F1_RW.existing[0]], 40),
                alike(0, &[F1_RW.existing[0]], 60),
                alike(0, &[F1_RW.existing[0]], 80),
                alike(1, &[F1_RW.existing[1]], 20),
                alike(1, &[F1_RW.existing[1]], 40),
                alike(1, &[F1_RW.existing[1]], 60),
                alike(1, &[F1_RW.existing[1]], 80),
            ],
            why: "What both methods keep twice differs by the tier, whose pages are popular only while popularity stands still. Instead: 20 of 500 areas become the most popular \
                  ones in each period.",
            instead: &[Ratio { measure: VolumeLatency, of: PROPOSED_20, to: &[EXISTING_20], at: 60 }],
        },
        Claim {
            sentence: "With an SSD rate of 30 % the two methods are about as fast, each at its best SSD cache rate.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[test(
                RatioOfBests { measure: VolumeLatency, of: F1_RW.proposed[2], to: &[F1_RW.existing[2]] },
                Words,
                Between(ALIKE.0, ALIKE.1),
            )],
            why: "The tier's pages are popular only while popularity stands still. Instead: 20 of 500 areas become the most popular ones in each period.",
            instead: &[RatioOfBests { measure: VolumeLatency, of: PROPOSED_30, to: &[EXISTING_30] }],
        },
    ],
);
