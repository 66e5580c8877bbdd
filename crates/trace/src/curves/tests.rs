//! Each eviction policy against a second implementation or the description in its paper, and against Belady's
//! bound.

use super::*;
use crate::reader::Record;
use braid_base::{Arrival, Bytes, Nanos, Op, Request, Rng};

fn record(block: u64, blocks: u64, op: Op) -> Record {
    let (offset, len) = (Bytes(block * BLOCK_BYTES), Bytes(blocks * BLOCK_BYTES));
    let request = Request { op, offset, len };
    Record { arrival: Arrival { at: Nanos::ZERO, request }, device: 0, within: offset }
}

fn references(blocks: &[u64]) -> References {
    let mut collector = Collector::new(1.0, usize::MAX);
    blocks.iter().for_each(|&block| collector.add(&record(block, 1, Op::Read)));
    collector.finish()
}

/// Popular blocks, with occasional scans of blocks never used again.
fn mixed(seed: u64, len: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let mut scan = 1_000_000;
    (0..len)
        .flat_map(|_| match rng.below(40) {
            0 => {
                scan += 50;
                (scan - 50..scan).collect::<Vec<u64>>()
            }
            // Low numbers are much more frequent.
            _ => vec![rng.below(rng.clone().below(2000) + 1)],
        })
        .collect()
}

fn misses(references: &References, eviction: Eviction, room: u64) -> u64 {
    let share = miss_ratio(references, eviction, room * BLOCK_BYTES).unwrap();
    (share * references.kept() as f64).round() as u64
}

/// LRU as a list in order of use.
fn lru(blocks: &[u64], room: usize) -> u64 {
    let mut held: Vec<u64> = Vec::new();
    let mut misses = 0;
    for block in blocks {
        match held.iter().position(|other| other == block) {
            Some(at) => drop(held.remove(at)),
            None => {
                misses += 1;
                if held.len() == room {
                    held.remove(0);
                }
            }
        }
        held.push(*block);
    }
    misses
}

/// Belady's MIN by a search of the remaining trace at each eviction.
fn min(blocks: &[u64], room: usize) -> u64 {
    let mut held: Vec<u64> = Vec::new();
    let mut misses = 0;
    for (now, block) in blocks.iter().enumerate() {
        if held.contains(block) {
            continue;
        }
        misses += 1;
        if held.len() == room {
            let needed =
                |held: &u64| blocks[now..].iter().position(|later| later == held).unwrap_or(usize::MAX);
            let last = (0..room).max_by_key(|&at| needed(&held[at])).unwrap();
            held.remove(last);
        }
        held.push(*block);
    }
    misses
}

#[test]
fn lru_and_belady_miss_as_often_as_list_models() {
    for seed in 0..4 {
        let blocks = mixed(seed, 1500);
        let references = references(&blocks);
        for room in [1, 2, 7, 40, 300] {
            assert_eq!(
                misses(&references, Eviction::Lru, room as u64),
                lru(&blocks, room),
                "seed {seed}, room {room}"
            );
            assert_eq!(
                misses(&references, Eviction::Belady, room as u64),
                min(&blocks, room),
                "seed {seed}, room {room}"
            );
        }
    }
}

#[test]
fn no_eviction_is_better_than_belady_and_each_misses_every_block_once() {
    for seed in 0..4 {
        let references = references(&mixed(seed, 4000));
        let distinct = references.distinct() as u64;
        for room in [1, 2, 3, 10, 100, 101, 1000, distinct] {
            let bound = misses(&references, Eviction::Belady, room);
            for eviction in Eviction::ALL {
                let misses = misses(&references, eviction, room);
                assert!(
                    bound <= misses && misses >= distinct,
                    "{eviction}, room {room}: {misses}, bound {bound}"
                );
                assert!(
                    room < distinct || misses == distinct,
                    "{eviction} holds all: {misses} of {distinct}"
                );
            }
        }
    }
}

/// The purpose of these policies: a scan evicts no popular block.
#[test]
fn scan_resistant_evictions_miss_less_than_lru() {
    let references = references(&mixed(9, 20_000));
    let of_lru = misses(&references, Eviction::Lru, 200);
    for eviction in [Eviction::S3Fifo, Eviction::Sieve, Eviction::Arc, Eviction::Lirs, Eviction::WTinyLfu] {
        let misses = misses(&references, eviction, 200);
        assert!(misses < of_lru * 97 / 100, "{eviction}: {misses} of {of_lru}");
    }
}

/// A loop over one block more than the cache has room for: LRU never hits, LIRS keeps its LIR blocks.
#[test]
fn oversized_loop_misses_under_lru_but_not_lirs() {
    let blocks: Vec<u64> = (0..50).flat_map(|_| 0..101).collect();
    let references = references(&blocks);
    assert_eq!(misses(&references, Eviction::Lru, 100), 5050);
    // 99 LIR blocks hit in all rounds but the first.
    assert!(misses(&references, Eviction::Lirs, 100) <= 101 + 49 * 2);
}

/// Returns the blocks that miss, as letters.
fn missed(cache: &mut dyn Cache, blocks: &str) -> String {
    blocks.bytes().filter(|&block| !cache.reference(u32::from(block - b'a'))).map(char::from).collect()
}

