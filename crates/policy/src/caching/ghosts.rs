//! Ghosts: names of blocks evicted from a cache recently, 8 bytes each.
//!
//! The table has buckets of four. A block is identified by a part of its hash; in a full bucket the oldest
//! entry makes room. A few blocks are therefore forgotten early, and a block is hardly ever mistaken for
//! another. A mistake affects only the placement of a block, not the correctness of its bytes.

use braid_base::BlockId;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Most recently remembered blocks, as many as the caller asks for.
#[derive(Default)]
pub struct Ghosts {
    hasher: FixedState,
    buckets: Vec<[Ghost; WAYS]>,
    /// Number of blocks remembered so far, modulo 2^32.
    clock: u32,
}

#[derive(Clone, Copy, Default)]
struct Ghost {
    tag: u32,
    /// Clock at the time of remembering.
    since: u32,
}

const WAYS: usize = 4;
/// Buckets of the smallest table.
const FEWEST: usize = 64;

impl Ghosts {
    /// Remembers a block. The table is as large as `most` needs. A grown table begins empty; the table grows
    /// while a cache fills.
    pub fn remember(&mut self, block: BlockId, most: usize) {
        let wanted = (most / WAYS).next_power_of_two().max(FEWEST);
        if self.buckets.len() < wanted {
            self.buckets = vec![[Ghost::default(); WAYS]; wanted];
            // An empty place counts as remembered long ago.
            self.clock = u32::MAX / 2;
        }
        self.clock = self.clock.wrapping_add(1);
        let (bucket, tag) = self.place_of(block);
        let clock = self.clock;
        let age = |ghost: &&mut Ghost| clock.wrapping_sub(ghost.since);
        let oldest = self.buckets[bucket].iter_mut().max_by_key(age).expect("a bucket has places");
        *oldest = Ghost { tag, since: clock };
    }

    /// Forgets a block; true if the block was among the last `most`.
    pub fn forget(&mut self, block: BlockId, most: usize) -> bool {
        if self.buckets.is_empty() {
            return false;
        }
        let ((bucket, tag), clock) = (self.place_of(block), self.clock);
        let is_known =
            |ghost: &&mut Ghost| ghost.tag == tag && (clock.wrapping_sub(ghost.since) as usize) < most;
        let known = self.buckets[bucket].iter_mut().find(is_known);
        known.map(|ghost| ghost.since = clock.wrapping_sub(u32::MAX / 2)).is_some()
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.buckets.capacity() * size_of::<[Ghost; WAYS]>()
    }

    fn place_of(&self, block: BlockId) -> (usize, u32) {
        let hash = self.hasher.hash_one(block.0);
        (hash as usize & (self.buckets.len() - 1), (hash >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latest_ghosts_are_known_and_only_once() {
        let mut ghosts = Ghosts::default();
        (0..1000).for_each(|block| ghosts.remember(BlockId(block), 100));
        let known = |ghosts: &mut Ghosts, blocks: std::ops::Range<u64>| {
            blocks.filter(|&block| ghosts.forget(BlockId(block), 100)).count()
        };
        assert_eq!(known(&mut ghosts, 0..900), 0);
        assert!((95..=100).contains(&known(&mut ghosts, 900..1000)), "buckets of four lose few");
        assert_eq!(known(&mut ghosts, 900..1000), 0);
    }
}
