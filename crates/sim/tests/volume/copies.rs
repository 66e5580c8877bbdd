//! Two required copies: one copy fails or is stale, and the effect on guests.

use crate::rig::{bench, filled, holds, make, open, options, refused};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faulty, World};

fn mirror(identity: u8) -> CreateOptions {
    CreateOptions { copies: 2, ..options(identity) }
}

fn failing_writes() -> FaultPlan {
    FaultPlan { writes: 1.0, ..FaultPlan::default() }
}

/// A failed write on one copy failed the guest's write, and left both copies "current" although different:
/// reads could return either.
#[test]
fn partly_failed_write_is_read_from_good_copy_alone() {
    for failing in 0..2 {
        let bench = bench(1 + failing as u64);
        let (world, arena, all, faults) =
            (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
        let killed = bench.disks.clone();
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &mirror(1)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            let place = volume.explain(KIB * 128).unwrap();
            let copies = [place.home.unwrap(), place.second.map(|(device, at, _)| (device, at)).unwrap()];
            let at = copies.iter().find(|(device, _)| device.index() == failing).unwrap().1;
            faults[failing].set(FaultPlan { bad_writes: Some(at..at + KIB * 64), ..FaultPlan::default() });
            volume.write(KIB * 64, &filled(&arena, KIB * 256, 2), Durability::Volatile).await.unwrap();
            for _ in 0..20 {
                assert!(
                    holds(&volume, &arena, KIB * 64, KIB * 256, 2).await.unwrap(),
                    "every read is of the new bytes"
                );
            }
            assert!(volume.status().spans.1 > 0, "the copy that missed the write is known to be behind");
            // The failure is recorded durably, too, before the guest's write is acknowledged.
            let snapshot =
                killed.iter().map(|d| braid_sim::Faulty::new(d.fork(&world), &sound(&world))).collect();
            let after = open(world.clone(), snapshot).await.unwrap();
            assert!(holds(&after, &arena, KIB * 64, KIB * 256, 2).await.unwrap());
            let alone = braid_sim::Faulty::new(killed[failing].fork(&world), &sound(&world));
            let error = refused(open(world.clone(), vec![alone]).await);
            assert_eq!(
                error.kind(),
                ErrorKind::Degraded,
                "it lacks what a guest was told is written: {error}"
            );
            // Once the device works again, the copies become alike.
            faults[failing].set(FaultPlan::default());
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(volume.status().spans.1, 0);
            volume.audit().await.unwrap();
            assert!(volume.status().devices.iter().all(|d| d.state == DeviceState::Active));
        });
    }
}

fn sound(world: &braid_sim::World) -> braid_sim::Faults {
    braid_sim::Faults::new(FaultPlan::default(), world.fork_rng())
}

/// One dead device failed every write and every flush of a mirror.
#[test]
fn mirror_continues_without_dead_device_and_reports_failure() {
    for dies in 0..2 {
        let bench = bench(3 + dies as u64);
        let (world, arena, all, faults) =
            (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
        let survivor = bench.devices()[1 - dies].clone();
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &mirror(2)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            faults[dies].vanish();
            volume.write(KIB * 512, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
            volume.flush().await.unwrap();
            volume.write(MIB * 3, &filled(&arena, KIB * 8, 3), Durability::Fua).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 512, 1).await.unwrap());
            assert!(holds(&volume, &arena, KIB * 512, MIB, 2).await.unwrap());
            let status = volume.status();
            assert_eq!(status.devices[dies].state, DeviceState::Failed);
            assert!(status.failure.is_none(), "{:?}", status.failure);
            volume.close().await.unwrap();

            let volume = open(world.clone(), vec![survivor.clone()]).await.unwrap();
            assert!(holds(&volume, &arena, KIB * 512, MIB, 2).await.unwrap());
            volume.close().await.unwrap();
            faults[dies].set(FaultPlan::default());
            let volume = open(world.clone(), all.clone()).await.unwrap();
            assert_eq!(volume.status().devices[dies].state, DeviceState::Returning);
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(volume.status().devices[dies].state, DeviceState::Active);
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world, vec![all[dies].clone()]).await.unwrap();
            assert!(holds(&volume, &arena, KIB * 512, MIB, 2).await.unwrap());
            assert!(holds(&volume, &arena, MIB * 3, KIB * 8, 3).await.unwrap());
        });
    }
}

