//! Devices that failed, or were missing, and return while the volume is open and guests work.

use crate::rig::busy::{busy, end};
use crate::rig::life::{Oracle, names, work};
use crate::rig::{Rig, bench, filled, make, options, refused, sound};
use braid_base::{Bytes, DeviceId, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, Volume, create};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

/// A disk that is plugged in again: another handle of the disk.
pub fn plugged_in(world: &World, disk: &Disk) -> Faulty<Disk> {
    Faulty::new(disk.clone(), &Faults::new(FaultPlan::default(), world.fork_rng()))
}

pub fn state(volume: &Rig, device: usize) -> DeviceState {
    volume.status().devices[device].state
}

pub async fn wait_until_active(world: &World, volume: &Rig, device: usize) {
    for _ in 0..600 {
        if state(volume, device) == DeviceState::Active {
            return;
        }
        world.sleep(Nanos::from_millis(100)).await;
    }
    panic!("a minute is enough: {:?}", volume.status().devices[device]);
}

/// Any device may leave: on its return the device lacks the writes made meanwhile, and the writes lost with
/// its cache. Then another device leaves, and nothing is lost.
#[test]
fn returned_device_is_resynced_while_guests_work() {
    for (seed, lost) in (0..4).flat_map(|seed| [0, 1, 2].map(|lost| (seed, lost))) {
        let world = World::new(800 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy(&rt, seed).await;
            busy.faults[lost].vanish();
            rt.sleep(Nanos::from_secs(1 + seed * 10)).await;
            assert_eq!(state(&busy.volume, lost), DeviceState::Failed);
            busy.disks[lost].lose_cache();
            let back = plugged_in(&rt, &busy.disks[lost]);
            assert_eq!(busy.volume.return_device(back, "it").await.unwrap(), DeviceId(lost as u16));
            wait_until_active(&rt, &busy.volume, lost).await;
            let next = (lost + 1 + seed as usize % 2) % 3;
            busy.faults[next].vanish();
            rt.sleep(Nanos::from_secs(10)).await;
            assert_eq!(state(&busy.volume, next), DeviceState::Failed);
            let left: Vec<usize> = (0..3).filter(|&i| i != next).collect();
            end(&rt, busy, &left).await;
        });
        world.halt();
    }
}

/// A device may leave and return any number of times.
#[test]
fn flapping_device_causes_no_guest_error() {
    for seed in 0..4 {
        let world = World::new(830 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy(&rt, seed).await;
            let mut faults = busy.faults[1].clone();
            for round in 0..8 {
                faults.vanish();
                rt.sleep(Nanos::from_millis(500)).await;
                if round % 2 == 0 {
                    busy.disks[1].lose_cache();
                }
                faults = Faults::new(FaultPlan::default(), rt.fork_rng());
                let back = Faulty::new(busy.disks[1].clone(), &faults);
                busy.volume.return_device(back, "it").await.unwrap();
                rt.sleep(Nanos::from_millis(seed * 700 * round)).await;
            }
            wait_until_active(&rt, &busy.volume, 1).await;
            end(&rt, busy, &[1, 2]).await;
        });
        world.halt();
    }
}

/// If little was written meanwhile, little is copied.
#[test]
fn resync_copies_only_differences() {
    let world = World::new(840);
    let rt = world.clone();
    world.block_on(async move {
        let busy = busy(&rt, 1).await;
        busy.stop.set(true);
        rt.sleep(Nanos::from_secs(40)).await;
        busy.volume.flush().await.unwrap();
        busy.volume.fail_device(DeviceId(1)).await.unwrap();
        let written = filled(&busy.arena, MIB / 8, 7);
        busy.volume.write(MIB, &written, Durability::Fua).await.unwrap();
        busy.oracle.0.borrow_mut()[256..288].fill((7, Vec::new()));
        let before = busy.volume.status().background.resynced_bytes;
        busy.volume.return_device(plugged_in(&rt, &busy.disks[1]), "it").await.unwrap();
        wait_until_active(&rt, &busy.volume, 1).await;
        let copied = Bytes(busy.volume.status().background.resynced_bytes - before);
        assert!(copied <= MIB / 4, "{copied} of {}", MIB * 4);
        end(&rt, busy, &[0, 1, 2]).await;
    });
    world.halt();
}

