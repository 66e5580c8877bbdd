//! Wu and Reddy, "A Novel Approach to Manage A Hybrid Storage System": figures 1, 5 to 11 and table III.
//!
//! `page_cache` sweeps the machine's page cache, which the paper does not describe. Figures 2 to 4 show the
//! implementation; tables I and II are the workloads, checked by tests of the crate `workload`.

pub mod fig1;
pub mod fig10;
pub mod fig11;
pub mod fig5;
pub mod fig6;
pub mod fig7;
pub mod fig8;
pub mod fig9;
pub mod page_cache;
pub mod table3;
pub mod worn;

use crate::experiment::{
    Axis, Baseline, Bound, Counting, Experiment, Jitter, Measure, Paper, Published, Quantity, Series, Test,
};
use braid_base::Bytes;
use braid_base::DeviceClass::{self, Hdd, Ssd};
use braid_engine::Readahead;

/// In the paper's order, followed by a sweep of an unstated parameter.
pub const ALL: &[&Experiment] = &[
    &fig1::EXPERIMENT,
    &fig5::EXPERIMENT,
    &fig6::EXPERIMENT,
    &fig7::EXPERIMENT,
    &fig8::EXPERIMENT,
    &fig9::EXPERIMENT,
    &table3::EXPERIMENT,
    &worn::EXPERIMENT,
    &fig10::EXPERIMENT,
    &fig11::EXPERIMENT,
    &page_cache::EXPERIMENT,
];

const PAPER: Paper = Paper {
    title: "Wu and Reddy, \"A Novel Approach to Manage A Hybrid Storage System\"",
    year: 2012,
    system: "wardrop",
    readahead: Readahead::First,
    processors: Some(4),
    volume: None,
    cache_extents: 100,
    block_size: Bytes(4 << 10),
    own_fill: true,
    differs: &[
        "The workload is generated: counts and mean sizes of operations are those of tables I and II, and what they leave open \
         is estimated (crates/workload/src/dbench.rs and netapp.rs say what). The real dbench and the real trace are not used.",
        "The devices are models. Of the Fujitsu MBA3073 no data sheet was at hand, and its seek times, transfer rates and write \
         cache are assumed; of the Intel X25-M the inner workings are, and the rates are the sheet's and measured ones \
         (crates/model/src/library).",
        "File system and page cache are part of the workload's model. Throughput and latency are counted as dbench counts them: \
         with the operations that memory answers, and with those on names and attributes, which are taken to cost the \
         processor's time alone, each as much as a read or write on average. Each operation is timed, from the end of the \
         process's last one to its own: its time on the processor and what it waits for. The paper gives no percentiles.",
        "Four processors serve all processes, as in the paper's machine: first come, first served, for 10 ms at most, and without \
         preemption. Where more than four processes compute for long, as those of the NetApp trace do, the 99th percentile of an operation is \
         therefore about this assumed 10 ms. What the engine, the kernel and interrupts take of them is not modelled, but for what is part of a process's own \
         time.",
        "A process that has too much dirty writes all of it back in order of address, one request after another. Linux 2.6.28 submits \
         6 MiB at a time and waits for none of its requests alone, and pdflush writes beside the process: processes here have one \
         request outstanding each.",
        "The inode that ext2 writes at an fsync is left out, since what is derived from the paper's rates (short-lived writes, the \
         processor's time) was derived without it. With it (inodes=yes; x25-m and mba3073, four processors, 60 s after 60 s, seeds 1 to \
         5) ten processes of dbench make 4 % fewer operations on the SSD alone, and 9 % fewer on the disk alone.",
        "How long a run takes to its equilibrium is ours to measure; the paper does not say.",
        "Where the paper leaves something open, crates/policy/src/wardrop.rs says what is done: the lower bound is 1 %, the \
         first extents go to the SSDs but for that, and a sample of the average response time is a request; in 'wardrop, R by \
         period' it is the mean of a period. 'wardrop, no migration' moves nothing in the background, 'wardrop, allocation \
         only' nothing that has a place.",
        "Volumes begin empty, and the load itself writes its files there before anything is measured, so that allocation has \
         its part; reads of what is not yet written reach no device.",
    ],
};

const ONE_AND_ONE: &[(DeviceClass, &str)] = &[(Ssd, "80GB,model=x25-m"), (Hdd, "73GB,model=mba3073")];
const ONE_AND_TWO: &[(DeviceClass, &str)] = &[(Ssd, "80GB,model=x25-m"), (Hdd, "73GB,model=mba3073,count=2")];
const ONE_AND_FOUR: &[(DeviceClass, &str)] =
    &[(Ssd, "80GB,model=x25-m"), (Hdd, "73GB,model=mba3073,count=4")];
