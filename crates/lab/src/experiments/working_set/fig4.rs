//! Figure 4: effect and cost of the threshold of hotness.

use super::{BY_EXTENTS, PAPER, TABLE_II, WITH, WITHOUT, series, test, variant};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, VolumeLatency};
use crate::experiment::Quantity::{Change, Fall, Peak};
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Published, Series, Times};

const fn all(load: &'static str, [block, extent]: [&'static str; 2]) -> [Series; 3] {
    [
        series(WITHOUT, TABLE_II, "working-set,as-published,reorganizations=0", load),
        series(WITH, TABLE_II, block, load),
        variant(BY_EXTENTS, TABLE_II, extent, load),
    ]
}

/// DB2 Parallel Edition.
pub const DB2: Experiment = Experiment {
    id: "working-set/fig4-db2",
    title: "DB2, by the threshold of hotness",
    paper: &PAPER,
    place: "figure 4(a) and section IV-B.2",
    axis: Axis::Numbers { label: "threshold-H", places: &[1, 2, 3, 5, 8, 12, 20] },
    series: &all(
        "db2-like,repeat=4",
        [
            "working-set,as-published,window=19s,threshold-l=1,threshold-h={x},reorganizations=1",
            "working-set,as-published,count=extent,window=19s,threshold-l=1,threshold-h={x},reorganizations=1",
        ],
    ),
    measures: &[VolumeLatency, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "High values of hotness give poor performance, low ones the best.",
            place: "section IV-B.2",
            origin: Origin::Paper,
            tests: &[
                test(
                    Change { measure: VolumeLatency, series: WITH, at: 20, from: 1 },
                    Published::Words,
                    Bound::MoreThan(1.0),
                ),
                test(
                    Peak { measure: VolumeLatency, series: WITH, from: 1, to: 3 },
                    Published::Words,
                    Bound::AtLeast(1.0),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Low values move more data to the SSDs.",
            place: "section IV-B.2",
            origin: Origin::Paper,
            tests: &[
                test(
                    Change { measure: MovedToSsds, series: WITH, at: 20, from: 1 },
                    Published::Words,
                    Bound::LessThan(1.0),
                ),
                test(
                    Fall { measure: MovedToSsds, series: WITH, from: 1, to: 20 },
                    Published::Words,
                    Bound::AtMost(1.0),
                ),
            ],
            why: "",
            instead: &[],
        },
    ],
    published: "Both curves are plotted only, not published as numbers.",
    calibrated: &[],
    contradictions: &[],
    differs: &["threshold-L is 1 at all places, so that it never exceeds threshold-H."],
};

/// Parallel Web Server.
pub const WEB: Experiment = Experiment {
    id: "working-set/fig4-web",
    title: "A web server, by the threshold of hotness",
    place: "figure 4(b) and section IV-B.2",
    series: &all(
        "webserver-like",
        [
            "working-set,as-published,window=15s,threshold-l=1,threshold-h={x},reorganizations=1",
            "working-set,as-published,count=extent,window=15s,threshold-l=1,threshold-h={x},reorganizations=1",
        ],
    ),
    ..DB2
};