/// The volume was opened without a device, which is found later; in one case, as an older copy of itself.
#[test]
fn device_missing_at_opening_is_used_after_return() {
    for (seed, old) in (0..4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let world = World::new(850 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy(&rt, seed).await;
            let old_copy = busy.disks[2].fork(&rt);
            busy.stop.set(true);
            rt.sleep(Nanos::from_secs(1)).await;
            busy.volume.close().await.unwrap();
            busy.oracle.flushed();
            if old {
                let all = busy.disks.iter().map(|disk| plugged_in(&rt, disk)).collect();
                let volume = Volume::open(rt.clone(), all, OpenOptions::new(names(3))).await.unwrap().0;
                volume.close().await.unwrap();
            }
            let two = busy.disks[..2].iter().map(|disk| plugged_in(&rt, disk)).collect();
            let volume = Volume::open(rt.clone(), two, OpenOptions::new(names(2))).await.unwrap().0;
            let (oracle, stop) = (busy.oracle.clone(), Rc::new(Cell::new(false)));
            rt.spawn(work(rt.clone(), volume.clone(), oracle, Rng::new(seed), stop.clone()));
            rt.sleep(Nanos::from_secs(1 + seed)).await;
            assert_eq!(state(&volume, 2), DeviceState::Missing);
            let found = if old { plugged_in(&rt, &old_copy) } else { plugged_in(&rt, &busy.disks[2]) };
            let mut disks = busy.disks.clone();
            if old {
                disks[2] = old_copy;
            }
            volume.return_device(found, "it").await.unwrap();
            wait_until_active(&rt, &volume, 2).await;
            end(&rt, crate::rig::busy::Busy { volume, disks, stop, ..busy }, &[0, 2]).await;
        });
        world.halt();
    }
}

#[test]
fn unusable_returning_device_is_refused() {
    let world = World::new(860);
    let rt = world.clone();
    world.block_on(async move {
        let busy = busy(&rt, 1).await;
        let back =
            async |disk: &Disk| refused(busy.volume.return_device(plugged_in(&rt, disk), "it").await).kind();
        assert_eq!(back(&busy.disks[1]).await, ErrorKind::Invalid, "it is in use");
        let strange = Disk::new(&rt, DiskOptions::hdd(MIB * 10));
        assert_eq!(back(&strange).await, ErrorKind::Invalid, "it belongs to no volume");
        let others = [strange, Disk::new(&rt, DiskOptions::hdd(MIB * 10))];
        create(&others, &CreateOptions { copies: 2, ..options(9) }).await.unwrap();
        assert_eq!(back(&others[0]).await, ErrorKind::Invalid, "it belongs to another volume");
        assert!((0..3).all(|device| state(&busy.volume, device) == DeviceState::Active));
        end(&rt, busy, &[0, 1]).await;
    });
    world.halt();
}

/// The two halves of a mirror were opened separately, and guests wrote to both.
#[test]
fn device_used_apart_is_refused_on_return() {
    let bench = bench(865);
    let (rt, devices, disks) = (bench.world.clone(), bench.devices(), bench.disks.clone());
    bench.run(async move {
        let volume = make(rt.clone(), devices, &CreateOptions { copies: 2, ..options(1) }).await;
        volume.fail_device(DeviceId(1)).await.unwrap();
        let apart = crate::rig::open(rt.clone(), vec![plugged_in(&rt, &disks[1])]).await.unwrap();
        apart.close().await.unwrap();
        let error = refused(volume.return_device(plugged_in(&rt, &disks[1]), "it").await);
        assert_eq!(error.kind(), ErrorKind::Degraded);
        assert_eq!(state(&volume, 1), DeviceState::Failed);
        volume.close().await.unwrap();
    });
}

