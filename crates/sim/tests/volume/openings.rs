//! Currency of devices: old copies, interrupted openings, missing devices.

use crate::deadlines::no_faults;
use crate::rig::life::addition;
use crate::rig::{Bench, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, check};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::Runtime;
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty};
use std::cell::Cell;
use std::rc::Rc;

pub fn mentions(error: &braid_engine::Error, named: &[&str]) -> bool {
    named.iter().all(|name| error.to_string().contains(name))
}

/// A copy of the second device was made while the volume was not in use. The volume was used, shut down, and
/// the copy put back. The copy was taken for the original: the check said "clean", and guests read a mix of
/// old and new bytes. The same with the first device lost all later writes.
#[test]
fn device_older_by_one_opening_is_refused_by_name() {
    for stale in 0..2 {
        let bench = bench(1);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let all = bench.devices();
        let copy_of = bench.disks[stale].clone();
        let wrap = {
            let faults = bench.faults[stale].clone();
            move |disk| Faulty::new(disk, &faults)
        };
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &options(1)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            let old = wrap(copy_of.fork(&world));
            let volume = open(world.clone(), all.clone()).await.unwrap();
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            let mut mixed = all.clone();
            mixed[stale] = old;
            let names = ["disk 0".to_owned(), "disk 1".to_owned()];
            let error = refused(check(&world, mixed.clone(), &names, None).await);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let error = refused(open(world.clone(), mixed).await);
            assert!(
                error.kind() == ErrorKind::Invalid
                    && mentions(&error, &[&format!("disk {stale}"), &format!("d{stale}")]),
                "{error}"
            );
            let volume = open(world.clone(), all).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 2).await.unwrap());
        });
    }
}

/// A copy made while the volume was in use, before its shutdown.
#[test]
fn a_copy_from_before_the_shutdown_is_refused() {
    let bench = bench(2);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disk, faults) = (bench.disks[1].clone(), bench.faults[1].clone());
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &options(2)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let old = Faulty::new(disk.fork(&world), &faults);
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let error = refused(open(world, vec![all[0].clone(), old]).await);
        assert!(error.kind() == ErrorKind::Invalid && mentions(&error, &["d1"]), "{error}");
    });
}

/// With three devices, each interrupted opening brought some devices one opening ahead of the others. After
/// two interruptions in a row the volume refused its own devices for ever.
#[test]
fn volume_opens_after_repeated_interrupted_openings() {
    for seed in 0..30 {
        let world = braid_sim::World::new(seed);
        let mut disks: Vec<Disk> = (0..3).map(|_| Disk::new(&world, DiskOptions::ssd(MIB * 8))).collect();
        let devices = disks.clone();
        world.block_on(async move { braid_engine::create(&devices, &options(3)).await.unwrap() });
        world.halt();
        let mut rng = braid_base::Rng::new(seed);
        for _ in 0..6 {
            let world = braid_sim::World::new(rng.next_u64());
            disks = disks.iter().map(|disk| disk.restart(&world)).collect();
            world.power().cut_at(1 + rng.below(120));
            let (rt, devices) = (world.clone(), disks.clone());
            let opened = world.block_on_until_cut(async move {
                let names = (0..3).map(|i| format!("disk {i}")).collect();
                braid_engine::Volume::open(rt, devices, braid_engine::OpenOptions::new(names)).await.map(drop)
            });
            if let Some(Err(error)) = opened {
                panic!("seed {seed}: {error}");
            }
            world.halt();
            disks.iter().for_each(|disk| disk.power_cut(&mut rng));
        }
    }
}

pub fn mirror(identity: u8) -> CreateOptions {
    CreateOptions { copies: 2, ..options(identity) }
}

/// A mirror with four different MiB, shut down.
pub async fn made_mirror(bench: &(braid_sim::World, braid_runtime::Arena), all: &[Faulty<Disk>]) {
    let volume = make(bench.0.clone(), all.to_vec(), &mirror(4)).await;
    for i in 0..3u8 {
        let at = MIB * u64::from(i);
        let written = volume.write(at, &filled(&bench.1, MIB, i + 1), Durability::Volatile).await;
        written.expect("the devices are sound");
    }
    volume.close().await.expect("the devices are sound");
}

