//! Sizes of reads and writes. Exact for up to 65,536 distinct lengths of reads, and as many of writes. Any
//! further length counts as the next power of two.

use braid_base::Op;
use std::collections::BTreeMap;

/// Sizes by kind of request.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct SizesByOp {
    /// Of reads and writes.
    pub all: Sizes,
    /// Of reads.
    pub read: Sizes,
    /// Of writes.
    pub write: Sizes,
}

/// Distribution of sizes. A percentile p is the smallest size that at least p % of requests do not exceed.
/// All fields are zero if there are no requests.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Sizes {
    /// Number of requests.
    pub requests: u64,
    /// Mean size.
    pub request_bytes_mean: f64,
    /// Smallest.
    pub request_bytes_min: u64,
    /// 10th percentile.
    pub request_bytes_p10: u64,
    /// Median.
    pub request_bytes_p50: u64,
    /// 90th percentile.
    pub request_bytes_p90: u64,
    /// 99th percentile.
    pub request_bytes_p99: u64,
    /// Largest.
    pub request_bytes_max: u64,
}

const MOST_SIZES: usize = 65_536;

#[derive(Default)]
pub(super) struct Counting {
    read: BTreeMap<u64, u64>,
    write: BTreeMap<u64, u64>,
    read_bytes: u64,
    write_bytes: u64,
}

impl Counting {
    pub(super) fn add(&mut self, op: Op, len: u64) {
        let (counts, bytes) = match op {
            Op::Read => (&mut self.read, &mut self.read_bytes),
            _ => (&mut self.write, &mut self.write_bytes),
        };
        *bytes += len;
        match counts.get_mut(&len) {
            Some(count) => *count += 1,
            None => {
                let len = if counts.len() < MOST_SIZES { len } else { len.next_power_of_two() };
                *counts.entry(len).or_default() += 1;
            }
        }
    }

    pub(super) fn finish(self) -> SizesByOp {
        let mut all = self.read.clone();
        for (&len, &count) in &self.write {
            *all.entry(len).or_default() += count;
        }
        SizesByOp {
            all: Sizes::of(&all, self.read_bytes + self.write_bytes),
            read: Sizes::of(&self.read, self.read_bytes),
            write: Sizes::of(&self.write, self.write_bytes),
        }
    }
}

impl Sizes {
    fn of(counts: &BTreeMap<u64, u64>, bytes: u64) -> Sizes {
        let requests: u64 = counts.values().sum();
        if requests == 0 {
            return Sizes::default();
        }
        let percentile = |percent: u64| {
            let mut left = (requests * percent).div_ceil(100).max(1);
            let reached = counts.iter().find(|&(_, &count)| {
                left = left.saturating_sub(count);
                left == 0
            });
            reached.map_or(0, |(&len, _)| len)
        };
        Sizes {
            requests,
            request_bytes_mean: bytes as f64 / requests as f64,
            request_bytes_min: percentile(0),
            request_bytes_p10: percentile(10),
            request_bytes_p50: percentile(50),
            request_bytes_p90: percentile(90),
            request_bytes_p99: percentile(99),
            request_bytes_max: percentile(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_sizes() {
        let mut counting = Counting::default();
        (1..=100).for_each(|n| counting.add(Op::Read, n * 512));
        counting.add(Op::Write, 4096);
        let SizesByOp { all, read, write } = counting.finish();
        assert_eq!(
            (read.request_bytes_min, read.request_bytes_p10, read.request_bytes_p50),
            (512, 5_120, 25_600)
        );
        assert_eq!((read.request_bytes_p99, read.request_bytes_max), (50_688, 51_200));
        assert_eq!((write.request_bytes_mean, write.request_bytes_p50, all.requests), (4096.0, 4096, 101));
    }

    #[test]
    fn excess_sizes_are_rounded_to_bound_memory() {
        let mut counting = Counting::default();
        (1..=200_000).for_each(|n| counting.add(Op::Read, n));
        assert!(counting.read.len() <= MOST_SIZES + 40);
        let sizes = counting.finish().read;
        assert_eq!((sizes.requests, sizes.request_bytes_mean), (200_000, 100_000.5));
        assert_eq!(sizes.request_bytes_max, 262_144);
    }
}
