//! Figure 3: IOmeter with nine of ten requests reads, by window.

use super::fig1::LOAD as HALF_READS;
use super::{
    BOTH, K, PAPER, PASS, RAID1, RAID1_FASTEST, SPAN, SSD, WINDOW, WINDOW_NO_WAITING, WINDOWS, all, alone,
    discrepancy, grows, series, test, times, value,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, AtMost, Between};
use crate::experiment::Measure::{Behind, BehindHighest, LatencyP99, Operations};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Bound, Claim, Experiment, Origin, Times};

pub(super) const LOAD: &str = "iometer-like,spec=pass-90,span={span}MB,requests=endless";
const RAID1_50: &str = "RAID 1, 50 % reads";
const PASS_50: &str = "pass, 50 % reads";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "pass/fig3",
    title: "IOmeter with 90 % reads, by window",
    paper: &PAPER,
    place: "figure 3 and section V-B",
    axis: WINDOWS,
    series: &{
        let [hdd, ssd, raid1, fastest, pass, no_waiting] = all(LOAD, WINDOW, WINDOW_NO_WAITING);
        let raid1_50 = series(RAID1_50, BOTH, "raid1,reads=md", HALF_READS);
        [hdd, ssd, raid1, fastest, pass, no_waiting, raid1_50, series(PASS_50, BOTH, WINDOW, HALF_READS)]
    },
    measures: &[Operations, LatencyP99, Behind, BehindHighest],
    counting: None,
    prefill: Prefill::All,
    times: Times { warm_up: 60, measured: 120 },
    jitter: super::SPAN_JITTER,
    // 4,671.941 is 90 % of the SSD's rate.
    baselines: &[alone(Operations, SSD, 400 * K, 4671.941 / 0.9)],
    claims: &[
        Claim {
            sentence: "With a window of 400K sectors it has up to 12 times the rate of RAID 1.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[times(PASS, &[RAID1], 400 * K, 12.0, Bound::about(12.0))],
            why: "",
            instead: &[Ratio { measure: Operations, of: PASS, to: &[RAID1_FASTEST], at: 400 * K }],
        },
        Claim {
            sentence: "With a window of 400K sectors it has 4,672 requests a second, close to 90 % of the SSD's.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[
                value(Operations, PASS, 400 * K, 4671.941),
                times(PASS, &[SSD], 400 * K, 0.9, Between(0.85, 0.95)),
            ],
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
            sentence: "With 90 % reads RAID 1 is not much faster than with 50 %, and the policy is significantly faster.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[
                test(
                    Ratio { measure: Operations, of: RAID1, to: &[RAID1_50], at: 400 * K },
                    Words,
                    AtMost(1.5),
                ),
                test(
                    Ratio { measure: Operations, of: PASS, to: &[PASS_50], at: 400 * K },
                    Words,
                    AtLeast(1.1),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The rate grows with the window.",
            place: "section V-B and figure 3",
            origin: Origin::Paper,
            tests: &grows(256, 400 * K),
            why: "",
            instead: &[],
        },
    ],
    published: "The text gives the multiples and the rate at 400K sectors. The curve is plotted only, not published as numbers.",
    calibrated: &[SPAN],
    contradictions: &[],
    differs: &[],
};
