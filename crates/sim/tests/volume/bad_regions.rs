//! A permanently unwritable region of metadata: the cost of each region, with one required copy and with
//! two.

use crate::rig::life::names;
use crate::rig::{Bench, Rig, bench, filled, holds, make, open, open_with, options};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, check};
use braid_format::proof;
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 8;
/// Number of volumes with power cuts, and number of cuts of each.
const SEEDS: u64 = 48;
const LIVES: u64 = 4;

fn made(copies: u8) -> CreateOptions {
    let policy = if copies == 1 { "stripe" } else { "ssd-first" };
    CreateOptions { policy: policy.to_owned(), copies, map_group: Some(1), ..options(1) }
}

/// Copies of the disks in their present state, one of them with an unwritable place.
fn killed(world: &World, disks: &[Disk], device: DeviceId, bad: &Range<Bytes>) -> Vec<Faulty<Disk>> {
    let forks: Vec<Disk> = disks.iter().map(|disk| disk.fork(world)).collect();
    with_bad_place(world, &forks, device, bad)
}

fn with_bad_place(world: &World, disks: &[Disk], device: DeviceId, bad: &Range<Bytes>) -> Vec<Faulty<Disk>> {
    let plan = |at| match at == device.index() {
        true => FaultPlan { bad_writes: Some(bad.clone()), ..FaultPlan::default() },
        false => FaultPlan::default(),
    };
    let faults = |at| Faults::new(plan(at), world.fork_rng());
    disks.iter().enumerate().map(|(at, disk)| Faulty::new(disk.clone(), &faults(at))).collect()
}

async fn write(volume: &Rig, arena: &Arena, extent: u64, value: u8) {
    let bytes = filled(arena, EXTENT, value);
    let written = volume.write(EXTENT * extent, &bytes, Durability::Fua).await;
    written.unwrap_or_else(|e| panic!("write {value}: {e}"));
}

async fn check_all(volume: &Rig, arena: &Arena, count: u64, what: &str) {
    for extent in 0..count {
        let is_there = holds(volume, arena, EXTENT * extent, EXTENT, 1 + extent as u8).await;
        assert!(is_there.unwrap_or_else(|e| panic!("{what}: {e}")), "{what}: extent {extent}");
    }
}

/// Regions that the volume can do without, in this order, on the device of the second copy and on the device
/// of the first.
fn regions(superblock: &Superblock, copies: u8) -> Vec<Region> {
    let is_tried = |region: &&Region| match region.kind {
        RegionKind::Map | RegionKind::Intents | RegionKind::DoubleWrite => true,
        RegionKind::Proof | RegionKind::PolicyState => true,
        // With one required copy, only the journal on the first device is in use.
        RegionKind::Journal => copies == 2 || region.copy == 1,
        _ => false,
    };
    superblock.regions.iter().filter(is_tried).copied().collect()
}

/// Runs a test for each region that `tried` names of a new volume.
pub fn for_each<T: 'static>(
    (number, made): (u64, CreateOptions),
    tried: impl Fn(&Superblock) -> Vec<Region> + Copy + 'static,
    test: impl AsyncFn(&Bench, Rig, Region) -> T + Copy + 'static,
) -> Vec<T> {
    let mut told = Vec::new();
    loop {
        let (bench, made, at) = (bench(number), made.clone(), told.len());
        let world = bench.world.clone();
        let (result, is_last) = world.clone().block_on(async move {
            let volume = make(world.clone(), bench.devices(), &made).await;
            let all = tried(&volume.superblock());
            let result = test(&bench, volume, all[at]).await;
            world.halt();
            (result, at + 1 == all.len())
        });
        told.push(result);
        if is_last {
            return told;
        }
    }
}

/// Runs a test for each region of a volume that becomes unwritable at some moment.
fn for_each_region(copies: u8, test: impl AsyncFn(&Bench, Rig, Region) + Copy + 'static) {
    for_each((50 + u64::from(copies), made(copies)), move |superblock| regions(superblock, copies), test);
}

/// A page of the second map image was unwritable. With one required copy every flush failed from the next
/// checkpoint on. After that each opening was refused, though the first image, the journal and all data were
/// sound.
#[test]
fn unwritable_region_fails_no_flush_and_no_opening() {
    for copies in [1, 2] {
        for_each_region(copies, async |bench, volume, region| {
            let (world, arena, copies) = (&bench.world, &bench.arena, volume.superblock().copies);
            let what = format!("{copies} copies, {region}");
            write(&volume, arena, 0, 1).await;
            let bad = region.offset..region.offset + region.len;
            let plan = FaultPlan { bad_writes: Some(bad.clone()), ..FaultPlan::default() };
            bench.faults[region.device.index()].set(plan);
            for extent in 1..6 {
                write(&volume, arena, extent, 1 + extent as u8).await;
                world.sleep(Nanos::from_secs(35)).await;
            }
            volume.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            check_all(&volume, arena, 6, &what).await;
            if copies == 1 {
                check_renewed(&volume.superblock(), &region, &what);
            }
            let again = open(world.clone(), killed(world, &bench.disks, region.device, &bad)).await;
            let again = again.unwrap_or_else(|e| panic!("{what}: {e}"));
            check_all(&again, arena, 6, &what).await;
            write(&again, arena, 6, 7).await;
            again.checkpoint().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            again.audit().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            again.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        });
    }
}