/// The device may carry out its old requests at any time, and so overwrite the writes of a resync.
#[test]
fn device_with_outstanding_requests_is_not_reused() {
    let world = World::new(870);
    let rt = world.clone();
    world.block_on(async move {
        let busy = busy(&rt, 1).await;
        busy.disks[2].faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
        rt.sleep(Nanos::from_secs(30)).await;
        assert_eq!(state(&busy.volume, 2), DeviceState::Failed);
        let other_way = busy.volume.return_device(plugged_in(&rt, &busy.disks[2].fork(&rt)), "it").await;
        assert_eq!(refused(other_way).kind(), ErrorKind::Invalid);
        let back = async || busy.volume.return_device(plugged_in(&rt, &busy.disks[2]), "it").await;
        assert_eq!(refused(back().await).kind(), ErrorKind::Io);
        busy.disks[2].faults().set(FaultPlan::default());
        rt.sleep(Nanos::from_secs(2)).await;
        back().await.unwrap();
        wait_until_active(&rt, &busy.volume, 2).await;
        end(&rt, busy, &[1, 2]).await;
    });
    world.halt();
}

/// With one copy, the data of a failed device is lost: no source is left for a resync.
#[test]
fn excluded_single_copy_device_cannot_return() {
    let world = World::new(880);
    let rt = world.clone();
    world.block_on(async move {
        let disks: Vec<Disk> = (0..3).map(|i| crate::rig::life::disk(&rt, i == 0)).collect();
        create(&sound(&disks), &options(1)).await.unwrap();
        let two = disks[..2].iter().map(|disk| plugged_in(&rt, disk)).collect();
        let mut without = OpenOptions::new(names(2));
        without.distrust = vec![DeviceId(2)];
        let volume = Volume::open(rt.clone(), two, without).await.unwrap().0;
        let error = refused(volume.return_device(plugged_in(&rt, &disks[2]), "it").await);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        Oracle::new().check(&volume, &Arena::new(MIB), "nothing was written").await;
    });
    world.halt();
}

/// The whole volume became stale for a device that lacked everything. Extents without a copy on the device
/// were read from their home alone, and a bad sector of the home was an error for guests. The device never
/// became active.
#[test]
fn rebuild_of_device_keeps_copies_elsewhere_usable() {
    let world = World::new(885);
    let rt = world.clone();
    world.block_on(async move {
        let disks: Vec<Disk> = (0..3).map(|i| crate::rig::life::disk(&rt, i == 0)).collect();
        let faults: Vec<Faults> = (0..2).map(|_| Faults::new(FaultPlan::default(), rt.fork_rng())).collect();
        let made =
            CreateOptions { copies: 2, size: Some(MIB * 4), policy: "stripe".to_owned(), ..options(1) };
        let volume = make(rt.clone(), disks.iter().map(|disk| plugged_in(&rt, disk)).collect(), &made).await;
        let arena = Arena::new(MIB * 2);
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        volume.close().await.unwrap();
        let old = disks[2].fork(&rt);
        let all = disks.iter().map(|disk| plugged_in(&rt, disk)).collect();
        crate::rig::open(rt.clone(), all).await.unwrap().close().await.unwrap();
        let two = disks.iter().zip(&faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults));
        let volume = crate::rig::open(rt.clone(), two.collect()).await.unwrap();
        let is_elsewhere = |at: &Bytes| {
            let place = volume.explain(*at).unwrap();
            place.home.unwrap().0.index() < 2 && place.second.unwrap().0.index() < 2
        };
        let at = (0..32).map(|i| MIB / 8 * i).find(is_elsewhere).unwrap();
        let (device, bad) = volume.explain(at).unwrap().home.unwrap();
        let bad_reads = Some(bad..bad + Bytes(4096));
        let plan = FaultPlan { bad_reads, bad_until_written: true, ..FaultPlan::default() };
        faults[device.index()].set(plan);
        assert_eq!(volume.status().behind, Bytes::ZERO);
        volume.return_device(plugged_in(&rt, &old), "it").await.unwrap();
        assert!(volume.status().behind > Bytes::ZERO, "it lacks all");
        assert!(crate::rig::holds(&volume, &arena, at, MIB / 8, 1).await.unwrap());
        wait_until_active(&rt, &volume, 2).await;
        volume.audit().await.unwrap();
        volume.fail_device(DeviceId(0)).await.unwrap();
        for at in 0..4 {
            assert!(crate::rig::holds(&volume, &arena, MIB * at, MIB, 1).await.unwrap());
        }
        volume.close().await.unwrap();
    });
    world.halt();
}

