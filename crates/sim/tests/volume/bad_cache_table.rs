//! A permanently unwritable place of a cache table.
//!
//! The story: a page of the second image of an SSD's cache table was bad. The policy was write-through, so
//! the table described clean copies alone. Every flush failed from the next checkpoint on. After that each
//! opening was refused, and each repair, though the first image, the map, the journal and all data were
//! sound.

use crate::rig::cached::{Cache, SSD, bench, caching};
use crate::rig::{Rig, filled, holds, make, open};
use braid_base::{Bytes, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
const PAGE: Bytes = Bytes(4 << 10);

fn image(superblock: &Superblock, copy: u8) -> Region {
    let is_it =
        |region: &&Region| (region.kind, region.copy, region.device) == (RegionKind::CacheTable, copy, SSD);
    *superblock.regions.iter().filter(is_it).find(|region| !region.void).expect("the SSD has a cache table")
}

fn with_bad_place(world: &World, disks: &[Disk], bad: &Range<Bytes>) -> Vec<Faulty<Disk>> {
    let plan = |at| match at {
        0 => FaultPlan { bad_writes: Some(bad.clone()), ..FaultPlan::default() },
        _ => FaultPlan::default(),
    };
    let faults = |at| Faults::new(plan(at), world.fork_rng());
    disks.iter().enumerate().map(|(at, disk)| Faulty::new(disk.clone(), &faults(at))).collect()
}

fn forks(world: &World, disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(|disk| disk.fork(world)).collect()
}

async fn write(volume: &Rig, arena: &Arena, extent: u64, value: u8) {
    let bytes = filled(arena, EXTENT, value);
    let written = volume.write(EXTENT * extent, &bytes, Durability::Fua).await;
    written.unwrap_or_else(|e| panic!("write {value}: {e}"));
}

/// Writes an extent anew, which changes the table. The write goes to the home, and then to the SSD if the
/// SSD holds dirty copies.
async fn write_anew(volume: &Rig, arena: &Arena, extent: u64, value: u8) {
    volume.discard(EXTENT * extent, EXTENT).await.unwrap_or_else(|e| panic!("discard {value}: {e}"));
    write(volume, arena, extent, value).await;
    write(volume, arena, extent, value).await;
}

/// Writes all extents anew, and reads them.
async fn use_all(volume: &Rig, arena: &Arena, extents: u64, (writes, value): (bool, u8)) {
    volume.replace_policy(Box::new(Cache { writes }));
    for extent in 0..extents {
        write_anew(volume, arena, extent, value).await;
    }
    check_all(volume, arena, extents, value, "just written").await;
}

async fn check_all(volume: &Rig, arena: &Arena, extents: u64, value: u8, what: &str) {
    for extent in 0..extents {
        let is_there = holds(volume, arena, EXTENT * extent, EXTENT, value).await;
        assert!(is_there.unwrap_or_else(|e| panic!("{what}: {e}")), "{what}: extent {extent}");
    }
}

/// The bad pages of an image: its first page, which is a page of the directory; its second page; or all
/// pages.
const PARTS: [Range<u64>; 3] = [0..1, 1..2, 0..u64::MAX];

fn part(region: &Region, pages: &Range<u64>) -> Range<Bytes> {
    let end = (region.len / PAGE).min(pages.end);
    region.offset + PAGE * pages.start..region.offset + PAGE * end
}

fn for_each(
    test: impl AsyncFn(&World, &Arena, Vec<Disk>, Vec<Faults>, Rig, (u8, Range<u64>, bool)) + Copy + 'static,
) {
    for copy in 0..2 {
        for pages in PARTS {
            for writes in [false, true] {
                let bench = bench(1 + u64::from(copy), MIB * 8, MIB * 8);
                let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
                let (disks, faults, pages) = (bench.disks.clone(), bench.faults.clone(), pages.clone());
                bench.run(async move {
                    let volume = make(world.clone(), all, &caching(1, MIB * 2)).await;
                    test(&world, &arena, disks, faults, volume, (copy, pages, writes)).await;
                });
            }
        }
    }
}

#[test]
fn a_bad_place_in_a_cache_table_ends_no_flush_and_no_opening() {
    for_each(async |world, arena, disks, faults, volume, (copy, pages, writes)| {
        let what = format!("image {copy}, pages {pages:?}, dirty: {writes}");
        use_all(&volume, arena, 16, (writes, 1)).await;
        world.sleep(Nanos::from_secs(60)).await;
        let was = image(&volume.superblock(), copy);
        let bad = part(&was, &pages);
        faults[0].set(FaultPlan { bad_writes: Some(bad.clone()), ..FaultPlan::default() });
        for value in 2..5 {
            use_all(&volume, arena, 16, (writes, value)).await;
            world.sleep(Nanos::from_secs(60)).await;
            volume.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        volume.checkpoint().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let superblock = volume.superblock();
        assert_eq!(superblock.void_regions().count(), 0, "{what}");
        // Clean copies of the same blocks change no page, nor is each page in use.
        if writes && pages.end == u64::MAX {
            assert_ne!(image(&superblock, copy).offset, was.offset, "{what}: it was made anew");
        }
        let dead = forks(world, &disks);
        volume.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        for disks in [dead, disks] {
            let again = open(world.clone(), with_bad_place(world, &disks, &bad)).await;
            let again = again.unwrap_or_else(|e| panic!("{what}: {e}"));
            check_all(&again, arena, 16, 4, &what).await;
            use_all(&again, arena, 16, (writes, 5)).await;
            again.checkpoint().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            again.audit().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            again.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    });
}

#[test]
fn opening_succeeds_despite_unwritable_cache_table_page() {
    for_each(async |world, arena, disks, _, volume, (copy, pages, writes)| {
        let what = format!("image {copy}, pages {pages:?}, dirty: {writes}");
        use_all(&volume, arena, 16, (writes, 1)).await;
        let bad = part(&image(&volume.superblock(), copy), &pages);
        let disks = forks(world, &disks);
        for _ in 0..2 {
            let again = open(world.clone(), with_bad_place(world, &disks, &bad)).await;
            let again = again.unwrap_or_else(|e| panic!("{what}: {e}"));
            check_all(&again, arena, 16, 1, &what).await;
            again.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            world.sleep(Nanos::from_secs(40)).await;
            again.audit().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            again.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    });
}

/// Guests' writes with FUA, by extent: the value that a crash must leave, and the value in flight.
type Written = Rc<RefCell<Vec<(u8, u8)>>>;

async fn guest(world: World, volume: Rig, arena: Arena, written: Written, ends: Nanos) {
    let (mut rng, extents) = (world.fork_rng(), written.borrow().len() as u64);
    while world.now() < ends {
        let (extent, value) = (rng.below(extents), 1 + rng.below(250) as u8);
        written.borrow_mut()[extent as usize].1 = value;
        write_anew(&volume, &arena, extent, value).await;
        written.borrow_mut()[extent as usize].0 = value;
        world.sleep(Nanos(rng.below(1_500_000_000))).await;
    }
}

/// Power cuts at any moment, with and without room to reproduce the image: without room, a single image is
/// written for the rest of the volume's life.
#[test]
fn flushed_data_survives_power_cuts_beside_bad_cache_page() {
    for seed in 0..36 {
        let is_full = seed % 3 == 2;
        let bench = bench(500 + seed, MIB * 8, MIB * 16);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let (mut disks, faults) = (bench.disks.clone(), bench.faults.clone());
        bench.run(async move {
            let size = if is_full { MIB * 12 } else { MIB * 2 };
            let (extents, mut rng) = (size / EXTENT, world.fork_rng());
            let mut volume = make(world.clone(), all, &caching(1, size)).await;
            let writes = seed % 4 != 0;
            use_all(&volume, &arena, extents, (writes, 1)).await;
            let region = image(&volume.superblock(), (seed % 2) as u8);
            let is_all = rng.chance(0.5);
            let bad = region.offset..region.offset + if is_all { region.len } else { PAGE };
            faults[0].set(FaultPlan { bad_writes: Some(bad.clone()), ..FaultPlan::default() });
            let mut known = vec![1; extents as usize];
            for life in 0..5 {
                let what = format!("seed {seed}, life {life}, {bad:?} of {region}, full: {is_full}");
                let written: Written = Rc::new(RefCell::new(known.iter().map(|&v| (v, v)).collect()));
                let ends = world.now() + Nanos(rng.below(50_000_000_000));
                world.spawn(guest(world.clone(), volume.clone(), arena.clone(), written.clone(), ends));
                // Between two requests, or within one.
                world.sleep(ends.saturating_sub(world.now()) + Nanos(rng.below(40_000_000))).await;
                disks = forks(&world, &disks);
                disks.iter().for_each(Disk::lose_cache);
                let after = written.borrow().clone();
                volume = open(world.clone(), with_bad_place(&world, &disks, &bad))
                    .await
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                volume.replace_policy(Box::new(Cache { writes }));
                for (extent, (flushed, under_way)) in (0..).zip(after) {
                    if flushed == under_way {
                        let is_there = holds(&volume, &arena, EXTENT * extent, EXTENT, flushed).await;
                        let is_there = is_there.unwrap_or_else(|e| panic!("{what}: {e}"));
                        assert!(is_there, "{what}: extent {extent} is not {flushed}");
                    } else {
                        // A write in flight may have left anything.
                        write(&volume, &arena, extent, under_way).await;
                    }
                    known[extent as usize] = under_way;
                }
            }
            volume.audit().await.unwrap();
            let is_void = |region: &Region| region.kind == RegionKind::CacheTable && region.void;
            assert!(!is_all || !writes || volume.superblock().regions.iter().any(is_void), "seed {seed}");
        });
    }
}
