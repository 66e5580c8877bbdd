//! Wu et al., "The Storage Hierarchy is Not a Hierarchy: Optimizing Caching on Modern Storage Devices with
//! Orthus": the main result, classic caching compared with non-hierarchical caching as the load grows.

pub mod disks;
pub mod load;

use super::tiers::{CLOSED, MODELS};
use crate::experiment::{Experiment, Paper};
use braid_base::Bytes;
use braid_engine::Readahead;

/// The paper's hierarchy, and an SSD above disks.
pub const ALL: &[&Experiment] = &[&load::EXPERIMENT, &disks::EXPERIMENT];

const PAPER: Paper = Paper {
    title: "Wu and others, \"The Storage Hierarchy is Not a Hierarchy: Optimizing Caching on Modern Storage Devices with Orthus\"",
    system: "orthus",
    year: 2021,
    readahead: Readahead::Off,
    processors: None,
    volume: None,
    cache_extents: 0,
    block_size: Bytes(4 << 10),
    own_fill: true,
    differs: &[
        MODELS,
        CLOSED,
        "The paper's text was not at hand, but for its abstract. Its hierarchies of memory and Optane are not modelled. crates/policy/src/orthus.rs says what else is not as in the paper.",
    ],
};

const CACHE: &str = "classic cache";
const ORTHUS: &str = "orthus";
const LATENCY: &str = "orthus, for latency";
