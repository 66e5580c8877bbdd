//! A failed device is found without the devices that continued: the present superblocks cannot reveal its
//! age, but the last host can.

use crate::deadlines::no_faults;
use crate::openings::{made_mirror, mentions, parts};
use crate::replace::replacement;
use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{DeviceId, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Error, ErrorKind, Export, Replacement, check, replace};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faulty, World};

const NAMES: [&str; 2] = ["one", "other"];

/// A device hung and was failed, and the other device served alone for days. At the next start the other
/// device came late. The first device called both devices current as of its last write, and guests read old
/// bytes and wrote to the volume.
#[test]
fn failed_half_does_not_open_without_newer_half() {
    for (old, closes) in [(0, true), (1, true), (0, false), (1, false)] {
        let bench = bench(23);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        bench.run(async move {
            let outdated = gone_on_without(&both, &all, old, closes).await;
            assert_eq!(outdated, [DeviceId(old as u16)]);
            let new = DeviceId(1 - old as u16);
            let found = |place: usize| Faulty::new(disks[place].fork(&world), &no_faults(&world));
            let noted = outdated.clone();
            let error = refused(open_with(world.clone(), vec![found(old)], |o| o.outdated = noted).await);
            let remedy = format!("--distrust {new}");
            assert!(error.kind() == ErrorKind::Degraded && mentions(&error, &[&remedy]), "{error}");
            let report = check(&world, vec![found(old)], &NAMES.map(String::from), None).await.unwrap();
            assert_eq!(report.newer_elsewhere(&outdated), [new]);
            assert_eq!(report.newer_elsewhere(&[]), [new], "the device itself says so");

            // The newer half is excluded by name, and need not be named again, though nothing was noted.
            let half = found(old);
            for distrust in [vec![new], vec![]] {
                let (volume, _) = open_with(world.clone(), vec![half.clone()], |o| {
                    (o.outdated, o.distrust) = (outdated.clone(), distrust);
                })
                .await
                .unwrap();
                assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap());
                assert_eq!(volume.outdated_devices(), [new]);
                volume.close().await.unwrap();
            }

            // If all devices are present, or the newer device is, their superblocks decide: a note may be
            // slightly older than the superblocks.
            for noted in [vec![], vec![DeviceId(0)], vec![DeviceId(1)], vec![DeviceId(0), DeviceId(1)]] {
                let volume = open_noted(&world, vec![found(0), found(1)], &noted).await;
                assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
                world.sleep(Nanos::from_secs(60)).await;
                assert_eq!(volume.outdated_devices(), []);
                volume.audit().await.unwrap();
            }
            let volume = open_noted(&world, vec![found(1 - old)], &outdated).await;
            assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
        });
    }
}

/// The state directory was lost, or restored from an old backup: no note told that one half was older, and
/// the half was served alone. Its own superblock reveals its age.
#[test]
fn failed_half_is_refused_without_host_note() {
    for (old, closes) in [(0, true), (1, true), (0, false), (1, false)] {
        let bench = bench(26);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        let spare = if old == 1 { DiskOptions::ssd(MIB * 8) } else { DiskOptions::hdd(MIB * 8) };
        let spare = bench.sound(Disk::new(&world, spare));
        bench.run(async move {
            gone_on_without(&both, &all, old, closes).await;
            let new = DeviceId(1 - old as u16);
            let found = |place: usize| Faulty::new(disks[place].fork(&world), &no_faults(&world));
            let tells = |error: &Error| {
                error.kind() == ErrorKind::Degraded && mentions(error, &[&format!("--distrust {new}")])
            };
            let error = refused(open(world.clone(), vec![found(old)]).await);
            assert!(tells(&error), "{error}");
            let report = check(&world, vec![found(old)], &NAMES.map(String::from), None).await.unwrap();
            assert_eq!(report.newer_elsewhere(&[]), [new]);
            let names = ["the older half".to_owned()];
            let place = replacement(new.0);
            let error = refused(replace(&world, vec![found(old)], &names, &spare, &place).await);
            assert!(tells(&error), "{error}");
            // Excluded by name once, and not again.
            let half = found(old);
            for distrust in [vec![new], vec![]] {
                let (volume, _) =
                    open_with(world.clone(), vec![half.clone()], |o| o.distrust = distrust).await.unwrap();
                assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap());
                volume.close().await.unwrap();
            }
            // After a resync, the half is as good as the other.
            let both = [found(0), found(1)];
            let volume = open(world.clone(), both.to_vec()).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(volume.outdated_devices(), []);
            volume.close().await.unwrap();
            let volume = open(world.clone(), vec![both[old].clone()]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
        });
    }
}

