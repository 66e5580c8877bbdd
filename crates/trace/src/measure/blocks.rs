//! The blocks that a trace touches, and what is remembered of each.
//!
//! Up to a limit, every block. Beyond it a sample, after Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC
//! Construction with SHARDS" (FAST 2015), section 3: a block belongs to the sample if a hash of its address
//! is below a threshold, so that all its references belong to it or none. Each time the sample outgrows the
//! limit the threshold is halved and blocks above it are forgotten (section 3.3 removes them one by one:
//! halving is simpler, and keeps at least half the limit). What is counted of a sample is scaled by the
//! inverse of its share at the time.

use super::neighbours::{Neighbours, mix};
use super::recency::Recency;
use braid_base::Op;
use hashbrown::HashMap;

pub(super) struct Blocks {
    seen: HashMap<u64, Seen, Neighbours>,
    recency: Recency,
    limit: usize,
    /// The sample is one block in two to this power.
    halvings: u32,
    references: u64,
}

/// What is remembered of a block.
struct Seen {
    references: u32,
    position: u32,
    window: u32,
    ops: u8,
}

/// A reference to a block of the sample.
pub(super) struct Touch {
    /// The reference before; none if the block was never touched.
    pub before: Option<Before>,
    /// How many references this one stands for.
    pub weight: u64,
}

pub(super) struct Before {
    /// How many other blocks were touched since, in the whole trace.
    pub distance: u64,
    /// When it was.
    pub window: u32,
}

pub(super) const READ: u8 = 1;
pub(super) const WRITTEN: u8 = 2;

/// Addresses have 56 bits at most, so that of their blocks 44 are left.
const BLOCK_BITS: u32 = 44;

impl Blocks {
    pub(super) fn new(limit: usize) -> Blocks {
        Blocks { seen: HashMap::default(), recency: Recency::new(), limit, halvings: 0, references: 0 }
    }

    /// A reference to a block; `None` if it does not belong to the sample.
    pub(super) fn touch(&mut self, device: u16, block: u64, op: Op, window: u32) -> Option<Touch> {
        self.references += 1;
        let key = u64::from(device) << BLOCK_BITS | block;
        if !sampled(key, self.halvings) {
            return None;
        }
        if self.recency.is_full() {
            let new = self.recency.renumber();
            self.seen.values_mut().for_each(|seen| seen.position = new(seen.position));
        }
        let op = if op == Op::Read { READ } else { WRITTEN };
        let weight = 1 << self.halvings;
        if let Some(seen) = self.seen.get_mut(&key) {
            let (position, newer) = self.recency.again(seen.position);
            let before = Before { distance: newer << self.halvings, window: seen.window };
            let references = seen.references.saturating_add(1);
            *seen = Seen { references, position, window, ops: seen.ops | op };
            return Some(Touch { before: Some(before), weight });
        }
        let position = self.recency.first();
        self.seen.insert(key, Seen { references: 1, position, window, ops: op });
        while self.seen.len() > self.limit {
            self.halve();
        }
        Some(Touch { before: None, weight })
    }

    fn halve(&mut self) {
        self.halvings += 1;
        let (halvings, recency) = (self.halvings, &mut self.recency);
        self.seen.retain(|&key, seen| {
            let stays = sampled(key, halvings);
            if !stays {
                recency.release(seen.position);
            }
            stays
        });
    }

    /// All references, also of blocks that are in no sample.
    pub(super) fn references(&self) -> u64 {
        self.references
    }

    /// The share of blocks that the sample is.
    pub(super) fn sampled_share(&self) -> f64 {
        0.5f64.powi(self.halvings as i32)
    }

    /// How many blocks of the whole trace have one of these marks, as far as the sample tells.
    pub(super) fn count(&self, has: impl Fn(u8) -> bool) -> u64 {
        (self.seen.values().filter(|seen| has(seen.ops)).count() as u64) << self.halvings
    }

    /// References to each block of the sample, in no order.
    pub(super) fn references_by_block(&self) -> Vec<u32> {
        self.seen.values().map(|seen| seen.references).collect()
    }
}

fn sampled(key: u64, halvings: u32) -> bool {
    halvings == 0 || mix(key).leading_zeros() >= halvings
}
