//! Response times in memory of a fixed size: a histogram with steps that grow with the time, in the manner of
//! Gil Tene's HdrHistogram. Recording takes a few instructions, because every request is recorded more than
//! once.

use braid_base::Nanos;

/// Response times, each counted within one per cent of its length, up to 1,000 s. Mean and maximum are exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    counts: Box<[u64]>,
    len: u64,
    sum: Nanos,
    max: Nanos,
}

/// Steps between one power of two and the next: each is less than one per cent of its time.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.ilog2();
/// Times below 256 ns have a step each.
const EXACT: u64 = 2 * STEPS;
/// Longer times count as 1,000 s.
const LONGEST: u64 = 1_000_000_000_000;
const COUNTS: usize = place_of(LONGEST) + 1;

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: vec![0; COUNTS].into(), len: 0, sum: Nanos::ZERO, max: Nanos::ZERO }
    }
}

impl Latency {
    /// Counts one response time.
    #[inline]
    pub fn record(&mut self, time: Nanos) {
        self.counts[place_of(time.0.min(LONGEST))] += 1;
        self.len += 1;
        self.sum += time;
        self.max = self.max.max(time);
    }

    /// Counts `count` requests without delay.
    pub fn record_zeros(&mut self, count: u64) {
        self.counts[0] += count;
        self.len += count;
    }

    /// Number of counted times.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if no time was counted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sum of all times.
    pub fn sum(&self) -> Nanos {
        self.sum
    }

    /// Mean in nanoseconds; zero if no time was counted.
    pub fn mean(&self) -> f64 {
        self.sum.0 as f64 / self.len.max(1) as f64
    }

    /// Longest time.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// Time not exceeded by a share of all requests, rounded up to the end of its step; zero if no time was
    /// counted.
    pub fn quantile(&self, share: f64) -> Nanos {
        let wanted = ((share * self.len as f64).ceil() as u64).clamp(1, self.len.max(1));
        let mut passed = 0;
        for (time, count) in self.counts() {
            passed += count;
            if passed >= wanted {
                return time;
            }
        }
        Nanos::ZERO
    }

    /// Counted times in order: the end of each step in use, and its count. No end exceeds the longest time.
    pub fn counts(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(place, count)| (Nanos(end_of(place)).min(self.max), *count))
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Latency) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.len += other.len;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Times counted since `earlier`, a former copy of this histogram. If the longest time is older, the
    /// longest time since is known within its step.
    pub fn since(&self, earlier: &Latency) -> Latency {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now - then).collect();
        let (len, sum) = (self.len - earlier.len, self.sum - earlier.sum);
        let mut since = Latency { counts, len, sum, max: self.max };
        if self.max == earlier.max {
            since.max = since.counts().last().map_or(Nanos::ZERO, |(time, _)| time);
        }
        since
    }
}

/// Index of a time: the time itself, or its first eight bits and the number of bits after.
const fn place_of(time: u64) -> usize {
    if time < EXACT {
        return time as usize;
    }
    let shift = time.ilog2() - STEP_BITS;
    ((time >> shift) + (shift as u64) * STEPS) as usize
}

/// Longest time of an index.
const fn end_of(place: usize) -> u64 {
    let place = place as u64;
    if place < EXACT {
        return place;
    }
    let shift = place / STEPS - 1;
    ((place - shift * STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn time_is_counted_within_one_per_cent() {
        let mut rng = Rng::new(1);
        for _ in 0..100_000 {
            let bits = rng.between(1, 40);
            let time = rng.below(1 << bits).min(LONGEST);
            let end = end_of(place_of(time));
            assert!(time <= end && end - time <= time / 100, "{time} is counted as {end}");
            assert_eq!(place_of(end), place_of(time));
            assert_eq!(place_of(end + 1), place_of(time) + 1);
        }
    }

    #[test]
    fn quantiles_match_sorted_list_within_one_per_cent() {
        let (mut latency, mut list, mut rng) = (Latency::default(), Vec::new(), Rng::new(2));
        for _ in 0..10_000 {
            let bits = rng.between(1, 36);
            let time = Nanos(rng.below(1 << bits));
            latency.record(time);
            list.push(time.0);
        }
        list.sort_unstable();
        for share in [0.001, 0.5, 0.95, 0.999, 1.0] {
            let (found, exact) = (latency.quantile(share).0, list[(share * 10_000.0) as usize - 1]);
            assert!(found >= exact && found - exact <= exact / 100, "{share}: {found}, exactly {exact}");
        }
        assert_eq!(latency.max().0, list[9_999]);
        assert_eq!(latency.sum().0, list.iter().sum::<u64>());
        assert_eq!(latency.counts().map(|(_, count)| count).sum::<u64>(), 10_000);
    }

    #[test]
    fn earlier_counts_can_be_subtracted_and_added_back() {
        let mut latency = Latency::default();
        [5, 7_000, 900_000].into_iter().for_each(|time| latency.record(Nanos(time)));
        let earlier = latency.clone();
        latency.record(Nanos(3_000));
        let mut since = latency.since(&earlier);
        assert_eq!((since.len(), since.sum(), since.quantile(0.5)), (1, Nanos(3_000), since.max()));
        since.add(&earlier);
        assert_eq!(since, latency);
        assert_eq!(Latency::default().quantile(0.99), Nanos::ZERO);
        latency.record(Nanos::MAX);
        assert_eq!(latency.max(), Nanos::MAX, "what is longer than the longest is counted, too");
    }
}
