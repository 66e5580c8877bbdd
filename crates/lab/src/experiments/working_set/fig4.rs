//! Figure 4: how the threshold of hotness decides, and what it costs.

use super::{HOTNESS, PAPER, TIMES, WITH, WITHOUT, series, test};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, VolumeLatency};
use crate::experiment::Quantity::Change;
use crate::experiment::{Bound, Claim, Experiment, Published};

const DB2_LOAD: &str = "db2-like,repeat=1M";
const WEB_LOAD: &str = "webserver-like,requests=endless";
const ONCE: &str = "working-set,stripe=even,window=18s,threshold-l=1,threshold-h={x},reorganizations=1";
const NEVER: &str = "working-set,stripe=even,window=18s,reorganizations=0";

/// DB2 Parallel Edition.
pub const DB2: Experiment = Experiment {
    id: "working-set/fig4-db2",
    title: "DB2, by the threshold of hotness",
    paper: &PAPER,
    place: "figure 4(a) and section IV-B.2",
    axis: HOTNESS,
    series: &[series(WITHOUT, NEVER, DB2_LOAD), series(WITH, ONCE, DB2_LOAD)],
    measures: &[VolumeLatency, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: TIMES,
    claims: &[
        Claim {
            sentence: "High values of hotness give poor performance, low ones the best.",
            place: "section IV-B.2",
            tests: &[test(
                Change { measure: VolumeLatency, series: WITH, at: 20, from: 1 },
                Published::Words,
                Bound::AtLeast(1.1),
            )],
            why: "",
        },
        Claim {
            sentence: "Low values move more data to the SSDs.",
            place: "section IV-B.2",
            tests: &[test(
                Change { measure: MovedToSsds, series: WITH, at: 20, from: 1 },
                Published::Words,
                Bound::AtMost(0.9),
            )],
            why: "",
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
    series: &[series(WITHOUT, NEVER, WEB_LOAD), series(WITH, ONCE, WEB_LOAD)],
    ..DB2
};
