//! `orthus` in a cache of a thousand blocks above a device of nearly the same speed.

use crate::caching::{Cache, piece};
use crate::volume::{HDD, SSD};
use braid_base::{Bytes, Nanos, Rng};
use braid_policy::{Completion, Direction, Occasion, Origin};

/// Whether a read of a block passes over clean extra copies.
fn passes(cache: &mut Cache, block: u64) -> bool {
    cache.ask(|policy, view| policy.place(&Occasion::ReadMiss(piece(block)), view)).passes_clean()
}

fn figure(cache: &mut Cache, name: &str) -> f64 {
    let figures = cache.ask(|policy, _| policy.figures(SSD));
    figures.into_iter().find(|(known, _)| *known == name).expect("the policy has it").1
}

/// Runs intervals of 100 ms with a thousand reads each, 95 of 100 from 500 hot blocks. The bottleneck bounds
/// the bytes served: 100 MB/s of the cache, 60 MB/s of the disk. Returns the share of hits that went to the
/// disk in the last interval.
fn run(cache: &mut Cache, intervals: usize, rng: &mut Rng) -> f64 {
    let (mut hot, mut past) = (0, 0);
    for _ in 0..intervals {
        let mut to_disk = 0;
        (hot, past) = (0, 0);
        for _ in 0..1000 {
            let is_hot = rng.chance(0.95);
            let block = if is_hot { rng.below(500) } else { 100_000 + rng.below(1 << 20) };
            let is_cached = cache.copies.by_block.contains_key(&braid_base::BlockId(block));
            let placed = cache.ask(|policy, view| policy.place(&Occasion::ReadMiss(piece(block)), view));
            if !is_cached && placed.promoted_to().is_some() {
                cache.set(block, Some(false));
            }
            hot += u32::from(is_cached);
            past += u32::from(is_cached && placed.passes_clean());
            to_disk += u32::from(!is_cached || placed.passes_clean());
        }
        let share = f64::from(to_disk) / 1000.0;
        let served = (100e6 / (1.0 - share)).min(60e6 / share);
        for (device, part) in [(SSD, 1.0 - share), (HDD, share)] {
            let (len, latency) = (Bytes((served * part) as u64), Nanos::from_millis(1));
            let io = Completion { device, direction: Direction::Read, len, latency, origin: Origin::Guest };
            cache.ask(|policy, _| policy.completed(&io));
        }
        cache.now += Nanos::from_millis(100);
    }
    f64::from(past) / f64::from(hot)
}

/// The cache serves 100 of 160 MB/s: 62.5 % of all reads, 66 % of the hits.
#[test]
fn tuned_disk_share_saturates_both_devices_and_stops_fill() {
    let (mut cache, mut rng) = (Cache::new("orthus"), Rng::new(1));
    assert_eq!(run(&mut cache, 10, &mut rng), 0.0, "it fills at first");
    assert_eq!(figure(&mut cache, "data_admit"), 1.0);
    let past = run(&mut cache, 200, &mut rng);
    assert!((0.28..=0.40).contains(&past), "{past}");
    assert_eq!(figure(&mut cache, "data_admit"), 0.0);
    let before = cache.copies.by_block.len();
    run(&mut cache, 1, &mut rng);
    assert_eq!(cache.copies.by_block.len(), before, "what misses stays on the disk");
    assert!((figure(&mut cache, "miss_ratio") - 0.05).abs() < 0.02);
}

#[test]
fn a_dirty_hit_is_the_caches_and_a_miss_is_the_disks() {
    let (mut cache, mut rng) = (Cache::new("orthus,mode=write-back"), Rng::new(1));
    run(&mut cache, 200, &mut rng);
    assert!((0..100).any(|_| passes(&mut cache, 7)));
    assert!(cache.write(7), "writes follow the mode");
    assert!((0..100).all(|_| !passes(&mut cache, 7)), "only the cache has it");
    assert!(passes(&mut cache, 3_000_000), "it is not in the cache, and does not get there");
}

#[test]
fn orthus_needs_both_classes() {
    let ssd = crate::volume::devices(&[(braid_base::DeviceClass::Ssd, 10)]);
    for policy in ["orthus", "colloid", "most"] {
        let error = braid_policy::parse(policy, &ssd).err().expect("there is no disk").to_string();
        assert!(error.contains(policy) && error.contains("another policy"), "{error}");
    }
}
