//! Figure 1: IOmeter with half of its requests reads, by window.

use super::{
    HDD, K, PAPER, PASS, RAID1, RAID1_FASTEST, SPAN, SSD, WINDOW, WINDOW_NO_WAITING, WINDOWS, all,
    discrepancy, grows, implied_at, test, times,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, Near};
use crate::experiment::Measure::{Behind, BehindHighest, LatencyP99, Operations};
use crate::experiment::Published::Number;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Bound, Claim, Experiment, Origin, Quantity, Times};

pub(super) const LOAD: &str = "iometer-like,spec=pass-50,span={span}MB,requests=endless";

/// The same ratio to a mirror that reads the faster copy.
const BESIDE_FASTEST: Quantity = Ratio { measure: Operations, of: PASS, to: &[RAID1_FASTEST], at: 400 * K };

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "pass/fig1",
    title: "IOmeter with 50 % reads, by window",
    paper: &PAPER,
    place: "figure 1 and section V-B",
    axis: WINDOWS,
    series: &all(LOAD, WINDOW, WINDOW_NO_WAITING),
    measures: &[Operations, LatencyP99, Behind, BehindHighest],
    counting: None,
    prefill: Prefill::All,
    times: Times { warm_up: 60, measured: 120 },
    jitter: super::SPAN_JITTER,
    baselines: &implied_at(400 * K),
    claims: &[
        Claim {
            sentence: "With a window of 400K sectors it has at least 10 times the rate of RAID 1.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[times(PASS, &[RAID1], 400 * K, 10.0, AtLeast(10.0))],
            why: "",
            instead: &[BESIDE_FASTEST],
        },
        Claim {
            sentence: "With a window of 400K sectors it has up to 11 times the rate of a single disk.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[times(PASS, &[HDD], 400 * K, 11.0, Bound::about(11.0))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With a window of 400K sectors it has 77 % of the SSD's rate.",
            place: "section V-B",
            origin: Origin::Fitted,
            tests: &[times(PASS, &[SSD], 400 * K, 0.77, Near(0.05))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The discrepancy of a window of 400K sectors is 0.651 %, below 2 %.",
            place: "section V-B and abstract",
            origin: Origin::Paper,
            tests: &discrepancy(400 * K, 0.651),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The rate grows with the window.",
            place: "section V-B and figure 1",
            origin: Origin::Paper,
            tests: &grows(256, 400 * K),
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "RAID 1 is hardly faster than a single disk (derived from the two multiples).",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Operations, of: RAID1, to: &[HDD], at: 400 * K },
                Number(1.1),
                Near(0.15),
            )],
            why: "Half of its random reads come from the SSD, as md's rule has it. The paper's mirror must have read nearly all from the disk; why is not known.",
            instead: &[],
        },
    ],
    published: "The text gives the three multiples at 400K sectors. The curve is plotted only, not published as numbers.",
    calibrated: &[SPAN],
    contradictions: &[],
    differs: &[],
};
