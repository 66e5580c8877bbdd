//! The same experiments on nodes with an SSD and a disk each, joined by a network. The paper says only that
//! moves between nodes cost more. Link rates and latency are assumptions: from the Ethernet of the authors'
//! cluster (1 Gbit/s) to a network that is no limit.

use super::{OFTEN, WITHOUT, fig1, fig3, fig4, fig5, series, test, time};
use crate::Prefill;
use crate::experiment::Measure::{MovedBetweenNodes, MovedToSsds, Throughput, VolumeLatency};
use crate::experiment::Quantity::{RatioToSum, Value};
use crate::experiment::{Axis, Bound, Claim, Experiment, Origin, Published, Series, Test, Times};
use braid_base::DeviceClass::{self, Hdd, Ssd};

const SSDS: &[(DeviceClass, &str)] = &[(Ssd, "64GB,model=ws-ros-ssd,count=4,node=0-3")];
const DISKS: &[(DeviceClass, &str)] = &[(Hdd, "512GB,model=ws-ros-hdd,count=4,node=0-3")];
const TABLE_II: &[(DeviceClass, &str)] =
    &[(Ssd, "64GB,model=ws-ros-ssd,count=4,node=0-3"), (Hdd, "512GB,model=ws-ros-hdd,count=4,node=0-3")];
const SEEKING: &[(DeviceClass, &str)] =
    &[(Ssd, "64GB,model=x25-m,count=4,node=0-3"), (Hdd, "320GB,model=barracuda-7200.12,count=4,node=0-3")];
/// The four nodes of table II write 20 Gbit/s each, and read 88.
const AMPLE: &str = "100Gbit";
/// Links by the place on the axis.
const LINKS: &str = "{x}Gbit,latency=10us";

/// The series of an experiment, on nodes.
const fn on_nodes<const N: usize>(experiment: &Experiment) -> [Series; N] {
    assert!(experiment.series.len() == N, "all of them");
    let mut all = [experiment.series[0]; N];
    let mut place = 0;
    while place < N {
        all[place] = Series { devices: TABLE_II, network: Some(AMPLE), ..experiment.series[place] };
        place += 1;
    }
    all
}

/// Claims of the experiment, under conditions outside the paper.
const fn repeated<const N: usize>(claims: &[Claim]) -> [Claim; N] {
    assert!(claims.len() == N, "all of them");
    let mut all = [claims[0]; N];
    let mut place = 0;
    while place < N {
        all[place] = claims[place].repeated();
        place += 1;
    }
    all
}

const fn by_link(
    label: &'static str,
    devices: &'static [(DeviceClass, &'static str)],
    policy: &'static str,
    load: &'static str,
) -> Series {
    Series { network: Some(LINKS), ..series(label, devices, policy, load) }
}

/// Figure 1, writes.
pub const WRITES: Experiment = Experiment {
    id: "working-set/nodes-fig1-writes",
    title: "Activeness of SSDs and disks while a file is written, on nodes",
    series: &on_nodes::<2>(&fig1::WRITES),
    claims: &repeated::<2>(fig1::WRITES.claims),
    differs: AMPLY,
    ..fig1::WRITES
};

/// Figure 1, reads.
pub const READS: Experiment = Experiment {
    id: "working-set/nodes-fig1-reads",
    title: "Activeness of SSDs and disks while a file is read, on nodes",
    series: &on_nodes::<2>(&fig1::READS),
    claims: &repeated::<2>(fig1::READS.claims),
    differs: AMPLY,
    ..fig1::READS
};

const AMPLY: &[&str] = &[
    "Nodes with an SSD and a disk each, with links of 100 Gbit/s, which are not the limit, and no latency.",
];

/// Figure 3 by the links: DB2 on the devices of table II.
pub const DB2: Experiment = Experiment {
    id: "working-set/nodes-fig3-db2",
    title: "DB2 on nodes, by the rate of their links",
    axis: Axis::Numbers { label: "Gbit/s of a link", places: &[1, 10, 100] },
    series: &of_figure_3(TABLE_II, "db2-like,clients=8,repeat=4"),
    measures: &[VolumeLatency, MovedToSsds, MovedBetweenNodes],
    claims: &[INSIDE],
    published: "Nothing: the paper gives no network.",
    differs: &["The rates and the latency of 10 µs are ours."],
    ..fig3::DB2
};

/// Figure 3 by the links: a web server on the devices of table II.
pub const WEB: Experiment = Experiment {
    id: "working-set/nodes-fig3-web",
    title: "A web server on nodes, by the rate of their links",
    series: &of_figure_3(TABLE_II, "webserver-like,clients=4"),
    ..DB2
};

/// The same database on devices that seek.
pub const DB2_SEEKS: Experiment = Experiment {
    id: "working-set/nodes-seeks-db2",
    title: "DB2 on nodes with devices that seek, by the rate of their links",
    series: &of_figure_3(SEEKING, "db2-like,clients=8,repeat=4"),
    claims: &[INSIDE, FASTER],
    ..DB2
};

/// The same web server on devices that seek.
pub const WEB_SEEKS: Experiment = Experiment {
    id: "working-set/nodes-seeks-web",
    title: "A web server on nodes with devices that seek, by the rate of their links",
    series: &of_figure_3(SEEKING, "webserver-like,clients=4"),
    claims: &[INSIDE, FASTER],
    ..DB2
};

