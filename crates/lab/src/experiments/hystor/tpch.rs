//! Query 1 of TPC-H: scans in sequence.

use super::{HDD, HYSTOR, NO_WRITE_BACK, PAPER, SIZES, SSD, all, devices, hits, times_longer};
use crate::Prefill;
use crate::experiment::Bound::{AtMost, Between, Near};
use crate::experiment::Measure::{HitRatio, Time};
use crate::experiment::Published::{Number, Range, Words};
use crate::experiment::Quantity::Value;
use crate::experiment::{Claim, Experiment, Jitter, Origin, Series, Times};

const FOUR_SCANS: &str = "hystor, four scans";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/tpch",
    title: "TPC-H, query 1: execution time and hit ratio",
    paper: &PAPER,
    place: "evaluation, TPC-H Q1",
    axis: SIZES,
    series: &{
        let [ssd, hdd, hystor, no_write_back] = all("tpch-q1-like,cpu={cpu}");
        let four = Series { load: "tpch-q1-like,cpu={cpu},scans=4", label: FOUR_SCANS, ..hystor };
        [ssd, hdd, hystor, no_write_back, four]
    },
    measures: &[Time, HitRatio],
    counting: None,
    prefill: Prefill::All,
    times: Times::WHOLE,
    // A query with one fixed rate is either in step with the platter or not.
    jitter: &[Jitter { name: "cpu", low: 50, high: 62 }],
    baselines: &devices(20, 1.16),
    claims: &[
        Claim {
            sentence: "The disk alone takes 1.16 times as long as the SSD alone.",
            place: "execution time",
            origin: Origin::Fitted,
            tests: &[times_longer(HDD, &[SSD], 20, Number(1.16), Near(0.05))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With a small SSD it is 2 to 5 % slower than the disk alone.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HYSTOR, &[HDD], 20, Range(1.02, 1.05), Between(1.02, 1.05))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "The hit ratio is about 30 to 40 % there.",
            place: "hit ratio",
            origin: Origin::Paper,
            tests: &[hits(HYSTOR, 20, Range(30.0, 40.0), Between(30.0, 40.0))],
            why: "How often the authors ran the query is not published: the first of two scans finds nothing on the SSD. Instead: four scans.",
            instead: &[Value { measure: HitRatio, series: FOUR_SCANS, at: 20 }],
        },
        Claim {
            sentence: "Without a write-back area it is no more than 5 % slower than the disk alone.",
            place: "ours",
            origin: Origin::Aim,
            tests: &[times_longer(NO_WRITE_BACK, &[HDD], 20, Words, AtMost(1.05))],
            why: "",
            instead: &[],
        },
    ],
    published: "1.16 times, 2 to 5 %, and 30 to 40 % are given as numbers; the curves are in plots.",
    calibrated: &[
        "1.16: the rate at which the query works through its data (crates/workload/src/tpch.rs) was chosen for it, with other models.",
    ],
    contradictions: &[],
    differs: &[],
};
