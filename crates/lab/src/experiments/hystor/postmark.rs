//! PostMark: time and hit ratio by the size of the SSD.

use super::{HDD, HYSTOR, NO_WRITE_BACK, PAPER, SIZES, SSD, all, devices, hits, times_longer};
use crate::Prefill;
use crate::experiment::Bound::{AtMost, Near};
use crate::experiment::Measure::{HitRatio, Time};
use crate::experiment::Published::{Number, Words};
use crate::experiment::{Bound, Claim, Experiment, Origin, Times};

/// The workload.
pub const LOAD: &str = "postmark-like,files=20K,transactions=100K,low=500B,high=75KB,cached=90%";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/postmark",
    title: "PostMark: execution time and hit ratio",
    paper: &PAPER,
    place: "evaluation, PostMark",
    axis: SIZES,
    series: &all(LOAD),
    measures: &[Time, HitRatio],
    counting: None,
    prefill: Prefill::All,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &devices(20, 4.2),
    claims: &[
        Claim {
            sentence: "The disk alone takes 4.2 times as long as the SSD alone.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HDD, &[SSD], 20, Number(4.2), Near(0.15))],
            why: "",
        },
        Claim {
            sentence: "With an SSD of 20 % of the working set, the write-back area saves 29 % of the time.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HYSTOR, &[NO_WRITE_BACK], 20, Number(0.71), Bound::about(0.71))],
            why: "",
        },
        Claim {
            sentence: "There it raises the hit ratio from 79 to 91 %.",
            place: "hit ratio",
            origin: Origin::Paper,
            tests: &[
                hits(NO_WRITE_BACK, 20, Number(79.0), Near(0.15)),
                hits(HYSTOR, 20, Number(91.0), Near(0.15)),
            ],
            why: "",
        },
        Claim {
            sentence: "With a small SSD it is no more than 5 % slower than the disk alone.",
            place: "ours: the paper loses up to 12.4 % with another load",
            origin: Origin::Aim,
            tests: &[
                times_longer(HYSTOR, &[HDD], 20, Words, AtMost(1.05)),
                times_longer(NO_WRITE_BACK, &[HDD], 20, Words, AtMost(1.05)),
            ],
            why: "",
        },
    ],
    published: "4.2 times, 29 %, and the two hit ratios at 310 MB are given as numbers; the curves are in plots.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "The talk does not say which two settings the 29 % and the hit ratios compare. Taken is: without a write-back area, and with one of 20 %.",
    ],
};
