//! A device that is readable but not writable when the volume is opened, as an SSD at the end of its life.
//!
//! The story: one page of the first device's table of devices was bad. Each `serve` of a healthy mirror was
//! refused, and so was each repair: "the superblock could not be written to d0", without a remedy. The
//! second device had the same table, and all data. While the volume was open, the same error cost the device
//! alone.
//! device had the same table, and all data. While the volume was open, the same error cost the device alone.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::epochs::epochs;
use crate::openings::mirror;
use crate::rig::cached::{SSD, all_hold, make_warm};
use crate::rig::{Bench, Rig, bench, cached, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{DeviceState, RegionKind, Superblock};
use braid_runtime::{Arena, LastingMemory, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, StoredMemory, World};
use std::rc::Rc;

pub const EXTENT: Bytes = Bytes(128 << 10);
pub const EXTENTS: u64 = 12;

/// The unwritable part of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    Table,
    Superblocks,
    All,
    /// Everything is unwritable, and flushes fail.
    AllAndFlushes,
    Flushes,
}

pub const EACH: [Bad; 5] = [Bad::Table, Bad::Superblocks, Bad::All, Bad::AllAndFlushes, Bad::Flushes];

pub fn plan(bad: Bad, superblock: &Superblock, device: usize) -> FaultPlan {
    let all = Bytes::ZERO..Bytes(u64::MAX / 2);
    let entry = &superblock.devices[device];
    let copies = superblock_offsets(entry.size, entry.layout);
    let table = superblock.tables.iter().find(|table| table.device.index() == device);
    let bad_writes = match bad {
        Bad::Table => table.map(|table| table.offset..table.offset + table.len),
        Bad::Superblocks => Some(copies[0]..copies[1] + KIB * 8),
        Bad::All | Bad::AllAndFlushes => Some(all),
        Bad::Flushes => None,
    };
    let flushes = if matches!(bad, Bad::AllAndFlushes | Bad::Flushes) { 1.0 } else { 0.0 };
    FaultPlan { bad_writes, flushes, ..FaultPlan::default() }
}

/// Copies of the disks in their present state, one of them with a fault.
pub fn with(world: &World, disks: &[Disk], device: usize, plan: &FaultPlan) -> Vec<Faulty<Disk>> {
    let plan = |at| if at == device { plan.clone() } else { FaultPlan::default() };
    let faults = |at| Faults::new(plan(at), world.fork_rng());
    disks.iter().enumerate().map(|(at, disk)| Faulty::new(disk.clone(), &faults(at))).collect()
}

pub fn forks(world: &World, disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(|disk| disk.fork(world)).collect()
}

async fn fill(volume: &Rig, arena: &Arena) {
    for extent in 0..EXTENTS {
        let bytes = filled(arena, EXTENT, 1 + extent as u8);
        volume.write(EXTENT * extent, &bytes, Durability::Fua).await.expect("the devices are sound");
    }
}

async fn check_filled(volume: &Rig, arena: &Arena, what: &str) {
    for extent in 0..EXTENTS {
        let is_there = holds(volume, arena, EXTENT * extent, EXTENT, 1 + extent as u8).await;
        assert!(is_there.unwrap_or_else(|e| panic!("{what}: {e}")), "{what}: extent {extent}");
    }
}

pub fn states(volume: &Rig) -> Vec<DeviceState> {
    volume.status().devices.iter().map(|device| device.state).collect()
}

/// True if a device is left out. An opening that was about to resynchronise the device calls the device
/// failed.
fn is_out(state: DeviceState) -> bool {
    matches!(state, DeviceState::Missing | DeviceState::Failed)
}

/// Waits until all devices are current.
async fn wait_until_active(world: &World, volume: &Rig) {
    while states(volume).iter().any(|state| *state != DeviceState::Active) {
        world.sleep(Nanos::from_millis(100)).await;
    }
}

