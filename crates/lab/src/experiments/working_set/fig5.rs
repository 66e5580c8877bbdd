//! Figure 5: the width of the sliding window, with one reorganization and with two.

use super::{PAPER, TABLE_II, WITH, WITHOUT, series, test, time};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, VolumeLatency};
use crate::experiment::Quantity::{Change, Peak};
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Published, Series, Times};

const TWICE: &str = "reorganized twice";

const fn all(load: &'static str) -> [Series; 3] {
    [
        series(WITHOUT, TABLE_II, "working-set,as-published,window={x}ms,reorganizations=0", load),
        series(WITH, TABLE_II, "working-set,as-published,window={x}ms,reorganizations=1", load),
        series(TWICE, TABLE_II, "working-set,as-published,window={x}ms,reorganizations=2", load),
    ]
}

/// DB2 Parallel Edition.
pub const DB2: Experiment = Experiment {
    id: "working-set/fig5-db2",
    title: "DB2, by the width of the window",
    paper: &PAPER,
    place: "figure 5(a) and section IV-B.3",
    axis: Axis::Numbers { label: "window, ms", places: &[5, 20, 50, 100, 250, 700, 2_000, 20_000] },
    series: &all("db2-like,repeat=4"),
    measures: &[VolumeLatency, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "No window is better than one of about a tenth of the run time.",
            place: "section IV-B.3",
            origin: Origin::Paper,
            tests: &[test(
                Peak { measure: VolumeLatency, series: WITH, from: 250, to: 700 },
                Published::Words,
                Bound::AtLeast(1.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "A much wider one is worse.",
            place: "section IV-B.3",
            origin: Origin::Paper,
            tests: &[test(
                Change { measure: VolumeLatency, series: WITH, at: 20_000, from: 700 },
                Published::Words,
                Bound::MoreThan(1.0),
            )],
            why: "It is neither better nor worse: a counter costs the same whatever the window is, and data moves in idle time, which does not count. In the paper the cost of making the working set \
                  grows with the window.",
            instead: &[],
        },
        Claim {
            sentence: "With a very small window, two reorganizations are better than one.",
            place: "section IV-B.3",
            origin: Origin::Paper,
            tests: &[time(TWICE, &[WITH], 5, Published::Words, Bound::LessThan(1.0))],
            why: "With a window so small nothing is hot when the first pause comes.",
            instead: &[],
        },
        Claim {
            sentence: "With a larger window there is no significant difference between one and two.",
            place: "section IV-B.3",
            origin: Origin::Paper,
            tests: &[time(TWICE, &[WITH], 700, Published::Words, Bound::Between(0.95, 1.05))],
            why: "",
            instead: &[],
        },
    ],
    published: "All curves are plotted only, not published as numbers.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "Without the pauses, a tenth of the run is 0.25 s for DB2 and 0.7 s for the web server. The one reorganization is in the first pause, the second in the next one.",
    ],
};

/// Parallel Web Server.
pub const WEB: Experiment = Experiment {
    id: "working-set/fig5-web",
    title: "A web server, by the width of the window",
    place: "figure 5(b) and section IV-B.3",
    series: &all("webserver-like"),
    ..DB2
};
