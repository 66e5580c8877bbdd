//! `admit=sievestore`: a block enters the cache after many misses within a window of time, counted by two
//! tables.
//!
//! Pritchett and Thottethodi, "SieveStore: A Highly-selective, Ensemble-level Disk Cache for
//! Cost-performance" (ISCA 2010), the continuous variant, SieveStore-C. The *imprecise* table (IMCT) has one
//! counter for all blocks with the same hash value. A miss counts there; once the counter has reached `t1`, a
//! miss also counts in the *precise* table (MCT), which has an entry per block. Once the precise count has
//! reached `t2`, the block enters the cache. Both tables count the misses of a sliding window of
//! `sieve-window`, in `subwindows` counters of an equal part each; the oldest counter is cleared as time
//! passes. Most blocks are requested a few times only, and therefore cost no precise entry.
//!
//! Deviations:
//! - The values of t1, t2, the window and the number of parts were written down from memory, not checked
//!   against the paper: 9, 4, 8 hours, 4.
//! - A window of 8 hours is longer than most experiments here. Until the first window has passed, the count
//!   is of all misses so far.
//! - The size of the tables is Braid's own: an entry in each table for each block of the cache, up to 2^20.
//!   If the precise table is full, the block with the oldest last miss leaves.
//! - A piece of a request is admitted as a whole: if all missing blocks of the piece are admitted. The paper
//!   counts blocks of 512 bytes.
//! - Counters end at 255, as do `t1` and `t2`.

use crate::{BadSetting, Lru, Settings};
use braid_base::{BlockId, Nanos};
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Filter with both tables.
pub struct SieveStore {
    t1: u64,
    t2: u64,
    window: Nanos,
    subwindows: usize,
    hasher: FixedState,
    imprecise: Vec<Misses>,
    precise: Lru<BlockId, Misses>,
}

/// Misses of a window.
#[derive(Clone, Copy, Default)]
struct Misses {
    /// Last part of the time with a miss.
    part: u32,
    /// By part, in a ring.
    counts: [u8; MOST_SUBWINDOWS],
}

const T1: u64 = 9;
const T2: u64 = 4;
const WINDOW: Nanos = Nanos::from_secs(8 * 3600);
const SUBWINDOWS: u64 = 4;
const MOST_SUBWINDOWS: usize = 8;
/// Entries of a table: 12 bytes each in the imprecise table, some 50 in the precise table.
const FEWEST_ENTRIES: usize = 1 << 10;
const MOST_ENTRIES: usize = 1 << 20;

impl SieveStore {
    /// Reads the settings `t1` (9), `t2` (4), `sieve-window` (8h), `subwindows` (4). Fails for values outside
    /// the limits.
    pub fn take(settings: &mut Settings) -> Result<SieveStore, BadSetting> {
        let longest = Nanos::from_secs(3600 * 24 * 30);
        Ok(SieveStore {
            t1: settings.take_count("t1", T1, 1..=u64::from(u8::MAX))?,
            t2: settings.take_count("t2", T2, 1..=u64::from(u8::MAX))?,
            window: settings.take_time("sieve-window", WINDOW, Nanos::from_millis(10)..=longest)?,
            subwindows: settings.take_count("subwindows", SUBWINDOWS, 1..=MOST_SUBWINDOWS as u64)? as usize,
            hasher: FixedState::default(),
            imprecise: Vec::new(),
            precise: Lru::default(),
        })
    }

    /// Returns the settings as text, without defaults.
    pub fn settings(&self) -> [Option<String>; 4] {
        let count =
            |key: &str, value: u64, default: u64| (value != default).then(|| format!("{key}={value}"));
        [
            count("t1", self.t1, T1),
            count("t2", self.t2, T2),
            (self.window != WINDOW).then(|| format!("sieve-window={}ns", self.window.0)),
            count("subwindows", self.subwindows as u64, SUBWINDOWS),
        ]
    }

    /// Records a guest's request for blocks, each cached or missing, in a cache for `capacity` blocks. True
    /// if the missing blocks enter.
    pub fn asked(
        &mut self,
        blocks: impl Iterator<Item = (BlockId, bool)> + Clone,
        capacity: u64,
        now: Nanos,
    ) -> bool {
        let missed = blocks.filter(|(_, is_cached)| !is_cached).map(|(block, _)| block);
        let entries = (capacity as usize).next_power_of_two().clamp(FEWEST_ENTRIES, MOST_ENTRIES);
        let part = (now.0 / (self.window.0 / self.subwindows as u64)) as u32;
        let mut enter = true;
        for block in missed.clone() {
            enter &= self.miss(block, entries, part);
        }
        if enter {
            missed.for_each(|block| _ = self.precise.remove(block));
        }
        enter
    }

