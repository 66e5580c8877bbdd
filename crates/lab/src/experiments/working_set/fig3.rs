//! Figure 3: execution time with and without reorganization.

use super::{PAPER, TIMES, WITH, WITHOUT, series, time};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, Operations, VolumeLatency};
use crate::experiment::{Axis, Bound, Claim, Experiment, Published};

const DB2_LOAD: &str = "db2-like,clients={x},repeat=1M";
const WEB_LOAD: &str = "webserver-like,clients={x},requests=endless";
const ONCE: &str = "working-set,stripe=even,window=18s,threshold-h=3,reorganizations=1";
const NEVER: &str = "working-set,stripe=even,window=18s,threshold-h=3,reorganizations=0";

const PUBLISHED: &str =
    "The abstract and section I give 3 to 10 times. The figure is plotted only, not published as numbers.";

/// DB2 Parallel Edition.
pub const DB2: Experiment = Experiment {
    id: "working-set/fig3-db2",
    title: "DB2 with and without reorganization, by clients",
    paper: &PAPER,
    place: "figure 3(a) and section IV-B.1",
    axis: Axis::Numbers { label: "clients", places: &[1, 4, 8, 16] },
    series: &[series(WITHOUT, NEVER, DB2_LOAD), series(WITH, ONCE, DB2_LOAD)],
    measures: &[VolumeLatency, Operations, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: TIMES,
    claims: &[Claim {
        sentence: "Requests take a third to a tenth of the time.",
        place: "abstract and section I",
        tests: &[time(WITH, &[WITHOUT], 8, Published::Range(0.1, 1.0 / 3.0), Bound::AtMost(1.0 / 3.0))],
        why: "",
    }],
    published: PUBLISHED,
    calibrated: &[],
    contradictions: &[],
    differs: &["The paper has one point; the numbers of clients are ours."],
};

/// Parallel Web Server.
pub const WEB: Experiment = Experiment {
    id: "working-set/fig3-web",
    title: "A web server with and without reorganization, by clients",
    place: "figure 3(b) and section IV-B.1",
    series: &[series(WITHOUT, NEVER, WEB_LOAD), series(WITH, ONCE, WEB_LOAD)],
    claims: &[Claim {
        sentence: "Requests take a third to a tenth of the time.",
        place: "abstract and section I",
        tests: &[time(WITH, &[WITHOUT], 4, Published::Range(0.1, 1.0 / 3.0), Bound::AtMost(1.0 / 3.0))],
        why: "",
    }],
    differs: &["The paper has four clients; the other numbers are ours."],
    ..DB2
};
