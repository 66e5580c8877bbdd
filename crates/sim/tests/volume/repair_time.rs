//! Devices that hang while they repair themselves, as an image in a cluster that has lost a disk.

use crate::deadlines::{hang, mirror, no_faults, parts, recover, state, timed, write};
use crate::rig::{bench, filled, holds, make, options, refused};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::Runtime;
use braid_sim::{Disk, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

const REPAIR: Nanos = Nanos::from_secs(45);
const SECOND: Nanos = Nanos::from_secs(1);

fn repairing(world: &World, disks: &[Disk]) -> Vec<Faulty<Disk>> {
    disks.iter().map(|disk| Faulty::new(disk.clone(), &no_faults(world)).repairing(REPAIR)).collect()
}

/// A cluster repaired itself within 36 s. The mirror had excluded its image after 5 s.
#[test]
fn device_that_repairs_itself_stays_in_step() {
    for (seed, hung) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        let bench = bench(2000 + seed);
        let (world, arena, _, disks) = parts(&bench);
        bench.run(async move {
            let policy = if seed < 2 { "raid1" } else { "equi" }.to_owned();
            let made = CreateOptions { policy, ..mirror(60) };
            let volume = make(world.clone(), repairing(&world, &disks), &made).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 40).await;
            hang(&disks[hung]);
            let written = Rc::new(Cell::new(None));
            let (clock, guest, told) = (world.clone(), volume.clone(), written.clone());
            let bytes = filled(&arena, KIB * 64, 2);
            world.spawn(async move {
                let (took, result) = timed(&clock, write(&guest, MIB, bytes, Durability::Fua)).await;
                told.set(Some((took, result.is_ok())));
            });
            // Guests of the other copy read on.
            let hung_at = world.now();
            let mut longest = Nanos::ZERO;
            let mut reads = 0u64;
            while world.now() < hung_at + SECOND * 36 {
                let at = KIB * 4 * (reads * 7 % 256);
                let (took, right) = timed(&world, holds(&volume, &arena, at, KIB * 4, 1)).await;
                assert!(right.unwrap());
                (longest, reads) = (longest.max(took), reads + 1);
                assert_eq!(
                    state(&volume, hung),
                    DeviceState::Active,
                    "seed {seed}, {}",
                    world.now() - hung_at
                );
                world.sleep(Nanos::from_millis(100)).await;
            }
            assert!(longest < SECOND * 7 && reads > 150, "seed {seed}: {longest}, {reads} reads");
            assert!(written.take().is_none(), "seed {seed}: the write waits for both copies");
            recover(&disks[hung]);
            world.sleep(SECOND * 10).await;
            let (took, is_ok) = written.take().expect("the write has ended");
            assert!(is_ok && took < SECOND * 50, "seed {seed}: {took}");
            assert!((0..2).all(|device| state(&volume, device) == DeviceState::Active), "seed {seed}");
            assert_eq!(volume.status().behind.0, 0);
            assert_eq!(volume.status().guests.errors, 0);
            assert!(volume.status().devices.iter().all(|device| device.times_slower.is_none()));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// The limit for a device that never answers is longer by the repair time, and no longer.
#[test]
fn device_that_never_repairs_itself_fails() {
    for hung in 0..2 {
        let bench = bench(2010);
        let (world, arena, _, disks) = parts(&bench);
        bench.run(async move {
            let policy = "raid1".to_owned();
            let made = CreateOptions { policy, ..mirror(61) };
            let volume = make(world.clone(), repairing(&world, &disks), &made).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 40).await;
            hang(&disks[hung]);
            let late = write(&volume, Bytes::ZERO, filled(&arena, KIB * 64, 2), Durability::Fua);
            let (took, written) = timed(&world, late).await;
            written.unwrap();
            assert!(took > SECOND * 50 && took < SECOND * 54, "{took}");
            assert_eq!(state(&volume, hung), DeviceState::Failed);
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 64, 2).await.unwrap());
            recover(&disks[hung]);
            world.sleep(SECOND * 5).await;
            volume.close().await.unwrap();
        });
    }
}

/// Without writes, a device is failed once it has been late for a minute and its repair time.
#[test]
fn device_silent_beyond_its_repair_time_is_failed() {
    let bench = bench(2020);
    let (world, arena, _, disks) = parts(&bench);
    bench.run(async move {
        let volume = make(world.clone(), repairing(&world, &disks), &mirror(62)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(SECOND * 60).await;
        hang(&disks[1]);
        for second in 0..130 {
            world.sleep(SECOND).await;
            let state = state(&volume, 1);
            // A probe goes out after 5 s, and is late 6 s later.
            assert!(second < 60 || state != DeviceState::Active, "after {second} s: {state}");
            assert!(second > 50 || state == DeviceState::Active, "after {second} s: {state}");
            assert!(second > 105 || state != DeviceState::Failed, "after {second} s: {state}");
            assert!(second < 122 || state == DeviceState::Failed, "after {second} s: {state}");
        }
        recover(&disks[1]);
        world.sleep(SECOND * 5).await;
        volume.close().await.unwrap();
    });
}

/// Without another copy, requests wait for a minute and the repair time.
#[test]
fn only_copy_is_waited_for_through_its_repair() {
    let bench = bench(2030);
    let (world, arena, _, disks) = parts(&bench);
    bench.run(async move {
        let made = CreateOptions { policy: "hdd-only".to_owned(), ..options(63) };
        let volume = make(world.clone(), repairing(&world, &disks), &made).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(SECOND * 8).await;
        for (hangs, ends_well) in [(36, true), (100, true), (300, false)] {
            hang(&disks[1]);
            let (clock, disk) = (world.clone(), disks[1].clone());
            world.spawn(async move {
                clock.sleep(SECOND * hangs).await;
                recover(&disk);
            });
            let (took, read) = timed(&world, holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1)).await;
            match ends_well {
                true => assert!(read.unwrap() && took < SECOND * hangs + SECOND, "{took}"),
                false => {
                    assert_eq!(refused(read).kind(), ErrorKind::Io);
                    assert!(took > SECOND * 105 && took < SECOND * 108, "{took}");
                }
            }
            assert!(hangs > 36 || state(&volume, 1) == DeviceState::Active);
            world.sleep(SECOND * 300).await;
            assert_eq!(state(&volume, 1), DeviceState::Active);
        }
        volume.close().await.unwrap();
    });
}