/// Makes all checks of openings of a mirror with an unwritable device.
async fn try_mirror(bench: &Bench, device: usize, bad: Bad, how: CreateOptions, closes: bool) {
    let (world, arena) = (&bench.world, &bench.arena);
    let what = format!("d{device}, {bad:?}, {}, closed: {closes}", how.policy);
    let volume = make(world.clone(), bench.devices(), &how).await;
    fill(&volume, arena).await;
    world.sleep(Nanos::from_secs(20)).await;
    let plan = plan(bad, &volume.superblock(), device);
    if closes {
        volume.close().await.expect("the devices are sound");
    }
    for changed in 0..4 {
        let disks = forks(world, &bench.disks);
        let change = |options: &mut OpenOptions| match changed {
            1 => options.repair = true,
            2 => options.distrust = vec![DeviceId(device as u16)],
            _ => {}
        };
        let (volume, recovery) = open_with(world.clone(), with(world, &disks, device, &plan), change)
            .await
            .unwrap_or_else(|e| panic!("{what}, {changed}: {e}"));
        assert!(is_out(states(&volume)[device]), "{what}, {changed}");
        assert!(
            recovery.warnings.iter().any(|text| text.contains("cannot be written")),
            "{what}: {recovery:?}"
        );
        check_filled(&volume, arena, &what).await;
        let bytes = filled(arena, EXTENT, 77);
        volume
            .write(EXTENT * EXTENTS, &bytes, Durability::Fua)
            .await
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        if changed == 3 {
            // The volume dies instead of closing.
            drop(volume);
        } else {
            volume.close().await.unwrap_or_else(|e| panic!("{what}, {changed}: {e}"));
        }
        // The same again, then with a sound device.
        let disks = forks(world, &disks);
        let again = open(world.clone(), with(world, &disks, device, &plan)).await;
        let again = again.unwrap_or_else(|e| panic!("{what}, {changed}, again: {e}"));
        assert!(is_out(states(&again)[device]), "{what}, {changed}");
        check_filled(&again, arena, &what).await;
        again.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let volume = open(world.clone(), with(world, &disks, device, &FaultPlan::default())).await;
        let volume = volume.unwrap_or_else(|e| panic!("{what}, {changed}, sound: {e}"));
        wait_until_active(world, &volume).await;
        // Until the journal calls the spans clean.
        world.sleep(Nanos::from_secs(20)).await;
        check_filled(&volume, arena, &what).await;
        assert!(holds(&volume, arena, EXTENT * EXTENTS, EXTENT, 77).await.unwrap(), "{what}");
        volume.audit().await.unwrap_or_else(|e| panic!("{what}, {changed}: {e}"));
        volume.close().await.unwrap();
        // The device that was out of use has all data, too, and serves alone.
        let alone = vec![bench.sound(disks[device].clone())];
        let alone = open(world.clone(), alone).await.unwrap_or_else(|e| panic!("{what}, {changed}: {e}"));
        check_filled(&alone, arena, &what).await;
        assert!(holds(&alone, arena, EXTENT * EXTENTS, EXTENT, 77).await.unwrap(), "{what}");
    }
}

#[test]
fn mirror_opens_without_unwritable_device() {
    for device in 0..2 {
        for (at, bad) in EACH.into_iter().enumerate() {
            for closes in [false, true] {
                let bench = Rc::new(bench(10 * at as u64 + device as u64));
                let here = bench.clone();
                bench.run(async move { try_mirror(&here, device, bad, mirror(1), closes).await });
            }
        }
    }
}

#[test]
fn pass_volume_opens_without_unwritable_device() {
    for device in 0..2 {
        for (at, bad) in [Bad::Table, Bad::All].into_iter().enumerate() {
            for closes in [false, true] {
                let bench = Rc::new(bench(100 + 10 * at as u64 + device as u64));
                let here = bench.clone();
                let policy = "pass,idle=1s".to_owned();
                let how = CreateOptions { policy, ..mirror(1) };
                bench.run(async move { try_mirror(&here, device, bad, how, closes).await });
            }
        }
    }
}

