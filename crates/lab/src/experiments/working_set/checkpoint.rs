//! Bandwidth of a checkpoint: the paper promises not to sacrifice the bandwidth, but does not measure it.

use super::{PAPER, TABLE_II, series, test};
use crate::Prefill;
use crate::experiment::Measure::Throughput;
use crate::experiment::Quantity::RatioToSum;
use crate::experiment::{Axis, Bound, Claim, Experiment, Jitter, Origin, Published, Times};
use braid_base::DeviceClass::{self, Hdd, Ssd};

const SSDS: &[(DeviceClass, &str)] = &[(Ssd, "64GB,model=ws-ros-ssd,count=4")];
const DISKS: &[(DeviceClass, &str)] = &[(Hdd, "512GB,model=ws-ros-hdd,count=4")];
const LOAD: &str = "checkpoint,clients={x},state={state}MiB,rounds=2,reads=0,compute=0s";
const BY_BANDWIDTH: &str = "all, by write bandwidth";
const EVENLY: &str = "all, evenly";
const SSDS_ALONE: &str = "SSDs alone";
const DISKS_ALONE: &str = "disks alone";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "working-set/checkpoint",
    title: "Write bandwidth of checkpoints, by processes with a file each",
    paper: &PAPER,
    place: "section III-A, which says what is intended",
    axis: Axis::Numbers { label: "processes", places: &[4, 16] },
    series: &[
        series(BY_BANDWIDTH, TABLE_II, "working-set", LOAD),
        series(EVENLY, TABLE_II, "working-set,stripe=even", LOAD),
        series(SSDS_ALONE, SSDS, "stripe", LOAD),
        series(DISKS_ALONE, DISKS, "stripe", LOAD),
    ],
    measures: &[Throughput],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 2, measured: 4 },
    // The seed draws only this parameter of the load.
    jitter: &[Jitter { name: "state", low: 5837, high: 6451 }],
    baselines: &[],
    claims: &[Claim {
        sentence: "It has at least 95 % of the sum of all devices.",
        place: "section III-A: not sacrificed",
        origin: Origin::Aim,
        tests: &[test(
            RatioToSum { measure: Throughput, of: BY_BANDWIDTH, to: &[SSDS_ALONE, DISKS_ALONE], at: 16 },
            Published::Words,
            Bound::AtLeast(0.95),
        )],
        why: "",
        instead: &[],
    }],
    published: "Nothing: the paper has no figure for it.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "The load and the comparison are ours. In the first second, before the bandwidths are known, data goes to all devices evenly, and stays there when it is written over; the two seconds of warm-up leave that out.",
    ],
};
