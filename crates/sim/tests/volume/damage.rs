//! Lost or rotten metadata: findings of a check, and the scope of a repair.

use crate::rig::{Bench, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, check};
use braid_format::journal;
use braid_format::superblock::{RegionKind, Superblock};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, Faulty, World};

/// A volume with `batches` flushed writes, each to an extent of its own, killed at rest: returns its devices
/// and the superblock.
fn killed_after(bench: &Bench, made: CreateOptions, batches: u64) -> (Vec<Faulty<Disk>>, Superblock) {
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let superblock = bench.world.block_on(async move {
        let volume = make(world.clone(), all, &made).await;
        for i in 0..batches {
            let (at, value) = (KIB * 128 * i, i as u8 + 1);
            volume
                .write(at, &filled(&arena, KIB * 128, value), Durability::Fua)
                .await
                .expect("there is room");
        }
        world.sleep(Nanos::from_secs(3)).await;
        volume.superblock()
    });
    (bench.killed(), superblock)
}

/// The batches in the ring, oldest first: the place of each on its device, and its number.
async fn batches(device: &Faulty<Disk>, superblock: &Superblock, copy: u8) -> Vec<(Bytes, u64)> {
    let region = *superblock.region(RegionKind::Journal, copy).expect("the volume has this journal");
    let buf = Arena::new(MIB).alloc(MIB).await;
    device.read(region.offset, &buf).await.expect("the devices are sound");
    let mut found: Vec<(Bytes, u64)> = buf.with_bytes(|bytes| {
        let starts = (0..bytes.len()).step_by(4096);
        let verified =
            starts.filter_map(|at| Some((at, journal::verify(&bytes[at..], superblock.volume).ok()?)));
        verified.map(|(at, header)| (region.offset + Bytes::of_len(at), header.sequence)).collect()
    });
    found.sort_by_key(|(_, sequence)| *sequence);
    found
}

async fn flip(device: &Faulty<Disk>, at: Bytes) {
    let buf = Arena::new(MIB).alloc(KIB * 4).await;
    let start = at.align_down(KIB * 4);
    device.read(start, &buf).await.expect("the devices are sound");
    buf.with_bytes_mut(|bytes| bytes[(at - start).as_usize()] ^= 0x40);
    device.write(start, &buf).await.expect("the devices are sound");
    device.flush().await.expect("the devices are sound");
}

fn names() -> [String; 2] {
    ["disk 0".to_owned(), "disk 1".to_owned()]
}

fn run(world: &World, test: impl Future<Output = ()> + 'static) {
    world.block_on(test);
    world.halt();
}

fn stripe(identity: u8) -> CreateOptions {
    CreateOptions { policy: "stripe".to_owned(), ..options(identity) }
}

/// The whole journal was zeroed after `kill -9`: the check reported "clean", and flushed data was gone.
#[test]
fn erased_journal_is_refused_as_corrupt() {
    let bench = bench(1);
    let (devices, superblock) = killed_after(&bench, stripe(1), 4);
    let world = bench.world.clone();
    run(&bench.world, async move {
        let region = *superblock.region(RegionKind::Journal, 0).unwrap();
        let zeros = Arena::new(MIB).alloc(MIB).await;
        zeros.fill_zero();
        devices[region.device.index()].write(region.offset, &zeros).await.unwrap();
        let report = check(&world, devices.clone(), &names(), None).await.unwrap();
        assert!(!report.fatal.is_empty(), "{report:?}");
        assert_eq!(refused(open(world, devices).await).kind(), ErrorKind::Corrupt);
    });
}

