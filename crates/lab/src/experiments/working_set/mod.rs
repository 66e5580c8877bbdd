//! Chen, Liu, Roth and Chen, "Using Working Set Reorganization to Manage Storage Systems with Hard and Solid State Disks" (WS-ROS): figures 3, 4
//! and 5, and the wear of the SSDs, which the paper does not show.
//!
//! Not here: figure 1 (activeness under IOR), the model of equations 1 and 2 as a study of its own, and devices on several nodes with a network between them.

pub mod fig3;
pub mod fig4;
pub mod fig5;
pub mod wear;

use crate::experiment::{Axis, Bound, Experiment, Measure, Paper, Published, Quantity, Series, Test, Times};
use braid_base::DeviceClass::{self, Hdd, Ssd};
use braid_engine::Readahead;

/// In the paper's order, and what it leaves out.
pub const ALL: &[&Experiment] =
    &[&fig3::DB2, &fig3::WEB, &fig4::DB2, &fig4::WEB, &fig5::DB2, &fig5::WEB, &wear::EXPERIMENT];

const PAPER: Paper = Paper {
    title: "Chen, Liu, Roth and Chen, \"Using Working Set Reorganization to Manage Storage Systems with Hard and Solid State Disks\"",
    system: "working-set",
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    differs: &[
        "All eight devices are on one node: no network lies between them.",
        "The devices are models of an SSD and a disk of 2009, the disk of the class that the authors' cluster has. Table II of the paper gives latencies in seconds for a GB and none for a \
         request: its disks do not seek, and read a small piece as fast, in proportion, as a large one. What SSDs gain over disks of table II is 10 times at most for reads, and 4 for writes.",
        "The traces (Maryland applications) are not published in that form. The loads are generated (crates/workload/src/db2.rs, webserver.rs say what is assumed), \
         and pause: the paper says that data is reorganized in idle time, and not when there was some.",
        "Execution time is the mean latency of a read or write of the volume. The clients wait for nothing else, but for the pauses, which do not count.",
        "Data lies as the policy stripes it, evenly over all devices, when the load begins; an extent is 128 KiB, the paper's stripe 64 KiB (\"64 GB\" in table II is an error).",
    ],
};

/// Table II has 4 and 4.
const DEVICES: &[(DeviceClass, &str)] =
    &[(Ssd, "64GB,model=x25-m,count=4"), (Hdd, "320GB,model=barracuda-7200.12,count=4")];

const WITHOUT: &str = "without reorganization";
const WITH: &str = "with reorganization";
const TWICE: &str = "reorganized twice";

const fn series(label: &'static str, policy: &'static str, load: &'static str) -> Series {
    Series { label, devices: DEVICES, copies: 1, policy, load, variant_of: None }
}

const fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}

/// The time that requests take with reorganization, as a share of that without.
const fn time(
    of: &'static str,
    to: &'static [&'static str],
    at: u32,
    published: Published,
    bound: Bound,
) -> Test {
    test(Quantity::Ratio { measure: Measure::VolumeLatency, of, to, at }, published, bound)
}

/// Long enough for two bursts or queries, and the pauses after them, before anything is measured.
const TIMES: Times = Times { warm_up: 120, measured: 60 };
const HOTNESS: Axis = Axis::Numbers { label: "threshold-H", places: &[1, 2, 3, 5, 8, 12, 20] };
const WINDOW: Axis = Axis::Numbers { label: "window, s", places: &[2, 4, 9, 18, 36, 90] };
