//! Devices that fail slowly: every request is answered, ten times later than before.

use crate::deadlines::no_faults;
use crate::rig::cached::make_warm;
use crate::rig::{Bench, Rig, bench, filled, holds, make, options};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faulty, World};

const SSD: usize = 0;

fn parts(bench: &Bench) -> (World, Arena, Vec<Disk>) {
    (bench.world.clone(), bench.arena.clone(), bench.disks.clone())
}

/// From now on each operation of a disk takes this much longer.
fn slow_down(disk: &Disk, millis: u64) {
    let stall = Nanos::from_millis(millis)..Nanos::from_millis(millis) + Nanos(1);
    disk.faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
}

fn recover(disk: &Disk) {
    disk.faults().set(FaultPlan::default());
}

/// A guest reads and writes for this long.
async fn work(world: &World, volume: &Rig, arena: &Arena, seconds: u64) {
    let (end, mut at) = (world.now() + Nanos::from_secs(seconds), Bytes::ZERO);
    while world.now() < end {
        assert!(holds(volume, arena, at, KIB * 4, 1).await.expect("a copy is there"));
        volume.write(at, &filled(arena, KIB * 4, 1), Durability::Volatile).await.expect("a copy is there");
        world.sleep(Nanos::from_millis(20)).await;
        at = (at + KIB * 4) % MIB;
    }
}

/// `pass` reads from the SSD, however slow; and an avoided device receives no requests of its own.
#[test]
fn slow_device_is_not_read_until_recovery() {
    for seed in 0..4 {
        let bench = bench(seed);
        let (world, arena, disks) = parts(&bench);
        let all = bench.devices();
        bench.run(async move {
            let made = CreateOptions { copies: 2, policy: "pass,idle=10ms".to_owned(), ..options(1) };
            let volume = make(world.clone(), all, &made).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            work(&world, &volume, &arena, 20).await;
            let state = |device: usize| volume.status().devices[device].state;
            assert_eq!(volume.status().devices[SSD].times_slower, None);
            slow_down(&disks[SSD], 300);
            work(&world, &volume, &arena, 15).await;
            let status = volume.status();
            assert_eq!(status.devices[SSD].state, DeviceState::Slow);
            assert!(status.devices[SSD].times_slower.is_some_and(|times| times > 100.0));
            assert_eq!(state(1), DeviceState::Active);
            // The newest writes lie on the SSD alone; everything else is read from the disk.
            world.sleep(Nanos::from_secs(5)).await;
            let before = volume.status().devices[SSD].stats.guest_reads;
            for block in 0..256 {
                assert!(holds(&volume, &arena, KIB * 4 * block, KIB * 4, 1).await.unwrap());
            }
            assert_eq!(volume.status().devices[SSD].stats.guest_reads, before);
            recover(&disks[SSD]);
            world.sleep(Nanos::from_secs(15)).await;
            assert_eq!(state(SSD), DeviceState::Active, "though no guest asks it for anything");
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.unwrap());
            assert!(volume.status().devices[SSD].stats.guest_reads > before);
            assert_eq!(volume.status().guests.errors, 0);
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

#[test]
fn new_extents_avoid_slow_device_until_recovery() {
    let bench = bench(7);
    let (world, arena, disks) = parts(&bench);
    let all = bench.devices();
    bench.run(async move {
        let made = CreateOptions { policy: "hdd-only".to_owned(), ..options(2) };
        let volume = make(world.clone(), all, &made).await;
        let home = |at| volume.explain(at).unwrap().home.unwrap().0;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert_eq!(home(Bytes::ZERO).index(), 1);
        work(&world, &volume, &arena, 20).await;
        slow_down(&disks[1], 900);
        work(&world, &volume, &arena, 30).await;
        assert_eq!(volume.status().devices[1].state, DeviceState::Slow);
        volume.write(MIB, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert!((8..16).all(|extent| home(KIB * 128 * extent).index() == SSD));
        recover(&disks[1]);
        work(&world, &volume, &arena, 10).await;
        assert_eq!(volume.status().devices[1].state, DeviceState::Active);
        volume.write(MIB * 2, &filled(&arena, KIB * 4, 1), Durability::Fua).await.unwrap();
        assert_eq!(home(MIB * 2).index(), 1);
    });
}

/// The home of a new extent was meant for the slow SSD, but went to a disk. Its second copy, on another
/// disk, was left stale all the same. A loss of the first disk lost the flushed data there.
#[test]
fn second_copy_is_current_if_home_avoids_slow_ssd() {
    let bench = bench(8);
    let (world, arena, mut disks) = parts(&bench);
    let mut all = bench.devices();
    disks.push(Disk::new(&world, DiskOptions::hdd(MIB * 16)));
    all.push(Faulty::new(disks[2].clone(), &no_faults(&world)));
    bench.run(async move {
        let policy = "pass,window=90%,max-lag=100%,idle=1h".to_owned();
        let volume = make(world.clone(), all, &CreateOptions { copies: 2, policy, ..options(2) }).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        work(&world, &volume, &arena, 20).await;
        slow_down(&disks[SSD], 900);
        work(&world, &volume, &arena, 30).await;
        assert_eq!(volume.status().devices[SSD].state, DeviceState::Slow);
        volume.write(MIB, &filled(&arena, MIB, 3), Durability::Fua).await.unwrap();
        let place = volume.explain(MIB).unwrap();
        let home = place.home.unwrap().0;
        assert_ne!(home.index(), SSD);
        volume.fail_device(home).await.unwrap();
        assert!(holds(&volume, &arena, MIB, MIB, 3).await.unwrap());
    });
}

/// A clean copy in the cache is no help while its SSD is slower than the disk.
#[test]
fn cached_block_on_slow_ssd_is_read_from_home() {
    let bench = bench(8);
    let (world, arena, disks) = parts(&bench);
    let all = bench.devices();
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 3).await;
        let read = || volume.status().devices[SSD].stats.guest_reads;
        let before = read();
        work(&world, &volume, &arena, 20).await;
        assert!(read() > before);
        slow_down(&disks[SSD], 300);
        work(&world, &volume, &arena, 20).await;
        assert_eq!(volume.status().devices[SSD].state, DeviceState::Slow);
        let before = volume.status().devices[SSD].stats.guest_reads;
        for block in 0..64 {
            assert!(holds(&volume, &arena, KIB * 4 * block, KIB * 4, 1).await.unwrap());
        }
        assert_eq!(volume.status().devices[SSD].stats.guest_reads, before);
        volume.close().await.unwrap();
    });
}
