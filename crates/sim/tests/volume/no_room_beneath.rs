//! Devices that are sparse files on a full file system.

use crate::rig::cached::bench;
use crate::rig::{Rig, filled, holds, make, open, options, refused, sound_one};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_runtime::{Runtime, join_all};
use braid_sim::{FaultPlan, Faults, Faulty};
use std::pin::Pin;

const EXTENT: Bytes = Bytes(128 << 10);

/// The file system of the SSD was full, and new extents still went to the SSD: guests had no space, although
/// the disk was empty.
#[test]
fn new_extents_go_to_device_with_room() {
    for policy in ["ssd-first", "equi", "stripe", "wardrop"] {
        let bench = bench(60, MIB * 16, MIB * 16);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let faults = bench.faults.clone();
        bench.run(async move {
            let how = CreateOptions { size: Some(MIB * 8), policy: policy.to_owned(), ..options(60) };
            let volume = make(world.clone(), all, &how).await;
            let write = async |extent: u64, value| {
                let bytes = filled(&arena, KIB * 64, value);
                volume.write(EXTENT * extent, &bytes, Durability::Volatile).await
            };
            let place = |extent| volume.explain(EXTENT * extent).unwrap().home.unwrap();
            let slots_from = |device: usize, from: Bytes| {
                from..from + EXTENT * u64::from(volume.status().devices[device].slots)
            };
            let mut extent = 0;
            let lowest = loop {
                write(extent, 1).await.unwrap();
                if place(extent).0 == DeviceId(0) {
                    break place(extent).1;
                }
                extent += 1;
            };
            let full = slots_from(0, lowest + EXTENT);
            faults[0].set(FaultPlan { no_room: Some(full), ..FaultPlan::default() });
            let new = extent + 1..extent + 20;
            for extent in new.clone() {
                write(extent, 2).await.unwrap_or_else(|error| panic!("{policy}, extent {extent}: {error}"));
            }
            volume.flush().await.unwrap();
            assert!(new.clone().all(|extent| place(extent).0 == DeviceId(1)), "{policy}");
            // Without room anywhere, guests receive an error with the reason.
            let full = slots_from(1, new.clone().map(|extent| place(extent).1).min().unwrap());
            faults[1].set(FaultPlan { no_room: Some(full), ..FaultPlan::default() });
            let error = refused(write(new.end, 3).await);
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{policy}: {error}");
            // With room again, the SSD receives extents without another place at once, and its share after a
            // while.
            faults[0].set(FaultPlan::default());
            write(new.end, 3).await.unwrap_or_else(|error| panic!("{policy}: {error}"));
            faults[1].set(FaultPlan::default());
            world.sleep(Nanos::from_secs(12)).await;
            let later = new.end + 1..new.end + 20;
            for extent in later.clone() {
                write(extent, 4).await.unwrap_or_else(|error| panic!("{policy}: {error}"));
            }
            assert!(
                later.clone().any(|extent| place(extent).0 == DeviceId(0)),
                "{policy}: the SSD is used again"
            );
            for (extents, value) in [(new.clone(), 2), (new.end..new.end + 1, 3), (later, 4)] {
                for extent in extents {
                    assert!(
                        holds(&volume, &arena, EXTENT * extent, KIB * 64, value).await.unwrap(),
                        "{extent}"
                    );
                }
            }
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// One half of a mirror lacked extents, for lack of room, and was lost after a clean stop. `serve` reported
/// that only this half held the newest data of all other extents of the span. After a crash, a resync gave
/// up the whole span if a few extents had no room.
#[test]
fn a_half_without_room_may_be_lost_after_a_clean_stop() {
    for (full, is_killed) in [(0, false), (1, false), (0, true), (1, true)] {
        let bench = bench(61, MIB * 16, MIB * 16);
        let (world, arena, mut all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let (faults, disks) = (bench.faults.clone(), bench.disks.clone());
        bench.run(async move {
            let policy = "raid1".to_owned();
            let how =
                CreateOptions { copies: 2, size: Some(MIB * 8), policy, span_size: MIB * 8, ..options(61) };
            let mut volume = make(world.clone(), all.clone(), &how).await;
            let write = async |volume: &Rig, extent: u64, value| {
                let bytes = filled(&arena, EXTENT, value);
                volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.unwrap();
            };
            for extent in 0..60 {
                write(&volume, extent, 1).await;
            }
            volume.flush().await.unwrap();
            let found = volume.explain(EXTENT * 3).unwrap();
            let places = [found.home, found.second.map(|(device, at, _)| (device, at))];
            let on_full = places.into_iter().flatten().find(|place| place.0 == DeviceId(full as u16));
            let slots = on_full.unwrap().1..on_full.unwrap().1 + EXTENT * 37;
            let plan = FaultPlan { no_room: Some(slots), ..FaultPlan::default() };
            faults[full].set(plan.clone());
            write(&volume, 3, 2).await;
            write(&volume, 29, 2).await;
            volume.flush().await.unwrap();
            assert!(volume.status().behind > Bytes::ZERO, "a half lacks what had no room");
            if is_killed {
                let plans = [0, 1].map(|at| if at == full { plan.clone() } else { FaultPlan::default() });
                let again = disks
                    .iter()
                    .zip(plans)
                    .map(|(disk, plan)| Faulty::new(disk.fork(&world), &Faults::new(plan, world.fork_rng())));
                all = again.collect();
                volume = open(world.clone(), all.clone()).await.unwrap();
                world.sleep(Nanos::from_secs(30)).await;
                let is_behind = |extent: &u64| volume.explain(EXTENT * *extent).unwrap().second.unwrap().2;
                assert_eq!((42..60).find(is_behind), None, "these need no room");
            }
            volume.close().await.unwrap();
            let left = all.into_iter().enumerate().filter(|(at, _)| *at != full).map(|(_, device)| device);
            let volume = open(world.clone(), left.collect()).await.unwrap();
            for extent in 0..60 {
                let value = if [3, 29].contains(&extent) { 2 } else { 1 };
                assert!(holds(&volume, &arena, EXTENT * extent, EXTENT, value).await.unwrap(), "{extent}");
            }
            volume.close().await.unwrap();
        });
    }
}

/// A power cut at any moment of such a stop, and the half without room is lost: the other half has all
/// flushed data, or the volume is refused.
#[test]
fn power_cut_while_full_mirror_stops_loses_nothing() {
    let mut served = 0;
    for step in 0..60u64 {
        let full = step as usize % 2;
        let bench = bench(62, MIB * 16, MIB * 16);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let (faults, disks) = (bench.faults.clone(), bench.disks.clone());
        served += bench.run(async move {
            let policy = "raid1".to_owned();
            let how =
                CreateOptions { copies: 2, size: Some(MIB * 8), policy, span_size: MIB * 8, ..options(62) };
            let volume = make(world.clone(), all, &how).await;
            let write = async |extent: u64, value| {
                let bytes = filled(&arena, EXTENT, value);
                volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.unwrap();
            };
            for extent in 0..30 {
                write(extent, 1).await;
            }
            volume.flush().await.unwrap();
            let found = volume.explain(EXTENT * 3).unwrap();
            let places = [found.home, found.second.map(|(device, at, _)| (device, at))];
            let on_full = places.into_iter().flatten().find(|place| place.0 == DeviceId(full as u16));
            let slots = on_full.unwrap().1..on_full.unwrap().1 + EXTENT;
            faults[full].set(FaultPlan { no_room: Some(slots), ..FaultPlan::default() });
            write(3, 2).await;
            volume.flush().await.unwrap();
            let stop = async {
                volume.close().await.unwrap();
                None
            };
            let cut = async {
                world.sleep(Nanos::from_micros(step * 400)).await;
                Some(disks[1 - full].fork(&world))
            };
            let both: [Pin<Box<dyn Future<Output = _>>>; 2] = [Box::pin(stop), Box::pin(cut)];
            let left = join_all(both.into_iter()).await.into_iter().flatten().map(|disk| sound_one(&disk));
            match open(world.clone(), left.collect()).await {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Degraded, "step {step}: {error}");
                    0
                }
                Ok(volume) => {
                    for extent in 0..30 {
                        let value = if extent == 3 { 2 } else { 1 };
                        let is_there = holds(&volume, &arena, EXTENT * extent, EXTENT, value).await.unwrap();
                        assert!(is_there, "step {step}, extent {extent}");
                    }
                    volume.close().await.unwrap();
                    1
                }
            }
        });
    }
    assert!((1..60).contains(&served), "{served}");
}