/// Both pages of the journal's proof were read at once: one bad sector refused every opening after a crash,
/// and a repair could not rewrite the sector.
#[test]
fn opening_succeeds_with_one_bad_proof_page() {
    for page in 0..proof::PAGES {
        let bench = bench(58);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let arena = &bench.arena;
            let mut volume = make(world.clone(), bench.devices(), &made(1)).await;
            let mut disks = bench.disks.clone();
            let proofs = volume.superblock().regions.into_iter().filter(|it| it.kind == RegionKind::Proof);
            let proof = proofs.min_by_key(|region| region.copy).expect("there is a proof");
            let start = proof.offset + proof::SIZE * page;
            let bad = start..start + proof::SIZE;
            let plan =
                FaultPlan { bad_reads: Some(bad.clone()), bad_writes: Some(bad), ..FaultPlan::default() };
            for _opening in 0..3 {
                for extent in 0..4 {
                    write(&volume, arena, extent, 1 + extent as u8).await;
                    world.sleep(Nanos::from_secs(2)).await;
                }
                disks = disks.iter().map(|disk| disk.fork(&world)).collect();
                disks[proof.device.index()].faults().set(plan.clone());
                let devices = disks.iter().map(|disk| bench.sound(disk.clone())).collect();
                let opened = Volume::open(world.clone(), devices, OpenOptions::new(names(2))).await;
                let (again, recovery) = opened.unwrap_or_else(|e| panic!("page {page}: {e}"));
                assert!(!recovery.warnings.is_empty(), "page {page}");
                check_all(&again, arena, 4, "one page is bad").await;
                volume = again;
            }
            volume.flush().await.unwrap_or_else(|e| panic!("page {page}: {e}"));
            world.halt();
        });
    }
}

/// Checks that the place is void, and that the structure lies elsewhere on the same device.
fn check_renewed(superblock: &Superblock, region: &Region, what: &str) {
    let is_needed = matches!(region.kind, RegionKind::Map | RegionKind::DoubleWrite | RegionKind::Intents);
    // An area is written only if the area lies on another device than the journal. A region that is not
    // written does not become void.
    let is_void = superblock.regions.contains(&Region { void: true, ..*region });
    let is_unused = region.kind == RegionKind::DoubleWrite && region.copy == 0;
    if is_needed && !is_unused && (is_void || region.kind != RegionKind::Intents) {
        assert!(is_void, "{what}");
        let anew = superblock.region(region.kind, region.copy).expect("it was made anew");
        assert!(anew.device == region.device && anew.offset != region.offset, "{what}: {anew}");
    }
    assert_eq!(superblock.void_regions().count(), 0, "{what}");
}

/// The first to meet the place is the opening after a crash, which must write pages before anything else.
#[test]
fn opening_succeeds_despite_unwritable_metadata_region() {
    for copies in [1, 2] {
        for_each_region(copies, async |bench, volume, region| {
            let (world, arena, copies) = (&bench.world, &bench.arena, volume.superblock().copies);
            let what = format!("{copies} copies, {region}");
            for extent in 0..6 {
                write(&volume, arena, extent, 1 + extent as u8).await;
            }
            let bad = region.offset..region.offset + region.len;
            let again = open(world.clone(), killed(world, &bench.disks, region.device, &bad)).await;
            let again = again.unwrap_or_else(|e| panic!("{what}: {e}"));
            check_all(&again, arena, 6, &what).await;
            world.sleep(Nanos::from_secs(40)).await;
            again.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            again.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        });
    }
}

/// If the image on the first device is lost too, the reproduced image is the map.
#[test]
fn reproduced_map_image_serves_after_loss_of_first_device() {
    for_each_region(1, async |bench, volume, region| {
        if region.kind != RegionKind::Map || region.copy != 1 {
            return;
        }
        let (world, arena) = (&bench.world, &bench.arena);
        let bad = region.offset..region.offset + region.len;
        bench.faults[1].set(FaultPlan { bad_writes: Some(bad), ..FaultPlan::default() });
        for extent in 0..6 {
            write(&volume, arena, extent, 1 + extent as u8).await;
            world.sleep(Nanos::from_secs(35)).await;
        }
        let homes: Vec<DeviceId> =
            (0..6).map(|i| volume.explain(EXTENT * i).unwrap().home.unwrap().0).collect();
        assert!(homes.contains(&DeviceId(1)), "{homes:?}");
        let left = vec![bench.sound(bench.disks[1].fork(world))];
        let (alone, recovery) =
            open_with(world.clone(), left, |options| options.distrust = vec![DeviceId(0)]).await.unwrap();
        for (extent, home) in (0..6).zip(homes) {
            let is_lost = recovery.lost.iter().any(|lost| u64::from(lost.0) == extent);
            assert_eq!(is_lost, home == DeviceId(0), "extent {extent}");
            if !is_lost {
                assert!(holds(&alone, arena, EXTENT * extent, EXTENT, 1 + extent as u8).await.unwrap());
            }
        }
    });
}

