//! Measures against traces small enough to count by hand, and against slow and obvious algorithms.

use crate::texts::arrival;
use braid_base::Op::{Flush, Read, Write};
use braid_base::{Arrival, Rng};
use braid_trace::Record;
use braid_trace::measure::{Limits, Measured, Measures, Method};

fn of(arrivals: impl IntoIterator<Item = Arrival>, limits: Limits) -> Measured {
    let mut measures = Measures::new(limits);
    for arrival in arrivals {
        measures.add(&Record { arrival, device: 0, within: arrival.request.offset });
    }
    measures.finish()
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn small_trace_has_hand_counted_measures() {
    let trace = [
        arrival(0, Read, 0, 8192),
        arrival(SECOND, Read, 8192, 4096),
        arrival(SECOND, Write, 0, 512),
        arrival(2 * SECOND, Flush, 0, 0),
        arrival(4 * SECOND, Read, 4095, 2),
    ];
    let found = of(trace, Limits::default());
    assert_eq!((found.requests.requests, found.requests.flush_requests), (5, 1));
    assert_eq!((found.requests.read_share, found.requests.read_bytes), (0.75, 12_290));
    assert_eq!((found.rate.duration_seconds, found.rate.arrivals_per_second), (4.0, 1.25));
    assert_eq!(found.rate.peak_arrivals_per_second, 2);
    let footprint = found.footprint;
    assert_eq!((footprint.footprint_blocks, footprint.block_references), (3, 6));
    assert_eq!((footprint.only_read_bytes, footprint.only_written_bytes), (8192, 0));
    // The second request is sequential. The third begins before the end of the second.
    assert_eq!((found.seeks.sequential_share, found.seeks.backward_share), (0.25, 0.25));
    assert_eq!(found.seeks.seek_bytes_mean, f64::from(12_288 + 3_583) / 3.0);
    // Block 0 has three references of six, and is the hottest of three blocks.
    assert_eq!(found.locality.hottest_20_percent_references_share, 0.5);
    // Block 0 again after blocks 1 and 2, then again with none in between. Block 1 after blocks 0 and 2.
    assert_eq!(found.reuse.first_references_share, 0.5);
    assert_eq!(found.reuse.reuse_distance_bytes_p10, 0);
    assert_eq!(found.reuse.reuse_distance_bytes_p50, 8192);
    assert_eq!(found.miss_ratios.points.last().unwrap().miss_ratio, 0.5);
}

#[test]
fn empty_trace_has_finite_measures() {
    let found = of([], Limits::default());
    assert_eq!((found.requests.requests, found.footprint.footprint_blocks), (0, 0));
    let json = serde_json::to_string(&found).unwrap();
    assert!(!json.contains("null"), "no measure is not a number: {json}");
}

/// Blocks of a Zipf-like popularity, by inversion.
fn skewed(count: u64, blocks: u64, seed: u64) -> impl Iterator<Item = Arrival> {
    let mut rng = Rng::new(seed);
    (0..count).map(move |n| {
        let block = ((blocks as f64).powf(rng.unit()) as u64 - 1) % blocks;
        let op = if rng.chance(0.5) { Read } else { Write };
        arrival(n * 1_000_000, op, block * 4096, 4096)
    })
}

#[test]
fn miss_ratios_match_an_lru_cache() {
    let found = of(skewed(20_000, 2_000, 1), Limits::default());
    assert_eq!(found.miss_ratios.method, Method::Exact);
    for point in &found.miss_ratios.points {
        let cache = (point.cache_size_bytes / 4096) as usize;
        let (mut held, mut misses) = (Vec::new(), 0);
        for arrival in skewed(20_000, 2_000, 1) {
            let block = arrival.request.offset.0 / 4096;
            let before = held.len();
            held.retain(|&known| known != block);
            misses += u32::from(held.len() == before);
            held.push(block);
            if held.len() > cache {
                held.remove(0);
            }
        }
        let expected = f64::from(misses) / 20_000.0;
        assert!(
            (point.miss_ratio - expected).abs() < 1e-9,
            "{cache} blocks: {} {expected}",
            point.miss_ratio
        );
    }
}

#[test]
fn sampled_blocks_approximate_the_exact_measures() {
    let trace = || skewed(400_000, 200_000, 2);
    let exact = of(trace(), Limits::default());
    let sampled = of(trace(), Limits { blocks: 8_192 });
    assert_eq!((exact.footprint.sampled_share, sampled.miss_ratios.method), (1.0, Method::Sampled));
    assert!(sampled.footprint.sampled_share <= 0.125);
    let ratio = sampled.footprint.footprint_blocks as f64 / exact.footprint.footprint_blocks as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    let mut errors = 0.0;
    for (a, b) in exact.miss_ratios.points.iter().zip(&sampled.miss_ratios.points) {
        assert_eq!(a.cache_size_bytes, b.cache_size_bytes);
        errors += (a.miss_ratio - b.miss_ratio).abs();
    }
    let mean = errors / exact.miss_ratios.points.len() as f64;
    assert!(mean < 0.03, "mean error {mean}");
}

#[test]
fn hottest_fifth_of_blocks_has_the_expected_share() {
    // 100 blocks: every fifth gets 16 references, all others get 1. The share is 20 * 16 of 400.
    let each = |block: u64| if block.is_multiple_of(5) { 16 } else { 1 };
    let trace =
        (0..100u64).flat_map(|block| (0..each(block)).map(move |_| arrival(0, Read, block * 4096, 512)));
    let locality = of(trace, Limits::default()).locality;
    assert_eq!(locality.hottest_20_percent_references_share, 0.8);
    assert_eq!(locality.shares.len(), 7);
}

#[test]
fn working_set_counts_bytes_touched_per_window() {
    // Each of 128 windows of 2^26 ns touches 10 constant blocks and 1 block of its own.
    let window = 1u64 << 26;
    let trace = (0..128).flat_map(|n| {
        let own = arrival(n * window + 20, Write, (100 + n) * 4096, 4096);
        (0..10).map(move |block| arrival(n * window + block, Read, block * 4096, 4096)).chain([own])
    });
    let found = of(trace, Limits::default()).working_set;
    assert_eq!(found.window_seconds * 1e9, window as f64);
    assert_eq!(found.touched_bytes, [11 * 4096; 128]);
    assert_eq!((found.touched_bytes_mean, found.touched_bytes_max), (11 * 4096, 11 * 4096));
}

#[test]
fn alternating_streams_count_as_streams() {
    let trace = (0..1000u64).map(|n| arrival(n, Read, n % 4 * (1 << 30) + n / 4 * 4096, 4096));
    let seeks = of(trace, Limits::default()).seeks;
    assert_eq!(seeks.sequential_share, 0.0);
    assert!(seeks.stream_share > 0.99, "{}", seeks.stream_share);
}