/// A device that rejects writes stays without the mark, and a device that has just been failed returns: no
/// request and no return waits for the mark.
#[test]
fn requests_do_not_wait_for_mark_of_failed_device() {
    let bench = bench(27);
    let (world, arena) = parts(&bench);
    let (all, faults, disk) = (bench.devices(), bench.faults.clone(), bench.disks[1].clone());
    let again = bench.sound(disk);
    bench.run(async move {
        let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(27) };
        let volume = make(world.clone(), all.clone(), &mirror).await;
        volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        volume.fail_device(DeviceId(1)).await.unwrap();
        volume.return_device(again, "the same disk").await.unwrap();
        world.sleep(Nanos::from_secs(60)).await;
        assert_eq!(volume.outdated_devices(), []);
        faults[0].set(FaultPlan { writes: 1.0, flushes: 1.0, ..FaultPlan::default() });
        volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
        assert_eq!(volume.outdated_devices(), [DeviceId(0)]);
        world.sleep(Nanos::from_secs(10)).await;
        volume.close().await.unwrap();
    });
}

/// The newer half would have been discarded silently.
#[test]
fn replacement_of_newer_half_beside_failed_half_is_refused() {
    let bench = bench(24);
    let (world, both, all) = (bench.world.clone(), parts(&bench), bench.devices());
    let disk = Disk::new(&world, DiskOptions::hdd(MIB * 8));
    let new = bench.sound(disk);
    bench.run(async move {
        let outdated = gone_on_without(&both, &all, 0, true).await;
        let names = ["the older half".to_owned()];
        let rest = vec![all[0].clone()];
        let known = Replacement { outdated, ..replacement(1) };
        let error = refused(replace(&world, rest.clone(), &names, &new, &known).await);
        assert!(error.kind() == ErrorKind::Degraded && mentions(&error, &["--distrust d1"]), "{error}");
        let volume = open(world.clone(), all.clone()).await.unwrap();
        world.sleep(Nanos::from_secs(60)).await;
        volume.close().await.unwrap();
        replace(&world, rest, &names, &new, &replacement(1)).await.unwrap();
    });
}

/// Of three devices, one is noted as outdated and has returned since. Another is away. The third, which was
/// in use all the time, decides.
#[test]
fn host_note_is_ignored_beside_continuously_used_device() {
    let bench = bench(25);
    let (world, arena, mut all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    all.push(bench.sound(Disk::new(&world, DiskOptions::hdd(MIB * 8))));
    bench.run(async move {
        let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(25) };
        let volume = make(world.clone(), all.clone(), &mirror).await;
        volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let volume = open_noted(&world, vec![all[0].clone(), all[1].clone()], &[DeviceId(0)]).await;
        assert_eq!(volume.outdated_devices(), [DeviceId(2)]);
        assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
    });
}

/// One half is taken out of use, and the other is written: the other half has nines in place of the first
/// half's twos. Returns the outdated devices.
async fn gone_on_without(
    bench: &(World, Arena),
    all: &[Faulty<Disk>],
    old: usize,
    closes: bool,
) -> Vec<DeviceId> {
    made_mirror(bench, all).await;
    let volume = open(bench.0.clone(), all.to_vec()).await.expect("both are there");
    assert_eq!(volume.outdated_devices(), []);
    volume.fail_device(DeviceId(old as u16)).await.expect("the other one has all");
    volume.write(MIB, &filled(&bench.1, MIB, 9), Durability::Fua).await.expect("the other one is sound");
    // Time enough for the mark in the device's own superblock.
    bench.0.sleep(Nanos::from_millis(500)).await;
    if closes {
        volume.close().await.expect("the other one is sound");
    }
    volume.outdated_devices()
}

async fn open_noted(world: &World, devices: Vec<Faulty<Disk>>, outdated: &[DeviceId]) -> Rig {
    let noted = outdated.to_vec();
    open_with(world.clone(), devices, |o| o.outdated = noted).await.expect("the newest bytes are there").0
}