pub fn parts(bench: &Bench) -> (braid_sim::World, braid_runtime::Arena) {
    (bench.world.clone(), bench.arena.clone())
}

/// While a device was missing, an earlier copy of the device was put in its place. The copy was taken for
/// the missing device, received only later changes, and counted as current, with the older rest.
#[test]
fn old_copy_of_missing_device_is_fully_resynced() {
    for stale in 0..2 {
        let bench = bench(40 + stale as u64);
        let (world, arena) = parts(&bench);
        let (both, all) = (parts(&bench), bench.devices());
        let (disk, faults) = (bench.disks[stale].clone(), bench.faults[stale].clone());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let old = Faulty::new(disk.fork(&world), &faults);
            let volume = open(world.clone(), all.clone()).await.unwrap();
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 6), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            let rest = vec![all[1 - stale].clone()];
            let volume = open(world.clone(), rest).await.unwrap();
            volume.write(MIB * 2, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();

            let mut mixed = all.clone();
            mixed[stale] = old.clone();
            let volume = open(world.clone(), mixed).await.unwrap();
            world.sleep(braid_base::Nanos::from_secs(60)).await;
            assert_eq!(volume.status().devices[stale].state, DeviceState::Active);
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world.clone(), vec![old]).await.unwrap();
            for (at, byte) in [(Bytes::ZERO, 6), (MIB, 2), (MIB * 2, 7)] {
                assert!(holds(&volume, &arena, at, MIB, byte).await.unwrap(), "{at}");
            }
        });
    }
}

/// A returned device was current as soon as its copies were. Its map image and its journal lacked the
/// changes made without the device.
#[test]
fn returned_device_has_whole_map_and_journal() {
    for away in 0..2 {
        let bench = bench(50 + away as u64);
        let (world, arena) = parts(&bench);
        let (both, all) = (parts(&bench), bench.devices());
        let (disk, faults) = (bench.disks[away].clone(), bench.faults[away].clone());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let volume = open(world.clone(), vec![all[1 - away].clone()]).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 8), Durability::Fua).await.unwrap();
            volume.discard(MIB * 2, MIB).await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world.clone(), all.clone()).await.unwrap();
            while volume.status().devices[away].state != DeviceState::Active {
                world.sleep(braid_base::Nanos::from_millis(1)).await;
            }
            // Until the journal calls the spans clean, and before the next checkpoint.
            world.sleep(braid_base::Nanos::from_secs(15)).await;
            let alone = Faulty::new(disk.fork(&world), &faults);
            let volume = open(world.clone(), vec![alone]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 8).await.unwrap());
            assert!(holds(&volume, &arena, MIB * 2, MIB, 0).await.unwrap());
        });
    }
}

#[test]
fn mirror_opens_without_device_and_resyncs_device_on_return() {
    for away in 0..2 {
        let bench = bench(4 + away as u64);
        let (world, arena) = parts(&bench);
        let (both, all) = (parts(&bench), bench.devices());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let rest = vec![all[1 - away].clone()];
            let volume = open(world.clone(), rest.clone()).await.unwrap();
            let states: Vec<DeviceState> = volume.status().devices.iter().map(|d| d.state).collect();
            assert_eq!(states[away], DeviceState::Missing);
            assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap());
            volume.write(MIB, &filled(&arena, MIB, 7), Durability::Volatile).await.unwrap();
            volume.write(MIB * 3, &filled(&arena, KIB * 300, 8), Durability::Fua).await.unwrap();
            volume.discard(MIB * 2, MIB).await.unwrap();
            volume.close().await.unwrap();

            let volume = open(world.clone(), all.clone()).await.unwrap();
            assert_eq!(volume.status().devices[away].state, DeviceState::Returning);
            assert!(holds(&volume, &arena, MIB, MIB, 7).await.unwrap(), "read before it is up to date");
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 64, 9), Durability::Volatile).await.unwrap();
            world.sleep(braid_base::Nanos::from_secs(60)).await;
            let status = volume.status();
            assert_eq!(status.devices[away].state, DeviceState::Active);
            assert_eq!(status.spans.1, 0, "nothing is behind");
            volume.audit().await.unwrap();
            volume.close().await.unwrap();

            // The returned device is sufficient alone.
            let volume = open(world.clone(), vec![all[away].clone()]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 7).await.unwrap());
            assert!(holds(&volume, &arena, MIB * 3, KIB * 300, 8).await.unwrap());
            assert!(holds(&volume, &arena, MIB * 2, MIB, 0).await.unwrap());
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 64, 9).await.unwrap());
            assert!(holds(&volume, &arena, KIB * 64, KIB * 900, 1).await.unwrap());
        });
    }
}

