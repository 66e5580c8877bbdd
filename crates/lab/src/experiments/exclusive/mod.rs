//! Hayashi and Komoda, "Evaluation of Exclusive Data Allocation Between SSD Tier and SSD Cache in Storage
//! Systems": figures 5 to 10.
//!
//! The workloads are made from figure 4 and table 1. Figures 5 to 8 are one workload each, with pages of 10
//! MB. Figure 9 compares the two methods over all four workloads, and figure 10 does so with pages of 100 MB.
//! "Existing" is the combination, "proposed" the exclusive method, as in the paper. `dram` and `drift` add
//! two features of the figures that are missing in these simulations: a DRAM cache, and moving popularity.
//! The horizontal axis is the SSD cache rate: the share of the SSDs for the cache; 0 is volume tiering alone,
//! 100 the SSD cache alone.

pub mod dram;
pub mod drift;
pub mod fig10;
pub mod fig5;
pub mod fig6;
pub mod fig7;
pub mod fig8;
pub mod fig9;

use crate::Prefill;
use crate::experiment::Bound::{LessThan, MoreThan};
use crate::experiment::Measure::{LatencyP99, VolumeLatency};
use crate::experiment::Published::Words;
use crate::experiment::Quantity::{Peak, Ratio, RatioOfBests, WorstRatio};
use crate::experiment::{
    Axis, Bound, Claim, Experiment, Origin, Paper, Published, Quantity, Series, Test, Times,
};
use braid_base::Bytes;
use braid_base::DeviceClass::{self, Hdd, Ssd};
use braid_engine::Readahead;

/// In the paper's order.
pub const ALL: &[&Experiment] = &[
    &fig5::EXPERIMENT,
    &fig6::EXPERIMENT,
    &fig7::EXPERIMENT,
    &fig8::EXPERIMENT,
    &fig9::EXPERIMENT,
    &fig10::EXPERIMENT,
    &dram::EXPERIMENT,
    &drift::EXPERIMENT,
];

const PAPER: Paper = Paper {
    title: "Hayashi and Komoda, \"Evaluation of Exclusive Data Allocation Between SSD Tier and SSD Cache in Storage Systems\"",
    year: 2014,
    system: "exclusive",
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(8 << 10),
    own_fill: true,
    differs: &[
        "The traces are not to be had whole: financial1-like and financial2-like stand in for them, with the shares of reads and mean sizes of the paper's table 1 \
         (figures=hayashi) and the shares of the busiest fifth in its figure 4. Which areas are popular does not change with time, as it did in the traces (exclusive/drift has it change). Requests begin at \
         multiples of 8 KiB, so that a write covers whole segments.",
        "Each trace has 122 or 90 requests a second, as the public traces have. Table 1 has 825 and 431, which for as long as the traces last would be 7 and 5 times as many requests \
         as there are in them; without the paper's DRAM cache a pair of disks could not serve them.",
        "20 disks instead of 1,140 to 1,360, scaled as table 2 is: ten RAID 1 pairs, each with a trace of its own, beside one to three pairs of SSDs. A trace spans 500 MiB \
         instead of 8.4 GB, a period is 100 s instead of an hour, a run four periods instead of twelve, of which two are measured. Seeks are shorter than over 8.4 GB. The paper counts its SSDs and gives no \
         sizes: here an SSD rate of 10 % is room for 10 % of the data.",
        "The devices are models: Fujitsu MBA3073 with its write cache, and a SATA SSD of today. The paper measured fixed response times of devices that it does not name.",
        "There is no DRAM cache, since the paper does not state the size of its own; exclusive/dram has several.",
        "No request waits for a purge: a dirty segment is written back when the one before it is purged, and a write that finds no room goes to its tier.",
    ],
};

const RATE_10: &[(DeviceClass, &str)] = &[(Ssd, "10%,model=sata-ssd,raid1=2,count=1"), DISKS];
const RATE_20: &[(DeviceClass, &str)] = &[(Ssd, "10%,model=sata-ssd,raid1=2,count=2"), DISKS];
const RATE_30: &[(DeviceClass, &str)] = &[(Ssd, "10%,model=sata-ssd,raid1=2,count=3"), DISKS];
/// SSDs of twice the size: 60 % of the data.
const RATE_30_DOUBLE: &[(DeviceClass, &str)] = &[(Ssd, "20%,model=sata-ssd,raid1=2,count=3"), DISKS];
/// The disks hold the whole volume, as in the paper.
const DISKS: (DeviceClass, &str) = (Hdd, "16%,model=mba3073,raid1=2,count=10");

