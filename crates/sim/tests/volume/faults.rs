//! The engine's reaction to devices that fail, vanish, come from elsewhere or fill up.

use crate::rig::{Bench, Rig, bench, bench_in, filled, holds, make, open, options, refused};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, Volume, Zeroing, check};
use braid_format::superblock::RegionKind;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faulty, World};

#[test]
fn read_error_is_served_from_healthy_copy() {
    let bench = bench(1);
    let (world, devices, arena, faults) =
        (bench.world.clone(), bench.devices(), bench.arena.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make(world, devices, &CreateOptions { copies: 2, ..options(1) }).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
        for failing in &faults {
            failing.set(FaultPlan { reads: 1.0, ..FaultPlan::default() });
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 7).await.unwrap());
            failing.set(FaultPlan::default());
        }
        let errors: u64 = volume.status().devices.iter().map(|d| d.stats.errors).sum();
        assert!(errors > 0, "an error that was made good is counted all the same");
    });
}

#[test]
fn errors_name_vanished_device_and_remaining_data_is_readable() {
    let bench = bench(2);
    let (world, devices, arena, faults) =
        (bench.world.clone(), bench.devices(), bench.arena.clone(), bench.faults.clone());
    bench.run(async move {
        let policy = "stripe".to_owned();
        let volume = make(world, devices, &CreateOptions { policy, ..options(2) }).await;
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 256, 9), Durability::Fua).await.unwrap();
        faults[1].vanish();
        assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 128, 9).await.unwrap());
        let error = refused(holds(&volume, &arena, KIB * 128, KIB * 4, 9).await);
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("device d1 (hdd)"), "{error}");
        assert!(volume.write(KIB * 128, &filled(&arena, KIB, 1), Durability::Volatile).await.is_err());
    });
}

/// A device may drop unflushed writes and succeed at the next flush. So after one failure no flush may
/// succeed: the guest would believe that its data is safe.
#[test]
fn after_a_failed_flush_no_flush_succeeds_until_the_volume_is_opened_again() {
    let bench = bench(3);
    let (world, devices, arena, faults) =
        (bench.world.clone(), bench.devices(), bench.arena.clone(), bench.faults.clone());
    let again = bench.devices();
    bench.run(async move {
        let volume = make(world.clone(), devices, &options(3)).await;
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 64, 1), Durability::Fua).await.unwrap();
        volume.write(KIB * 64, &filled(&arena, KIB * 64, 2), Durability::Volatile).await.unwrap();
        faults.iter().for_each(|f| f.set(FaultPlan { flushes: 1.0, ..FaultPlan::default() }));
        assert_eq!(refused(volume.flush().await).kind(), ErrorKind::Io);
        faults.iter().for_each(|f| f.set(FaultPlan::default()));
        let error = refused(volume.flush().await);
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(volume.status().failure.is_some());
        assert!(volume.write(MIB, &filled(&arena, KIB, 3), Durability::Fua).await.is_err());
        drop(volume);
        let volume = open(world, again).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 64, 1).await.unwrap(), "what was flushed is there");
        volume.flush().await.unwrap();
    });
}

/// Writes to new places came back as the earlier content of the places.
#[test]
fn new_places_return_errors_after_failed_flush() {
    let bench = bench(13);
    let (world, devices, arena, faults) =
        (bench.world.clone(), bench.devices(), bench.arena.clone(), bench.faults.clone());
    let again = bench.devices();
    bench.run(async move {
        let policy = "ssd-only".to_owned();
        let volume = make(world.clone(), devices, &CreateOptions { policy, ..options(13) }).await;
        let (half, extent) = (KIB * 64, KIB * 128);
        volume.write(Bytes::ZERO, &filled(&arena, half, 1), Durability::Fua).await.unwrap();
        volume.write(half, &filled(&arena, half, 3), Durability::Volatile).await.unwrap();
        volume.write(extent, &filled(&arena, extent, 4), Durability::Volatile).await.unwrap();
        faults[0].set(FaultPlan { flushes: 1.0, flushes_lose: true, ..FaultPlan::default() });
        assert_eq!(refused(volume.flush().await).kind(), ErrorKind::Io);
        faults[0].set(FaultPlan::default());
        assert!(holds(&volume, &arena, Bytes::ZERO, half, 1).await.unwrap(), "it was flushed");
        for (new, what) in [(half, "a part that became valid"), (extent, "an extent that got a place")] {
            let error = refused(holds(&volume, &arena, new, KIB * 4, 0).await);
            assert!(
                error.kind() == ErrorKind::Io && error.to_string().contains("device d0"),
                "{what}: {error}"
            );
        }
        drop(volume);
        let volume = open(world, again).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, half, 1).await.unwrap());
        assert!(holds(&volume, &arena, half, half + extent, 0).await.unwrap());
    });
}

