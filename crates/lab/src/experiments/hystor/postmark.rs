//! PostMark: time and hit ratio by the size of the SSD.

use super::{
    BOTH, HDD, HYSTOR, NO_WRITE_BACK, PAPER, SIZES, SSD, all, devices, hits, series, test, times_longer,
};
use crate::Prefill;
use crate::experiment::Bound::{AtMost, Near};
use crate::experiment::Measure::{HitRatio, Time};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{Ratio, Value};
use crate::experiment::{Bound, Claim, Experiment, Origin, Series, Times};

/// The workload.
pub const LOAD: &str = "postmark-like,files=20K,transactions=100K,low=500B,high=75KB,cached=90%";

/// The page cache answers no reads.
const LOAD_UNCACHED: &str = "postmark-like,files=20K,transactions=100K,low=500B,high=75KB,cached=0%";
const UNCACHED: &str = "hystor, no page cache";
const UNCACHED_NO_WRITE_BACK: &str = "hystor, no write-back area, no page cache";
/// A search for high-cost blocks begins once a minute.
const SELDOM: &str = "hystor, period=60s";
const SELDOM_NO_WRITE_BACK: &str = "hystor, no write-back area, period=60s";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/postmark",
    title: "PostMark: execution time and hit ratio",
    paper: &PAPER,
    place: "evaluation, PostMark",
    axis: SIZES,
    series: &{
        let [ssd, hdd, hystor, no_write_back] = all(LOAD);
        let uncached = Series { load: LOAD_UNCACHED, label: UNCACHED, ..hystor };
        let uncached_without = Series { load: LOAD_UNCACHED, label: UNCACHED_NO_WRITE_BACK, ..no_write_back };
        let seldom = series(SELDOM, BOTH, "hystor,as-published,period=60s", LOAD);
        let without =
            series(SELDOM_NO_WRITE_BACK, BOTH, "hystor,as-published,period=60s,write-back=0%", LOAD);
        [ssd, hdd, hystor, no_write_back, uncached, uncached_without, seldom, without]
    },
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
            instead: &[],
        },
        Claim {
            sentence: "With an SSD of 20 % of the working set, the write-back area saves 29 % of the time.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HYSTOR, &[NO_WRITE_BACK], 20, Number(0.71), Bound::about(0.71))],
            why: "The interval between two searches is not published. Without a write-back area, the moves after a search every second keep the disk from guests. Instead: a search \
                  once a minute, in both.",
            instead: &[
                Ratio { measure: Time, of: SELDOM, to: &[SELDOM_NO_WRITE_BACK], at: 20 },
                Value { measure: HitRatio, series: SELDOM, at: 20 },
            ],
        },
        Claim {
            sentence: "There it raises the hit ratio from 79 to 91 %.",
            place: "hit ratio",
            origin: Origin::Paper,
            tests: &[
                hits(NO_WRITE_BACK, 20, Number(79.0), Near(0.15)),
                hits(HYSTOR, 20, Number(91.0), Near(0.15)),
                test(
                    Ratio { measure: HitRatio, of: HYSTOR, to: &[NO_WRITE_BACK], at: 20 },
                    Number(91.0 / 79.0),
                    Bound::about(91.0 / 79.0),
                ),
            ],
            why: "Without the area only what was read, or written before, can be on the SSD, and the page cache answers nine reads of ten. Instead: a page cache that answers none. The ratio with the area is then near the talk's, the ratio without is not.",
            instead: &[
                Value { measure: HitRatio, series: UNCACHED_NO_WRITE_BACK, at: 20 },
                Value { measure: HitRatio, series: UNCACHED, at: 20 },
            ],
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
            instead: &[],
        },
    ],
    published: "4.2 times, 29 %, and the two hit ratios at 310 MB are given as numbers; the curves are in plots.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "The talk does not say which two settings the 29 % and the hit ratios compare. Taken is: without a write-back area, and with one of 20 %.",
    ],
};
