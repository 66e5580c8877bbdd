//! The blocks that a trace touches, with the state of each block.
//!
//! Up to a limit, every block is remembered. Beyond the limit, a sample is remembered, after Waldspurger,
//! Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS" (FAST 2015), section 3. A block belongs
//! to the sample if a hash of its address is below a threshold, so either all references to a block count or
//! none. Each time the sample exceeds the limit, the threshold is halved and blocks above the threshold are
//! forgotten. (Section 3.3 removes blocks one by one. Halving is simpler, and keeps at least about half the
//! limit.) Counts of the sample are scaled by the inverse of the sample's share at the time.

use super::neighbours::{Neighbours, mix};
use super::recency::Recency;
use braid_base::Op;
use hashbrown::HashMap;

pub(super) struct BlockTable {
    seen: HashMap<u64, BlockState, Neighbours>,
    recency: Recency,
    limit: usize,
    /// The sample is one block in 2^`halvings`.
    halvings: u32,
    references: u64,
}

/// State of a block.
struct BlockState {
    references: u32,
    position: u32,
    window: u32,
    ops: u8,
}

/// A reference to a block of the sample.
pub(super) struct Touch {
    /// The last reference to the block. `None` for the first reference.
    pub before: Option<LastReference>,
    /// Number of references in the whole trace that this reference stands for.
    pub weight: u64,
}

pub(super) struct LastReference {
    /// Distinct other blocks touched since, scaled to the whole trace.
    pub distance: u64,
    /// Window of the last reference.
    pub window: u32,
}

pub(super) const READ: u8 = 1;
pub(super) const WRITTEN: u8 = 2;

/// Bits of a block number: addresses have at most 56 bits, and 12 bits are within a block.
const BLOCK_BITS: u32 = 44;

impl BlockTable {
    pub(super) fn new(limit: usize) -> BlockTable {
        BlockTable { seen: HashMap::default(), recency: Recency::new(), limit, halvings: 0, references: 0 }
    }

    /// References a block. `None` if the block does not belong to the sample.
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
            let before = LastReference { distance: newer << self.halvings, window: seen.window };
            let references = seen.references.saturating_add(1);
            *seen = BlockState { references, position, window, ops: seen.ops | op };
            return Some(Touch { before: Some(before), weight });
        }
        let position = self.recency.first();
        self.seen.insert(key, BlockState { references: 1, position, window, ops: op });
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

    /// Returns the number of all references, including references to blocks outside the sample.
    pub(super) fn references(&self) -> u64 {
        self.references
    }

    /// Returns the sample's share of all blocks.
    pub(super) fn sampled_share(&self) -> f64 {
        0.5f64.powi(self.halvings as i32)
    }

    /// Returns the number of blocks with matching marks in the whole trace, estimated from the sample.
    pub(super) fn count(&self, has: impl Fn(u8) -> bool) -> u64 {
        (self.seen.values().filter(|seen| has(seen.ops)).count() as u64) << self.halvings
    }

    /// Returns the number of references to each block of the sample, in no order.
    pub(super) fn references_by_block(&self) -> Vec<u32> {
        self.seen.values().map(|seen| seen.references).collect()
    }
}

fn sampled(key: u64, halvings: u32) -> bool {
    halvings == 0 || mix(key).leading_zeros() >= halvings
}
