//! Figure 2: IOmeter with half of its requests reads, by windows that are also possible for RAID 1 with
//! write-behind.

use super::fig1::LOAD;
use super::{
    BOTH, K, PAPER, PASS, RAID1, RAID1_FASTEST, SPAN, WINDOW, WRITE_BEHIND, implied_at, references, series,
    test, times,
};
use crate::Prefill;
use crate::experiment::Bound::MoreThan;
use crate::experiment::Measure::{Behind, BehindHighest, LatencyP99, Operations};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{BestRatio, Ratio, WorstRatio};
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Times};

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "pass/fig2",
    title: "IOmeter with 50 % reads, beside write-behind",
    paper: &PAPER,
    place: "figure 2 and section V-B",
    axis: Axis::Numbers { label: "window, sectors", places: &[256, 512, K, 2 * K, 4 * K, 8 * K, 16 * K] },
    series: &{
        let [hdd, ssd, raid1, fastest] = references(LOAD);
        let write_behind = series(WRITE_BEHIND, BOTH, "raid1,write-behind,limit={x*512}", LOAD);
        [hdd, ssd, raid1, fastest, write_behind, series(PASS, BOTH, WINDOW, LOAD)]
    },
    measures: &[Operations, LatencyP99, Behind, BehindHighest],
    counting: None,
    prefill: Prefill::All,
    times: Times { warm_up: 20, measured: 60 },
    jitter: super::SPAN_JITTER,
    baselines: &implied_at(16 * K),
    claims: &[
        Claim {
            sentence: "It is faster than RAID 1 with write-behind at every window.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[test(
                WorstRatio { measure: Operations, of: PASS, to: &[WRITE_BEHIND], from: 256 },
                Words,
                MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "It is up to 13 % faster than write-behind, whose largest window is 16K sectors, md's limit.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[test(
                BestRatio { measure: Operations, of: PASS, to: &[WRITE_BEHIND] },
                Number(1.13),
                Bound::about(1.13),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Both can have twice the rate of RAID 1.",
            place: "section V-B",
            origin: Origin::Paper,
            tests: &[
                times(PASS, &[RAID1], 16 * K, 2.0, Bound::about(2.0)),
                times(WRITE_BEHIND, &[RAID1], 16 * K, 2.0, Bound::about(2.0)),
            ],
            why: "a mirror whose random reads come from the disk half of the time suffers from that, too, where these read from the SSD alone",
            instead: &[
                Ratio { measure: Operations, of: PASS, to: &[RAID1_FASTEST], at: 16 * K },
                Ratio { measure: Operations, of: WRITE_BEHIND, to: &[RAID1_FASTEST], at: 16 * K },
            ],
        },
    ],
    published: "The text gives the two multiples. The bars are plotted only, not published as numbers.",
    calibrated: &[SPAN],
    contradictions: &[],
    differs: &[
        "md limits write-behind by requests; by sectors as here is the paper's word. Both copy what lies behind from the SSD here; md keeps it in memory.",
    ],
};
