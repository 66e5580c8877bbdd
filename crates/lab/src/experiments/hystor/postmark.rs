//! PostMark: time and hit ratio by the size of the SSD.

use super::{HDD, HYSTOR, NO_WRITE_BACK, PAPER, SIZES, SSD, all, hits, times_longer};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, AtMost, Between, Shown};
use crate::experiment::Measure::{HitRatio, Time};
use crate::experiment::Published::{Number, Words};
use crate::experiment::{Claim, Experiment, Origin, Times};

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
    baselines: &[],
    claims: &[
        Claim {
            sentence: "The disk alone takes 4.2 times as long as the SSD alone.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HDD, &[SSD], 20, Number(4.2), Between(3.4, 5.0))],
            why: "",
        },
        Claim {
            sentence: "With an SSD of 20 % of the working set, the write-back area saves 29 % of the time.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HYSTOR, &[NO_WRITE_BACK], 20, Number(0.71), AtMost(0.71))],
            why: "It saves 19 %: nearly all that is written is new, and each byte must reach the disk. The area is a fifth of the SSD, 4 % of the data; when it is full of dirty blocks, \
                  guests write to the disk.",
        },
        Claim {
            sentence: "There it raises the hit ratio from 79 to 91 %.",
            place: "hit ratio",
            origin: Origin::Paper,
            tests: &[
                hits(NO_WRITE_BACK, 20, Number(79.0), Shown),
                hits(HYSTOR, 20, Number(91.0), AtLeast(88.0)),
            ],
            why: "5 to 46 %: without the area only what was read, or written before, can be on the SSD, and nine reads of ten never come, for the page cache answers them. With it, \
                  what guests write while it is full goes to the disk.",
        },
        Claim {
            sentence: "With a small SSD it is no more than 5 % slower than the disk alone.",
            place: "ours: the paper loses up to 12.4 % with another load",
            origin: Origin::Paper,
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
