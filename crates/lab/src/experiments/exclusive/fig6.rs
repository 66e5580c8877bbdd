//! Figure 6: Financial 1 with reads for writes, mostly reads with little locality.

use super::{
    F1_RW, PAGES_10, RATE_10, RATE_20, RATE_30, RATE_30_DOUBLE, figure, is_best, ratio, series, series_of,
    test,
};
use crate::experiment::Bound::{Between, MoreThan};
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::{BestPlace, BestRatio, Peak, Ratio, RatioOfBests};
use crate::experiment::{Claim, Experiment, Origin, Quantity, Series, Test};
use crate::experiments::with;

/// As figure 5's, with the share of reads swapped.
pub(super) const LOAD: &str = "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";

/// The same, with popularity that moves.
const MOVING_LOAD: &str = "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,drift=720,requests=endless";
/// The same, with all places of an area alike.
const EVEN_LOAD: &str = "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,within=0,requests=endless";

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
const EVEN_EXISTING: &str = "F1-rw-10% existing, even areas";
const EVEN_PROPOSED: &str = "F1-rw-10% proposed, even areas";

const REASONS: &[Series] = &[
    series(EXISTING_20, RATE_20, PAGES_10.existing, MOVING_LOAD),
    series(PROPOSED_20, RATE_20, PAGES_10.proposed, MOVING_LOAD),
    series(EXISTING_30, RATE_30, PAGES_10.existing, MOVING_LOAD),
    series(PROPOSED_30, RATE_30, PAGES_10.proposed, MOVING_LOAD),
    series(EVEN_EXISTING, RATE_10, PAGES_10.existing, EVEN_LOAD),
    series(EVEN_PROPOSED, RATE_10, PAGES_10.proposed, EVEN_LOAD),
];

/// The combination beside the proposed method, each at its best, as popularity moves.
pub(super) const INSTEAD: &[Quantity] = &[
    Ratio { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED], at: 60 },
    RatioOfBests { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED] },
    BestPlace { measure: VolumeLatency, series: EXISTING },
];

/// As [`INSTEAD`], and with SSDs of the usual size.
const WITH_USUAL_SSDS: &[Quantity] = &[
    Ratio { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED], at: 60 },
    RatioOfBests { measure: VolumeLatency, of: EXISTING, to: &[PROPOSED] },
    BestPlace { measure: VolumeLatency, series: EXISTING },
    RatioOfBests { measure: VolumeLatency, of: EXISTING_30, to: &[PROPOSED_30] },
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
    &with::<14>(&series_of(&F1_RW, PAGES_10, LOAD), &with::<8>(&MOVING, REASONS)),
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
            why: "In the load, as in the public trace, a few places of an area get most of its requests. A cache of 8 KiB segments finds them, a tier of pages does not. Instead: all places \
                  of an area alike.",
            instead: &[
                Peak { measure: VolumeLatency, series: EVEN_PROPOSED, from: 0, to: 0 },
                Peak { measure: VolumeLatency, series: EVEN_EXISTING, from: 0, to: 0 },
            ],
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
            why: "By the paper, data that leaves the tier is still in the combination's cache; here popularity stands still. Instead, two changes at once: in each period 20 of each \
                  trace's 50 areas become its most popular, and SSDs hold 60 % of the data; then the first change alone. At a cache rate of 60 % the combination is ahead; the cache alone, where both are the same, is best.",
            instead: WITH_USUAL_SSDS,
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
            why: "By the paper, data is rarely both in the tier and in the cache. Here popularity stands still, and the combination caches what its tier holds. Instead: in each period 20 of \
                  each trace's 50 areas become its most popular.",
            instead: &[
                Ratio { measure: VolumeLatency, of: PROPOSED_20, to: &[EXISTING_20], at: 60 },
                BestRatio { measure: VolumeLatency, of: PROPOSED_20, to: &[EXISTING_20] },
            ],
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
            why: "Here popularity stands still, so that tier and cache of the proposed method hold different popular data. Instead: in each period 20 of each trace's 50 areas become its most \
                  popular. At a cache rate of 100 % both methods are the same.",
            instead: &[
                RatioOfBests { measure: VolumeLatency, of: PROPOSED_30, to: &[EXISTING_30] },
                BestPlace { measure: VolumeLatency, series: PROPOSED_30 },
                BestPlace { measure: VolumeLatency, series: EXISTING_30 },
            ],
        },
    ],
);
