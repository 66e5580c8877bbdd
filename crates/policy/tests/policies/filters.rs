//! Filters of the caching policies: admission to a cache of a thousand blocks.

use crate::caching::Cache;
use braid_base::{BlockId, Nanos, Rng};

fn is_cached(cache: &Cache, block: u64) -> bool {
    cache.copies.by_block.contains_key(&BlockId(block))
}

/// Settings of each policy with a filter, without a bypass: the reads are not streams.
const LARC: [&str; 2] = ["cache,admit=larc,bypass=off", "exclusive,cache=100%,admit=larc,bypass=off"];

#[test]
fn larc_admits_block_at_second_miss() {
    for policy in LARC {
        let mut cache = Cache::new(policy);
        assert!(!cache.read(5) && !is_cached(&cache, 5), "{policy}: its first miss");
        assert!(!cache.read(5) && is_cached(&cache, 5), "{policy}: its second");
        assert!(cache.read(5), "{policy}");
    }
}

#[test]
fn larc_sends_first_write_to_disk_second_to_cache() {
    for policy in ["cache,mode=write-back,admit=larc", "exclusive,cache=100%,admit=larc"] {
        let mut cache = Cache::new(policy);
        assert!(!cache.write(5) && !is_cached(&cache, 5), "{policy}");
        assert!(cache.write(5) && is_cached(&cache, 5), "{policy}");
        assert!(cache.write(5), "{policy}: it is cached");
    }
    // Under write-through a write makes no copy, and does not count.
    let mut cache = Cache::new("cache,admit=larc");
    (0..3).for_each(|_| assert!(!cache.write(5)));
    assert!(!cache.read(5) && !is_cached(&cache, 5));
}

/// The paper's promise: fewer writes to the SSD and no fewer hits, under a skewed load with many one-time
/// blocks.
#[test]
fn larc_writes_less_to_the_ssd_and_hits_as_often_under_a_skewed_load() {
    let run = |policy: &str| {
        let mut cache = Cache::new(policy);
        let (mut rng, mut hits, mut copies) = (Rng::new(7), 0, 0);
        for i in 0..60_000_u64 {
            let hot = rng.chance(0.6);
            let block = if hot { rng.below(30) * rng.below(30) } else { 10_000 + i };
            let before = is_cached(&cache, block);
            hits += u32::from(cache.read(block));
            copies += u32::from(!before && is_cached(&cache, block));
        }
        (hits, copies)
    };
    let (all, larc) = (run("cache,bypass=off"), run("cache,admit=larc,bypass=off"));
    assert!(larc.0 > all.0 && larc.1 * 5 < all.1, "hits and copies: {all:?} without, {larc:?} with larc");
}

/// 9 misses in the imprecise table; the last counts as the first of 4 in the precise table.
#[test]
fn sievestore_admits_block_at_twelfth_miss_in_window() {
    let mut cache = Cache::new("cache,admit=sievestore,bypass=off");
    for miss in 1..=12 {
        assert!(!is_cached(&cache, 5), "miss {miss}");
        assert!(!cache.read(5));
    }
    assert!(is_cached(&cache, 5) && cache.read(5));
    let mut cache = Cache::new("cache,admit=sievestore,sieve-window=4s,t1=2,t2=1,bypass=off");
    cache.read(5);
    cache.now = Nanos::from_secs(4);
    cache.read(5);
    assert!(!is_cached(&cache, 5), "the first miss is too long ago");
    cache.now = Nanos::from_secs(5);
    cache.read(5);
    assert!(is_cached(&cache, 5));
}

#[test]
fn stream_reads_bypass_cache_and_larc_count() {
    let mut cache = Cache::new("cache,admit=larc,bypass=64KiB");
    (0..2).for_each(|_| (1000..2000).for_each(|block| _ = cache.read(block)));
    assert!(!is_cached(&cache, 1900));
    assert!(!cache.read(1900) && !is_cached(&cache, 1900), "its first miss that counts");
}
