//! Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!": the main result, a
//! tiering system with and without balanced latencies as the load of the faster tier grows.

pub mod disks;
pub mod load;

use super::tiers::{CLOSED, MODELS};
use crate::experiment::{Experiment, Paper};
use braid_base::Bytes;
use braid_engine::Readahead;

/// Tiers of similar speed as in the paper, and an SSD above disks.
pub const ALL: &[&Experiment] = &[&load::EXPERIMENT, &disks::EXPERIMENT];

const PAPER: Paper = Paper {
    title: "Vuppalapati and Agarwal, \"Tiered Memory Management: Access Latency is the Key!\"",
    system: "colloid",
    year: 2024,
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(4 << 10),
    own_fill: true,
    differs: &[
        MODELS,
        CLOSED,
        "The paper's tiers are of memory, 70 and 135 ns apart, and an antagonist loads the faster one. Here both are devices, and the load itself is what becomes too much.",
        "The paper's text was not at hand. HeMem is stood for by the tier of `exclusive`, which ranks extents by their requests every 2 s. crates/policy/src/colloid.rs says what \
         else is not as in the paper.",
    ],
};

const TIERS: &str = "tiering by heat";
const COLLOID: &str = "colloid";
const ALL_REQUESTS: &str = "colloid, reads and writes";
