//! Latency per block, and how well metrics without a clock rank blocks by cost: Hystor's "Indicator Metrics".
//!
//! The latency of a request is divided among its blocks. Blocks are sorted by a metric, largest value first,
//! and the latencies of the first blocks are added up. The closer the sum is to the sum under the order of
//! latency itself, the better the metric.

use braid_base::{Bytes, Nanos};
use std::collections::HashMap;

/// A metric of a block's cost, from its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The latency itself: the upper bound for every metric.
    Latency,
    /// Number of accesses.
    Frequency,
    /// Mean size of the requests: smallest first.
    RequestSize,
    /// Mean distance from the end of the preceding request: longest first.
    SeekDistance,
    /// Mean number of blocks accessed since the last access: fewest first.
    ReuseDistance,
    /// Sum over the accesses of 1 / request size.
    FrequencyBySize,
    /// Accesses times mean distance.
    FrequencyTimesSeek,
    /// Accesses divided by reuse distance.
    FrequencyByReuse,
    /// Mean distance divided by mean size.
    SeekBySize,
}

/// Accesses by block.
#[derive(Default)]
pub(crate) struct BlockCosts {
    blocks: HashMap<u64, Block>,
    /// End of the last request.
    head: Bytes,
    /// Blocks accessed so far.
    accessed: u64,
}

#[derive(Clone, Copy, Default)]
struct Block {
    latency_ns: f64,
    accesses: f64,
    size: f64,
    by_size: f64,
    seek: f64,
    reuse: f64,
    last: u64,
}

/// Cumulative latency of all blocks, in the order of each metric.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CostCurves {
    /// By metric, in the order of [`Metric::ALL`]: at index n, the share of the latency in the first n
    /// hundredths of the blocks.
    covered: Vec<Vec<f64>>,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 9] = [
        Metric::Latency,
        Metric::Frequency,
        Metric::RequestSize,
        Metric::SeekDistance,
        Metric::ReuseDistance,
        Metric::FrequencyBySize,
        Metric::FrequencyTimesSeek,
        Metric::FrequencyByReuse,
        Metric::SeekBySize,
    ];

    /// Value of a block: larger values come first.
    fn of(self, block: &Block) -> f64 {
        let mean = |sum: f64| sum / block.accesses;
        // A block with one access has no reuse distance: sorted last.
        let reuse = if block.accesses > 1.0 { block.reuse / (block.accesses - 1.0) } else { f64::INFINITY };
        match self {
            Metric::Latency => block.latency_ns,
            Metric::Frequency => block.accesses,
            Metric::RequestSize => -mean(block.size),
            Metric::SeekDistance => mean(block.seek),
            Metric::ReuseDistance => -reuse,
            Metric::FrequencyBySize => block.by_size,
            Metric::FrequencyTimesSeek => block.seek,
            Metric::FrequencyByReuse => block.accesses / reuse,
            Metric::SeekBySize => block.seek / block.size,
        }
    }
}

impl BlockCosts {
    /// Counts a request that has taken `latency`.
    pub fn add(&mut self, offset: Bytes, len: Bytes, latency: Nanos) {
        let (first, end) = (offset / BLOCK_SIZE, (offset + len).align_up(BLOCK_SIZE) / BLOCK_SIZE);
        let blocks = (end - first).max(1) as f64;
        let seek = offset.0.abs_diff(self.head.0) as f64;
        self.head = offset + len;
        for number in first..end {
            self.accessed += 1;
            let block = self.blocks.entry(number).or_default();
            if block.accesses > 0.0 {
                block.reuse += (self.accessed - block.last) as f64;
            }
            block.last = self.accessed;
            block.accesses += 1.0;
            block.latency_ns += latency.0 as f64 / blocks;
            block.size += blocks;
            block.by_size += 1.0 / blocks;
            block.seek += seek;
        }
    }

    /// The curves of all metrics.
    pub fn finish(&self) -> CostCurves {
        let mut blocks: Vec<(u64, Block)> =
            self.blocks.iter().map(|(number, block)| (*number, *block)).collect();
        let all: f64 = blocks.iter().map(|(_, block)| block.latency_ns).sum();
        let curve = |metric: Metric| {
            // Ties are ordered by address: nothing else is known of the blocks.
            blocks.sort_unstable_by(|a, b| metric.of(&b.1).total_cmp(&metric.of(&a.1)).then(a.0.cmp(&b.0)));
            let mut sum = 0.0;
            let sums: Vec<f64> = blocks
                .iter()
                .map(|(_, block)| {
                    sum += block.latency_ns;
                    sum
                })
                .collect();
            let until = |percent: usize| (sums.len() * percent).div_ceil(100);
            let share = |percent| until(percent).checked_sub(1).map_or(0.0, |last| sums[last] / all.max(1.0));
            (0..=100).map(share).collect()
        };
        CostCurves { covered: Metric::ALL.map(curve).to_vec() }
    }
}

/// Unit of cost accounting: 4 KiB.
const BLOCK_SIZE: Bytes = Bytes(4 << 10);

impl CostCurves {
    /// Share of the latency in the first `percent` hundredths of the blocks, in the order of `metric`.
    pub fn covered(&self, metric: Metric, percent: u32) -> Option<f64> {
        let place = Metric::ALL.iter().position(|known| *known == metric)?;
        self.covered.get(place)?.get(percent as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_with_the_latency_order_covers_the_same_share() {
        let mut costs = BlockCosts::default();
        let block = |number: u64| Bytes(number * 4096);
        // Ten blocks alone, ten times each; ninety in one request.
        for round in 0..10 {
            (0..10).for_each(|i| costs.add(block(1000 + i * 7), Bytes(4096), Nanos(1_000 + round)));
            costs.add(Bytes::ZERO, Bytes(90 * 4096), Nanos(900));
        }
        let curves = costs.finish();
        let at = |metric, percent| curves.covered(metric, percent).expect("there are blocks");
        assert!(at(Metric::Latency, 10) > 0.9 && at(Metric::Latency, 100) > 0.999);
        assert_eq!(at(Metric::FrequencyBySize, 10), at(Metric::Latency, 10));
        assert!(at(Metric::Frequency, 10) < 0.2, "all are accessed as often: {}", at(Metric::Frequency, 10));
        assert_eq!(at(Metric::Latency, 0), 0.0);
        assert_eq!(curves.covered(Metric::Latency, 101), None);
    }
}
