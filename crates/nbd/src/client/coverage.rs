//! Ranges of a read that have been answered: each byte once, in any order.

use std::ops::Range;

/// Largest number of separate ranges: a server that answers in order makes a single range.
const MOST_RANGES: usize = 1024;

/// Answered ranges, relative to the start of the read. Sorted, and not adjacent.
#[derive(Default)]
pub struct Coverage {
    ranges: Vec<Range<u64>>,
}

impl Coverage {
    /// Forgets all ranges.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Adds a range with at least one byte.
    ///
    /// # Errors
    /// If a byte is covered already, or if the ranges are too scattered.
    pub fn add(&mut self, range: Range<u64>) -> Result<(), &'static str> {
        let at = self.ranges.partition_point(|known| known.end < range.start);
        // The ranges from here on end at or behind the new start: the first two may touch.
        let (first, second) = (self.ranges.get(at), self.ranges.get(at + 1));
        let joins_first = first.is_some_and(|known| known.end == range.start);
        let next = if joins_first { second } else { first };
        if next.is_some_and(|known| known.start < range.end) {
            return Err("two parts of a reply cover the same byte");
        }
        let joins_next = next.is_some_and(|known| known.start == range.end);
        match (joins_first, joins_next) {
            (true, true) => {
                self.ranges[at].end = self.ranges[at + 1].end;
                self.ranges.remove(at + 1);
            }
            (true, false) => self.ranges[at].end = range.end,
            (false, true) => self.ranges[at].start = range.start,
            (false, false) if self.ranges.len() == MOST_RANGES => {
                return Err("the parts of a reply are too scattered");
            }
            (false, false) => self.ranges.insert(at, range),
        }
        Ok(())
    }

    /// True if all bytes from 0 to `len` are covered, and no others.
    pub fn is_whole(&self, len: u64) -> bool {
        self.ranges.len() == 1 && self.ranges[0] == (0..len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn random_ranges_are_tracked_as_a_map_of_bytes_tracks_them() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let len = rng.between(1, 60);
            let (mut coverage, mut bytes) = (Coverage::default(), vec![false; len as usize]);
            for _ in 0..100 {
                let start = rng.below(len);
                let end = start + 1 + rng.below((len - start).min(8));
                let known = &mut bytes[start as usize..end as usize];
                let is_new = known.iter().all(|&covered| !covered);
                assert_eq!(coverage.add(start..end).is_ok(), is_new, "seed {seed}: {start}..{end}");
                if is_new {
                    known.fill(true);
                }
                assert_eq!(coverage.is_whole(len), bytes.iter().all(|&covered| covered), "seed {seed}");
            }
        }
    }

    #[test]
    fn scattered_ranges_are_limited() {
        let mut coverage = Coverage::default();
        let added = (0..).take_while(|at| coverage.add(at * 2..at * 2 + 1).is_ok()).count();
        assert_eq!(added, MOST_RANGES);
        assert!(coverage.add(1..2).is_ok(), "a gap may be filled");
    }
}
