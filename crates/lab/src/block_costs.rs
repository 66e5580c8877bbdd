//! Which blocks cost a disk most time, and how well a metric that needs no clock tells: Hystor's "Indicator
//! Metrics".
//!
//! The latency of a request is divided among its blocks. Blocks are sorted by a metric, those with the
//! largest value first, and the latency of the first ones is added up: the closer that is to what sorting by
//! the latency itself gives, the better the metric.

use braid_base::{Bytes, Nanos};
use std::collections::HashMap;

/// What a block's accesses say about its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The latency itself: no metric can be better.
    Latency,
    /// Accesses.
    Frequency,
    /// The mean size of the requests: the smallest first.
    RequestSize,
    /// The mean distance from where the request before ended: the longest first.
    SeekDistance,
    /// The mean number of blocks accessed since the last access: the fewest first.
    ReuseDistance,
    /// The sum over its accesses of one by the size of the request.
    FrequencyBySize,
    /// Accesses times mean distance.
    FrequencyTimesSeek,
    /// Accesses by reuse distance.
    FrequencyByReuse,
    /// Mean distance by mean size.
    SeekBySize,
}

/// Accesses by block.
#[derive(Default)]
pub(crate) struct BlockCosts {
    blocks: HashMap<u64, Block>,
    /// Where the last request ended.
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

/// The latencies of all blocks in the order of each metric, added up.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CostCurves {
    /// By metric, in the order of [`Metric::ALL`]: the share of the latency in each hundredth of the blocks
    /// and those before.
    covered: Vec<Vec<f64>>,
}

impl Metric {
    /// All of them.
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

    /// Its value: the larger, the sooner the block comes.
    fn of(self, block: &Block) -> f64 {
        let mean = |sum: f64| sum / block.accesses;
        // A block that was accessed once has no reuse distance: it comes last.
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
    /// A request has taken so long.
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
            // Of equal values the lower address comes first: nothing else is known of them.
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

/// The unit of what costs: 4 KiB.
const BLOCK_SIZE: Bytes = Bytes(4 << 10);

impl CostCurves {
    /// Which share of the latency the first blocks have, so many in a hundred, in the order of a metric.
    pub fn covered(&self, metric: Metric, percent: u32) -> Option<f64> {
        let place = Metric::ALL.iter().position(|known| *known == metric)?;
        self.covered.get(place)?.get(percent as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_sorts_as_the_latency_does_covers_as_much() {
        let mut costs = BlockCosts::default();
        let block = |number: u64| Bytes(number * 4096);
        // Ten blocks alone, ten times; ninety in one request.
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