/// With the other device missing, the last device must not be failed. No flush may succeed that the last
/// device did not keep.
#[test]
fn the_last_device_of_a_mirror_is_never_given_up() {
    let bench = bench(5);
    let (world, arena, all, faults) =
        (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
    bench.run(async move {
        make(world.clone(), all.clone(), &mirror(3)).await.close().await.unwrap();
        let volume = open(world.clone(), vec![all[0].clone()]).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
        faults[0].set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        assert_eq!(refused(volume.flush().await).kind(), ErrorKind::Io);
        faults[0].set(FaultPlan::default());
        assert!(volume.flush().await.is_err(), "a later flush must not hide it");
    });
}

/// A change of the policy, or a checkpoint, flushed the devices without recording a failed flush. The next
/// flush of a guest succeeded, though the guest's writes may have been lost.
#[test]
fn internal_flush_failure_fails_next_guest_flush() {
    for change in [true, false] {
        let bench = bench(6);
        let (world, arena, all, faults) =
            (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
        bench.run(async move {
            let volume = make(world.clone(), all, &options(4)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
            faults.iter().for_each(|f| f.set(FaultPlan { flushes: 1.0, ..FaultPlan::default() }));
            let result = if change { volume.set_policy("stripe").await } else { volume.checkpoint().await };
            assert!(result.is_err());
            faults.iter().for_each(|f| f.set(FaultPlan::default()));
            assert!(volume.flush().await.is_err(), "what the failed flush lost is not known");
        });
    }
}

#[test]
fn bad_place_is_rewritten_from_intact_copy() {
    for bad in 0..2 {
        let bench = bench(7);
        let (world, arena, all, faults) =
            (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
        bench.run(async move {
            // A policy without probes: a probe might read a bad place without another copy.
            let made = CreateOptions { policy: "stripe".to_owned(), ..mirror(5) };
            let volume = make(world.clone(), all, &made).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            faults[bad].set(FaultPlan {
                bad_until_written: true,
                bad_reads: Some(MIB * 2..MIB * 8),
                ..FaultPlan::default()
            });
            for _ in 0..40 {
                assert!(holds(&volume, &arena, KIB * 256, KIB * 4, 1).await.unwrap());
                world.sleep(Nanos::from_millis(50)).await;
            }
            // Every read goes to the bad copy, or none does: both cases end well.
            let status = volume.status();
            let errors = status.devices[bad].stats.errors;
            assert!(errors == 0 || status.background.repairs > 0, "{errors} errors, {:?}", status.background);
            assert!(errors < 20, "a place that was written again is not bad any more: {errors}");
            assert_eq!(status.guests.errors, 0);
        });
    }
}

/// A failed write left a clean extra copy, or the memory cache, with the old bytes, and the device with some
/// of the new bytes. Guests read either.
#[test]
fn failed_write_invalidates_memory_cache() {
    let bench = bench(8);
    let (world, arena, all, faults) =
        (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
    bench.run(async move {
        let policy = "hdd-only".to_owned();
        let made = CreateOptions { policy, ..options(6) };
        make(world.clone(), all.clone(), &made).await.close().await.unwrap();
        let (volume, _) = crate::rig::open_with(world.clone(), all, |o| o.cache_extents = 8).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 128, 1), Durability::Fua).await.unwrap();
        for _ in 0..3 {
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.unwrap());
        }
        for zero in [false, true] {
            faults[1].set(failing_writes());
            let failed = match zero {
                true => {
                    volume
                        .write_zeroes(
                            KIB,
                            KIB * 2,
                            braid_engine::Zeroing::KeepAllocated,
                            Durability::Volatile,
                        )
                        .await
                }
                false => volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 2), Durability::Volatile).await,
            };
            assert!(failed.is_err());
            faults[1].set(FaultPlan::default());
            let errors = volume.status().guests.cache_misses;
            let _ = holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.unwrap();
            assert!(volume.status().guests.cache_misses > errors, "the memory cache has forgotten it");
        }
    });
}

