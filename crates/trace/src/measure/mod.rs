//! What papers say of a trace, from one pass over its records. Each measure has its file, which defines it.
//!
//! Memory: a few MiB, at most 64 MiB for times of arrival, and 50 to 100 bytes for each distinct block of 4
//! KiB up to [`Limits::blocks`]. A trace that touches more is measured on a sample of its blocks (see
//! `blocks.rs`), which [`Footprint::sampled_share`] tells.
//!
//! Reads and writes are measured; flushes and discards are counted, and have part in the arrivals alone.

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
use blocks::Blocks;
use braid_base::Op;

/// All measures of a trace. Field names carry their units in JSON.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Measured {
    /// How many requests of each kind, and how many bytes.
    #[serde(rename = "counts")]
    pub requests: Requests,
    /// How long, and how much at a time.
    pub rate: Rate,
    /// How large requests are.
    pub sizes: SizesByOp,
    /// What was touched at all.
    pub footprint: Footprint,
    /// From one request to the next.
    pub seeks: Seeks,
    /// How unequal blocks are.
    pub locality: Locality,
    /// How unevenly requests come.
    pub burstiness: Burstiness,
    /// How much lies between two references to a block.
    pub reuse: Reuse,
    /// What share an LRU cache would miss.
    pub miss_ratios: MissRatios,
    /// What is touched within a time.
    pub working_set: WorkingSet,
}

/// What bounds the memory of measuring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Distinct blocks of 4 KiB that are kept, 1024 at least.
    pub blocks: usize,
}

impl Default for Limits {
    /// 4 Mi blocks are 16 GiB of footprint, and take up to 400 MiB.
    fn default() -> Limits {
        Limits { blocks: 4 << 20 }
    }
}

/// The blocks that footprint, locality, reuse and miss ratio are told in, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Measures records as they come.
pub struct Measures {
    requests: Requests,
    rate: rate::Counting,
    sizes: sizes::Counting,
    blocks: Blocks,
    seeks: seeks::Counting,
    burstiness: burstiness::Counting,
    reuse: reuse::Counting,
    working_set: working_set::Counting,
}

impl Measures {
    /// Nothing measured yet.
    pub fn new(limits: Limits) -> Measures {
        Measures {
            requests: Requests::default(),
            rate: rate::Counting::default(),
            sizes: sizes::Counting::default(),
            blocks: Blocks::new(limits.blocks.max(1024)),
            seeks: seeks::Counting::default(),
            burstiness: burstiness::Counting::default(),
            reuse: reuse::Counting::default(),
            working_set: working_set::Counting::default(),
        }
    }

    /// Takes a record; their times do not run backwards.
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

    /// The measures of all that was taken.
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

/// A part of a whole; zero of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
