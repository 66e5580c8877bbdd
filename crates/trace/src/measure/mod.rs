//! Statistics of a trace as printed in papers, from one pass over its records. Each measure is defined in its
//! own file.
//!
//! Memory: a few MiB, at most 64 MiB for arrival times, and 50 to 100 bytes for each distinct block of 4 KiB
//! up to [`Limits::blocks`]. A trace that touches more blocks is measured on a sample of its blocks (see
//! `blocks.rs`). [`Footprint::sampled_share`] gives the share of the sample.
//!
//! Reads and writes are measured. Flushes and discards are counted, and are part of the arrivals only.

mod arrivals;
mod blocks;
mod burstiness;
mod distribution;
mod footprint;
mod locality;
mod miss_ratio;
mod neighbours;
mod rate;
mod recency;
mod requests;
mod reuse;
mod seeks;
mod sizes;
mod working_set;

pub(crate) use neighbours::mix;

pub use burstiness::{Burstiness, Counting as BurstinessCounting};
pub use distribution::Bucket;
pub use footprint::Footprint;
pub use locality::{Locality, Share};
pub use miss_ratio::{Method, MissRatio, MissRatios};
pub use rate::Rate;
pub use requests::Requests;
pub use reuse::Reuse;
pub use seeks::Seeks;
pub use sizes::{Sizes, SizesByOp};
pub use working_set::WorkingSet;

use crate::reader::Record;
use blocks::BlockTable;
use braid_base::Op;

/// All measures of a trace. Field names carry their units in JSON.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Measured {
    /// Requests and bytes by kind.
    #[serde(rename = "counts")]
    pub requests: Requests,
    /// Duration and rate.
    pub rate: Rate,
    /// Sizes of requests.
    pub sizes: SizesByOp,
    /// Distinct blocks touched.
    pub footprint: Footprint,
    /// Distances between consecutive requests.
    pub seeks: Seeks,
    /// Share of references to the hottest blocks.
    pub locality: Locality,
    /// Burstiness of arrivals.
    pub burstiness: Burstiness,
    /// Distinct blocks between two references to the same block.
    pub reuse: Reuse,
    /// Miss ratios of an LRU cache.
    pub miss_ratios: MissRatios,
    /// Distinct blocks touched within a window of time.
    pub working_set: WorkingSet,
}

/// Limits of the memory for measuring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Limit of distinct blocks of 4 KiB to remember, at least 1024.
    pub blocks: usize,
}

impl Default for Limits {
    /// 4 Mi blocks: 16 GiB of footprint, and up to 400 MiB of memory.
    fn default() -> Limits {
        Limits { blocks: 4 << 20 }
    }
}

/// Block size of footprint, locality, reuse and miss ratio, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Measures records one by one.
pub struct Measures {
    requests: Requests,
    rate: rate::Counting,
    sizes: sizes::Counting,
    blocks: BlockTable,
    seeks: seeks::Counting,
    burstiness: burstiness::Counting,
    reuse: reuse::Counting,
    working_set: working_set::Counting,
}

impl Measures {
    /// Creates an empty measurement.
    pub fn new(limits: Limits) -> Measures {
        Measures {
            requests: Requests::default(),
            rate: rate::Counting::default(),
            sizes: sizes::Counting::default(),
            blocks: BlockTable::new(limits.blocks.max(1024)),
            seeks: seeks::Counting::default(),
            burstiness: burstiness::Counting::default(),
            reuse: reuse::Counting::default(),
            working_set: working_set::Counting::default(),
        }
    }

    /// Adds a record. Times must not decrease.
    pub fn add(&mut self, record: &Record) {
        let (at, request) = (record.arrival.at, record.arrival.request);
        self.requests.add(request);
        self.rate.add(at, request);
        self.burstiness.add(at);
        if !matches!(request.op, Op::Read | Op::Write) {
            return;
        }
        self.sizes.add(request.op, request.len.0);
        self.seeks.add(record.device, record.within.0, request.len.0);
        let first = record.within.0 / BLOCK_BYTES;
        let last = (record.within.0 + request.len.0 - 1) / BLOCK_BYTES;
        let now = working_set::window(at);
        for block in first..=last {
            let Some(touch) = self.blocks.touch(record.device, block, request.op, now) else { continue };
            self.reuse.add(&touch);
            self.working_set.add(&touch, now);
        }
    }

    /// Returns the measures of all records.
    pub fn finish(self) -> Measured {
        let footprint = Footprint::of(&self.blocks);
        Measured {
            requests: self.requests,
            rate: self.rate.finish(),
            sizes: self.sizes.finish(),
            seeks: self.seeks.finish(),
            locality: Locality::of(&self.blocks),
            burstiness: self.burstiness.finish(),
            miss_ratios: MissRatios::of(&self.reuse, &self.blocks, footprint.footprint_blocks),
            reuse: self.reuse.finish(),
            working_set: self.working_set.finish(),
            footprint,
        }
    }
}

/// Returns a part as a share of a whole, or zero if the whole is zero.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
