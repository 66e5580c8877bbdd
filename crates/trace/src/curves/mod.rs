//! Miss ratios of caches of 4 KiB blocks, by eviction policy and cache size. A trace is read once. The
//! references to its blocks stay in memory (`references.rs`), and each cache is simulated on the references.
//!
//! Reads and writes both bring a block into the cache. A request of several blocks is a reference to each
//! block, in order. All blocks have the same size, and every missed block is admitted. [`Eviction::Belady`]
//! knows the future: no cache that admits every block has fewer misses.
//!
//! With a sample of the blocks, the simulated cache shrinks by the same share, after Waldspurger,
//! Saemundsson, Ahmad, Park, "Cache Modeling and Optimization using Miniature Simulations" (USENIX ATC 2017).
//! Blocks are sampled by a hash, as in SHARDS.

mod arc;
mod belady;
mod lirs;
mod lru;
mod queues;
mod references;
mod s3_fifo;
mod sieve;
mod w_tiny_lfu;

pub use references::{Collector, MOST_REFERENCES, References};

use crate::measure::BLOCK_BYTES;
use std::fmt;
use std::str::FromStr;

/// Eviction policy of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// Evicts the least recently used block.
    Lru,
    /// Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction" (SOSP 2023).
    S3Fifo,
    /// Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU" (NSDI 2024).
    Sieve,
    /// Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache" (FAST 2003).
    Arc,
    /// Jiang, Zhang, "LIRS: an efficient low inter-reference recency set replacement policy" (SIGMETRICS
    /// 2002).
    Lirs,
    /// Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy" (ACM Transactions on
    /// Storage, 2017).
    WTinyLfu,
    /// Belady's MIN (IBM Systems Journal, 1966): evicts the block with the most distant next use.
    Belady,
}

impl Eviction {
    /// All policies, the bound last.
    pub const ALL: [Eviction; 7] = [
        Eviction::Lru,
        Eviction::S3Fifo,
        Eviction::Sieve,
        Eviction::Arc,
        Eviction::Lirs,
        Eviction::WTinyLfu,
        Eviction::Belady,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Eviction::Lru => "lru",
            Eviction::S3Fifo => "s3-fifo",
            Eviction::Sieve => "sieve",
            Eviction::Arc => "arc",
            Eviction::Lirs => "lirs",
            Eviction::WTinyLfu => "w-tiny-lfu",
            Eviction::Belady => "belady",
        }
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Eviction {
    type Err = String;
    fn from_str(text: &str) -> Result<Eviction, String> {
        Eviction::ALL.into_iter().find(|eviction| eviction.name() == text).ok_or_else(|| {
            let names = Eviction::ALL.map(Eviction::name).join(", ");
            format!("'{text}' is not an eviction: use one of {names}")
        })
    }
}

/// A cache with a fixed number of blocks.
trait Cache {
    /// References a block, and returns true for a hit. The cache holds the block afterwards.
    fn reference(&mut self, block: u32) -> bool;
}

/// Returns the share of references that miss in a cache of the given size. `None` if the cache has no room
/// for a block of the sample.
///
/// Takes time in proportion to the references, and up to 32 bytes of memory for each distinct block.
pub fn miss_ratio(references: &References, eviction: Eviction, cache_size_bytes: u64) -> Option<f64> {
    let blocks = (cache_size_bytes / BLOCK_BYTES) as f64 * references.sampled_share();
    let blocks = (blocks.round() as usize).min(references.distinct());
    if blocks == 0 {
        return None;
    }
    let of =
        |cache: &mut dyn Cache| references.blocks().iter().filter(|&&block| !cache.reference(block)).count();
    let distinct = references.distinct();
    let misses = match eviction {
        Eviction::Lru => of(&mut lru::Lru::new(blocks, distinct)),
        Eviction::S3Fifo => of(&mut s3_fifo::S3Fifo::new(blocks, distinct)),
        Eviction::Sieve => of(&mut sieve::Sieve::new(blocks, distinct)),
        Eviction::Arc => of(&mut arc::ArcCache::new(blocks, distinct)),
        Eviction::Lirs => of(&mut lirs::Lirs::new(blocks, distinct)),
        Eviction::WTinyLfu => of(&mut w_tiny_lfu::WTinyLfu::new(blocks, distinct)),
        Eviction::Belady => of(&mut belady::Belady::new(blocks, references)),
    };
    Some(misses as f64 / references.blocks().len() as f64)
}

#[cfg(test)]
mod tests;
