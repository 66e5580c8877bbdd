//! Guests during a reorganization, not measured in the paper: pauses of a second, always too short for all
//! due work.

use super::{OFTEN, PAPER, SEEKING, WITHOUT, series, test};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, VolumeLatencyP99};
use crate::experiment::Quantity::WorstRatio;
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Published, Times};

const LOAD: &str = "webserver-like,clients={x},requests=endless,burst=1000,pause=1s";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "working-set/guests",
    title: "A web server with short pauses, while data is reorganized in them",
    paper: &PAPER,
    place: "section III-C: in idle time",
    axis: Axis::Numbers { label: "clients", places: &[1, 4, 16] },
    series: &[
        series(WITHOUT, SEEKING, "working-set,stripe=even,reorganizations=0", LOAD),
        series(OFTEN, SEEKING, "working-set,stripe=even,count=extent", LOAD),
    ],
    measures: &[VolumeLatencyP99, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 0, measured: 60 },
    jitter: &[],
    baselines: &[],
    claims: &[Claim {
        sentence: "The slowest of a hundred requests takes at most 1.2 times as long.",
        place: "ours",
        origin: Origin::Aim,
        tests: &[test(
            WorstRatio { measure: VolumeLatencyP99, of: OFTEN, to: &[WITHOUT], from: 1 },
            Published::Words,
            Bound::AtMost(1.2),
        )],
        why: "",
        instead: &[],
    }],
    published: "Nothing: the paper has no figure for it.",
    calibrated: &[],
    contradictions: &[],
    differs: &["The load, the devices and the comparison are ours."],
};
