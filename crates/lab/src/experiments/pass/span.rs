//! Sweep of an unstated parameter: the part of the 30 GB used by IOmeter's requests. The window is 400K
//! sectors.

use super::{PAPER, PASS, RAID1, SSD, all, test};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, AtMost};
use crate::experiment::Measure::{Behind, BehindHighest, LatencyP99, Operations};
use crate::experiment::Published::Number;
use crate::experiment::Quantity::{Value, WorstRatio};
use crate::experiment::{Axis, Claim, Experiment, Measure, Origin, Test, Times};

const SPANS: Axis =
    Axis::Numbers { label: "span, MB", places: &[250, 500, 1000, 2000, 4000, 8000, 15000, 30000] };
const MEASURES: &[Measure] = &[Operations, LatencyP99, Behind, BehindHighest];
const PUBLISHED: &str = "The text gives the multiples, for a span that it does not give.";
const WINDOW: &str = "pass,as-published,window=400Ksectors";
const NO_WAITING: &str = "pass,as-published,window=400Ksectors,base=0us";

/// At the worst of all spans.
const fn everywhere(to: &'static [&'static str], published: f64) -> Test {
    test(WorstRatio { measure: Operations, of: PASS, to, from: 250 }, Number(published), AtLeast(published))
}

const fn highest(at: u32) -> Test {
    test(Value { measure: BehindHighest, series: PASS, at }, Number(0.651), AtMost(2.0))
}

const DISCREPANCY: Claim = Claim {
    sentence: "The discrepancy of a window of 400K sectors is 0.651 %, below 2 %: over any span.",
    place: "section V-B and abstract",
    origin: Origin::Repeat,
    tests: &[highest(250), highest(1000), highest(4000), highest(8000), highest(15000), highest(30000)],
    why: "",
    instead: &[],
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
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "It has at least 10 times the rate of RAID 1: over any span.",
            place: "section V-B",
            origin: Origin::Repeat,
            tests: &[everywhere(&[RAID1], 10.0)],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "It has 77 % of the SSD's rate: over any span.",
            place: "section V-B",
            origin: Origin::Repeat,
            tests: &[everywhere(&[SSD], 0.77)],
            why: "",
            instead: &[],
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
    // Few writes: the lag takes minutes to reach its bound.
    times: Times { warm_up: 300, measured: 120 },
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "It has 12 times the rate of RAID 1: over any span.",
            place: "section V-B",
            origin: Origin::Repeat,
            tests: &[everywhere(&[RAID1], 12.0)],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "It has 90 % of the SSD's rate: over any span.",
            place: "section V-B",
            origin: Origin::Repeat,
            tests: &[everywhere(&[SSD], 0.9)],
            why: "",
            instead: &[],
        },
        DISCREPANCY,
    ],
    published: PUBLISHED,
    calibrated: &[],
    contradictions: &[],
    differs: &[],
};
