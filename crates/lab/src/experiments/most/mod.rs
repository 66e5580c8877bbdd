//! Tu et al., "Getting the MOST out of your Storage Hierarchy with Mirror-Optimized Storage Tiering": the
//! main result, throughput compared with tiering, Colloid and Orthus. Loads are static, from negligible for
//! the performance device to several times its capacity.

pub mod disks;
pub mod load;

use super::tiers::{CLOSED, MODELS};
use crate::experiment::{Experiment, Paper};
use braid_base::Bytes;
use braid_engine::Readahead;

/// Reads, writes, and an SSD above disks.
pub const ALL: &[&Experiment] = &[&load::READ, &load::WRITE, &disks::EXPERIMENT];

const PAPER: Paper = Paper {
    title: "Tu, Wu, Arpaci-Dusseau and Arpaci-Dusseau, \"Getting the MOST out of your Storage Hierarchy with Mirror-Optimized Storage Tiering\"",
    system: "most",
    year: 2026,
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(4 << 10),
    own_fill: true,
    differs: &[
        MODELS,
        CLOSED,
        "The working set is as large as the performance device, as in the paper. HeMem is stood for by the tier of `exclusive`, which ranks extents by their requests every 2 s; BATMAN is not \
         among Braid's policies. crates/policy/src/most.rs says what else is not as in the paper.",
    ],
};

const TIERS: &str = "tiering by heat";
const ORTHUS: &str = "orthus, write-back";
const COLLOID: &str = "colloid, reads and writes";
const MOST: &str = "most";
