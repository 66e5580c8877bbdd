//! Miss ratio of an LRU cache of 4 KiB blocks as a function of its size: from reuse distances, for all sizes
//! at once. Reads and writes both bring a block into the cache. A cache of c blocks misses first references
//! and references with a distance of c or more.
//!
//! With sampled blocks, the scaled number of references differs slightly from the true number. The difference
//! is added to the smallest distance, as in SHARDS_adj (Waldspurger et al., section 4.3).

use super::BLOCK_BYTES;
use super::blocks::BlockTable;
use super::reuse::Counting;

/// Miss ratios by cache size.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct MissRatios {
    /// Method of measurement.
    pub method: Method,
    /// Points by size, smallest first: four for each power of two, up to the first size that holds the whole
    /// footprint.
    pub points: Vec<MissRatio>,
}

/// Method of measuring miss ratios.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// From every reference (Mattson's stack).
    Exact,
    /// From references to a sample of blocks (SHARDS).
    Sampled,
}

/// Miss ratio at one size.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct MissRatio {
    /// Size of the cache.
    pub cache_size_bytes: u64,
    /// References that miss, as a share of all references.
    pub miss_ratio: f64,
}

/// Smallest cache, in blocks.
const SMALLEST: u64 = 16;

impl MissRatios {
    pub(super) fn of(reuse: &Counting, blocks: &BlockTable, footprint_blocks: u64) -> MissRatios {
        let references = blocks.references() as f64;
        let counted = (reuse.firsts + reuse.distances.total()) as f64;
        let adjusted = references - counted;
        let miss_ratio = |cache: u64| {
            let hits = (reuse.distances.below(cache) as f64 + adjusted).clamp(0.0, references);
            if references > 0.0 { 1.0 - hits / references } else { 0.0 }
        };
        let points = sizes(footprint_blocks)
            .map(|cache| MissRatio { cache_size_bytes: cache * BLOCK_BYTES, miss_ratio: miss_ratio(cache) })
            .collect();
        let method = if blocks.sampled_share() < 1.0 { Method::Sampled } else { Method::Exact };
        MissRatios { method, points }
    }
}

/// Returns powers of two and three sizes between each, up to the first size that holds all blocks.
fn sizes(footprint_blocks: u64) -> impl Iterator<Item = u64> {
    let quarter = |step: u64| (SMALLEST / 4 * (4 + step % 4)) << (step / 4);
    let mut all = footprint_blocks == 0;
    (0..160).map(quarter).take_while(move |&size| !std::mem::replace(&mut all, size >= footprint_blocks))
}
