//! Counts of requests to extents, as HeMem counts accesses to pages (Raybuck et al., SOSP 2021), the base of
//! Colloid and MOST. Reads and writes have a counter each. When a counter reaches the *cooling threshold*, a
//! clock ticks. Every counter is halved for each tick at the next look.
//!
//! Deviations: HeMem samples the accesses, whereas each request counts here. At most `KNOWN` extents, the
//! most recently requested, have counters. An extent without counters is cold.

use crate::{Direction, Lru};
use braid_base::ExtentId;

/// The counters of a volume.
pub struct Counters {
    known: Lru<ExtentId, ExtentCount>,
    clock: u32,
    cools_at: u8,
    /// Position of the search for cold extents.
    hand: u32,
}

#[derive(Clone, Copy, Default)]
struct ExtentCount {
    reads: u8,
    writes: u8,
    /// Tick up to which both counters are halved.
    clock: u32,
}

/// Extents with counters: 8 GiB of 128 KiB, in 3 MiB of memory.
const KNOWN: usize = 1 << 16;
/// Halvings after which a counter is 0.
const MOST_HALVINGS: u32 = 8;
/// Extents examined to find cold extents in a round.
const SEARCHED: u32 = 1 << 14;

impl Counters {
    /// Returns empty counters that cool when a counter reaches `cools_at`.
    pub fn new(cools_at: u8) -> Counters {
        Counters { known: Lru::default(), clock: 0, cools_at, hand: 0 }
    }

    /// Counts a guest's request to a piece of an extent.
    pub fn count(&mut self, extent: ExtentId, direction: Direction) {
        let (clock, known) = (self.clock, self.known.contains(extent));
        let count = self.known.touch_value(extent, KNOWN);
        // Otherwise the value may be a leftover of an evicted extent.
        *count = if known { count.cooled(clock) } else { ExtentCount { clock, ..ExtentCount::default() } };
        let counter = match direction {
            Direction::Write => &mut count.writes,
            Direction::Read | Direction::Flush => &mut count.reads,
        };
        *counter += 1;
        if *counter >= self.cools_at {
            self.clock += 1;
        }
    }

    /// Number of requests for an extent, cooled.
    pub fn heat(&self, extent: ExtentId) -> u16 {
        self.known.value(extent).map_or(0, |count| count.cooled(self.clock).heat())
    }

    /// Returns the next cold extent for which `is_there` is true, in turns through a volume of `extents`
    /// extents. `None` once `searched` has reached the limit of a round.
    pub fn next_cold(
        &mut self,
        extents: u32,
        searched: &mut u32,
        is_there: impl Fn(ExtentId) -> bool,
    ) -> Option<ExtentId> {
        while *searched < SEARCHED.min(extents) {
            *searched += 1;
            self.hand = (self.hand + 1) % extents;
            let extent = ExtentId(self.hand);
            if is_there(extent) && self.heat(extent) == 0 {
                return Some(extent);
            }
        }
        None
    }

    /// Mean number of reads between two writes of an extent; `None` if no write is known.
    pub fn rewrite_distance(&self, extent: ExtentId) -> Option<f64> {
        let count = self.known.value(extent)?.cooled(self.clock);
        (count.writes > 0).then(|| f64::from(count.reads) / f64::from(count.writes))
    }

    /// Returns all extents that are not cold, with their heat.
    pub fn warm(&self) -> impl Iterator<Item = (ExtentId, u16)> {
        let heat = |count: &ExtentCount| count.cooled(self.clock).heat();
        self.known.values().map(move |(extent, count)| (extent, heat(count))).filter(|&(_, heat)| heat > 0)
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.known.memory()
    }
}

impl ExtentCount {
    fn cooled(self, clock: u32) -> ExtentCount {
        let halvings = (clock - self.clock).min(MOST_HALVINGS);
        let halve = |count: u8| (u32::from(count) >> halvings) as u8;
        ExtentCount { reads: halve(self.reads), writes: halve(self.writes), clock }
    }

    fn heat(self) -> u16 {
        u16::from(self.reads) + u16::from(self.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(reads: &[(u32, usize)]) -> Counters {
        let mut counters = Counters::new(18);
        for &(extent, count) in reads {
            (0..count).for_each(|_| counters.count(ExtentId(extent), Direction::Read));
        }
        counters
    }

    /// The eighteenth read makes the clock tick: 18, 7 and 1 become 9, 3 and 0.
    #[test]
    fn all_counts_are_halved_at_cooling_threshold() {
        let counters = counters(&[(1, 7), (2, 1), (3, 18)]);
        assert_eq!([1, 2, 3, 4].map(|extent| counters.heat(ExtentId(extent))), [3, 0, 9, 0]);
        let mut warm: Vec<(u32, u16)> = counters.warm().map(|(extent, heat)| (extent.0, heat)).collect();
        warm.sort_unstable();
        assert_eq!(warm, [(1, 3), (3, 9)]);
    }

    #[test]
    fn reads_and_writes_are_counted_separately() {
        let mut counters = counters(&[(1, 12)]);
        assert_eq!(counters.rewrite_distance(ExtentId(1)), None, "it was not written");
        (0..3).for_each(|_| counters.count(ExtentId(1), Direction::Write));
        assert_eq!(counters.rewrite_distance(ExtentId(1)), Some(4.0));
        assert_eq!(counters.heat(ExtentId(1)), 15);
    }

    #[test]
    fn least_recently_used_extent_is_evicted_from_counters() {
        let mut counters = Counters::new(18);
        (0..KNOWN as u32).for_each(|extent| counters.count(ExtentId(extent), Direction::Read));
        counters.count(ExtentId(0), Direction::Read);
        counters.count(ExtentId(1 << 20), Direction::Read);
        let heat = [0, 1, 2, 1 << 20].map(|extent| counters.heat(ExtentId(extent)));
        assert_eq!(heat, [2, 0, 1, 1]);
    }
}
