//! Figure 9: speed-up of the proposed method over the combination, with pages of 10 MB.

use super::{
    F1, F1_RW, F2, F2_RW, PAGES_10, RATE_30, STANDS_STILL, all_series, everywhere_faster, fig5, fig6, fig7,
    fig8, figure, is_best, series, test,
};
use crate::experiment::Bound::LessThan;
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{BestRatio, Most, WorstRatio};
use crate::experiment::{Bound, Claim, Experiment, Origin, Pair, Series};
use crate::experiments::with;

const LOADS: [&str; 4] = [fig5::LOAD, fig6::LOAD, fig7::LOAD, fig8::LOAD];

/// Financial 2 with an SSD rate of 30 %, and hardly any migration.
const STILL: &str = "F2-30% proposed, rate=1KiB";

const STILL_30: Series =
    series(STILL, RATE_30, "exclusive,as-published,cache={x}%,page=10MiB,period=100s,rate=1KiB", fig7::LOAD);
const MOVING: [Series; 4] = with(&fig5::MOVING, &fig6::MOVING);

/// All workloads and SSD rates except Financial 2 with 30 %.
const OTHERS: &[Pair] = &[
    (F1.proposed[0], F1.existing[0]),
    (F1.proposed[1], F1.existing[1]),
    (F1.proposed[2], F1.existing[2]),
    (F1_RW.proposed[0], F1_RW.existing[0]),
    (F1_RW.proposed[1], F1_RW.existing[1]),
    (F1_RW.proposed[2], F1_RW.existing[2]),
    (F2.proposed[0], F2.existing[0]),
    (F2.proposed[1], F2.existing[1]),
    (F2_RW.proposed[0], F2_RW.existing[0]),
    (F2_RW.proposed[1], F2_RW.existing[1]),
    (F2_RW.proposed[2], F2_RW.existing[2]),
];

/// The declaration.
pub const EXPERIMENT: Experiment = figure(
    "exclusive/fig9",
    "The proposed method beside the combination, with pages of 10 MB",
    "figure 9 and section 5.2",
    &with::<29>(&all_series(PAGES_10, LOADS), &with::<5>(&[STILL_30], &MOVING)),
    &[
        Claim {
            sentence: "It is faster whatever the SSD rate and the SSD cache rate with much locality.",
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
            why: "Pages near the end of the tier change places in each period, and what leaves the tier is in no cache. Instead: next to nothing migrates (rate=1KiB).",
            instead: &[WorstRatio { measure: VolumeLatency, of: STILL, to: &[F2.existing[2]], from: 20 }],
        },
        Claim {
            sentence: "It saves most with Financial 2 and an SSD rate of 30 %: up to 23 % of the response time.",
            place: "section 5.2",
            origin: Origin::Paper,
            tests: &[
                test(
                    Most { measure: VolumeLatency, of: (F2.proposed[2], F2.existing[2]), others: OTHERS },
                    Words,
                    LessThan(1.0),
                ),
                test(
                    BestRatio { measure: VolumeLatency, of: F2.proposed[2], to: &[F2.existing[2]] },
                    Number(0.77),
                    Bound::about(0.77),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The combination is the fastest of all with little locality and an SSD rate of 30 %: Financial 1.",
            place: "section 5.2",
            origin: Origin::Paper,
            tests: &is_best(F1.existing[2], &[F1.proposed[2]]),
            why: STANDS_STILL,
            instead: fig5::INSTEAD,
        },
        Claim {
            sentence: "The combination is the fastest of all with little locality and an SSD rate of 30 %: Financial 1 with reads for writes.",
            place: "section 5.2",
            origin: Origin::Paper,
            tests: &is_best(F1_RW.existing[2], &[F1_RW.proposed[2]]),
            why: STANDS_STILL,
            instead: fig6::INSTEAD,
        },
    ],
);