#[test]
fn sieve_hand_spares_visited_blocks_and_keeps_position() {
    let mut sieve = sieve::Sieve::new(4, 26);
    assert_eq!(missed(&mut sieve, "abcdac"), "abcd");
    // From the oldest: a is spared, b is evicted. The hand is at c.
    assert_eq!(missed(&mut sieve, "e"), "e");
    assert_eq!(missed(&mut sieve, "ac"), "");
    // c is spared, d is evicted, then the unused e. a was visited, and the hand has not returned to a.
    assert_eq!(missed(&mut sieve, "fg"), "fg");
    assert_eq!(missed(&mut sieve, "acfg"), "");
    assert_eq!(missed(&mut sieve, "d"), "d");
}

#[test]
fn s3_fifo_promotes_reused_blocks_and_remembers_evicted_blocks() {
    let mut cache = s3_fifo::S3Fifo::new(10, 26);
    // b is used twice more in the small queue, and stays in the cache when the others are evicted.
    assert_eq!(missed(&mut cache, "abbbcdefghij"), "abcdefghij");
    assert_eq!(missed(&mut cache, "klmnopqrs"), "klmnopqrs");
    assert_eq!(missed(&mut cache, "b"), "");
    // A block that left the small queue recently comes back into the main queue, and outlives later blocks.
    assert_eq!(missed(&mut cache, "a"), "a", "a was used once, and left");
    let mut cache = s3_fifo::S3Fifo::new(10, 26);
    assert_eq!(missed(&mut cache, "abcdefghijk"), "abcdefghijk");
    assert_eq!(missed(&mut cache, "a"), "a");
    assert_eq!(missed(&mut cache, "lmnopqrstuvwx"), "lmnopqrstuvwx");
    assert_eq!(missed(&mut cache, "a"), "", "a came back from the ghost queue into the main one");
}

#[test]
fn arc_keeps_twice_used_blocks_through_a_scan() {
    let mut arc = arc::ArcCache::new(4, 26);
    // a and b are used twice: T2. Then a scan goes through T1 alone.
    assert_eq!(missed(&mut arc, "aabbcdefgh"), "abcdefgh");
    assert_eq!(missed(&mut arc, "ab"), "");
    // f moved from T1 to B1: a hit in B1 enlarges T1.
    assert_eq!(missed(&mut arc, "f"), "f");
}

#[test]
fn w_tiny_lfu_keeps_frequent_blocks_over_new_blocks() {
    let mut cache = w_tiny_lfu::WTinyLfu::new(4, 26);
    assert_eq!(missed(&mut cache, "abcdabcabc"), "abcd");
    // A block used once is used less often than a, b and c, and only passes the window.
    assert_eq!(missed(&mut cache, "efghi"), "efghi");
    assert_eq!(missed(&mut cache, "abc"), "");
}

#[test]
fn reads_and_writes_reference_blocks_discards_and_flushes_do_not() {
    let mut collector = Collector::new(1.0, usize::MAX);
    collector.add(&record(10, 3, Op::Write));
    collector.add(&record(11, 1, Op::Read));
    collector.add(&record(11, 1, Op::Discard));
    collector.add(&record(11, 1, Op::Flush));
    let references = collector.finish();
    assert_eq!((references.all(), references.distinct()), (4, 3));
    assert_eq!(references.footprint_bytes(), 3 * BLOCK_BYTES);
    assert_eq!(miss_ratio(&references, Eviction::Lru, 3 * BLOCK_BYTES), Some(0.75));
    assert_eq!(miss_ratio(&references, Eviction::Lru, BLOCK_BYTES - 1), None);
}

/// SHARDS: a sample of a tenth of the blocks gives the curve of all blocks within some per cent. A sample
/// over the limit is sampled further.
#[test]
fn a_sample_tells_the_curve_of_the_whole() {
    let mut rng = Rng::new(5);
    let blocks: Vec<u64> = (0..400_000).map(|_| rng.below(rng.clone().below(40_000) + 1)).collect();
    let whole = references(&blocks);
    let sampled = |share: f64, most: usize| {
        let mut collector = Collector::new(share, most);
        blocks.iter().for_each(|&block| collector.add(&record(block, 1, Op::Read)));
        collector.finish()
    };
    let tenth = sampled(0.1, usize::MAX);
    let share = tenth.distinct() as f64 / whole.distinct() as f64;
    assert!((0.09..0.11).contains(&share), "{share}");
    for eviction in Eviction::ALL {
        for size in [4000, 10_000, 20_000] {
            let ratio =
                |references: &References| miss_ratio(references, eviction, size * BLOCK_BYTES).unwrap();
            let (exact, estimated) = (ratio(&whole), ratio(&tenth));
            assert!((exact - estimated).abs() < 0.05, "{eviction}, {size}: {exact}, {estimated}");
        }
    }
    let bounded = sampled(1.0, 50_000);
    assert!(bounded.kept() <= 50_000 && bounded.kept() > 15_000, "{}", bounded.kept());
    assert!(bounded.sampled_share() < 0.2 && bounded.all() == 400_000);
}

#[test]
fn eviction_is_parsed_from_the_name() {
    for eviction in Eviction::ALL {
        assert_eq!(eviction.name().parse(), Ok(eviction));
    }
    assert!("lfu".parse::<Eviction>().unwrap_err().contains("w-tiny-lfu"));
}
