//! Chunks of 4 and 16 KiB: blocks, in the words of Braid.

use super::{
    BOTH, HDD, HDD_ALONE, HYSTOR, PAPER, POLICY, SIZES, SSD, SSD_ALONE, devices, email, series, times_longer,
};
use crate::Prefill;
use crate::experiment::Bound::{AtLeast, Between};
use crate::experiment::Measure::{HitRatio, Time};
use crate::experiment::Published::Words;
use crate::experiment::{Claim, Experiment, Origin, Series, Times};
use braid_base::Bytes;

const LARGE: &str = "hystor, chunks of 16 KiB";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/chunk",
    title: "E-mail: chunks of 4 and 16 KiB",
    paper: &PAPER,
    place: "evaluation, chunk size",
    axis: SIZES,
    series: &[
        series(HYSTOR, BOTH, POLICY, email::LOAD),
        Series { block_size: Some(Bytes(16 << 10)), ..series(LARGE, BOTH, POLICY, email::LOAD) },
        series(SSD, SSD_ALONE, "ssd-only", email::LOAD),
        series(HDD, HDD_ALONE, "hdd-only", email::LOAD),
    ],
    measures: &[Time, HitRatio],
    counting: None,
    prefill: Prefill::All,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &devices(20, 18.8),
    claims: &[
        Claim {
            sentence: "With a small SSD large chunks make it much slower: most requests are small, and hot and cold data lie in one chunk.",
            place: "chunk size",
            origin: Origin::Paper,
            tests: &[times_longer(LARGE, &[HYSTOR], 20, Words, AtLeast(1.2))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With a large SSD they can be afforded.",
            place: "chunk size",
            origin: Origin::Paper,
            tests: &[times_longer(LARGE, &[HYSTOR], 100, Words, Between(0.8, 1.2))],
            why: "",
            instead: &[],
        },
    ],
    published: "In a plot alone.",
    calibrated: &[],
    contradictions: &[],
    differs: &[],
};
