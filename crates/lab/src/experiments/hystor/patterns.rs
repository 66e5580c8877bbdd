//! Strengths of an SSD: bandwidth by pattern and size of request.

use super::{HDD_ALONE, HDD_THROUGH, PAPER, SSD_ALONE, series, test};
use crate::Prefill;
use crate::experiment::Bound::{Between, Near};
use crate::experiment::Measure::Throughput;
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::{Best, Change, Ratio, Value};
use crate::experiment::{Axis, Bound, Claim, Experiment, Jitter, Origin, Series, Times};

const SSD_RANDOM_READ: &str = "SSD, random reads";
const SSD_RANDOM_WRITE: &str = "SSD, random writes";
const SSD_SEQUENTIAL_READ: &str = "SSD, sequential reads";
const SSD_SEQUENTIAL_WRITE: &str = "SSD, sequential writes";
const HDD_RANDOM_READ: &str = "disk, random reads";
const HDD_RANDOM_WRITE: &str = "disk, random writes";
const HDD_SEQUENTIAL_READ: &str = "disk, sequential reads";
const HDD_SEQUENTIAL_WRITE: &str = "disk, sequential writes";

const HDD_THROUGH_WRITE: &str = "disk, random writes, no write cache";

const RANDOM_READ: &str = "random,span={span}MiB,read=100%,size={x}KiB,requests=endless";
const RANDOM_WRITE: &str = "random,span={span}MiB,read=0%,size={x}KiB,requests=endless";
const SEQUENTIAL_READ: &str = "sequential,span={span}MiB,read=100%,size={x}KiB,requests=endless";
const SEQUENTIAL_WRITE: &str = "sequential,span={span}MiB,read=0%,size={x}KiB,requests=endless";

const fn ssd(label: &'static str, load: &'static str) -> Series {
    series(label, SSD_ALONE, "ssd-only", load)
}

const fn hdd(label: &'static str, load: &'static str) -> Series {
    series(label, HDD_ALONE, "hdd-only", load)
}

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/patterns",
    title: "SSD and disk by pattern and size of request",
    paper: &PAPER,
    place: "SSD performance advantages",
    axis: Axis::Numbers { label: "request, KiB", places: &[4, 8, 16, 32, 64, 128, 256] },
    series: &[
        ssd(SSD_RANDOM_READ, RANDOM_READ),
        ssd(SSD_RANDOM_WRITE, RANDOM_WRITE),
        ssd(SSD_SEQUENTIAL_READ, SEQUENTIAL_READ),
        ssd(SSD_SEQUENTIAL_WRITE, SEQUENTIAL_WRITE),
        hdd(HDD_RANDOM_READ, RANDOM_READ),
        hdd(HDD_RANDOM_WRITE, RANDOM_WRITE),
        hdd(HDD_SEQUENTIAL_READ, SEQUENTIAL_READ),
        hdd(HDD_SEQUENTIAL_WRITE, SEQUENTIAL_WRITE),
        series(HDD_THROUGH_WRITE, HDD_THROUGH, "hdd-only", RANDOM_WRITE),
    ],
    measures: &[Throughput],
    counting: None,
    prefill: Prefill::All,
    times: Times { warm_up: 2, measured: 10 },
    // For sequential loads the seed draws only this parameter.
    jitter: &[Jitter { name: "span", low: 7782, high: 8602 }],
    baselines: &[],
    claims: &[
        Claim {
            sentence: "Random reads of 4 KiB are 7.7 times as fast as on the disk.",
            place: "SSD performance advantages",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: SSD_RANDOM_READ, to: &[HDD_RANDOM_READ], at: 4 },
                Number(7.7),
                Bound::about(7.7),
            )],
            why: "Not explained: a seek and half a turn bound the disk, and the SSD has the rate of its sheet. Requests of 128 KiB have the talk's ratio here; the talk says 4 KB.",
            instead: &[],
        },
        Claim {
            sentence: "Random writes of 4 KiB are 28.5 times as fast as on the disk.",
            place: "SSD performance advantages",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: SSD_RANDOM_WRITE, to: &[HDD_RANDOM_WRITE], at: 4 },
                Number(28.5),
                Bound::about(28.5),
            )],
            why: "The model's disk takes writes into its buffer and sorts them. Instead: its write cache is off. The talk, however, had the caches of all devices on.",
            instead: &[Ratio { measure: Throughput, of: SSD_RANDOM_WRITE, to: &[HDD_THROUGH_WRITE], at: 4 }],
        },
        Claim {
            sentence: "Random and sequential writes to the SSD are almost the same.",
            place: "SSD performance advantages",
            origin: Origin::Paper,
            tests: &[test(
                Ratio { measure: Throughput, of: SSD_RANDOM_WRITE, to: &[SSD_SEQUENTIAL_WRITE], at: 32 },
                Words,
                Between(0.9, 1.1),
            )],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "From requests of 32 KiB on, writes to the SSD have about all of their bandwidth, 180 MB/s.",
            place: "SSD performance advantages",
            origin: Origin::Paper,
            tests: &[
                test(
                    Value { measure: Throughput, series: SSD_RANDOM_WRITE, at: 32 },
                    Number(180.0),
                    Near(0.15),
                ),
                test(
                    Change { measure: Throughput, series: SSD_RANDOM_WRITE, at: 256, from: 32 },
                    Words,
                    Between(0.9, 1.2),
                ),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Writes to the SSD reach 194 MB/s.",
            place: "SSD performance advantages",
            origin: Origin::Paper,
            tests: &[test(Best { measure: Throughput, series: SSD_RANDOM_WRITE }, Number(194.0), Near(0.15))],
            why: "",
            instead: &[],
        },
    ],
    published: "7.7 and 28.5 times, 180 MB/s at 32 KiB and up to 194 MB/s are given as numbers; the curves are in plots.",
    calibrated: &[],
    contradictions: &[],
    differs: &[
        "The talk's tool, Intel's Open Storage Toolkit, is not described: one request at a time here, over 8 GiB.",
    ],
};
