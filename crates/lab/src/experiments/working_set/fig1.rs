//! Figure 1: activeness, the share of the time with requests on a device, of SSDs and disks for writes and
//! for reads.

use super::{PAPER, TABLE_II, WITH, WITHOUT, series, test};
use crate::Prefill;
use crate::experiment::Measure::{Active, Throughput};
use crate::experiment::Quantity::{Ratio, Value};
use crate::experiment::{Axis, Bound, Claim, Experiment, Jitter, Origin, Published, Times};
use braid_base::DeviceClass::{Hdd, Ssd};

const AXIS: Axis = Axis::Numbers { label: "processes", places: &[4, 16] };
/// As IOR: all processes write segments of one file in turn.
const WRITES_LOAD: &str =
    "checkpoint,clients={x},state={state}MiB,layout=shared,rounds=1M,reads=0,compute=0s";
/// The same file is read repeatedly, with a pause of a second for reorganization.
const READS_LOAD: &str =
    "checkpoint,clients={x},state={read_state}MiB,layout=shared,rounds=1,reads=1M,wait=1s,compute=0s";
const EVENLY: &str = "working-set,as-published,reorganizations=0";

/// The seed draws only this parameter of the load.
const WRITES_JITTER: &[Jitter] = &[Jitter { name: "state", low: 3891, high: 4301 }];
const READS_JITTER: &[Jitter] = &[Jitter { name: "read_state", low: 243, high: 269 }];

/// Common parts of both experiments.
const BASE: Experiment = Experiment {
    id: "",
    title: "",
    paper: &PAPER,
    place: "figure 1 and section II-A",
    axis: AXIS,
    series: &[],
    measures: &[Active(Ssd), Active(Hdd), Throughput],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 5, measured: 20 },
    jitter: &[],
    baselines: &[],
    claims: &[],
    published: "Reads: the SSDs never exceeded 20 %. The rest is plotted only, not published as numbers.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "IOR over PVFS2 on two compute and two storage nodes is a load of its kind on four SSDs and four disks.",
    ],
};

/// Writes.
pub const WRITES: Experiment = Experiment {
    id: "working-set/fig1-writes",
    title: "Activeness of SSDs and disks while a file is written",
    series: &[
        series(WITHOUT, TABLE_II, EVENLY, WRITES_LOAD),
        series(WITH, TABLE_II, "working-set,as-published,stripe=bandwidth", WRITES_LOAD),
    ],
    jitter: WRITES_JITTER,
    claims: &[
        Claim {
            sentence: "Striped evenly, the SSDs are less active than the disks when a file is written.",
            place: "section II-A",
            origin: Origin::Paper,
            tests: &[
                test(
                    Value { measure: Active(Ssd), series: WITHOUT, at: 16 },
                    Published::Words,
                    Bound::AtMost(50.0),
                ),
                test(
                    Value { measure: Active(Hdd), series: WITHOUT, at: 16 },
                    Published::Words,
                    Bound::AtLeast(90.0),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Striped by their write bandwidth, all are active.",
            place: "section III-A: all of the available write bandwidth",
            origin: Origin::Paper,
            tests: &[
                test(
                    Value { measure: Active(Ssd), series: WITH, at: 16 },
                    Published::Words,
                    Bound::AtLeast(90.0),
                ),
                test(
                    Value { measure: Active(Hdd), series: WITH, at: 16 },
                    Published::Words,
                    Bound::AtLeast(90.0),
                ),
            ],
            why: "",
            instead: &[],
        },
    ],
    ..BASE
};

/// Reads.
pub const READS: Experiment = Experiment {
    id: "working-set/fig1-reads",
    title: "Activeness of SSDs and disks while a file is read",
    series: &[
        series(WITHOUT, TABLE_II, EVENLY, READS_LOAD),
        series(WITH, TABLE_II, "working-set,as-published", READS_LOAD),
    ],
    jitter: READS_JITTER,
    claims: &[
        Claim {
            sentence: "When a file is read, the SSDs are never more than 20 % active.",
            place: "section II-A",
            origin: Origin::Paper,
            tests: &[test(
                Value { measure: Active(Ssd), series: WITHOUT, at: 16 },
                Published::Range(0.0, 20.0),
                Bound::AtMost(20.0),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "After a reorganization it is read faster.",
            place: "section II-B",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: WITH, to: &[WITHOUT], at: 16 },
                Published::Words,
                Bound::MoreThan(1.0),
            )],
            why: "",
            instead: &[],
        },
    ],
    differs: &[
        "IOR over PVFS2 on two compute and two storage nodes is a load of its kind on four SSDs and four disks.",
        "The file is read many times, with a second between two times in which it may be reorganized; that second counts.",
    ],
    ..BASE
};