/// Only the copies on the fast device are the newest: the other device is stale. Without the fast device,
/// flushed writes would be lost.
#[test]
fn the_only_current_copies_are_not_left_out() {
    for bad in EACH {
        let bench = bench(200);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let all = bench.devices();
        bench.run(async move {
            let policy = "pass,idle=60s".to_owned();
            let volume = make(world.clone(), all, &CreateOptions { policy, ..mirror(1) }).await;
            fill(&volume, &arena).await;
            let plan = plan(bad, &volume.superblock(), 0);
            drop(volume);
            let disks = forks(&world, &disks);
            for _ in 0..2 {
                let error = refused(open(world.clone(), with(&world, &disks, 0, &plan)).await);
                assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
                let text = error.to_string();
                assert!(text.contains("disk 0 (d0) cannot be written"), "{text}");
                assert!(text.contains("give the copy instead"), "{text}");
            }
            let volume = open(world.clone(), with(&world, &disks, 0, &FaultPlan::default())).await.unwrap();
            check_filled(&volume, &arena, "sound again").await;
        });
    }
}

/// With one copy of everything, a bad place under one of two tables costs nothing.
#[test]
fn volume_with_one_copy_tolerates_bad_device_table() {
    for device in 0..2 {
        let bench = bench(210 + device as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let (all, faults) = (bench.devices(), bench.faults.clone());
        bench.run(async move {
            let volume = make(world.clone(), all, &options(1)).await;
            fill(&volume, &arena).await;
            let plan = plan(Bad::Table, &volume.superblock(), device);
            // Also while the volume is open.
            faults[device].set(plan.clone());
            volume.set_policy("stripe").await.unwrap();
            for crashes in [true, false, true] {
                let disks = forks(&world, &disks);
                let volume = open(world.clone(), with(&world, &disks, device, &plan)).await.unwrap();
                assert_eq!(states(&volume), [DeviceState::Active; 2]);
                check_filled(&volume, &arena, "one copy").await;
                if !crashes {
                    volume.close().await.unwrap();
                }
                let disks = forks(&world, &disks);
                let volume =
                    open(world.clone(), with(&world, &disks, device, &FaultPlan::default())).await.unwrap();
                check_filled(&volume, &arena, "one copy").await;
                volume.close().await.unwrap();
            }
        });
    }
}

/// The SSD is a clean cache. The disk, which has everything, cannot be left out.
#[test]
fn volume_opens_without_unwritable_clean_cache() {
    for bad in [Bad::Superblocks, Bad::All, Bad::AllAndFlushes, Bad::Flushes] {
        let bench = cached::bench(220, MIB * 8, MIB * 8);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let all = bench.devices();
        bench.run(async move {
            let volume = make_warm(&world, &all, &arena, 1).await;
            volume.set_policy("cache,mode=write-through").await.unwrap();
            let superblock = volume.superblock();
            volume.close().await.unwrap();
            let without_ssd = forks(&world, &disks);
            let devices = with(&world, &without_ssd, 0, &plan(bad, &superblock, 0));
            let volume = open(world.clone(), devices).await.unwrap_or_else(|e| panic!("{bad:?}: {e}"));
            assert_eq!(states(&volume)[SSD.index()], DeviceState::Missing);
            assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
            volume.flush().await.unwrap();
            let devices = with(&world, &disks, 1, &plan(bad, &superblock, 1));
            let error = refused(open(world.clone(), devices).await);
            assert!(error.to_string().contains("disk 1 (d1) cannot be written"), "{error}");
            let volume = open(world.clone(), with(&world, &disks, 1, &FaultPlan::default())).await.unwrap();
            assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
        });
    }
}

#[test]
fn epoch_volume_opens_without_unwritable_device() {
    for device in 0..2 {
        for bad in EACH {
            let bench = cached::bench(230, MIB * 16, MIB * 40);
            let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
            let all = bench.devices();
            bench.run(async move {
                let volume = make(world.clone(), all, &epochs(1)).await;
                fill(&volume, &arena).await;
                world.sleep(Nanos::from_secs(20)).await;
                let plan = plan(bad, &volume.superblock(), device);
                volume.close().await.unwrap();
                let volume = open(world.clone(), with(&world, &disks, device, &plan)).await;
                let volume = volume.unwrap_or_else(|e| panic!("d{device}, {bad:?}: {e}"));
                check_filled(&volume, &arena, &format!("d{device}, {bad:?}")).await;
                let state = states(&volume)[device];
                assert!(state == DeviceState::Missing, "d{device}, {bad:?}: {state:?}");
                volume.close().await.unwrap();
                let volume =
                    open(world.clone(), with(&world, &disks, device, &FaultPlan::default())).await.unwrap();
                wait_until_active(&world, &volume).await;
                check_filled(&volume, &arena, &format!("d{device}, {bad:?}")).await;
                volume.audit().await.unwrap();
            });
        }
    }
}

/// The second device was used alone, and is unwritable now. The superblock of the first, older device does
/// not know of this use: the first device was served, without later flushed data.
#[test]
fn stale_device_is_not_served_for_unwritable_newer_device() {
    for device in 0..2 {
        for bad in EACH {
            let bench = bench(235);
            let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
            let all = bench.devices();
            bench.run(async move {
                let volume = make(world.clone(), all.clone(), &mirror(1)).await;
                volume.write(Bytes::ZERO, &filled(&arena, EXTENT, 99), Durability::Fua).await.unwrap();
                let plan = plan(bad, &volume.superblock(), device);
                volume.close().await.unwrap();
                let volume = open(world.clone(), vec![all[device].clone()]).await.unwrap();
                fill(&volume, &arena).await;
                volume.close().await.unwrap();
                match open(world.clone(), with(&world, &forks(&world, &disks), device, &plan)).await {
                    Ok(volume) => check_filled(&volume, &arena, &format!("d{device}, {bad:?}")).await,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Degraded, "{error}"),
                }
                let volume =
                    open(world.clone(), with(&world, &disks, device, &FaultPlan::default())).await.unwrap();
                check_filled(&volume, &arena, "sound again").await;
            });
        }
    }
}

