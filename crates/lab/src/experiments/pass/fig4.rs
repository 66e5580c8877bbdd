//! Figure 4: PostMark, by window.

use super::{
    K, PAPER, PASS, POSTMARK_CONTRADICTION, POSTMARK_COUNTS, POSTMARK_FITTED, RAID1, WINDOW,
    WINDOW_NO_WAITING, all, discrepancy, grows, times,
};
use crate::Prefill;
use crate::experiment::Measure::{Behind, BehindHighest, LatencyP99, Operations, Throughput};
use crate::experiment::{Axis, Claim, Experiment, Origin, Times};

const LOAD: &str = "postmark-like,high=100KB,cached=90%,transactions=10M";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "pass/fig4",
    title: "PostMark, by window",
    paper: &PAPER,
    place: "figure 4 and section V-B",
    axis: Axis::Numbers {
        label: "window, sectors",
        places: &[256, K, 4 * K, 16 * K, 64 * K, 128 * K, 256 * K, 400 * K, 800 * K],
    },
    series: &all(LOAD, WINDOW, WINDOW_NO_WAITING),
    measures: &[Operations, Throughput, LatencyP99, Behind, BehindHighest],
    counting: Some(POSTMARK_COUNTS),
    prefill: Prefill::All,
    times: Times { warm_up: 60, measured: 60 },
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "With a window of 800K sectors it has up to 6 times the transactions of RAID 1.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[times(PASS, &[RAID1], 800 * K, 6.0, 6.0)],
            why: "3.3 times, and 4.0 without waiting. There the disk is busy all the time and gets 65 MB/s: 49 that PostMark writes, nearly all of it \
                  new, so that no window saves a part, and 16 between them, since short gaps are written through. Six times RAID 1 would be 1,900 transactions and 74 MB/s. \
                  Waiting costs the rest: each write waits 0.4 ms (4 times the base time) as long as a window of this size is duplicated.",
        },
        Claim {
            sentence: "The discrepancy of a window of 800K sectors is 1.3 %, below 2 %.",
            place: "section V-B and abstract",
            origin: Origin::Paper,
            tests: &discrepancy(800 * K, 1.3),
            why: "",
        },
        Claim {
            sentence: "The rate grows from a window of 1K sectors to one of 800K.",
            place: "section V-B and figure 4",
            origin: Origin::Paper,
            tests: &[grows(PASS, K, 16 * K), grows(PASS, 16 * K, 128 * K), grows(PASS, 128 * K, 800 * K)],
            why: "",
        },
        Claim {
            sentence: "A window below 1K sectors is an exception: it is no slower than one of 1K.",
            place: "section V-B and figure 4",
            origin: Origin::Paper,
            tests: &[grows(PASS, K, 256)],
            why: "A window of 256 sectors is one of PostMark's largest requests, and has 0.8 of the rate of one of 1K. The paper has no reason for its exception but \
                  that small windows merge less.",
        },
    ],
    published: "The text gives the multiple at 800K sectors. The curve is plotted only, not published as numbers.",
    calibrated: &[POSTMARK_FITTED],
    contradictions: &[POSTMARK_CONTRADICTION],
    differs: &[
        "Transactions go on for as long as is measured; the paper has 50,000 of them, 21 s on its SSD, in which the disk need not have got all of the window.",
    ],
};
