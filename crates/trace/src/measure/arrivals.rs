//! Arrival times, to be counted in equal bins once the length of the trace is known.
//!
//! Up to a million times are kept exactly. More times are counted in fine bins. Joining pairs of bins keeps
//! the number of fine bins between 2^23 and 2^24 (64 MiB). Each fine bin counts as a whole for the bin that
//! contains its middle.

pub(super) enum Arrivals {
    Times(Vec<u64>),
    Fine(Fine),
}

const MOST_TIMES: usize = 1 << 20;

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals::Times(Vec::new())
    }
}

impl Arrivals {
    /// Adds a time. Times must not decrease.
    pub(super) fn add(&mut self, at: u64) {
        match self {
            Arrivals::Fine(fine) => fine.add(at),
            Arrivals::Times(times) if times.len() < MOST_TIMES => times.push(at),
            Arrivals::Times(times) => {
                let mut fine = Fine { counts: Vec::new(), width: 0, last: 0 };
                times.iter().for_each(|&at| fine.add(at));
                fine.add(at);
                *self = Arrivals::Fine(fine);
            }
        }
    }

    /// Returns the requests in each of 2^k equal bins from time zero to the last request, as bin number and
    /// count, in order. Empty bins are left out.
    pub(super) fn bins(&self, k: u32) -> Vec<(u32, u64)> {
        let mut bins: Vec<(u32, u64)> = Vec::new();
        let mut put = |bin: u128, count: u64| match bins.last_mut() {
            Some((last, requests)) if u128::from(*last) == bin => *requests += count,
            _ => bins.push((bin as u32, count)),
        };
        match self {
            Arrivals::Times(times) => {
                // Adding one puts the last request into the last bin.
                let length = u128::from(times.last().copied().unwrap_or(0)) + 1;
                times.iter().for_each(|&at| put((u128::from(at) << k) / length, 1));
            }
            Arrivals::Fine(Fine { counts, width, last }) => {
                let length = u128::from(*last) + 1;
                for (fine, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
                    let middle = (u128::from(2 * fine as u64 + 1) << width) / 2;
                    put((middle.min(length - 1) << k) / length, count.into());
                }
            }
        }
        bins
    }
}

/// Requests by fine bin.
pub(super) struct Fine {
    /// Grows with time, up to [`MOST_FINE`] bins.
    counts: Vec<u32>,
    /// Base-2 logarithm of the length of a fine bin in nanoseconds.
    width: u32,
    last: u64,
}

const MOST_FINE: u64 = 1 << 24;

impl Fine {
    fn add(&mut self, at: u64) {
        while at >> self.width >= MOST_FINE {
            self.join();
        }
        let bin = (at >> self.width) as usize;
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] = self.counts[bin].saturating_add(1);
        self.last = at;
    }

    fn join(&mut self) {
        self.width += 1;
        let joined = self.counts.len().div_ceil(2);
        for bin in 0..joined {
            let second = self.counts.get(2 * bin + 1).copied().unwrap_or(0);
            self.counts[bin] = self.counts[2 * bin].saturating_add(second);
        }
        self.counts.truncate(joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn fine_bins_approximate_exact_times() {
        let mut rng = Rng::new(3);
        let mut at = 0;
        let times: Vec<u64> = (0..100_000)
            .map(|_| {
                at += if rng.chance(0.01) { rng.below(1 << 33) } else { rng.below(1 << 12) };
                at
            })
            .collect();
        let mut fine = Fine { counts: Vec::new(), width: 0, last: 0 };
        times.iter().for_each(|&at| fine.add(at));
        let (exact, fine) = (Arrivals::Times(times), Arrivals::Fine(fine));
        let (a, b) = (exact.bins(16), fine.bins(16));
        assert_eq!(b.iter().map(|bin| bin.1).sum::<u64>(), 100_000);
        let misplaced: u64 = a
            .iter()
            .map(|&(bin, count)| {
                let found = b.binary_search_by_key(&bin, |bin| bin.0).map_or(0, |place| b[place].1);
                count.abs_diff(found)
            })
            .sum();
        assert!(misplaced < 2_000, "{misplaced} of 100000");
    }
}