/// One byte flipped in the newest batch: the batch was taken for a batch torn by a power cut.
#[test]
fn rotten_last_batch_is_refused_until_repair() {
    let bench = bench(2);
    let (devices, superblock) = killed_after(&bench, stripe(2), 5);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    run(&bench.world, async move {
        let all = batches(&devices[0], &superblock, 0).await;
        flip(&devices[0], all.last().unwrap().0 + Bytes(60)).await;
        assert_eq!(refused(open(world.clone(), devices.clone()).await).kind(), ErrorKind::Corrupt);
        let report = check(&world, devices.clone(), &names(), None).await.unwrap();
        assert_eq!(report.lost.iter().map(|e| e.0).collect::<Vec<_>>(), [4]);
        let (volume, recovery) =
            open_with(world.clone(), devices.clone(), |o| o.repair = true).await.unwrap();
        assert_eq!(recovery.lost, report.lost);
        for i in 0..4 {
            assert!(holds(&volume, &arena, KIB * 128 * i, KIB * 128, i as u8 + 1).await.unwrap());
        }
        let lost = KIB * 128 * 4;
        assert_eq!(refused(holds(&volume, &arena, lost, KIB * 4, 5).await).kind(), ErrorKind::Corrupt);
        assert!(volume.write(lost, &filled(&arena, KIB * 4, 9), Durability::Volatile).await.is_err());
        volume.write(lost, &filled(&arena, KIB * 128, 9), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let report = check(&world, devices.clone(), &names(), None).await.unwrap();
        assert!(report.fatal.is_empty() && report.repairable.is_empty(), "{report:?}");
        let volume = open(world, devices).await.unwrap();
        assert!(holds(&volume, &arena, lost, KIB * 128, 9).await.unwrap());
    });
}

/// One byte flipped in a batch in the middle locked the whole volume, the repair included.
#[test]
fn rotten_middle_batch_loses_only_affected_extent() {
    let bench = bench(3);
    let (devices, superblock) = killed_after(&bench, stripe(3), 6);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    run(&bench.world, async move {
        let all = batches(&devices[0], &superblock, 0).await;
        flip(&devices[0], all[all.len() - 3].0 + Bytes(60)).await;
        assert_eq!(refused(open(world.clone(), devices.clone()).await).kind(), ErrorKind::Corrupt);
        let (volume, recovery) =
            open_with(world.clone(), devices.clone(), |o| o.repair = true).await.unwrap();
        assert_eq!(recovery.lost.iter().map(|e| e.0).collect::<Vec<_>>(), [3]);
        for i in (0..6).filter(|i| *i != 3) {
            assert!(holds(&volume, &arena, KIB * 128 * i, KIB * 128, i as u8 + 1).await.unwrap());
        }
        volume.discard(KIB * 128 * 3, KIB * 128).await.unwrap();
        volume.close().await.unwrap();
        let volume = open(world, devices).await.unwrap();
        assert!(holds(&volume, &arena, KIB * 128 * 3, KIB * 128, 0).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// With two copies the journal lies on both devices: a rotten batch of one device is read from the other.
#[test]
fn mirror_reads_rotten_batch_from_intact_journal() {
    for copy in 0..2u8 {
        let bench = bench(4);
        let (devices, superblock) = killed_after(&bench, CreateOptions { copies: 2, ..options(4) }, 5);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        run(&bench.world, async move {
            let device = &devices[usize::from(copy)];
            for (at, _) in batches(device, &superblock, copy).await {
                flip(device, at + Bytes(60)).await;
            }
            let volume = open(world, devices).await.unwrap();
            for i in 0..5 {
                assert!(holds(&volume, &arena, KIB * 128 * i, KIB * 128, i as u8 + 1).await.unwrap());
            }
        });
    }
}

/// A page of image 0 with a lost write is valid but old: the page won over the newer page of image 1.
#[test]
fn the_newer_of_two_valid_pages_counts() {
    for old_image in 0..2u8 {
        let bench = bench(5);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &stripe(5)).await;
            let region = *volume.superblock().region(RegionKind::Map, old_image).unwrap();
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.checkpoint().await.unwrap();
            let old = Arena::new(MIB).alloc(region.len).await;
            all[region.device.index()].read(region.offset, &old).await.unwrap();
            volume.discard(Bytes::ZERO, MIB).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            all[region.device.index()].write(region.offset, &old).await.unwrap();
            let volume = open(world.clone(), all.clone()).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 0).await.unwrap());
            assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap());
            volume.close().await.unwrap();
        });
    }
}

/// A page that is bad in both images locked the volume. The journal's records of its extents are kept.
#[test]
fn map_page_without_intact_image_loses_only_unjournaled_extents() {
    let bench = bench(6);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &stripe(6)).await;
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 128, 1), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let volume = open(world.clone(), all.clone()).await.unwrap();
        volume.write(KIB * 128, &filled(&arena, KIB * 128, 2), Durability::Fua).await.unwrap();
        let superblock = volume.superblock();
        drop(volume);
        // The page is in the double-write area of the second device, too.
        for (kind, copy) in [(RegionKind::Map, 0), (RegionKind::Map, 1), (RegionKind::DoubleWrite, 1)] {
            let region = superblock.region(kind, copy).unwrap();
            flip(&all[region.device.index()], region.offset + Bytes(100)).await;
        }
        assert_eq!(refused(open(world.clone(), all.clone()).await).kind(), ErrorKind::Corrupt);
        let (volume, recovery) = open_with(world.clone(), all.clone(), |o| o.repair = true).await.unwrap();
        assert!(
            recovery.lost.iter().any(|e| e.0 == 0) && recovery.lost.iter().all(|e| e.0 != 1),
            "{recovery:?}"
        );
        assert!(holds(&volume, &arena, KIB * 128, KIB * 128, 2).await.unwrap());
        assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.is_err(), "nothing is guessed");
    });
}

/// The last superblock copy lies at the end that the device had at its creation. After growth of the device,
/// a repair searched for the copy at the new end, found none, and never ended.
#[test]
fn grown_device_passes_check() {
    let world = World::new(7);
    let (small, rt) = (braid_sim::DiskOptions::ssd(MIB * 8), world.clone());
    run(&world, async move {
        let device = Disk::new(&rt, small);
        braid_engine::create(std::slice::from_ref(&device), &options(7)).await.unwrap();
        let large = Disk::new(&rt, braid_sim::DiskOptions::ssd(MIB * 12));
        let buf = Arena::new(MIB).alloc(MIB).await;
        for at in (0..8).map(|i| MIB * i) {
            device.read(at, &buf).await.unwrap();
            large.write(at, &buf).await.unwrap();
        }
        let report = check(&rt, vec![large], &["grown".to_owned()], None).await.unwrap();
        assert!(report.repairable.is_empty() && report.fatal.is_empty(), "{report:?}");
    });
}
