//! Figure 8: Financial 2 with reads for writes, mostly writes with much locality.

use super::{F2_RW, PAGES_10, everywhere_faster, figure, is_best, series_of};
use crate::experiment::{Claim, Experiment, Origin};

/// As figure 7's, with the share of reads swapped.
pub(super) const LOAD: &str = "financial2-like,figures=hayashi,rate=90,read=21.5%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";

/// The declaration.
pub const EXPERIMENT: Experiment = figure(
    "exclusive/fig8",
    "Mean response time of Financial 2 with reads for writes, by SSD cache rate",
    "figure 8 and section 5.1",
    &series_of(&F2_RW, PAGES_10, LOAD),
    &[
        Claim {
            sentence: "With an SSD rate of 10 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F2_RW.proposed[0], &[F2_RW.existing[0]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With an SSD rate of 20 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F2_RW.proposed[1], &[F2_RW.existing[1]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With an SSD rate of 30 %, the proposed method is best.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &is_best(F2_RW.proposed[2], &[F2_RW.existing[2]]),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The proposed method is faster than the combination in every cell.",
            place: "section 5.1",
            origin: Origin::Paper,
            tests: &[
                everywhere_faster(F2_RW.proposed[0], &[F2_RW.existing[0]]),
                everywhere_faster(F2_RW.proposed[1], &[F2_RW.existing[1]]),
                everywhere_faster(F2_RW.proposed[2], &[F2_RW.existing[2]]),
            ],
            why: "",
            instead: &[],
        },
    ],
);