const CACHE_RATES: Axis = Axis::Numbers { label: "SSD cache rate, %", places: &[0, 20, 40, 60, 80, 100] };

/// The series of a workload, at its SSD rates of 10, 20 and 30 %.
struct Names {
    existing: [&'static str; 3],
    proposed: [&'static str; 3],
}

const F1: Names = Names {
    existing: ["F1-10% existing", "F1-20% existing", "F1-30% existing"],
    proposed: ["F1-10% proposed", "F1-20% proposed", "F1-30% proposed"],
};
const F1_RW: Names = Names {
    existing: ["F1-rw-10% existing", "F1-rw-20% existing", "F1-rw-30% existing"],
    proposed: ["F1-rw-10% proposed", "F1-rw-20% proposed", "F1-rw-30% proposed"],
};
const F2: Names = Names {
    existing: ["F2-10% existing", "F2-20% existing", "F2-30% existing"],
    proposed: ["F2-10% proposed", "F2-20% proposed", "F2-30% proposed"],
};
const F2_RW: Names = Names {
    existing: ["F2-rw-10% existing", "F2-rw-20% existing", "F2-rw-30% existing"],
    proposed: ["F2-rw-10% proposed", "F2-rw-20% proposed", "F2-rw-30% proposed"],
};

/// The two methods with pages of one size.
#[derive(Clone, Copy)]
struct Methods {
    existing: &'static str,
    proposed: &'static str,
}

const PAGES_10: Methods = Methods {
    existing: "inclusive,as-published,cache={x}%,page=10MiB,period=100s",
    proposed: "exclusive,as-published,cache={x}%,page=10MiB,period=100s",
};
const PAGES_100: Methods = Methods {
    existing: "inclusive,as-published,cache={x}%,page=100MiB,period=100s",
    proposed: "exclusive,as-published,cache={x}%,page=100MiB,period=100s",
};

/// Pages of 10 MB and a cache rate of 80 %.
const AT_80: Methods = Methods {
    existing: "inclusive,as-published,cache=80%,page=10MiB,period=100s",
    proposed: "exclusive,as-published,cache=80%,page=10MiB,period=100s",
};

const fn series_of(names: &Names, methods: Methods, load: &'static str) -> [Series; 6] {
    let Names { existing, proposed } = names;
    let Methods { existing: inclusive, proposed: exclusive } = methods;
    [
        series(existing[0], RATE_10, inclusive, load),
        series(proposed[0], RATE_10, exclusive, load),
        series(existing[1], RATE_20, inclusive, load),
        series(proposed[1], RATE_20, exclusive, load),
        series(existing[2], RATE_30, inclusive, load),
        series(proposed[2], RATE_30, exclusive, load),
    ]
}

/// The series of all four workloads.
const fn all_series(methods: Methods, [f1, f1_rw, f2, f2_rw]: [&'static str; 4]) -> [Series; 24] {
    let all = [
        series_of(&F1, methods, f1),
        series_of(&F1_RW, methods, f1_rw),
        series_of(&F2, methods, f2),
        series_of(&F2_RW, methods, f2_rw),
    ];
    let mut flat = [all[0][0]; 24];
    let mut place = 0;
    while place < flat.len() {
        flat[place] = all[place / 6][place % 6];
        place += 1;
    }
    flat
}

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
        copies: 1,
        policy,
        load,
        block_size: None,
        metric: None,
        dram: None,
        variant_of: None,
    }
}

/// Reason why the combination is not ahead at an SSD rate of 30 %.
const STANDS_STILL: &str = "By the paper, data that leaves the tier is still in the combination's cache; here popularity stands still. Instead, two changes at once: in each period 20 of \
    each trace's 50 areas become its most popular, and SSDs hold 60 % of the data. At a cache rate of 60 % the combination is then ahead; the cache alone, where both methods are the same, is best.";

/// Note for comparisons at an SSD rate of 30 % and a cache rate of 80 %, where the paper's methods differ.
const CLOSE: &[&str] = &["The cache rate is 80 % throughout."];

/// Both methods at this rate, under two workloads.
const fn pairs_at([f1, f2]: [&'static str; 2], dram: Option<&'static str>) -> [Series; 4] {
    [
        Series { dram, ..series(F1.existing[2], RATE_30, AT_80.existing, f1) },
        Series { dram, ..series(F1.proposed[2], RATE_30, AT_80.proposed, f1) },
        Series { dram, ..series(F2.existing[2], RATE_30, AT_80.existing, f2) },
        Series { dram, ..series(F2.proposed[2], RATE_30, AT_80.proposed, f2) },
    ]
}

/// What section 5.1 says of both methods there, from a place of the axis on.
struct FromPlace<const PLACE: u32>;

impl<const PLACE: u32> FromPlace<PLACE> {
    const F1: &[Test] = &[faster_from(F1.existing[2], &[F1.proposed[2]], PLACE)];
    const F2: &[Test] = &[faster_from(F2.proposed[2], &[F2.existing[2]], PLACE)];

    const fn claims(f1: &'static str, f2: &'static str) -> [Claim; 2] {
        let claim = Claim {
            sentence: f1,
            place: "section 5.1",
            origin: Origin::Repeat,
            tests: Self::F1,
            why: "",
            instead: &[],
        };
        [claim, Claim { sentence: f2, tests: Self::F2, ..claim }]
    }
}

/// As [`figure`], with another axis.
const fn other_axis(
    id: &'static str,
    title: &'static str,
    place: &'static str,
    axis: Axis,
    series: &'static [Series],
    claims: &'static [Claim],
    differs: &'static [&'static str],
) -> Experiment {
    Experiment {
        axis,
        differs,
        published: "Nothing: the paper has no such figure.",
        ..figure(id, title, place, series, claims)
    }
}

/// A figure of one or all workloads.
const fn figure(
    id: &'static str,
    title: &'static str,
    place: &'static str,
    series: &'static [Series],
    claims: &'static [Claim],
) -> Experiment {
    Experiment {
        id,
        title,
        paper: &PAPER,
        place,
        axis: CACHE_RATES,
        series,
        measures: &[VolumeLatency, LatencyP99],
        counting: None,
        prefill: Prefill::All,
        times: Times { warm_up: 200, measured: 200 },
        jitter: &[],
        baselines: &[],
        claims,
        published: "The curves are plotted only, as multiples of the SSD cache alone at an SSD rate of 10 %, and the text compares them in words; the largest \
                    reduction is given as 23 %.",
        calibrated: &[],
        contradictions: CONTRADICTIONS,
        differs: &[],
    }
}

const CONTRADICTIONS: &[&str] = &[
    "The abstract and section 6 say that the proposed method is better with high locality, or with low locality and a large SSD. By section 5 and its figures it is with high \
     locality, or with low locality and a small SSD. Section 5 has the data, and is tested here.",
];

const fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}

/// The method has the shortest mean response time: shorter than the other method, each at its best rate, and
/// shorter than tiering or the cache alone.
const fn is_best(method: &'static str, other: &'static [&'static str]) -> [Test; 2] {
    let shorter = RatioOfBests { measure: VolumeLatency, of: method, to: other };
    let inside = Peak { measure: VolumeLatency, series: method, from: 20, to: 80 };
    [test(shorter, Words, LessThan(1.0)), test(inside, Words, MoreThan(1.0))]
}

/// The mean response time of one method at a cache rate, as a multiple of the other's.
const fn ratio(of: &'static str, to: &'static [&'static str], at: u32, bound: Bound) -> Test {
    test(Ratio { measure: VolumeLatency, of, to, at }, Words, bound)
}

/// One method is faster than the other at every place of the axis from one on.
const fn faster_from(of: &'static str, to: &'static [&'static str], from: u32) -> Test {
    test(WorstRatio { measure: VolumeLatency, of, to, from }, Words, LessThan(1.0))
}

/// One method is faster than the other at every cache rate with a difference.
const fn everywhere_faster(of: &'static str, to: &'static [&'static str]) -> Test {
    faster_from(of, to, 20)
}
