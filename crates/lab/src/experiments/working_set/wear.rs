//! Wear of the SSDs: the paper promises to lower the wear, but does not measure it. Bytes written to the SSDs
//! after data has been reorganized.

use super::{PAPER, WITH, WITHOUT, series, test};
use crate::Prefill;
use crate::experiment::Measure::{SsdWritten, VolumeLatency};
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Bound, Claim, Experiment, Jitter, Origin, Published, Times};
use braid_base::DeviceClass::{self, Hdd, Ssd};

/// An SSD with room for half of two checkpoints of 1 GiB.
const DEVICES: &[(DeviceClass, &str)] =
    &[(Ssd, "1GiB,model=x25-m"), (Hdd, "320GB,model=barracuda-7200.12,count=3")];
const LOAD: &str = "checkpoint,rounds=1M,compute={compute}ms,reads={x}";
const THROUGH: &str = "LRU cache of the same size, write-through";
const BACK: &str = "LRU cache of the same size, write-back";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "working-set/wear",
    title: "What is written to the SSD while checkpoints are written over and over, by how often each is read",
    paper: &PAPER,
    place: "sections III-A and III-B.3, which say what is intended",
    axis: Axis::Numbers { label: "reads of a checkpoint", places: &[0, 1, 2] },
    series: &[
        series(WITHOUT, DEVICES, "working-set,reorganizations=0", LOAD),
        series(WITH, DEVICES, "working-set", LOAD),
        series(THROUGH, DEVICES, "cache,mode=write-through,bypass=off", LOAD),
        series(BACK, DEVICES, "cache,mode=write-back,bypass=off", LOAD),
    ],
    measures: &[SsdWritten, VolumeLatency],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 90, measured: 60 },
    // The seed draws only this parameter of the load.
    jitter: &[Jitter { name: "compute", low: 1900, high: 2100 }],
    baselines: &[],
    claims: &[Claim {
        sentence: "The SSD is given at most half of the bytes that it is given as a cache.",
        place: "section III-B.3",
        origin: Origin::Aim,
        tests: &[test(
            Ratio { measure: SsdWritten, of: WITH, to: &[THROUGH, BACK], at: 1 },
            Published::Words,
            Bound::AtMost(0.5),
        )],
        why: "",
        instead: &[],
    }],
    published: "Nothing: the paper has no figure for it.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "The load, the devices and the comparison are ours. The caches take all requests, long streams too (`bypass=off`).",
    ],
};
