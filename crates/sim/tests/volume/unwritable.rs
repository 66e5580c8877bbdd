//! Devices that are there when a volume is opened, can be read, and take no superblock.

use crate::deadlines::no_faults;
use crate::openings::{made_mirror, mentions, parts};
use crate::rig::{bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::{DeviceState, RegionKind};
use braid_runtime::{Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faulty};

fn unwritable() -> FaultPlan {
    FaultPlan { writes: 1.0, ..FaultPlan::default() }
}

/// A half that is there, and can be read, and takes no superblock kept the volume from being opened, until somebody took it away.
#[test]
fn a_half_that_cannot_be_written_is_done_without() {
    for i in 0..2 {
        let bench = bench(19);
        let (world, arena) = parts(&bench);
        let (both, all, faults) = (parts(&bench), bench.devices(), bench.faults[i].clone());
        bench.run(async move {
            made_mirror(&both, &all).await;
            faults.set(unwritable());
            let volume = open(world.clone(), all.clone()).await.expect("the other half has all of it");
            assert_eq!(volume.status().devices[i].state, DeviceState::Missing);
            volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            faults.set(FaultPlan::default());
            let volume = open(world.clone(), all).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
            world.sleep(Nanos::from_secs(60)).await;
            assert!(volume.status().devices.iter().all(|device| device.state == DeviceState::Active));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// Without it nothing is lost in silence: what it alone holds keeps the volume closed.
#[test]
fn a_half_that_cannot_be_written_and_alone_holds_something_is_not_done_without() {
    let bench = bench(20);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let faults = bench.faults[0].clone();
    bench.run(async move {
        let policy = "pass,window=90%,max-lag=100%,idle=1h".to_owned();
        let made = CreateOptions { copies: 2, policy, ..options(20) };
        let volume = make(world.clone(), all.clone(), &made).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert_eq!(volume.status().behind, MIB);
        drop(volume);
        faults.set(unwritable());
        let error = refused(open(world.clone(), all.clone()).await);
        assert!(error.kind() == ErrorKind::Io && mentions(&error, &["d0"]), "{error}");
        faults.set(FaultPlan::default());
        let volume = open(world.clone(), all).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
    });
}

/// The half that takes no superblock alone proved a part of the map: a repair without it gave that part up, for good.
#[test]
fn a_repair_does_without_nothing_that_is_there() {
    let bench = bench(21);
    let (world, arena) = parts(&bench);
    let (both, all, disks, faults) =
        (parts(&bench), bench.devices(), bench.disks.clone(), bench.faults[1].clone());
    bench.run(async move {
        made_mirror(&both, &all).await;
        let volume = open(world.clone(), all.clone()).await.unwrap();
        let superblock = volume.superblock();
        volume.close().await.unwrap();
        for kind in [RegionKind::Map, RegionKind::DoubleWrite] {
            let of_first = superblock.regions.iter().find(|r| r.kind == kind && r.device == DeviceId(0));
            let region = of_first.expect("each device has one");
            let rot = filled(&arena, region.len.min(MIB), 0x5a);
            disks[0].write(region.offset, &rot).await.unwrap();
        }
        faults.set(unwritable());
        let opened = open_with(world.clone(), all.clone(), |o| o.repair = true).await;
        assert_eq!(refused(opened.map(drop)).kind(), ErrorKind::Io);
        faults.set(FaultPlan::default());
        let (volume, recovery) = open_with(world.clone(), all, |o| o.repair = true).await.unwrap();
        assert!(recovery.lost.is_empty());
        assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap());
    });
}

/// A half that was given up, and takes no superblock, was used more often than the other: once it could be written, it was the newer one.
#[test]
fn a_half_that_was_given_up_stays_so_though_it_took_no_superblock() {
    let bench = bench(22);
    let (world, arena) = parts(&bench);
    let (both, all, faults) = (parts(&bench), bench.devices(), bench.faults[0].clone());
    bench.run(async move {
        made_mirror(&both, &all).await;
        for _ in 0..3 {
            let alone = vec![all[0].clone()];
            let (volume, _) =
                open_with(world.clone(), alone, |o| o.distrust = vec![DeviceId(1)]).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 8), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
        }
        faults.set(unwritable());
        let opened = open_with(world.clone(), all.clone(), |o| o.distrust = vec![DeviceId(0)]).await;
        let (volume, _) = opened.expect("the other half is to count");
        volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        faults.set(FaultPlan::default());
        let volume = open(world.clone(), all).await.unwrap();
        assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
        volume.close().await.unwrap();
    });
}

/// One was done without, durably, before the next one took no superblock either: then neither could be.
#[test]
fn of_two_devices_that_cannot_be_written_none_is_called_missing() {
    let bench = bench(23);
    let (world, arena) = parts(&bench);
    let (mut all, mut faults) = (bench.devices(), bench.faults.clone());
    faults.push(no_faults(&world));
    let third = Disk::new(&world, DiskOptions::hdd(MIB * 16));
    bench.run(async move {
        all.push(Faulty::new(third, &faults[2]));
        let made = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(23) };
        let volume = make(world.clone(), all.clone(), &made).await;
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 1 + at as u8), Durability::Fua).await.unwrap();
        }
        volume.close().await.unwrap();
        faults[1..].iter().for_each(|faults| faults.set(unwritable()));
        assert_eq!(refused(open(world.clone(), all.clone()).await.map(drop)).kind(), ErrorKind::Io);
        faults[1].set(FaultPlan::default());
        all.pop();
        let volume = open(world.clone(), all).await.expect("these two have all of it");
        for at in 0..4 {
            assert!(holds(&volume, &arena, MIB * at, MIB, 1 + at as u8).await.unwrap());
        }
        volume.close().await.unwrap();
    });
}