/// The map on the second device is damaged, and the first device is readable. A repair without the first
/// device would give up all extents of the damaged pages.
#[test]
fn repair_is_refused_if_only_unwritable_device_has_map() {
    let bench = bench(240);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    let all = bench.devices();
    bench.run(async move {
        let volume = make(world.clone(), all, &mirror(1)).await;
        fill(&volume, &arena).await;
        let superblock = volume.superblock();
        volume.close().await.unwrap();
        let map =
            superblock.regions.iter().find(|r| r.kind == RegionKind::Map && r.device == DeviceId(1)).unwrap();
        let garbage = filled(&arena, KIB * 4, 0x5a);
        braid_runtime::Device::write(&disks[1], map.offset, &garbage).await.unwrap();
        let devices = with(&world, &disks, 0, &plan(Bad::All, &superblock, 0));
        let repaired = open_with(world.clone(), devices, |options| options.repair = true).await;
        let error = refused(repaired);
        assert!(error.to_string().contains("would be lost"), "{error}");
        let devices = with(&world, &disks, 0, &FaultPlan::default());
        let (volume, recovery) =
            open_with(world.clone(), devices, |options| options.repair = true).await.unwrap();
        assert!(recovery.lost.is_empty(), "{recovery:?}");
        check_filled(&volume, &arena, "repaired").await;
    });
}

/// Acknowledged but unflushed writes outlive the daemon, and a device that the next daemon cannot flush: the
/// other device has all of these writes. If the next opening dies before the loss of the device is recorded,
/// the log is in doubt.
#[test]
fn pending_log_is_replayed_without_unflushable_device() {
    for device in 0..2 {
        let bench = bench(250 + device as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let all = bench.devices();
        bench.run(async move {
            make(world.clone(), all.clone(), &mirror(1)).await.close().await.unwrap();
            let memory = world.give_memory(StoredMemory::default());
            let in_memory = || Some(Rc::new(memory.clone()) as Rc<dyn LastingMemory>);
            let (volume, _) = open_with(world.clone(), all, |o| o.memory = in_memory()).await.unwrap();
            for extent in 0..EXTENTS {
                let bytes = filled(&arena, EXTENT, 1 + extent as u8);
                volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.unwrap();
            }
            let plan = plan(Bad::Flushes, &volume.superblock(), device);
            let disks = forks(&world, &disks);
            let devices = with(&world, &disks, device, &plan);
            let (volume, recovery) =
                open_with(world.clone(), devices, |o| o.memory = in_memory()).await.unwrap();
            assert!(recovery.has_log && !recovery.flush_had_failed, "{recovery:?}");
            check_filled(&volume, &arena, "from the log").await;
            volume.flush().await.unwrap();
        });
    }
}
