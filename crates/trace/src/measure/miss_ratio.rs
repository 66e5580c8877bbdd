//! The miss ratio of an LRU cache of blocks of 4 KiB, over its size: from reuse distances, all sizes at once.
//! Reads and writes both bring a block into the cache. A cache of c blocks misses first references and those
//! with a distance of c or more.
//!
//! Where blocks were sampled, the references of the sample, scaled, are not quite as many as there were: the
//! difference goes to the smallest distance, as in SHARDS_adj (Waldspurger et al., section 4.3).

use super::BLOCK_BYTES;
use super::blocks::Blocks;
use super::reuse::Counting;

/// Miss ratios by size of the cache.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct MissRatios {
    /// How they were found.
    pub method: Method,
    /// By size, smallest first: four for each power of two, up to what holds the whole footprint.
    pub points: Vec<MissRatio>,
}

/// How miss ratios were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// From every reference (Mattson's stack).
    Exact,
    /// From references to a sample of blocks (SHARDS).
    Sampled,
}

/// The miss ratio at one size.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct MissRatio {
    /// The size of the cache.
    pub cache_size_bytes: u64,
    /// References to blocks that it does not hold, as a share of all.
    pub miss_ratio: f64,
}

/// The smallest cache, in blocks.
const SMALLEST: u64 = 16;

impl MissRatios {
    pub(super) fn of(reuse: &Counting, blocks: &Blocks, footprint_blocks: u64) -> MissRatios {
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

/// Powers of two and three sizes between each, up to the first that holds all.
fn sizes(footprint_blocks: u64) -> impl Iterator<Item = u64> {
    let quarter = |step: u64| (SMALLEST / 4 * (4 + step % 4)) << (step / 4);
    let mut all = footprint_blocks == 0;
    (0..160).map(quarter).take_while(move |&size| !std::mem::replace(&mut all, size >= footprint_blocks))
}
