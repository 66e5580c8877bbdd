//! Set of ranges of the volume. Touching ranges are merged, so that neighbours are read and written together.

use braid_base::Bytes;
use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// End by start. No two ranges touch.
    ends: BTreeMap<Bytes, Bytes>,
    total: Bytes,
}

impl Ranges {
    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in all ranges.
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<Bytes>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Approximate bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.ends.len() * 2 * size_of::<(Bytes, Bytes)>()
    }

    /// True if any byte of a range is in the set.
    pub fn intersects(&self, range: &Range<Bytes>) -> bool {
        self.ends.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// Parts of a range not in the set, in order. Cost: the number of ranges of the set inside the range.
    pub fn gaps(&self, range: &Range<Bytes>) -> impl Iterator<Item = Range<Bytes>> {
        let (mut at, end) = (range.start, range.end);
        iter::from_fn(move || {
            while at < end {
                let next = self.next(at).filter(|next| next.start < end).unwrap_or(end..end);
                let gap = at..next.start;
                at = next.end;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Number of bytes of a range not in the set. Cost as [`Ranges::gaps`].
    pub fn missing(&self, range: &Range<Bytes>) -> Bytes {
        self.gaps(range).fold(Bytes::ZERO, |sum, gap| sum + (gap.end - gap.start))
    }

    /// First range that ends beyond `from`, cut to start at or after `from`.
    pub fn next(&self, from: Bytes) -> Option<Range<Bytes>> {
        let before = self.ends.range(..=from).next_back().filter(|&(_, &end)| end > from);
        let (&start, &end) = before.or_else(|| self.ends.range(from..).next())?;
        Some(start.max(from)..end)
    }

    /// Adds a range. Cost: the number of ranges of the set inside the range.
    pub fn insert(&mut self, range: Range<Bytes>) {
        let Range { mut start, mut end } = range;
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ends.remove(&other);
            self.total -= other_end - other;
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
        self.total += end - start;
    }

    /// Removes a range. Cost: the number of ranges of the set inside the range.
    pub fn remove(&mut self, range: Range<Bytes>) {
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.ends.remove(&start);
            self.total -= end - start;
            if end > range.end {
                self.ends.insert(range.end, end);
                self.total += end - range.end;
            }
            if start < range.start {
                self.ends.insert(start, range.start);
                self.total += range.start - start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    const SIZE: u64 = 40;

    fn check(ranges: &Ranges, bits: u64) {
        let is_in = |at: u64| bits >> at & 1 == 1;
        assert_eq!(ranges.total(), Bytes(u64::from(bits.count_ones())));
        let starts = (0..SIZE).filter(|&at| is_in(at) && (at == 0 || !is_in(at - 1)));
        assert_eq!(ranges.len(), starts.count(), "what touches is one range");
        for from in 0..SIZE {
            let start = (from..SIZE).find(|&at| is_in(at));
            let range =
                start.map(|start| Bytes(start)..Bytes((start..SIZE).find(|&at| !is_in(at)).unwrap_or(SIZE)));
            assert_eq!(ranges.next(Bytes(from)), range);
            for end in from + 1..=SIZE {
                let any = (from..end).any(is_in);
                assert_eq!(ranges.intersects(&(Bytes(from)..Bytes(end))), any);
                let missing = (from..end).filter(|&at| !is_in(at)).count() as u64;
                assert_eq!(ranges.missing(&(Bytes(from)..Bytes(end))), Bytes(missing));
                let gaps: Vec<_> = ranges.gaps(&(Bytes(from)..Bytes(end))).collect();
                assert!(gaps.iter().all(|gap| (gap.start.0..gap.end.0).all(|at| !is_in(at))), "{gaps:?}");
                assert!(gaps.windows(2).all(|two| two[0].end < two[1].start), "{gaps:?}");
            }
        }
    }

    #[test]
    fn ranges_match_bitmap_after_inserts_and_removals() {
        for seed in 0..200 {
            let (mut rng, mut ranges, mut bits) = (Rng::new(seed), Ranges::default(), 0u64);
            for _ in 0..60 {
                let start = rng.below(SIZE);
                let end = (start + rng.between(1, 10)).min(SIZE);
                let mask = (1 << end) - (1 << start);
                if rng.below(100) < 55 {
                    ranges.insert(Bytes(start)..Bytes(end));
                    bits |= mask;
                } else {
                    ranges.remove(Bytes(start)..Bytes(end));
                    bits &= !mask;
                }
                check(&ranges, bits);
            }
        }
    }
}