#[test]
fn discard_without_flush_is_committed_and_frees_slots() {
    let bench = bench(9);
    let (world, devices, arena) = (bench.world.clone(), bench.devices(), bench.arena.clone());
    bench.run(async move {
        // A policy with probes would hold a slot for a moment.
        let policy = "stripe".to_owned();
        let volume = make(world.clone(), devices, &CreateOptions { policy, ..options(9) }).await;
        let free = |volume: &Rig| volume.status().devices.iter().map(|d| d.free).sum::<u32>();
        let before = free(&volume);
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Volatile).await.unwrap();
        volume.flush().await.unwrap();
        assert_eq!(free(&volume), before - 8);
        volume.discard(Bytes::ZERO, MIB).await.unwrap();
        world.sleep(Nanos::from_millis(500)).await;
        assert_eq!((volume.status().pending_changes, free(&volume)), (8, before - 8), "not durable yet");
        world.sleep(Nanos::from_secs(6)).await;
        assert_eq!(volume.status().pending_changes, 0);
        // The slots of the disk become free once its map image no longer names the slots.
        world.sleep(Nanos::from_secs(30)).await;
        assert_eq!(free(&volume), before);
    });
}

#[test]
fn write_error_during_migration_leaves_extent_in_place() {
    let bench = bench(4);
    let (world, devices, arena, faults) =
        (bench.world.clone(), bench.devices(), bench.arena.clone(), bench.faults.clone());
    bench.run(async move {
        let policy = "ssd-only".to_owned();
        let volume = make(world.clone(), devices, &CreateOptions { policy, ..options(4) }).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 5), Durability::Fua).await.unwrap();
        faults[1].set(FaultPlan { writes: 1.0, ..FaultPlan::default() });
        // An idle disk makes the SSD look slow to the policy: the policy will want to move, and cannot.
        volume.set_policy("wardrop,period=20ms,alpha=1000").await.unwrap_err();
        faults[1].set(FaultPlan::default());
        volume.set_policy("wardrop,period=20ms,alpha=1000").await.unwrap();
        faults[1].set(FaultPlan { writes: 1.0, ..FaultPlan::default() });
        for _ in 0..200 {
            assert!(holds(&volume, &arena, KIB * 512, KIB * 4, 5).await.unwrap());
            world.sleep(Nanos::from_millis(2)).await;
        }
        assert_eq!(volume.status().background.migrations, 0);
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 5).await.unwrap());
    });
}

#[test]
fn foreign_missing_doubled_and_forgotten_devices_are_refused_by_name() {
    let one = bench(5);
    let other = bench_in(one.world.clone());
    let devices = |b: &Bench, which: &[usize]| -> Vec<Faulty<Disk>> {
        let all = b.devices();
        which.iter().map(|&i| all[i].clone()).collect()
    };
    let both = [devices(&one, &[0, 1]), devices(&other, &[0, 1])];
    let (first, foreign) = (devices(&one, &[0]), devices(&other, &[1]));
    let old = one.disks[0].fork(&one.world);
    let world = one.world.clone();
    let faults = one.faults[0].clone();
    let disk1 = one.disks[1].clone();
    one.run(async move {
        for (identity, devices) in both.iter().enumerate() {
            make(world.clone(), devices.clone(), &options(identity as u8 + 1)).await.close().await.unwrap();
        }
        let error = refused(open(world.clone(), first.clone()).await);
        assert!(error.kind() == ErrorKind::Degraded && error.to_string().contains("d1 (hdd"), "{error}");
        let mixed = vec![first[0].clone(), foreign[0].clone()];
        let error = refused(open(world.clone(), mixed).await);
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("disk 1"), "{error}");
        let twice = vec![first[0].clone(), first[0].clone(), both[0][1].clone()];
        let error = refused(open(world.clone(), twice).await);
        let named = ["disk 0", "disk 1"].map(|name| error.to_string().contains(name));
        assert!(error.kind() == ErrorKind::Invalid && named == [true; 2], "{error}");
        // A blank device was never a member of a volume.
        let blank = vec![Faulty::new(old.clone(), &faults), both[0][1].clone()];
        let error = refused(open(world.clone(), blank).await);
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("disk 0"), "{error}");
        // A copy of d0 that missed two openings.
        let copy = copy_of(&world, &first[0], &old).await;
        for _ in 0..2 {
            open(world.clone(), both[0].clone()).await.unwrap().close().await.unwrap();
        }
        let stale = vec![Faulty::new(copy, &faults), Faulty::new(disk1, &faults)];
        let error = refused(open(world.clone(), stale).await);
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("d0"), "{error}");
        open(world, both[0].clone()).await.unwrap();
    });
}

