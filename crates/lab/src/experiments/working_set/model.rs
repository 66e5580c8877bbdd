//! Equations 1 and 2: reads of data with one half on a disk, and of data divided by the ratio γ of the two
//! read rates.
//!
//! T = γlns / 2 becomes γlns / (1 + γ): (1 + γ) / 2 times as fast, 3 times if γ is 5. The simulation does not
//! use the equations: one SSD, and one disk or two striped disks for γ = 5.

use super::{PAPER, series, test};
use crate::Prefill;
use crate::experiment::Measure::Throughput;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Published, Times};
use braid_base::DeviceClass::{self, Hdd, Ssd};

const TEN: &[(DeviceClass, &str)] = &[(Ssd, "64GB,model=ws-ros-ssd"), (Hdd, "512GB,model=ws-ros-hdd")];
const FIVE: &[(DeviceClass, &str)] =
    &[(Ssd, "64GB,model=ws-ros-ssd"), (Hdd, "1TB,model=ws-ros-hdd,raid0=2,unit=64KiB")];
const LOAD: &str = "random,read=100%,size=128KiB,span=8GiB,clients={x},requests=endless";
const EVENLY_FIVE: &str = "γ = 5, half and half";
const BY_FIVE: &str = "γ = 5, by γ";
const EVENLY_TEN: &str = "γ = 10, half and half";
const BY_TEN: &str = "γ = 10, by γ";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "working-set/model",
    title: "Equations 1 and 2 beside the simulation: reads of one SSD and one disk",
    paper: &PAPER,
    place: "section II-B, equations 1 and 2",
    axis: Axis::Numbers { label: "requests at a time", places: &[1, 4, 16, 64] },
    series: &[
        series(EVENLY_FIVE, FIVE, "static,ssd=50%", LOAD),
        series(BY_FIVE, FIVE, "static,ssd=83.3333%", LOAD),
        series(EVENLY_TEN, TEN, "static,ssd=50%", LOAD),
        series(BY_TEN, TEN, "static,ssd=90.9091%", LOAD),
    ],
    measures: &[Throughput],
    counting: None,
    prefill: Prefill::Used,
    times: Times { warm_up: 0, measured: 5 },
    jitter: &[],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "With γ = 5, data that lies by γ is read three times as fast.",
            place: "section II-B",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: BY_FIVE, to: &[EVENLY_FIVE], at: 64 },
                Published::Number(3.0),
                Bound::Between(2.7, 3.3),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With γ = 10, the ratio of table II, 5.5 times as fast.",
            place: "equations 1 and 2",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: BY_TEN, to: &[EVENLY_TEN], at: 64 },
                Published::Number(5.5),
                Bound::Between(4.95, 6.05),
            )],
            why: "",
            instead: &[],
        },
    ],
    published: "γ = 5 and three times as fast; the other ratio follows from the equations.",
    calibrated: &[],
    contradictions: &[],
    differs: &["γ = 5 is one SSD of table II beside two of its disks, striped."],
};
