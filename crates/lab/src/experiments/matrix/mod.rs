//! The cross-matrix: five systems as published and their heirs, each under the loads of all five papers, on
//! the same devices. No paper makes claims about these runs, and nothing is judged.
//!
//! The axis is the size of the SSD, as a share of the load's data.

use super::tiers::{Devices, series};
use crate::Prefill;
use crate::experiment::Measure::{SsdWritten, VolumeLatency, VolumeLatencyP99};
use crate::experiment::{Axis, Experiment, Paper, Series, Times};
use braid_base::Bytes;
use braid_base::DeviceClass::{Hdd, Ssd};
use braid_engine::Readahead;

/// A table for the loads of each paper.
pub const ALL: &[&Experiment] = &[
    &matrix("matrix/dbench", "dbench-like, of Wu and Reddy", &all(DBENCH), LASTING),
    &matrix("matrix/netapp", "the NetApp trace's like, of Wu and Reddy", &all(NETAPP), LASTING),
    &matrix("matrix/postmark", "PostMark-like, of Xiao and others", &all(POSTMARK), LASTING),
    &matrix("matrix/tpcc", "TPC-C-like, of Xiao and others", &all(TPCC), LASTING),
    &matrix("matrix/email", "Email-like, of Chen, Koufaty and Zhang", &all(EMAIL), Times::WHOLE),
    &matrix("matrix/financial1", "Financial 1's like, of Hayashi and Komoda", &all(FINANCIAL1), DAY),
    &matrix("matrix/financial2", "Financial 2's like, of Hayashi and Komoda", &all(FINANCIAL2), DAY),
    &matrix("matrix/db2", "DB2-like, of Chen, Liu, Roth and Chen", &all(DB2), Times::WHOLE),
    &matrix("matrix/web", "web-server-like, of Chen, Liu, Roth and Chen", &all(WEB), Times::WHOLE),
];

const PAPER: Paper = Paper {
    title: "The cross-matrix: ours",
    system: "matrix",
    year: 2026,
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(4 << 10),
    own_fill: false,
    differs: &[
        "The devices are those of today: a SATA SSD of the size on the axis, and a disk. No paper had these.",
        "All policies begin with the same data on the SSD, evenly taken from all of it, but for those that have all homes on the disk (hystor, cache, orthus) and for pass.",
        "PASS needs two copies, and an SSD for all of the data: its SSD has 110 % of that at every place.",
        "Settings are those of `as-published`, but for intervals that are longer than a run: hystor searches every second (`period=1s`), exclusive ranks pages every 10 s \
         (`period=10s`). Loads have the settings with which their papers' experiments run here.",
    ],
};

const BOTH: Devices = &[(Ssd, "{x}%,model=sata-ssd"), (Hdd, "500GB,model=exos-x20")];
const WHOLE: Devices = &[(Ssd, "110%,model=sata-ssd"), (Hdd, "500GB,model=exos-x20")];

const SIZES: Axis = Axis::Numbers { label: "SSD, % of the data", places: &[10, 30] };

const LASTING: Times = Times { warm_up: 60, measured: 60 };
const DAY: Times = Times { warm_up: 200, measured: 200 };

const DBENCH: &str = "dbench-like,think=100us,clients=8,requests=endless";
const NETAPP: &str = "netapp-like,think=950us,clients=8,requests=endless";
const POSTMARK: &str = "postmark-like,high=100KB,cached=90%,transactions=10M";
const TPCC: &str = "tpcc-like,warehouses=10,transactions=endless";
const EMAIL: &str = "email-like";
const FINANCIAL1: &str = "financial1-like,figures=hayashi,rate=122,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";
const FINANCIAL2: &str = "financial2-like,figures=hayashi,rate=90,span=500MiB,day=400s,grid=8KiB,volumes=10,stripe=10MiB,requests=endless";
const DB2: &str = "db2-like,clients=8,repeat=4";
const WEB: &str = "webserver-like,clients=4";

/// The five systems, a plain cache and its filters, the heirs, and Braid's own.
const fn all(load: &'static str) -> [Series; 13] {
    [
        series("wardrop", BOTH, "wardrop,as-published", load),
        Series { copies: 2, ..series("pass", WHOLE, "pass,as-published", load) },
        series("hystor", BOTH, "hystor,as-published,period=1s", load),
        series("exclusive", BOTH, "exclusive,as-published,period=10s", load),
        series("working-set", BOTH, "working-set,as-published", load),
        series("cache", BOTH, "cache,mode=write-back", load),
        series("cache, LARC", BOTH, "cache,mode=write-back,admit=larc", load),
        series("cache, SieveStore", BOTH, "cache,mode=write-back,admit=sievestore", load),
        series("orthus", BOTH, "orthus,mode=write-back", load),
        series("colloid", BOTH, "colloid,latency=all", load),
        series("most", BOTH, "most", load),
        series("equi", BOTH, "equi,mode=auto", load),
        series("disk only", BOTH, "hdd-only", load),
    ]
}

const fn matrix(
    id: &'static str,
    title: &'static str,
    series: &'static [Series],
    times: Times,
) -> Experiment {
    Experiment {
        id,
        title,
        paper: &PAPER,
        place: "ours",
        axis: SIZES,
        series,
        measures: &[VolumeLatency, VolumeLatencyP99, SsdWritten],
        counting: None,
        prefill: Prefill::Used,
        times,
        jitter: &[],
        baselines: &[],
        claims: &[],
        published: "Nothing: no paper compares these systems.",
        calibrated: &[],
        contradictions: &[],
        differs: &[],
    }
}