const fn of_figure_3(devices: &'static [(DeviceClass, &'static str)], load: &'static str) -> [Series; 2] {
    [
        by_link(WITHOUT, devices, "working-set,as-published,reorganizations=0", load),
        by_link(OFTEN, devices, "working-set,as-published,count=extent", load),
    ]
}

const INSIDE: Claim = Claim {
    sentence: "Moves stay inside nodes.",
    place: "section III-A: those between nodes cost more",
    origin: Origin::Repeat,
    tests: &[stays(1), stays(10), stays(100)],
    why: "",
    instead: &[],
};

const fn stays(at: u32) -> Test {
    test(Value { measure: MovedBetweenNodes, series: OFTEN, at }, Published::Words, Bound::AtMost(0.0))
}

const FASTER: Claim = Claim {
    sentence: "Requests take a third of the time at most.",
    place: "abstract and section I",
    origin: Origin::Repeat,
    tests: &[time(OFTEN, &[WITHOUT], 10, Published::Range(0.1, 1.0 / 3.0), Bound::Between(0.1, 1.0 / 3.0))],
    why: "",
    instead: &[],
};

/// Figure 4, DB2.
pub const DB2_HOTNESS: Experiment = Experiment {
    id: "working-set/nodes-fig4-db2",
    title: "DB2 on nodes, by the threshold of hotness",
    series: &on_nodes::<3>(&fig4::DB2),
    claims: &repeated::<2>(fig4::DB2.claims),
    differs: AMPLY,
    ..fig4::DB2
};

/// Figure 4, a web server.
pub const WEB_HOTNESS: Experiment = Experiment {
    id: "working-set/nodes-fig4-web",
    title: "A web server on nodes, by the threshold of hotness",
    series: &on_nodes::<3>(&fig4::WEB),
    claims: &repeated::<2>(fig4::WEB.claims),
    differs: AMPLY,
    ..fig4::WEB
};

/// Figure 5, DB2.
pub const DB2_WINDOW: Experiment = Experiment {
    id: "working-set/nodes-fig5-db2",
    title: "DB2 on nodes, by the width of the window",
    series: &on_nodes::<3>(&fig5::DB2),
    claims: AS_ON_ONE_HOST,
    differs: AMPLY,
    ..fig5::DB2
};

/// Figure 5, a web server.
pub const WEB_WINDOW: Experiment = Experiment {
    id: "working-set/nodes-fig5-web",
    title: "A web server on nodes, by the width of the window",
    series: &on_nodes::<3>(&fig5::WEB),
    claims: AS_ON_ONE_HOST,
    differs: AMPLY,
    ..fig5::WEB
};

const AS_ON_ONE_HOST: &[Claim] = &[
    fig5::DB2.claims[0].repeated(),
    Claim { why: ON_ONE_HOST, ..fig5::DB2.claims[1].repeated() },
    Claim { why: ON_ONE_HOST, ..fig5::DB2.claims[2].repeated() },
    fig5::DB2.claims[3].repeated(),
];
const ON_ONE_HOST: &str = "As on one host: see there.";

const WRITTEN: &str = "checkpoint,clients=16,state={state}MiB,rounds=2,reads=0,compute=0s";
const BY_BANDWIDTH: &str = "all, by write bandwidth";
const SSDS_ALONE: &str = "SSDs alone";
const DISKS_ALONE: &str = "disks alone";

/// The bandwidth of a checkpoint.
pub const CHECKPOINT: Experiment = Experiment {
    id: "working-set/nodes-checkpoint",
    title: "Write bandwidth of checkpoints on nodes, by the rate of their links",
    place: "section III-A, which says what is intended",
    axis: Axis::Numbers { label: "Gbit/s of a link", places: &[1, 10, 25, 100] },
    series: &[
        by_link(BY_BANDWIDTH, TABLE_II, "working-set", WRITTEN),
        by_link(SSDS_ALONE, SSDS, "stripe", WRITTEN),
        by_link(DISKS_ALONE, DISKS, "stripe", WRITTEN),
    ],
    measures: &[Throughput],
    prefill: Prefill::Used,
    times: Times { warm_up: 4, measured: 4 },
    baselines: &[],
    jitter: super::checkpoint::EXPERIMENT.jitter,
    claims: &[
        Claim {
            sentence: "It has at least 95 % of the sum of all devices if the network is not the limit.",
            place: "section III-A: not sacrificed",
            origin: Origin::Aim,
            tests: &[test(
                RatioToSum { measure: Throughput, of: BY_BANDWIDTH, to: &[SSDS_ALONE, DISKS_ALONE], at: 100 },
                Published::Words,
                Bound::AtLeast(0.95),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "If it is, it has at least 95 % of what four links carry.",
            place: "ours",
            origin: Origin::Aim,
            tests: &[test(
                Value { measure: Throughput, series: BY_BANDWIDTH, at: 1 },
                Published::Words,
                Bound::Between(475.0, 505.0),
            )],
            why: "",
            instead: &[],
        },
    ],
    ..DB2
};
