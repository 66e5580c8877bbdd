//! Figure 3: execution time with and without reorganization.

use super::{
    ALL_SSD, BOTH_TO_SSDS, BY_EXTENTS, OFTEN, PAPER, SEEKING, TABLE_II, WITH, WITHOUT, series, time, variant,
};
use crate::Prefill;
use crate::experiment::Measure::{MovedToSsds, VolumeLatency};
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Published, Quantity, Series, Test, Times};
use braid_base::DeviceClass;

const DB2_LOAD: &str = "db2-like,clients={x},repeat=4";
const WEB_LOAD: &str = "webserver-like,clients={x}";
const NEVER: &str = "working-set,as-published,reorganizations=0";
const AS_OFTEN: &str = "working-set,as-published,count=extent";
const TO_SSDS: &str = "working-set,as-published,count=extent,both=ssd";

const PUBLISHED: &str =
    "The abstract and section I give 3 to 10 times. The figure is plotted only, not published as numbers.";
const WINDOW: &str = "The paper has one number of clients; the others are ours. τ is a tenth of the run with that number, pauses included.";

const fn all(
    devices: &'static [(DeviceClass, &'static str)],
    [once, by_extents]: [&'static str; 2],
    load: &'static str,
) -> [Series; 6] {
    [
        series(WITHOUT, devices, NEVER, load),
        series(WITH, devices, once, load),
        variant(BY_EXTENTS, devices, by_extents, load),
        variant(OFTEN, devices, AS_OFTEN, load),
        variant(BOTH_TO_SSDS, devices, TO_SSDS, load),
        series(ALL_SSD, devices, "ssd-only", load),
    ]
}

const fn faster(at: u32) -> Test {
    time(WITH, &[WITHOUT], at, Published::Range(0.1, 1.0 / 3.0), Bound::Between(0.1, 1.0 / 3.0))
}

const fn claim(tests: &'static [Test], why: &'static str, instead: &'static [Quantity]) -> Claim {
    Claim {
        sentence: "The run takes a third to a tenth of the time.",
        place: "abstract and section I",
        origin: Origin::Paper,
        tests,
        why,
        instead,
    }
}

const WHY: &str = "What a first part of the run has shown moves once, in a pause: most of what is read later is not among it.";

/// The time with all data on the SSDs, and the amount of data moved to the SSDs.
const fn all_there(at: u32) -> [Quantity; 2] {
    [
        Quantity::Ratio { measure: VolumeLatency, of: ALL_SSD, to: &[WITHOUT], at },
        Quantity::Value { measure: MovedToSsds, series: WITH, at },
    ]
}

const ALL_THERE_8: [Quantity; 2] = all_there(8);
const ALL_THERE_4: [Quantity; 2] = all_there(4);

/// DB2 Parallel Edition.
pub const DB2: Experiment = Experiment {
    id: "working-set/fig3-db2",
    title: "DB2 with and without reorganization, on the devices of table II",
    paper: &PAPER,
    place: "figure 3(a) and section IV-B.1",
    axis: Axis::Numbers { label: "clients", places: &[1, 8] },
    series: &all(
        TABLE_II,
        [
            "working-set,as-published,window=19s,reorganizations=1",
            "working-set,as-published,count=extent,window=19s,reorganizations=1",
        ],
        DB2_LOAD,
    ),
    measures: &[VolumeLatency, MovedToSsds],
    counting: None,
    prefill: Prefill::Used,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &[],
    claims: &[claim(&[faster(8)], WHY, &ALL_THERE_8)],
    published: PUBLISHED,
    calibrated: &[],
    contradictions: &[],
    differs: &[WINDOW],
};

/// Parallel Web Server.
pub const WEB: Experiment = Experiment {
    id: "working-set/fig3-web",
    title: "A web server with and without reorganization, on the devices of table II",
    place: "figure 3(b) and section IV-B.1",
    axis: Axis::Numbers { label: "clients", places: &[1, 4] },
    series: &all(
        TABLE_II,
        [
            "working-set,as-published,window=15s,reorganizations=1",
            "working-set,as-published,count=extent,window=15s,reorganizations=1",
        ],
        WEB_LOAD,
    ),
    claims: &[claim(&[faster(4)], WHY, &ALL_THERE_4)],
    ..DB2
};

/// The same database on devices that seek.
pub const DB2_SEEKS: Experiment = Experiment {
    id: "working-set/seeks-db2",
    title: "DB2 with and without reorganization, on devices that seek",
    series: &all(
        SEEKING,
        [
            "working-set,as-published,window=70s,reorganizations=1",
            "working-set,as-published,count=extent,window=70s,reorganizations=1",
        ],
        DB2_LOAD,
    ),
    claims: &[claim(&[faster(8)], WHY, &ALL_THERE_8)],
    ..DB2
};

/// The same web server on devices that seek.
pub const WEB_SEEKS: Experiment = Experiment {
    id: "working-set/seeks-web",
    title: "A web server with and without reorganization, on devices that seek",
    series: &all(
        SEEKING,
        [
            "working-set,as-published,window=170s,reorganizations=1",
            "working-set,as-published,count=extent,window=170s,reorganizations=1",
        ],
        WEB_LOAD,
    ),
    claims: &[claim(&[faster(4)], WHY, &ALL_THERE_4)],
    ..WEB
};