    /// Counts a miss; true if the block has had enough misses to enter.
    fn miss(&mut self, block: BlockId, entries: usize, part: u32) -> bool {
        if self.imprecise.len() < entries {
            self.imprecise = vec![Misses::default(); entries];
        }
        let place = self.hasher.hash_one(block.0) as usize & (self.imprecise.len() - 1);
        if self.imprecise[place].count(part, self.subwindows) < self.t1 {
            return false;
        }
        while let Some(oldest) = self.precise.oldest().and_then(|block| self.precise.value(block))
            && part.wrapping_sub(oldest.part) as usize >= self.subwindows
        {
            self.precise.pop_oldest();
        }
        let known = self.precise.contains(block);
        let misses = self.precise.touch_value(block, entries);
        if !known {
            *misses = Misses::default();
        }
        misses.count(part, self.subwindows) >= self.t2
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.imprecise.capacity() * size_of::<Misses>() + self.precise.memory()
    }
}

impl Misses {
    /// Adds a miss in this part of the time. Returns the misses of the window that ends with the part.
    fn count(&mut self, part: u32, subwindows: usize) -> u64 {
        let passed = (part.wrapping_sub(self.part) as usize).min(subwindows);
        for ago in 0..passed {
            self.counts[(part as usize).wrapping_sub(ago) % subwindows] = 0;
        }
        self.part = part;
        let now = &mut self.counts[part as usize % subwindows];
        *now = now.saturating_add(1);
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sieve(settings: &str) -> SieveStore {
        let mut settings = Settings::parse("policy", &format!("cache,{settings}")).expect("settings");
        SieveStore::take(&mut settings).expect("they are right")
    }

    fn miss(sieve: &mut SieveStore, block: u64, seconds: u64) -> bool {
        sieve.asked([(BlockId(block), false)].into_iter(), 1024, Nanos::from_secs(seconds))
    }

    /// With 9 and 4: the ninth miss is the first in the precise table, the twelfth the fourth.
    #[test]
    fn a_block_enters_at_the_twelfth_miss_by_default() {
        let mut sieve = sieve("bypass=off");
        let admitted: Vec<bool> = (0..12).map(|_| miss(&mut sieve, 7, 0)).collect();
        assert_eq!(admitted.iter().position(|&admitted| admitted), Some(11), "{admitted:?}");
        assert!(!miss(&mut sieve, 7, 0), "it is counted anew by the precise table once it has entered");
    }

    /// A window of 40 s in 4 parts, t1 = 3, t2 = 1. Misses at 0, 15 and 41 s: at 41 s the part from 0 to 10 s
    /// is over, and two misses are left. One more at 42 s makes three.
    #[test]
    fn miss_expires_with_subwindow() {
        let mut sieve = sieve("t1=3,t2=1,sieve-window=40s,subwindows=4");
        let at = [(0, false), (15, false), (41, false), (42, true)];
        for (seconds, admitted) in at {
            assert_eq!(miss(&mut sieve, 1, seconds), admitted, "{seconds} s");
        }
        // All parts with misses are over.
        assert!(!miss(&mut sieve, 1, 1000));
    }

    /// The precise table forgets a block with only old misses, and keeps another block.
    #[test]
    fn the_precise_table_counts_within_the_window_too() {
        let mut sieve = sieve("t1=1,t2=2,sieve-window=40s,subwindows=4");
        assert!(!miss(&mut sieve, 1, 0));
        assert!(!miss(&mut sieve, 2, 35));
        assert!(!miss(&mut sieve, 1, 41), "the first was too long ago");
        assert!(miss(&mut sieve, 2, 42));
        assert_eq!(sieve.precise.len(), 1);
    }

    /// Blocks with one hash value share a counter of the imprecise table: three misses of three blocks count
    /// three. In the precise table each block needs its own misses.
    #[test]
    fn precise_table_separates_blocks_with_shared_imprecise_counter() {
        let mut sieve = sieve("t1=3,t2=2");
        let place = |sieve: &SieveStore, block: u64| sieve.hasher.hash_one(block) as usize & 1023;
        let first = place(&sieve, 0);
        let alike: Vec<u64> = (1..).filter(|&block| place(&sieve, block) == first).take(2).collect();
        assert!(!miss(&mut sieve, 0, 0) && !miss(&mut sieve, alike[0], 0));
        assert!(!miss(&mut sieve, alike[1], 0), "the third of the counter, and its own first");
        assert!(!miss(&mut sieve, 0, 0), "its own first after three of the counter");
        assert!(miss(&mut sieve, alike[1], 0));
    }
}