/// Copies the bytes of a device onto a disk.
async fn copy_of(_: &World, from: &Faulty<Disk>, to: &Disk) -> Disk {
    use braid_runtime::Device;
    let buf = Arena::new(MIB).alloc(MIB).await;
    for at in (0..8).map(|i| MIB * i) {
        from.read(at, &buf).await.expect("nothing fails here");
        to.write(at, &buf).await.expect("nothing fails here");
    }
    to.flush().await.expect("nothing fails here");
    to.clone()
}

#[test]
fn new_extents_avoid_full_device() {
    let bench = bench(7);
    let (world, devices, arena) = (bench.world.clone(), bench.devices(), bench.arena.clone());
    bench.run(async move {
        let all = CreateOptions { policy: "hdd-only".to_owned(), size: Some(MIB * 10), ..options(7) };
        let volume = make(world.clone(), devices, &all).await;
        for i in 0..10u8 {
            volume
                .write(MIB * u64::from(i), &filled(&arena, MIB, i + 1), Durability::Volatile)
                .await
                .unwrap();
        }
        volume.flush().await.unwrap();
        for i in 0..10u8 {
            assert!(holds(&volume, &arena, MIB * u64::from(i), MIB, i + 1).await.unwrap());
        }
        let status = volume.status();
        assert_eq!(status.devices[1].free, 0, "the disk is full");
        assert!(status.devices[0].slots > status.devices[0].free, "the rest went to the SSD");
        volume.discard(Bytes::ZERO, MIB * 10).await.unwrap();
        volume.flush().await.unwrap();
        world.sleep(Nanos::from_secs(31)).await;
        let status = volume.status();
        assert!(status.devices.iter().all(|d| d.free == d.slots), "discard gives every slot back");
        assert!(holds(&volume, &arena, MIB * 3, MIB, 0).await.unwrap());
    });
}

#[test]
fn keep_allocated_zeroes_are_allocated_and_read_as_zeros() {
    let bench = bench(8);
    let (world, devices, arena) = (bench.world.clone(), bench.devices(), bench.arena.clone());
    bench.run(async move {
        let volume = make(world, devices, &options(8)).await;
        volume.write(KIB * 100, &filled(&arena, KIB * 300, 3), Durability::Volatile).await.unwrap();
        volume.write_zeroes(KIB * 50, KIB * 500, Zeroing::KeepAllocated, Durability::Fua).await.unwrap();
        assert_eq!(volume.allocation(KIB * 50, MIB).0, braid_engine::Allocation::Data);
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 0).await.unwrap());
    });
}

#[test]
fn damage_of_either_kind_is_found_and_distinguished() {
    let bench = bench(9);
    let (world, devices, arena) = (bench.world.clone(), bench.devices(), bench.arena.clone());
    let (disks, again) = (bench.disks.clone(), bench.devices());
    bench.run(async move {
        let names = ["ssd".to_owned(), "hdd".to_owned()];
        let volume = make(world.clone(), devices.clone(), &options(9)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 4), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let superblock = volume.superblock();
        drop(volume);
        let report = check(&world, again.clone(), &names, None).await.unwrap();
        assert!(report.repairable.is_empty() && report.fatal.is_empty(), "{report:?}");
        assert_eq!(report.mapped_extents, 8);
        let mut rng = Rng::new(9);
        let mut rot = [0; 64];
        rng.fill(&mut rot);
        let image = |copy| superblock.region(RegionKind::Map, copy).unwrap();
        let images = [image(0), image(1)].map(|region| (region.device.index(), region.offset));
        disks[0].poke(Bytes(100), &rot);
        disks[images[0].0].poke(images[0].1 + Bytes(500), &rot);
        let report = check(&world, again.clone(), &names, None).await.unwrap();
        assert_eq!((report.repairable.len(), report.fatal.len()), (2, 0), "{report:?}");
        let names = names.to_vec();
        let open = OpenOptions { repair: true, ..OpenOptions::new(names.clone()) };
        let (volume, recovery) = Volume::open(world.clone(), again.clone(), open).await.unwrap();
        assert_eq!(recovery.pages_from_one_image, 1);
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 4).await.unwrap());
        volume.close().await.unwrap();
        let report = check(&world, again.clone(), &names, None).await.unwrap();
        assert!(report.repairable.is_empty(), "opening with a repair mends both: {report:?}");
        let area = superblock.region(RegionKind::DoubleWrite, 1).unwrap();
        for (disk, place) in images.into_iter().chain([(area.device.index(), area.offset)]) {
            disks[disk].poke(place + Bytes(500), &rot);
        }
        let report = check(&world, again, &names, None).await.unwrap();
        assert!(!report.fatal.is_empty(), "{report:?}");
    });
}