/// Until a void region has been reproduced, a check names the region.
#[test]
fn check_reports_void_region() {
    let bench = bench(60);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    let (all, faults) = (bench.devices(), bench.faults.clone());
    bench.run(async move {
        // Full, so that there is no room to reproduce the image.
        let made = CreateOptions { size: Some(MIB * 4), ..made(1) };
        let volume = make(world.clone(), all, &made).await;
        let region = *volume.superblock().region(RegionKind::Map, 1).unwrap();
        // All other places of the device are unwritable too, except superblocks and tables.
        let bad = region.offset..MIB * 8 - KIB * 128;
        faults[1].set(FaultPlan { bad_writes: Some(bad), ..FaultPlan::default() });
        volume.replace_policy(braid_policy::parse("ssd-only", &views(&volume)).unwrap());
        for extent in 0..3 {
            write(&volume, &arena, extent, 1 + extent as u8).await;
            world.sleep(Nanos::from_secs(35)).await;
        }
        let void: Vec<String> = volume.superblock().void_regions().map(ToString::to_string).collect();
        assert!(void.iter().any(|region| region.starts_with("map copy 1")), "{void:?}");
        let devices = killed(&world, &disks, DeviceId(1), &(Bytes::ZERO..Bytes::ZERO));
        let names = ["disk 0".to_owned(), "disk 1".to_owned()];
        let report = check(&world, devices, &names, None).await.unwrap();
        assert!(report.fatal.is_empty(), "{:?}", report.fatal);
        assert!(report.repairable.iter().any(|problem| problem.contains("void")), "{:?}", report.repairable);
    });
}

pub fn views(volume: &Rig) -> Vec<braid_policy::DeviceView> {
    let entries = volume.superblock().devices;
    let view = |(id, entry): (u16, &braid_format::superblock::DeviceEntry)| {
        braid_policy::DeviceView::empty(DeviceId(id), entry.class, entry.slots)
    };
    (0..).zip(&entries).map(view).collect()
}

/// Guests' writes with FUA, by extent: the value that a crash must leave, and the value in flight.
type Written = Rc<RefCell<Vec<(u8, u8)>>>;

async fn use_until(world: &World, volume: &Rig, arena: &Arena, written: &Written, ends: Nanos) {
    let mut rng = world.fork_rng();
    while world.now() < ends {
        let extent = rng.below(EXTENTS);
        let value = 1 + rng.below(250) as u8;
        written.borrow_mut()[extent as usize].1 = value;
        write(volume, arena, extent, value).await;
        written.borrow_mut()[extent as usize].0 = value;
        world.sleep(Nanos(rng.below(3_000_000_000))).await;
    }
}

/// Power cuts at any moment, with an unwritable page in a region of the volume: at the checkpoint that meets
/// the page, while the superblocks call the region void, and while the region is reproduced.
#[test]
fn power_cuts_with_bad_metadata_page_keep_flushed_data() {
    for seed in 0..SEEDS {
        let copies = 1 + (seed % 2) as u8;
        let bench = bench(700 + seed);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let (arena, mut rng) = (bench.arena.clone(), world.fork_rng());
            let mut volume = make(world.clone(), bench.devices(), &made(copies)).await;
            let all = regions(&volume.superblock(), copies);
            let region = all[(seed / 2) as usize % all.len()];
            // Only the first pages are in use.
            let page = region.offset + KIB * 4 * rng.below((region.len / (KIB * 4)).min(3));
            let (device, bad) = (region.device, page..page + KIB * 4);
            let mut disks = bench.disks.clone();
            let plan = FaultPlan { bad_writes: Some(bad.clone()), ..FaultPlan::default() };
            bench.faults[device.index()].set(plan);
            let mut known = vec![0; EXTENTS as usize];
            for life in 0..LIVES {
                let written: Written = Rc::new(RefCell::new(known.iter().map(|&v| (v, v)).collect()));
                let ends = world.now() + Nanos(rng.below(50_000_000_000));
                let (rt, guests, noted) = (world.clone(), volume.clone(), written.clone());
                let memory = arena.clone();
                world.spawn(async move { use_until(&rt, &guests, &memory, &noted, ends).await });
                // Between two requests, or within one.
                world.sleep(ends.saturating_sub(world.now()) + Nanos(rng.below(40_000_000))).await;
                disks = disks.iter().map(|disk| disk.fork(&world)).collect();
                disks.iter().for_each(Disk::lose_cache);
                let after = written.borrow().clone();
                let what = format!("seed {seed}, life {life}, {copies} copies, page {page:?} of {region}");
                let devices = with_bad_place(&world, &disks, device, &bad);
                volume = open(world.clone(), devices).await.unwrap_or_else(|e| panic!("{what}: {e}"));
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
            world.halt();
        });
    }
}
