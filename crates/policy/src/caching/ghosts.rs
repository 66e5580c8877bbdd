//! Blocks that have left a cache not long ago: their names alone, 8 bytes each.
//!
//! A table of buckets of four. A block is known by a part of its hash; the oldest of a full bucket makes
//! room. So a few are forgotten early, and hardly ever one is taken for another: what is asked here decides
//! where a block is put, and not whether its bytes are right.

use braid_base::BlockId;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// The last blocks that were remembered, as many as the caller says.
#[derive(Default)]
pub struct Ghosts {
    hasher: FixedState,
    buckets: Vec<[Ghost; WAYS]>,
    /// How many were remembered so far, modulo 2^32.
    clock: u32,
}

#[derive(Clone, Copy, Default)]
struct Ghost {
    tag: u32,
    /// The clock when it was remembered.
    since: u32,
}

const WAYS: usize = 4;
/// Buckets of the smallest table.
const FEWEST: usize = 64;

impl Ghosts {
    /// Remembers a block. The table is as large as `most` needs; where it grows it begins empty, which
    /// happens while a cache fills.
    pub fn remember(&mut self, block: BlockId, most: usize) {
        let wanted = (most / WAYS).next_power_of_two().max(FEWEST);
        if self.buckets.len() < wanted {
            self.buckets = vec![[Ghost::default(); WAYS]; wanted];
            // An empty place is one that was remembered long ago.
            self.clock = u32::MAX / 2;
        }
        self.clock = self.clock.wrapping_add(1);
        let (bucket, tag) = self.place_of(block);
        let clock = self.clock;
        let age = |ghost: &&mut Ghost| clock.wrapping_sub(ghost.since);
        let oldest = self.buckets[bucket].iter_mut().max_by_key(age).expect("a bucket has places");
        *oldest = Ghost { tag, since: clock };
    }

    /// Forgets a block; whether it was among the last `most`.
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

    /// Bytes of memory that they take.
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
    fn the_last_ones_are_known_once_and_older_ones_are_not() {
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
