//! Figure 10: speed-up of the proposed method over the combination, with pages of 100 MB.

use super::{
    F1, F1_RW, F2, F2_RW, PAGES_10, PAGES_100, RATE_30, all_series, everywhere_faster, figure, series, test,
};
use crate::experiment::Bound::AtLeast;
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::WorstRatio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Series};
use crate::experiments::with;

/// Loads of figures 5 to 8, except for the stripe: pages of one trace stay on its disks.
const LOADS: [&str; 4] = [
    "financial1-like,figures=hayashi,rate=122,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=100MiB,requests=endless",
    "financial1-like,figures=hayashi,rate=122,read=84.6%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=100MiB,requests=endless",
    "financial2-like,figures=hayashi,rate=90,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=100MiB,requests=endless",
    "financial2-like,figures=hayashi,rate=90,read=21.5%,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=100MiB,requests=endless",
];

const EXISTING_10: &str = "F2-rw-30% existing, pages of 10 MB";
const PROPOSED_10: &str = "F2-rw-30% proposed, pages of 10 MB";

/// Both methods with pages of 10 MB.
const SMALL_PAGES: &[Series] = &[
    series(EXISTING_10, RATE_30, PAGES_10.existing, LOADS[3]),
    series(PROPOSED_10, RATE_30, PAGES_10.proposed, LOADS[3]),
];

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    axis: Axis::Numbers { label: "SSD cache rate, %", places: &[20, 40, 80] },
    differs: &[
        "SSD cache rates of 20, 40 and 80 %. At 0 and 100 % both methods are the same, to the last request, and say nothing of each other.",
    ],
    ..FIGURE
};

const FIGURE: Experiment = figure(
    "exclusive/fig10",
    "The proposed method beside the combination, with pages of 100 MB",
    "figure 10 and section 5.2",
    &with::<26>(&all_series(PAGES_100, LOADS), SMALL_PAGES),
    &[
        Claim {
            sentence: "It is faster than the combination: Financial 2, both ways.",
            place: "section 5.2",
            origin: Origin::Paper,
            tests: &[
                everywhere_faster(F2.proposed[0], &[F2.existing[0]]),
                everywhere_faster(F2.proposed[1], &[F2.existing[1]]),
                everywhere_faster(F2.proposed[2], &[F2.existing[2]]),
                everywhere_faster(F2_RW.proposed[0], &[F2_RW.existing[0]]),
                everywhere_faster(F2_RW.proposed[1], &[F2_RW.existing[1]]),
                everywhere_faster(F2_RW.proposed[2], &[F2_RW.existing[2]]),
            ],
            why: "A page of 100 MB is a fifth of a trace here, and an 84th in the paper, so that few pages make the tier. Instead: pages of 10 MB, a 50th.",
            instead: &[WorstRatio { measure: VolumeLatency, of: PROPOSED_10, to: &[EXISTING_10], from: 20 }],
        },
        Claim {
            sentence: "It is faster than the combination: Financial 1 with a small SSD, and with reads for writes.",
            place: "section 5.2",
            origin: Origin::Paper,
            tests: &[
                everywhere_faster(F1.proposed[0], &[F1.existing[0]]),
                everywhere_faster(F1.proposed[1], &[F1.existing[1]]),
                everywhere_faster(F1_RW.proposed[0], &[F1_RW.existing[0]]),
                everywhere_faster(F1_RW.proposed[1], &[F1_RW.existing[1]]),
                everywhere_faster(F1_RW.proposed[2], &[F1_RW.existing[2]]),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "It is not with little locality, mostly writes and an SSD rate of 30 %.",
            place: "section 5.2",
            origin: Origin::Paper,
            tests: &[test(
                WorstRatio { measure: VolumeLatency, of: F1.proposed[2], to: &[F1.existing[2]], from: 20 },
                Words,
                AtLeast(1.0),
            )],
            why: "",
            instead: &[],
        },
    ],
);
