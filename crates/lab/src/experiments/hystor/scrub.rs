//! Requests added by scrubbing to the requests served by the SSD, with the worst load for scrubbing.

use super::{
    BOTH, HDD, HDD_ALONE, HYSTOR, PAPER, POLICY, SIZES, SSD, SSD_ALONE, devices, email, series, test,
};
use crate::Prefill;
use crate::experiment::Bound::{LessThan, MoreThan};
use crate::experiment::Measure::{DemandRate, ScrubRate, Time};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::Change;
use crate::experiment::{Bound, Claim, Experiment, Origin, Times};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/scrub",
    title: "E-mail: requests to the SSD, on demand and to scrub",
    paper: &PAPER,
    place: "evaluation, scrubbing",
    axis: SIZES,
    series: &[
        series(HYSTOR, BOTH, POLICY, email::LOAD),
        series(SSD, SSD_ALONE, "ssd-only", email::LOAD),
        series(HDD, HDD_ALONE, "hdd-only", email::LOAD),
    ],
    measures: &[DemandRate, ScrubRate, Time],
    counting: None,
    prefill: Prefill::All,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &devices(20, 18.8),
    claims: &[
        Claim {
            sentence: "From 20 to 80 % of the working set, scrub requests become nearly a quarter fewer per second.",
            place: "scrubbing",
            origin: Origin::Paper,
            tests: &[test(
                Change { measure: ScrubRate, series: HYSTOR, at: 80, from: 20 },
                Number(0.75),
                Bound::about(0.75),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Requests on demand become more per second, since the same number takes less time.",
            place: "scrubbing",
            origin: Origin::Paper,
            tests: &[
                test(Change { measure: DemandRate, series: HYSTOR, at: 80, from: 20 }, Words, MoreThan(1.0)),
                test(Change { measure: Time, series: HYSTOR, at: 80, from: 20 }, Words, LessThan(1.0)),
            ],
            why: "",
            instead: &[],
        },
    ],
    published: "The quarter is given as a number; the rates are in a plot.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "A scrub is a block of 4 KiB read from the SSD; neighbours are written to the disk as one request.",
    ],
};
