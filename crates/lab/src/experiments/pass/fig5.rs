//! Figure 5: burstiness of each benchmark's requests, as entropy by the number of bins of time.

use super::{BOTH, PAPER, fig1, fig3, series, test};
use crate::Prefill;
use crate::experiment::Bound::LessThan;
use crate::experiment::Measure::Entropy;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Test, Times};

const IOMETER_50: &str = "IOmeter, 50 % reads";
const IOMETER_90: &str = "IOmeter, 90 % reads";
const TPCC_10: &str = "TPC-C, 10 warehouses";
const TPCC_20: &str = "TPC-C, 20 warehouses";
const POSTMARK: &str = "PostMark";
const POSTMARK_ENDLESS: &str = "PostMark without an end";
const IOMETER_RAID1: &str = "IOmeter, 90 % reads, on RAID 1";
const TPCC_NO_MEMORY: &str = "TPC-C, 20 warehouses, no memory";
const POLICY: &str = "pass,as-published,window=400Ksectors";

/// A load has less entropy than the lowest of other loads: less entropy is burstier.
const fn burstier(of: &'static str, than: &'static [&'static str], at: u32) -> Test {
    test(Ratio { measure: Entropy, of, to: than, at }, Words, LessThan(1.0))
}

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "pass/fig5",
    title: "Burstiness of five loads",
    paper: &PAPER,
    place: "figure 5 and section V-C",
    axis: Axis::Numbers {
        label: "bins of time, as a power of two",
        places: &[2, 4, 6, 8, 10, 12, 14, 15, 16, 18, 20, 21],
    },
    series: &[
        series(IOMETER_50, BOTH, POLICY, fig1::LOAD),
        series(IOMETER_90, BOTH, POLICY, fig3::LOAD),
        series(TPCC_10, BOTH, POLICY, "tpcc-like,warehouses=10,transactions=endless"),
        series(TPCC_20, BOTH, POLICY, "tpcc-like,warehouses=20,transactions=endless"),
        series(POSTMARK, BOTH, POLICY, "postmark-like,high=100KB,cached=90%"),
        series(POSTMARK_ENDLESS, BOTH, POLICY, "postmark-like,high=100KB,cached=90%,transactions=10M"),
        series(IOMETER_RAID1, BOTH, "raid1,reads=md", fig3::LOAD),
        series(
            TPCC_NO_MEMORY,
            BOTH,
            POLICY,
            "tpcc-like,warehouses=20,transactions=endless,cached=0%,written=100%",
        ),
    ],
    measures: &[Entropy],
    counting: None,
    prefill: Prefill::All,
    times: Times { warm_up: 0, measured: 600 },
    jitter: super::SPAN_JITTER,
    baselines: &[],
    claims: &[
        Claim {
            sentence: "With fewer than 2^10 bins PostMark is the burstiest.",
            place: "section V-C",
            origin: Origin::Paper,
            tests: &[
                burstier(POSTMARK, &[IOMETER_50, IOMETER_90, TPCC_10, TPCC_20], 4),
                burstier(POSTMARK, &[IOMETER_50, IOMETER_90, TPCC_10, TPCC_20], 6),
                burstier(POSTMARK, &[IOMETER_50, IOMETER_90, TPCC_10, TPCC_20], 8),
            ],
            why: "The page cache, which gathers PostMark's writes for seconds and then writes all of them, is not part of its model.",
            instead: &[],
        },
        Claim {
            sentence: "With 2^10 to 2^15 bins TPC-C is burstier than the other loads.",
            place: "section V-C",
            origin: Origin::Paper,
            tests: &[
                burstier(TPCC_10, &[IOMETER_50, IOMETER_90, POSTMARK], 10),
                burstier(TPCC_20, &[IOMETER_50, IOMETER_90, POSTMARK], 10),
                burstier(TPCC_10, &[IOMETER_50, IOMETER_90, POSTMARK], 12),
                burstier(TPCC_20, &[IOMETER_50, IOMETER_90, POSTMARK], 12),
                burstier(TPCC_10, &[IOMETER_50, IOMETER_90, POSTMARK], 14),
                burstier(TPCC_20, &[IOMETER_50, IOMETER_90, POSTMARK], 14),
                burstier(TPCC_10, &[IOMETER_50, IOMETER_90, POSTMARK], 15),
                burstier(TPCC_20, &[IOMETER_50, IOMETER_90, POSTMARK], 15),
            ],
            why: "PostMark ends within the ten minutes, and the bins after its end are empty. Instead: PostMark that goes on. TPC-C is then level with PostMark, not burstier.",
            instead: &[Ratio {
                measure: Entropy,
                of: TPCC_20,
                to: &[IOMETER_50, IOMETER_90, POSTMARK_ENDLESS],
                at: 10,
            }],
        },
        Claim {
            sentence: "With more than 2^15 bins IOmeter is a little burstier than TPC-C.",
            place: "section V-C",
            origin: Origin::Paper,
            tests: &[
                burstier(IOMETER_50, &[TPCC_10, TPCC_20], 16),
                burstier(IOMETER_90, &[TPCC_10, TPCC_20], 16),
                burstier(IOMETER_50, &[TPCC_10, TPCC_20], 18),
                burstier(IOMETER_90, &[TPCC_10, TPCC_20], 18),
                burstier(IOMETER_50, &[TPCC_10, TPCC_20], 20),
                burstier(IOMETER_90, &[TPCC_10, TPCC_20], 20),
            ],
            why: "Of n requests no plot can have more than log2 n bits, and TPC-C makes few. Instead: IOmeter on RAID 1, with fewer requests, and TPC-C with 20 warehouses without memory, with \
                  more. IOmeter still has more bits.",
            instead: &[Ratio { measure: Entropy, of: IOMETER_RAID1, to: &[TPCC_NO_MEMORY], at: 20 }],
        },
    ],
    published: "The curves are plotted only, and the text compares them in words.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "On which system the paper recorded is not said: here it is the policy with a window of 400K sectors. The run of PostMark ends when its files are deleted. Ten minutes are measured and not 30, so a bin is as long as one of the paper's with 2^1.6 times as many.",
    ],
};
