//! Figure 6: Financial 1 with reads for writes, mostly reads with little locality.

use super::{F1_RW, PAGES_10, figure, is_best, ratio, series_of, test};
use crate::experiment::Bound::{Between, MoreThan};
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::{Peak, RatioOfBests};
use crate::experiment::{Claim, Experiment, Origin, Test};

/// As figure 5's, with the share of reads swapped.
pub(super) const LOAD: &str = "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";

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
    &series_of(&F1_RW, PAGES_10, LOAD),
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
            why: "",
            instead: &[],
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
            why: "",
            instead: &[],
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
            why: "",
            instead: &[],
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
            why: "",
            instead: &[],
        },
    ],
);
