//! `admit=larc`: a block enters the cache at its second miss, if the name left by the first miss is still
//! known.
//!
//! Huang, Wei, Feng, Chen, Chen, "Improving Flash-based Disk Cache with Lazy Adaptive Replacement" (MSST
//! 2013). With Q the blocks of a cache for C of them, and Qr a queue of names for C_r of them:
//!
//! ```text
//! at first    C_r = 0.1 C
//! hit in Q    C_r = max(0.1 C, C_r − C / (C − C_r))
//! miss        C_r = min(0.9 C, C_r + C / C_r)
//!             in Qr: the block leaves Qr and enters Q
//!             else:  its name enters Qr as the newest; if Qr is longer than C_r then, its oldest goes
//! ```
//!
//! The queue is short while the cache serves most requests. The queue is long while the cache serves few
//! requests: more blocks are then tried. The cache is filtered from the beginning, even while there is free
//! room.
//!
//! Deviations:
//! - Q is the order chosen by `evict`; the paper has LRU, which is the default.
//! - A piece of a request is admitted as a whole: if Qr has all missing blocks of the piece. The paper splits
//!   requests into blocks.
//! - Qr has at most `MOST_NAMES`, so that memory has a bound.
//! - The paper does not say whether C_r is a whole number. Here C_r is not.

use crate::Lru;
use braid_base::BlockId;

/// Filter with a queue of names.
pub struct Larc {
    /// Qr.
    names: Lru<BlockId>,
    /// C_r; none before the first request.
    len: Option<f64>,
}

/// The least and the largest C_r, as shares of C.
const LEAST: f64 = 0.1;
const LARGEST: f64 = 0.9;
/// Names of 16 GiB in blocks of 4 KiB, in some 200 MiB of memory.
const MOST_NAMES: usize = 1 << 22;

impl Larc {
    pub fn new() -> Larc {
        Larc { names: Lru::default(), len: None }
    }

    /// Records a guest's request for blocks, each cached or missing, in a cache for `capacity` blocks. True
    /// if the missing blocks enter.
    pub fn asked(&mut self, blocks: impl Iterator<Item = (BlockId, bool)> + Clone, capacity: f64) -> bool {
        let mut missed = blocks.clone().filter(|(_, is_cached)| !is_cached);
        let enter = missed.all(|(block, _)| self.names.contains(block));
        for (block, is_cached) in blocks {
            if is_cached {
                self.hit(capacity);
            } else {
                self.miss(block, enter, capacity);
            }
        }
        enter
    }

    fn hit(&mut self, capacity: f64) {
        let len = self.len(capacity);
        self.len = Some((len - capacity / (capacity - len)).max(LEAST * capacity));
    }

    fn miss(&mut self, block: BlockId, enters: bool, capacity: f64) {
        let len = self.len(capacity);
        let len = (len + capacity / len).min(LARGEST * capacity);
        self.len = Some(len);
        if enters {
            self.names.remove(block);
            return;
        }
        self.names.touch(block);
        if self.names.len() as f64 > len || self.names.len() > MOST_NAMES {
            self.names.pop_oldest();
        }
    }

    /// Returns C_r for the current capacity: the cache may have grown or shrunk since the last request.
    fn len(&self, capacity: f64) -> f64 {
        self.len.unwrap_or(LEAST * capacity).clamp(LEAST * capacity, LARGEST * capacity)
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.names.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: f64 = 100.0;

    fn miss(larc: &mut Larc, block: u64) -> bool {
        larc.asked([(BlockId(block), false)].into_iter(), CAPACITY)
    }

    fn hit(larc: &mut Larc, block: u64) {
        assert!(larc.asked([(BlockId(block), true)].into_iter(), CAPACITY), "nothing is missing");
    }

    fn len(larc: &Larc) -> f64 {
        larc.len.expect("it was asked")
    }

    /// C = 100: C_r is 10 at first. A miss makes C_r 10 + 100/10 = 20, the next miss 20 + 100/20 = 25, the
    /// third 25 + 100/25 = 29. A hit makes C_r 29 − 100/(100 − 29) = 27.5915…
    #[test]
    fn the_queue_grows_with_misses_and_shrinks_with_hits_as_computed_by_hand() {
        let mut larc = Larc::new();
        for (block, expected) in [(1, 20.0), (2, 25.0), (3, 29.0)] {
            assert!(!miss(&mut larc, block));
            assert!((len(&larc) - expected).abs() < 1e-9, "{}", len(&larc));
        }
        hit(&mut larc, 9);
        assert!((len(&larc) - (29.0 - 100.0 / 71.0)).abs() < 1e-9, "{}", len(&larc));
        assert!(miss(&mut larc, 2), "its second miss");
        assert!(!miss(&mut larc, 2), "it left the queue when it entered");
    }

    #[test]
    fn the_queue_has_a_tenth_of_the_cache_at_least_and_nine_tenths_at_most() {
        let mut larc = Larc::new();
        hit(&mut larc, 1);
        assert_eq!(len(&larc), 10.0);
        (0..200).for_each(|block| assert!(!miss(&mut larc, block)));
        assert_eq!(len(&larc), 90.0);
        assert_eq!(larc.names.len(), 90, "the last ones");
        assert!(!miss(&mut larc, 109), "it has just gone");
        assert!(miss(&mut larc, 112));
    }

    /// After many hits the queue is longer than C_r. An insertion drops a single name, not all excess names.
    #[test]
    fn overlong_queue_drops_oldest_name_at_each_insertion() {
        let mut larc = Larc::new();
        (0..50).for_each(|block| assert!(!miss(&mut larc, block)));
        (0..200).for_each(|_| hit(&mut larc, 1000));
        assert_eq!((len(&larc), larc.names.len()), (10.0, 50));
        assert!(!miss(&mut larc, 60));
        assert_eq!((len(&larc), larc.names.len()), (20.0, 50));
        assert!(!larc.names.contains(BlockId(0)) && larc.names.contains(BlockId(1)));
    }

    #[test]
    fn piece_is_admitted_if_all_missing_blocks_missed_before() {
        let mut larc = Larc::new();
        let piece =
            |larc: &mut Larc, cached: [bool; 3]| larc.asked((1..=3).map(BlockId).zip(cached), CAPACITY);
        assert!(!miss(&mut larc, 1));
        assert!(!piece(&mut larc, [false, true, false]), "3 is missed for the first time");
        assert!(piece(&mut larc, [false, true, false]), "1 was not forgotten meanwhile");
    }

    #[test]
    fn cache_without_blocks_admits_nothing() {
        let mut larc = Larc::new();
        let mut miss = || larc.asked([(BlockId(1), false)].into_iter(), 0.0);
        assert!(!miss() && !miss());
    }
}
