//! Figure 5: the width of the sliding window, with one reorganization and with two.

use super::{PAPER, TIMES, TWICE, WINDOW, WITH, WITHOUT, series, test, time};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, VolumeLatency};
use crate::experiment::Quantity::Peak;
use crate::experiment::{Bound, Claim, Experiment, Published};

const DB2_LOAD: &str = "db2-like,repeat=1M";
const WEB_LOAD: &str = "webserver-like,requests=endless";
const ONCE: &str = "working-set,stripe=even,window={x}s,reorganizations=1";
const TWO: &str = "working-set,stripe=even,window={x}s,reorganizations=2";
const NEVER: &str = "working-set,stripe=even,window={x}s,reorganizations=0";

/// DB2 Parallel Edition.
pub const DB2: Experiment = Experiment {
    id: "working-set/fig5-db2",
    title: "DB2, by the width of the window",
    paper: &PAPER,
    place: "figure 5(a) and section IV-B.3",
    axis: WINDOW,
    series: &[series(WITHOUT, NEVER, DB2_LOAD), series(WITH, ONCE, DB2_LOAD), series(TWICE, TWO, DB2_LOAD)],
    measures: &[VolumeLatency, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: TIMES,
    claims: &[
        Claim {
            sentence: "A window of about a tenth of the run time is best.",
            place: "section IV-B.3",
            tests: &[test(
                Peak { measure: VolumeLatency, series: WITH, from: 9, to: 36 },
                Published::Words,
                Bound::AtLeast(1.0),
            )],
            why: "",
        },
        Claim {
            sentence: "With a very small window, two reorganizations are better than one.",
            place: "section IV-B.3",
            tests: &[time(TWICE, &[WITH], 2, Published::Words, Bound::AtMost(0.95))],
            why: "",
        },
        Claim {
            sentence: "With a larger window there is no significant difference between one and two.",
            place: "section IV-B.3",
            tests: &[time(TWICE, &[WITH], 36, Published::Words, Bound::Within(0.9, 1.1))],
            why: "",
        },
    ],
    published: "All curves are plotted only, not published as numbers.",
    calibrated: &[],
    contradictions: &[],
    differs: &["The window is given in seconds: 18 s are a tenth of the run, warm-up included."],
};

/// Parallel Web Server.
pub const WEB: Experiment = Experiment {
    id: "working-set/fig5-web",
    title: "A web server, by the width of the window",
    place: "figure 5(b) and section IV-B.3",
    series: &[series(WITHOUT, NEVER, WEB_LOAD), series(WITH, ONCE, WEB_LOAD), series(TWICE, TWO, WEB_LOAD)],
    ..DB2
};
