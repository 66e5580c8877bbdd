//! Ranges of the volume, each with the number of its newest segment.

use braid_base::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Numbered {
    /// End and number by start. No two ranges overlap.
    parts: BTreeMap<Bytes, (Bytes, u64)>,
}

impl Numbered {
    /// Assigns a number to a range and replaces older numbers. The cost is linear in the parts of the range.
    pub fn insert(&mut self, range: Range<Bytes>, number: u64) {
        while let Some((&start, &(end, other))) = self.parts.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.parts.remove(&start);
            if end > range.end {
                self.parts.insert(range.end, (end, other));
            }
            if start < range.start {
                self.parts.insert(start, (range.start, other));
            }
        }
        self.parts.insert(range.start, (range.end, number));
    }

    /// True if any byte of a range has a number.
    pub fn intersects(&self, range: &Range<Bytes>) -> bool {
        self.parts.range(..range.end).next_back().is_some_and(|(_, &(end, _))| end > range.start)
    }

    /// Returns the first part that ends beyond `from`, cut off at `from`.
    pub fn next(&self, from: Bytes) -> Option<Range<Bytes>> {
        self.part_from(from).map(|(part, _)| part.start.max(from)..part.end)
    }

    /// Returns the first part that ends beyond `from`, with its number.
    pub fn part_from(&self, from: Bytes) -> Option<(Range<Bytes>, u64)> {
        let before = self.parts.range(..=from).next_back().filter(|&(_, &(end, _))| end > from);
        let (&start, &(end, number)) = before.or_else(|| self.parts.range(from..).next())?;
        Some((start..end, number))
    }

    /// All parts, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<Bytes>> {
        self.parts.iter().map(|(&start, &(end, _))| start..end)
    }

    /// Removes parts of a range whose number is at most `most`. The cost is linear in the parts of the range.
    pub fn remove(&mut self, range: &Range<Bytes>, most: u64) {
        let mut at = range.start;
        while let Some(part) = self.next(at).filter(|part| part.start < range.end) {
            let part = part.start..part.end.min(range.end);
            at = part.end;
            let (&start, &(end, number)) =
                self.parts.range(..=part.start).next_back().expect("it was just found");
            if number > most {
                continue;
            }
            self.parts.remove(&start);
            if start < part.start {
                self.parts.insert(start, (part.start, number));
            }
            if part.end < end {
                self.parts.insert(part.end, (end, number));
            }
        }
    }

    /// Parts of a range whose number is at most `most`.
    pub fn up_to(&self, range: &Range<Bytes>, most: u64) -> impl Iterator<Item = Range<Bytes>> {
        let first = self.parts.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let (from, to) = (range.start, range.end);
        let parts = self.parts.range(first..to).filter(move |&(_, &(_, number))| number <= most);
        let within = parts.map(move |(&start, &(end, _))| start.max(from)..end.min(to));
        within.filter(|part| part.start < part.end)
    }

    /// The lowest number. The cost is linear in the number of parts.
    pub fn lowest(&self) -> Option<u64> {
        self.parts.values().map(|&(_, number)| number).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn numbered_ranges_match_model_of_single_bytes() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let (mut numbered, mut bytes) = (Numbered::default(), [0u64; 64]);
            for number in 1..30 {
                let start = rng.below(60) as usize;
                let end = start + 1 + rng.below(64 - start as u64) as usize;
                numbered.insert(Bytes(start as u64)..Bytes(end as u64), number);
                bytes[start..end].fill(number);
                if rng.chance(0.3) {
                    let (most, start) = (rng.below(number), rng.below(60) as usize);
                    let end = start + 1 + rng.below(64 - start as u64) as usize;
                    numbered.remove(&(Bytes(start as u64)..Bytes(end as u64)), most);
                    bytes[start..end]
                        .iter_mut()
                        .filter(|number| **number <= most)
                        .for_each(|number| *number = 0);
                }
                assert_eq!(numbered.lowest(), bytes.iter().copied().filter(|&number| number > 0).min());
                let all = Bytes(3)..Bytes(50);
                let of_old: u64 = numbered.up_to(&all, 10).map(|part| (part.end - part.start).0).sum();
                let is_old = |&&number: &&u64| number > 0 && number <= 10;
                assert_eq!(of_old, bytes[3..50].iter().filter(is_old).count() as u64);
                for (at, &number) in bytes.iter().enumerate() {
                    let at = at as u64;
                    assert_eq!(numbered.intersects(&(Bytes(at)..Bytes(at + 1))), number != 0);
                    let next = numbered.next(Bytes(at)).map(|next| next.start.0);
                    assert_eq!(next, (at..64).find(|&at| bytes[at as usize] != 0));
                }
            }
        }
    }
}
