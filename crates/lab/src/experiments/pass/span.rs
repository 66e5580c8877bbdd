//! What the paper does not say of IOmeter: over which part of the 30 GB its requests go. The window is 400K sectors.

use super::{PAPER, PASS, RAID1, SSD, all, test, times};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, AtMost};
use crate::experiment::Measure::{Behind, BehindHighest, LatencyP99, Operations};
use crate::experiment::Published::Number;
use crate::experiment::Quantity::{Value, WorstRatio};
use crate::experiment::{Axis, Claim, Experiment, Measure, Test, Times};

const SPANS: Axis =
    Axis::Numbers { label: "span, MB", places: &[250, 500, 1000, 2000, 4000, 8000, 15000, 30000] };
const MEASURES: &[Measure] = &[Operations, LatencyP99, Behind, BehindHighest];
const PUBLISHED: &str = "The text gives the multiples, for a span that it does not give.";
const WINDOW: &str = "pass,as-published,window=400Ksectors";
const NO_WAITING: &str = "pass,as-published,window=400Ksectors,base=0us";

/// From a span on, at the worst of them, at least so many times as much.
const fn from(span: u32, to: &'static [&'static str], published: f64, least: f64) -> Test {
    test(WorstRatio { measure: Operations, of: PASS, to, from: span }, Number(published), AtLeast(least))
}

const fn highest(at: u32) -> Test {
    test(Value { measure: BehindHighest, series: PASS, at }, Number(0.651), AtMost(2.0))
}

const DISCREPANCY: Claim = Claim {
    sentence: "The discrepancy of a window of 400K sectors is 0.651 %, below 2 %: over any span.",
    place: "section V-B and abstract",
    tests: &[highest(250), highest(1000), highest(4000), highest(8000), highest(15000), highest(30000)],
    why: "",
};

/// Half of the requests are reads.
pub const HALF_READS: Experiment = Experiment {
    id: "pass/span50",
    title: "IOmeter with 50 % reads, by span",
    paper: &PAPER,
    place: "section V-A, which leaves it open",
    axis: SPANS,
    series: &all("iometer-like,spec=pass-50,span={x}MB,requests=endless", WINDOW, NO_WAITING),
    measures: MEASURES,
    counting: None,
    prefill: Prefill::All,
    times: Times { warm_up: 60, measured: 120 },
    claims: &[
        Claim {
            sentence: "It has at least 10 times the rate of RAID 1: over 0.25 to 1 GB.",
            place: "section V-B",
            tests: &[
                times(PASS, &[RAID1], 250, 10.0, 10.0),
                times(PASS, &[RAID1], 500, 10.0, 10.0),
                times(PASS, &[RAID1], 1000, 10.0, 10.0),
            ],
            why: "",
        },
        Claim {
            sentence: "It has at least 10 times the rate of RAID 1: over 2 GB and more.",
            place: "section V-B",
            tests: &[from(2000, &[RAID1], 10.0, 10.0)],
            why: "9.9 times over 2 GB, 10.1 over 4, 8.4 over 8, 6.7 over 15 and 6.4 over 30: from 4 GB on the disk is busy all the time, since a window holds ever fewer \
                  blocks for each of its tracks. Without waiting 14, 12, 8.4, 6.7 and 6.3.",
        },
        Claim {
            sentence: "It has 77 % of the SSD's rate: over 0.25 and 0.5 GB.",
            place: "section V-B",
            tests: &[times(PASS, &[SSD], 250, 0.77, 0.77), times(PASS, &[SSD], 500, 0.77, 0.77)],
            why: "93 % over 0.25 GB, of which the window holds most.",
        },
        Claim {
            sentence: "It has 77 % of the SSD's rate: over 1 GB and more.",
            place: "section V-B",
            tests: &[from(1000, &[SSD], 0.77, 0.77)],
            why: "65 % over 1 GB, 50 over 2, 42 over 4, and 25 to 33 beyond: where the disk is busy all the time, guests can write no faster than it does. Up to \
                  2 GB it is not, and it is the waiting (0.4 ms a write while a window is duplicated) that costs most: without it 84 and 71 %.",
        },
        DISCREPANCY,
    ],
    published: PUBLISHED,
    calibrated: &[],
    contradictions: &[],
    differs: &[],
};

/// Nine of ten requests are reads.
pub const MOST_READS: Experiment = Experiment {
    id: "pass/span90",
    title: "IOmeter with 90 % reads, by span",
    paper: &PAPER,
    place: "section V-A, which leaves it open",
    axis: SPANS,
    series: &all("iometer-like,spec=pass-90,span={x}MB,requests=endless", WINDOW, NO_WAITING),
    measures: MEASURES,
    counting: None,
    prefill: Prefill::All,
    // Few writes: what lies behind takes minutes to come to its bound.
    times: Times { warm_up: 300, measured: 120 },
    claims: &[
        Claim {
            sentence: "It has 12 times the rate of RAID 1: over 0.25 to 15 GB.",
            place: "section V-B",
            tests: &[
                times(PASS, &[RAID1], 250, 12.0, 12.0),
                times(PASS, &[RAID1], 1000, 12.0, 12.0),
                times(PASS, &[RAID1], 4000, 12.0, 12.0),
                times(PASS, &[RAID1], 15000, 12.0, 12.0),
            ],
            why: "",
        },
        Claim {
            sentence: "It has 12 times the rate of RAID 1: over 30 GB.",
            place: "section V-B",
            tests: &[times(PASS, &[RAID1], 30000, 12.0, 12.0)],
            why: "10.5 times, and 12.3 without waiting: every block of a window lies on a track of its own, and the SSD collects garbage once all of its 30 GB are \
                  written at random.",
        },
        Claim {
            sentence: "It has 90 % of the SSD's rate: over 0.25 to 1 GB.",
            place: "section V-B",
            tests: &[
                times(PASS, &[SSD], 250, 0.9, 0.9),
                times(PASS, &[SSD], 500, 0.9, 0.9),
                times(PASS, &[SSD], 1000, 0.9, 0.9),
            ],
            why: "",
        },
        Claim {
            sentence: "It has 90 % of the SSD's rate: over 2 GB and more.",
            place: "section V-B",
            tests: &[from(2000, &[SSD], 0.9, 0.9)],
            why: "89 % over 2 GB, 87 over 4, 82 over 8, 77 over 15 and 58 over 30. Without waiting 95, 96, 97, 79 and 68: up to 8 GB the waiting is the reason (0.4 ms \
                  a write while a window is duplicated), beyond it the disk.",
        },
        DISCREPANCY,
    ],
    published: PUBLISHED,
    calibrated: &[],
    contradictions: &[],
    differs: &[],
};
