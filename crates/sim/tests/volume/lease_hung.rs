//! The lease on devices that hang, fail, or are out of the owner's reach.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::deadlines;
use crate::lease::{BLOCK, Host, SECOND, first_host, parts};
use crate::rig::{bench, filled, holds, options, refused, sound};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Noted, create};
use braid_runtime::{Arena, Runtime};
use braid_sim::FaultPlan;
use std::cell::Cell;
use std::rc::Rc;

/// The network to one device is cut. The lease on the other device is renewed all the same, and guests of
/// that device do not wait.
#[test]
fn hung_device_delays_no_renewal_on_other_device() {
    for (seed, copies) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        let bench = bench(1600 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let made = CreateOptions { copies, policy: "hdd-only".to_owned(), ..options(91) };
            let made = if copies == 2 { CreateOptions { policy: "raid1".to_owned(), ..made } } else { made };
            create(&sound(&disks), &made).await.unwrap();
            let host = Host::new(&world, &disks).await;
            let volume = host.open(Some(Noted::default()), 7, false).await.1.unwrap();
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 40).await;
            let cut = seed as usize % 2;
            host.paths[cut].set_cut(true);
            world.sleep(Nanos::from_millis(300)).await;
            let other = Host::new(&world, &disks).await;
            for _ in 0..3 {
                let error = refused(other.open_strange(false).await.1);
                assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}");
            }
            if copies == 2 || cut == 0 {
                let start = world.now();
                assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
                assert!(world.now() - start < SECOND * 7, "seed {seed}");
            }
            host.paths[cut].set_cut(false);
            world.sleep(SECOND * 10).await;
            volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            assert_eq!(volume.status().guests.errors, 0, "seed {seed}");
            volume.close().await.unwrap();
        });
    }
}

/// Looks at the first device have no answer, so writes to the second wait for no look. The lease on the
/// second device fences the owner nevertheless.
#[test]
fn owner_with_silent_device_is_fenced_on_other_device() {
    for seed in 0..6 {
        let bench = bench(1650 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let made = CreateOptions { policy: "hdd-only".to_owned(), ..options(93) };
            create(&sound(&disks), &made).await.unwrap();
            let host = Host::new(&world, &disks).await;
            let first = host.open(Some(Noted::default()), 7, false).await.1.unwrap();
            first.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 40).await;
            let last = Rc::new(Cell::new(Nanos::ZERO));
            let (clock, told, guest) = (world.clone(), last.clone(), first.clone());
            world.spawn(async move {
                let block = filled(&Arena::new(MIB), BLOCK, 3);
                while guest.write(Bytes::ZERO, &block, Durability::Volatile).await.is_ok() {
                    told.set(clock.now());
                    clock.sleep(Nanos::from_millis(20)).await;
                }
            });
            host.paths[0].set_cut(true);
            world.sleep(SECOND * 2 + Nanos::from_millis(seed * 250)).await;
            assert!(last.get() + SECOND > world.now(), "seed {seed}: the guest waits for the cut device");
            let (_, opened) = Host::new(&world, &disks).await.open_strange(true).await;
            let (second, opened) = (opened.unwrap(), world.now());
            assert!(last.get() < opened, "seed {seed}");
            second.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            host.paths[0].set_cut(false);
            world.sleep(SECOND * 10).await;
            assert!(last.get() < opened, "seed {seed}");
            assert!(holds(&second, &arena, Bytes::ZERO, MIB, 2).await.unwrap(), "seed {seed}");
            second.close().await.unwrap();
        });
    }
}

/// A disk that hangs hangs for both hosts: the owner cannot renew its lease meanwhile.
#[test]
fn watch_outlasts_a_hang_of_all_devices() {
    for seed in 0..6 {
        let bench = bench(1680 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let (_host, volume) = first_host(&world, &disks, seed).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 40).await;
            let (clock, hung) = (world.clone(), disks.clone());
            world.spawn(async move {
                clock.sleep(Nanos::from_millis(200 + seed * 300)).await;
                hung.iter().for_each(deadlines::hang);
                clock.sleep(SECOND * (2 + seed * 4)).await;
                hung.iter().for_each(deadlines::recover);
            });
            let other = Host::new(&world, &disks).await;
            assert_eq!(refused(other.open_strange(false).await.1).kind(), ErrorKind::Busy, "seed {seed}");
            world.sleep(SECOND * 40).await;
            volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// A superblock copy that cannot be written costs its copy, and neither the lease nor the device.
#[test]
fn bad_place_under_first_superblock_copy_keeps_lease() {
    let bench = bench(1700);
    let (world, _, disks) = parts(&bench);
    bench.run(async move {
        let (_host, volume) = first_host(&world, &disks, 1).await;
        let bad = FaultPlan { bad_writes: Some(Bytes::ZERO..KIB * 4), ..FaultPlan::default() };
        disks.iter().for_each(|disk| disk.faults().set(bad.clone()));
        world.sleep(SECOND * 20).await;
        let other = Host::new(&world, &disks).await;
        assert_eq!(refused(other.open_strange(false).await.1).kind(), ErrorKind::Busy);
        disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        volume.close().await.unwrap();
    });
}