/// One bad sector made its whole extent unreadable: at the second miss the whole extent is read into the
/// memory cache.
#[test]
fn rest_of_extent_is_readable_beside_bad_sector() {
    let bench = bench(9);
    let (world, arena, all, faults) =
        (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
    bench.run(async move {
        let made = CreateOptions { policy: "hdd-only".to_owned(), ..options(7) };
        make(world.clone(), all.clone(), &made).await.close().await.unwrap();
        let (volume, _) = crate::rig::open_with(world.clone(), all, |o| o.cache_extents = 8).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 128, 1), Durability::Fua).await.unwrap();
        let home = volume.explain(Bytes::ZERO).unwrap().home.unwrap().1;
        let bad = home + KIB * 100..home + KIB * 100 + Bytes(512);
        faults[1].set(FaultPlan { bad_reads: Some(bad), ..FaultPlan::default() });
        for _ in 0..4 {
            assert!(holds(&volume, &arena, KIB * 8, KIB * 4, 1).await.unwrap());
        }
        assert!(holds(&volume, &arena, KIB * 100, KIB * 4, 1).await.is_err());
    });
}

/// Of two concurrent overlapping writes, either may win, but the same write wins on both copies.
#[test]
fn overlapping_writes_leave_both_copies_equal() {
    for seed in 0..20 {
        let bench = bench(100 + seed);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        bench.run(async move {
            let volume = make(world.clone(), all, &mirror(8)).await;
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 128, 1), Durability::Fua).await.unwrap();
            let writes = (0..12u8).map(async |i| {
                let at = KIB * (u64::from(i) % 4);
                volume.write(at, &filled(&arena, KIB * 16, i + 2), Durability::Volatile).await
            });
            let all: Vec<_> = braid_runtime::join_all(writes).await;
            all.into_iter().for_each(|result| result.unwrap());
            volume.audit().await.unwrap();
        });
    }
}

/// At a shutdown all spans that were not clean went into one batch. The batch exceeded the journal's room,
/// and the shutdown waited for ever.
#[test]
fn a_volume_with_more_dirty_spans_than_a_batch_holds_is_shut_down() {
    let world = World::new(11);
    let disks: Vec<Disk> =
        [DiskOptions::ssd(MIB * 256), DiskOptions::ssd(MIB * 256)].map(|o| Disk::new(&world, o)).to_vec();
    let devices: Vec<_> = disks.iter().map(|disk| Faulty::new(disk.clone(), &sound(&world))).collect();
    let (rt, extents) = (world.clone(), 30_000u64);
    world.block_on(async move {
        let mut options = CreateOptions { extent_size: KIB * 4, span_size: KIB * 4, ..mirror(11) };
        options.size = Some(KIB * 4 * extents);
        let volume = make(rt.clone(), devices.clone(), &options).await;
        let bytes = filled(&Arena::new(MIB), MIB, 9);
        for at in (0..extents * 4 / 1024).map(|i| MIB * i) {
            volume.write(at, &bytes, Durability::Volatile).await.unwrap();
        }
        let (dirty, _) = volume.status().spans;
        assert!(dirty > 25_000, "{dirty}");
        volume.close().await.unwrap();
        let volume = open(rt, devices).await.unwrap();
        assert_eq!(volume.status().spans, (0, 0));
    });
    world.halt();
}

/// No map knows the extent yet: the copy with the write must count all the same.
#[test]
fn failed_first_write_to_home_succeeds_on_second_copy() {
    let bench = bench(77);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let faults = bench.faults.clone();
    bench.run(async move {
        let made = CreateOptions { policy: "raid1".to_owned(), ..mirror(77) };
        let volume = make(world.clone(), all, &made).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let (home, slots) = volume.explain(Bytes::ZERO).unwrap().home.unwrap();
        let bad_writes = Some(slots..MIB * 1024);
        faults[home.index()].set(FaultPlan { bad_writes, ..FaultPlan::default() });
        volume.write(MIB * 3, &filled(&arena, KIB * 64, 2), Durability::Fua).await.unwrap();
        assert!(holds(&volume, &arena, MIB * 3, KIB * 64, 2).await.unwrap());
    });
}