/// The X25-M as slow as in table III, which [`worn`] fits.
const WORN_AND_ONE: &[(DeviceClass, &str)] = &[(Ssd, "80GB,model=x25-m-worn"), (Hdd, "73GB,model=mba3073")];
const WITH_MEMORIGHT: &[(DeviceClass, &str)] =
    &[(Ssd, "32GB,model=memoright-gt"), (Hdd, "73GB,model=mba3073")];
const WITH_TRANSCEND: &[(DeviceClass, &str)] =
    &[(Ssd, "16GB,model=transcend-16g"), (Hdd, "73GB,model=mba3073")];

const DBENCH: &str = "dbench-like,think={think}us,clients={x},requests=endless";
const NETAPP: &str = "netapp-like,think={netapp_think}us,clients={x},requests=endless";

/// With 93 MiB for each process, memory holds a larger share than with the usual 100: [`worn`] fits it.
const NETAPP_FITTED: &str = "netapp-like,think={netapp_think}us,clients={x},files=93MiB,requests=endless";

/// Processor time of a request, derived from one number of the paper each: 5 % more or less.
const DBENCH_JITTER: &[Jitter] = &[Jitter { name: "think", low: 95, high: 105 }];
const NETAPP_JITTER: &[Jitter] = &[Jitter { name: "netapp_think", low: 902, high: 998 }];

/// Numbers of processes: the paper mentions 1, 2, 6, 8 and 10.
const PROCESSES: Axis = Axis::Numbers { label: "processes", places: &[1, 2, 4, 6, 8, 10, 12] };

const WARDROP: &str = "wardrop";
const BY_PERIOD: &str = "wardrop, R by period";
const NO_MIGRATION: &str = "wardrop, no migration";
const ALLOCATION_ONLY: &str = "wardrop, allocation only";
const SSD_ONLY: &str = "SSD only";
const HDD_FITTED: &str = "disk only, files of 93 MiB";
const WORN_ONLY: &str = "worn SSD only, files of 93 MiB";
const HDD_ONLY: &str = "disk only";
const STRIPE: &str = "stripe";

/// Operations of dbench: the sum of table I.
const DBENCH_COUNTS: Counting = Counting { programme: "dbench", operations: 19_615_625.0 };
/// Operations of the NetApp trace.
const NETAPP_COUNTS: Counting = Counting { programme: "dbench", operations: 428_763.0 };

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

/// The policy without background migration: only allocation, and writes to data held in memory, shift load.
const fn no_migration(devices: &'static [(DeviceClass, &'static str)], load: &'static str) -> Series {
    variant(NO_MIGRATION, WARDROP, devices, "wardrop,no-migration", load)
}

/// The policy without any migration.
const fn allocation_only(devices: &'static [(DeviceClass, &'static str)], load: &'static str) -> Series {
    variant(ALLOCATION_ONLY, WARDROP, devices, "wardrop,allocation-only", load)
}

/// The other reading of "0.99 previous average + 0.01 current sample": a sample is the mean of a period
/// instead of a request.
const fn by_period(
    label: &'static str,
    of: &'static str,
    devices: &'static [(DeviceClass, &'static str)],
    load: &'static str,
) -> Series {
    variant(label, of, devices, "wardrop,average=period", load)
}

const fn variant(
    label: &'static str,
    of: &'static str,
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
        variant_of: Some(of),
    }
}

/// Table III has the load of figures 6 and 9: throughput of each device alone, with one process and with ten.
const fn table_iii(series: &'static str, at: u32, published: f64) -> Baseline {
    Baseline { quantity: Quantity::Value { measure: Measure::Throughput, series, at }, published }
}

const TABLE_III: &[Baseline] = &[
    table_iii(HDD_ONLY, 1, 12.3106),
    table_iii(HDD_ONLY, 10, 25.9799),
    table_iii(SSD_ONLY, 1, 12.413),
    table_iii(SSD_ONLY, 10, 23.6754),
];

/// "Slightly more towards the disk" as the number of processes grows: from 2 to 10 the share falls, by at
/// most a fifth.
const fn slightly_less(series: &'static str) -> [Test; 2] {
    let measure = Measure::SsdShare;
    [
        test(
            Quantity::Change { measure, series, at: 10, from: 2 },
            Published::Words,
            Bound::Between(0.8, 0.99),
        ),
        test(Quantity::Fall { measure, series, from: 2, to: 10 }, Published::Words, Bound::AtMost(1.0)),
    ]
}

const fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}
