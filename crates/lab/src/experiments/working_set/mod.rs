//! Chen, Liu, Roth and Chen, "Using Working Set Reorganization to Manage Storage Systems with Hard and Solid
//! State Disks" (WS-ROS): figures 1, 3, 4 and 5, and the model of equations 1 and 2. Additions to the paper:
//! devices that seek, the bandwidth of a checkpoint, guests during a reorganization, the wear of the SSDs,
//! and the network between nodes.

pub mod checkpoint;
pub mod fig1;
pub mod fig3;
pub mod fig4;
pub mod fig5;
pub mod guests;
pub mod model;
pub mod nodes;
pub mod wear;

use crate::experiment::{Bound, Experiment, Measure, Paper, Published, Quantity, Series, Test};
use braid_base::Bytes;
use braid_base::DeviceClass::{self, Hdd, Ssd};
use braid_engine::Readahead;

/// In the paper's order, followed by the additions.
pub const ALL: &[&Experiment] = &[
    &fig1::WRITES,
    &fig1::READS,
    &model::EXPERIMENT,
    &fig3::DB2,
    &fig3::WEB,
    &fig3::DB2_SEEKS,
    &fig3::WEB_SEEKS,
    &fig4::DB2,
    &fig4::WEB,
    &fig5::DB2,
    &fig5::WEB,
    &checkpoint::EXPERIMENT,
    &guests::EXPERIMENT,
    &wear::EXPERIMENT,
    &nodes::WRITES,
    &nodes::READS,
    &nodes::DB2,
    &nodes::WEB,
    &nodes::DB2_SEEKS,
    &nodes::WEB_SEEKS,
    &nodes::DB2_HOTNESS,
    &nodes::WEB_HOTNESS,
    &nodes::DB2_WINDOW,
    &nodes::WEB_WINDOW,
    &nodes::CHECKPOINT,
];

const PAPER: Paper = Paper {
    title: "Chen, Liu, Roth and Chen, \"Using Working Set Reorganization to Manage Storage Systems with Hard and Solid State Disks\"",
    year: 2014,
    system: "working-set",
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(4 << 10),
    own_fill: true,
    differs: &[
        "The traces (Maryland applications) are not published in that form. The loads are generated (crates/workload/src/db2.rs, webserver.rs, checkpoint.rs say what \
         is assumed), and pause: the paper says that data is reorganized in idle time, and not when there was some.",
        "The devices of table II have two rates and no time for a request: their disks do not seek. Striped over four and four of them, data is read \
         at eight times the rate of a disk, and by shares of their rates at 44 times: 5.5 times as fast at most. If the first tenth of a run is as it was before, the run is 3.8 times \
         as fast at most. Ten times as fast needs data that lies on disks alone at first. 'Devices that seek' are models of an SSD and a disk of 2009.",
        "The paper gives no network between its nodes. All eight devices are on the host, and no network lies between, but where it says 'on nodes'.",
        "Execution time is the mean latency of a read or write of the volume over the whole run: clients wait for nothing else, but for the pauses, which do not count.",
        "An extent is 128 KiB, the paper's stripe 64 KiB (\"64 GB\" in its table II is an error), and moves as a whole. An extent is as hot as its hottest block; where it says 'by extents', all \
         requests to an extent count.",
    ],
};

/// Table II has 4 and 4.
const TABLE_II: &[(DeviceClass, &str)] =
    &[(Ssd, "64GB,model=ws-ros-ssd,count=4"), (Hdd, "512GB,model=ws-ros-hdd,count=4")];
/// The same number of devices that seek, of the class in the authors' cluster.
const SEEKING: &[(DeviceClass, &str)] =
    &[(Ssd, "64GB,model=x25-m,count=4"), (Hdd, "320GB,model=barracuda-7200.12,count=4")];

const WITHOUT: &str = "without reorganization";
const WITH: &str = "with reorganization";
const BY_EXTENTS: &str = "by extents";
const OFTEN: &str = "by extents, as often as it is due";
const BOTH_TO_SSDS: &str = "likewise, both=ssd";
const ALL_SSD: &str = "all on the SSDs";

const fn series(
    label: &'static str,
    devices: &'static [(DeviceClass, &'static str)],
    policy: &'static str,
    load: &'static str,
) -> Series {
    Series {
        label,
        devices,
        network: None,
        block_size: None,
        metric: None,
        copies: 1,
        policy,
        load,
        dram: None,
        variant_of: None,
    }
}

/// Another setting of [`WITH`].
const fn variant(
    label: &'static str,
    devices: &'static [(DeviceClass, &'static str)],
    policy: &'static str,
    load: &'static str,
) -> Series {
    Series { variant_of: Some(WITH), ..series(label, devices, policy, load) }
}

const fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}

/// Time of requests in one series, as a ratio to other series.
const fn time(
    of: &'static str,
    to: &'static [&'static str],
    at: u32,
    published: Published,
    bound: Bound,
) -> Test {
    test(Quantity::Ratio { measure: Measure::VolumeLatency, of, to, at }, published, bound)
}
