//! Figure 7: Financial 2, mostly reads with much locality.

use super::{F2, PAGES_10, RATE_20, everywhere_faster, figure, is_best, series, series_of, test};
use crate::experiment::Bound::{AtLeast, Between};
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::{Change, Peak};
use crate::experiment::{Claim, Experiment, Origin, Series};
use crate::experiments::with;

/// Table 1: requests of 18.8 KB, 78.5 % reads; figure 4: 84 % of them to a fifth of the areas.
pub(super) const LOAD: &str = "financial2-like,figures=hayashi,rate=90,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";

/// The same, with popularity that moves.
const MOVING_LOAD: &str = "financial2-like,figures=hayashi,rate=90,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,drift=180,requests=endless";
const MOVING: &str = "F2-20% proposed, moving";
const MOVING_20: Series = series(MOVING, RATE_20, PAGES_10.proposed, MOVING_LOAD);

/// The declaration.
pub const EXPERIMENT: Experiment = figure(
    "exclusive/fig7",
    "Mean response time of Financial 2, by SSD cache rate",
    "figure 7 and section 5.1",
    &with::<7>(&series_of(&F2, PAGES_10, LOAD), &[MOVING_20]),
    &[
        Claim {
            sentence: "With an SSD rate of 10 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F2.proposed[0], &[F2.existing[0]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With an SSD rate of 20 %, the SSD cache alone is best, and the proposed method with an SSD cache rate of 80 % about as fast.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[
                test(
                    Peak { measure: VolumeLatency, series: F2.proposed[1], from: 100, to: 100 },
                    Words,
                    AtLeast(1.0),
                ),
                test(
                    Change { measure: VolumeLatency, series: F2.proposed[1], at: 80, from: 100 },
                    Words,
                    Between(0.95, 1.05),
                ),
            ],
            why: "A tier of popular pages is of use while popularity stands still, as here. Instead: in each period 5 of each trace's 50 areas become its most popular, a speed chosen for this \
                  claim.",
            instead: &[
                Peak { measure: VolumeLatency, series: MOVING, from: 100, to: 100 },
                Change { measure: VolumeLatency, series: MOVING, at: 80, from: 100 },
            ],
        },
        Claim {
            sentence: "With an SSD rate of 30 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F2.proposed[2], &[F2.existing[2]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The proposed method is faster than the combination in every cell.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[
                everywhere_faster(F2.proposed[0], &[F2.existing[0]]),
                everywhere_faster(F2.proposed[1], &[F2.existing[1]]),
                everywhere_faster(F2.proposed[2], &[F2.existing[2]]),
            ],
            why: "",
            instead: &[],
        },
    ],
);