/// As long as guests kept any data in the window, a device without stale data did not count.
#[test]
fn returned_device_becomes_active_despite_policy_lag() {
    let world = World::new(886);
    let rt = world.clone();
    world.block_on(async move {
        let disks: Vec<Disk> = (0..3).map(|i| crate::rig::life::disk(&rt, i == 0)).collect();
        let made = CreateOptions { copies: 2, size: Some(MIB * 4), policy: "raid1".to_owned(), ..options(1) };
        let volume = make(rt.clone(), disks.iter().map(|disk| plugged_in(&rt, disk)).collect(), &made).await;
        let arena = Arena::new(MIB * 2);
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        volume.set_policy("pass,window=1MiB,max-lag=2MiB,idle=1h").await.unwrap();
        volume.fail_device(DeviceId(2)).await.unwrap();
        let second = |at: &Bytes| volume.explain(*at).unwrap().second.unwrap().0;
        let of_other: Vec<Bytes> =
            (0..32).map(|i| MIB / 8 * i).filter(|at| second(at) == DeviceId(1)).take(4).collect();
        assert_eq!(of_other.len(), 4);
        volume.return_device(plugged_in(&rt, &disks[2]), "it").await.unwrap();
        for round in 0..600 {
            let bytes = filled(&arena, Bytes(4096), 2);
            volume.write(of_other[round % 4], &bytes, Durability::Volatile).await.unwrap();
            rt.sleep(Nanos::from_millis(100)).await;
            assert!(round < 100 || volume.status().deferred > Bytes::ZERO, "the window is never empty");
        }
        assert_eq!(state(&volume, 2), DeviceState::Active);
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
    world.halt();
}

/// An old copy of a device returned, with sectors larger than the unit of requests. The whole volume became
/// stale before the sectors were checked, and stayed so.
#[test]
fn device_with_large_sectors_is_refused_without_side_effects() {
    let bench = bench(845);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let disk = bench.disks[1].clone();
    bench.run(async move {
        let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(45) };
        let volume = make(world.clone(), all.clone(), &mirror).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let size = disk.geometry().size;
        let mut bytes = vec![0; size.as_usize()];
        disk.peek_durable(Bytes::ZERO, &mut bytes);
        let old_copy = |alignment: Bytes| {
            let mut options = DiskOptions::hdd(size);
            options.geometry.alignment = alignment;
            let copy = Disk::new(&world, options);
            copy.poke(Bytes::ZERO, &bytes);
            plugged_in(&world, &copy)
        };
        let volume = crate::rig::open(world.clone(), all.clone()).await.unwrap();
        volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(60)).await;
        volume.fail_device(DeviceId(1)).await.unwrap();
        let before = volume.status();
        let error = refused(volume.return_device(old_copy(Bytes(4096)), "it").await);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let after = volume.status();
        assert_eq!((after.behind, after.spans), (before.behind, before.spans));
        assert_eq!(state(&volume, 1), DeviceState::Failed);
        volume.return_device(old_copy(Bytes(512)), "it").await.unwrap();
        wait_until_active(&world, &volume, 1).await;
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
}