/// While a device was added and another failed, two tables of devices were written, and no superblock. The
/// second table overwrote the table that the superblocks still needed. A power cut meanwhile left a volume
/// that did not open.
#[test]
fn power_cut_during_failing_addition_leaves_remaining_devices() {
    for instant in 0..60 {
        let bench = bench(11);
        let (world, arena, mut disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let (all, faults) = (bench.devices(), bench.faults[0].clone());
        disks.push(Disk::new(&world, DiskOptions::hdd(MIB * 16)));
        bench.run(async move {
            let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(11) };
            let volume = make(world.clone(), all, &mirror).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.checkpoint().await.unwrap();
            let (is_noted, has_ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (noted, ended, adding) = (is_noted.clone(), has_ended.clone(), volume.clone());
            let new = Faulty::new(disks[2].clone(), &Faults::new(FaultPlan::default(), world.fork_rng()));
            world.spawn(async move {
                let record = |_| {
                    noted.set(true);
                    Ok(())
                };
                // The addition may fail: then no device was added.
                let _ended = adding.add_device(new, &addition(Layout::Head), record).await;
                ended.set(true);
            });
            let (mut rng, mut step) = (world.fork_rng(), 0);
            while !has_ended.get() {
                if step == instant {
                    faults.vanish();
                }
                step += 1;
                world.sleep(Nanos::from_millis(1)).await;
                if step <= instant {
                    continue;
                }
                let left = if is_noted.get() { &disks[1..] } else { &disks[1..2] };
                let left = left.iter().map(|disk| {
                    let left = disk.fork(&world);
                    left.power_cut(&mut rng);
                    Faulty::new(left.restart(&world), &Faults::new(FaultPlan::default(), rng.fork()))
                });
                let again =
                    open(world.clone(), left.collect()).await.expect("the second device has all of it");
                assert!(holds(&again, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
            }
        });
    }
}

/// Two dispensable devices failed one after the other while the volume was open. After a restart the volume
/// was refused, even with both devices present.
#[test]
fn failed_dispensable_devices_do_not_count_as_missing() {
    for (given, crashes) in [(2..4, true), (2..4, false), (4..4, true), (4..4, false)] {
        let bench = bench(14);
        let (world, arena, mut disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let mut all = bench.devices();
        disks.extend((0..2).map(|_| Disk::new(&world, DiskOptions::hdd(MIB * 16))));
        bench.run(async move {
            all.extend(disks[2..].iter().map(|disk| Faulty::new(disk.clone(), &no_faults(&world))));
            // Homes on the SSD, second copies on all disks.
            let policy = "raid1".to_owned();
            let made = CreateOptions { copies: 2, size: Some(MIB * 4), policy, ..options(14) };
            let volume = make(world.clone(), all.clone(), &made).await;
            for at in 0..4 {
                volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            }
            for lost in [3, 2] {
                volume.fail_device(DeviceId(lost)).await.unwrap();
                volume.write(MIB * u64::from(lost), &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            }
            if !crashes {
                volume.close().await.unwrap();
            }
            let left = (0..2).chain(given).map(|i| Faulty::new(disks[i].fork(&world), &no_faults(&world)));
            let volume = open(world.clone(), left.collect()).await.unwrap();
            for (at, value) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
                assert!(holds(&volume, &arena, MIB * at, MIB, value).await.unwrap());
            }
            world.sleep(Nanos::from_secs(60)).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// The data of an excluded device must be on the other device: not so if the other device failed before.
#[test]
fn exclusion_beside_earlier_failed_device_is_refused() {
    let bench = bench(16);
    let (world, arena) = parts(&bench);
    let mut all = bench.devices();
    let third = Disk::new(&world, DiskOptions::hdd(MIB * 16));
    bench.run(async move {
        all.push(Faulty::new(third, &no_faults(&world)));
        let made = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(16) };
        let volume = make(world.clone(), all.clone(), &made).await;
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        volume.fail_device(DeviceId(2)).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let opened = open_with(world.clone(), all.clone(), |o| o.distrust = vec![DeviceId(0)]).await;
        assert_eq!(refused(opened.map(drop)).kind(), ErrorKind::Degraded);
        let volume = open(world.clone(), all).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 2).await.unwrap());
    });
}

/// Beside a device with a rebuild in progress every span counts as behind, and the earlier lag was
/// forgotten. A stale copy was taken for current if the device of the home was missing.
#[test]
fn stale_spans_are_remembered_beside_device_in_rebuild() {
    let bench = bench(15);
    let (world, arena) = parts(&bench);
    let mut all = bench.devices();
    let third = Disk::new(&world, DiskOptions::hdd(MIB * 16));
    bench.run(async move {
        let policy = "pass,window=90%,max-lag=100%,idle=1h".to_owned();
        let made = CreateOptions { copies: 2, policy, ..options(15) };
        let volume = make(world.clone(), all.clone(), &made).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert_eq!(volume.status().behind, MIB);
        all.push(Faulty::new(third, &no_faults(&world)));
        volume.add_device(all[2].clone(), &addition(Layout::Head), |_| Ok(())).await.unwrap();
        volume.fail_device(DeviceId(2)).await.unwrap();
        drop(volume);
        let without_home = all[1..].to_vec();
        let opened = open_with(world.clone(), without_home, |o| o.distrust = vec![DeviceId(2)]).await;
        assert_eq!(refused(opened.map(drop)).kind(), ErrorKind::Degraded);
        let volume = open(world.clone(), all).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
    });
}

#[test]
fn volume_with_one_copy_does_not_open_without_device() {
    let bench = bench(8);
    let (world, all) = (bench.world.clone(), bench.devices());
    bench.run(async move {
        make(world.clone(), all.clone(), &options(8)).await.close().await.unwrap();
        for one in all {
            let error = refused(open(world.clone(), vec![one]).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        }
    });
}

/// The first device rejected a table of devices. The next table, for the second device alone, overwrote the
/// table that the superblock of this device still needed. A power cut meanwhile left the device without any
/// table.
#[test]
fn power_cut_while_device_rejects_table_leaves_second_device() {
    let bench = bench(3);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disk, faults) = (bench.disks[1].clone(), bench.faults[0].clone());
    bench.run(async move {
        let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(3) };
        let volume = make(world.clone(), all, &mirror).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.checkpoint().await.unwrap();
        faults.set(FaultPlan { writes: 1.0, ..FaultPlan::default() });
        let changed = Rc::new(Cell::new(false));
        let (has_changed, changing) = (changed.clone(), volume.clone());
        world.clone().spawn(async move {
            changing.set_policy("stripe").await.expect("the second device has all of it");
            has_changed.set(true);
        });
        let mut rng = world.fork_rng();
        while !changed.get() {
            world.sleep(Nanos::from_micros(200)).await;
            let left = disk.fork(&world);
            left.power_cut(&mut rng);
            let left = Faulty::new(left.restart(&world), &Faults::new(FaultPlan::default(), rng.fork()));
            let again = open(world.clone(), vec![left]).await.expect("the second device has all of it");
            assert!(holds(&again, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
            again.close().await.unwrap();
        }
        volume.close().await.unwrap();
    });
}
