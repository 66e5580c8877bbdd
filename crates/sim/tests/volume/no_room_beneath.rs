//! Devices that are sparse files on a file system which is full.

use crate::rig::cached::bench;
use crate::rig::{filled, holds, make, open, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_runtime::Runtime;
use braid_sim::FaultPlan;

const EXTENT: Bytes = Bytes(128 << 10);

/// The file system of the SSD was full, and new extents still went there: guests had no space, with the disk empty.
#[test]
fn new_extents_go_where_there_is_room() {
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
            // With no room anywhere guests hear so, and of the reason.
            let full = slots_from(1, new.clone().map(|extent| place(extent).1).min().unwrap());
            faults[1].set(FaultPlan { no_room: Some(full), ..FaultPlan::default() });
            let error = refused(write(new.end, 3).await);
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{policy}: {error}");
            // With room again, the SSD gets what has no other place at once, and its share after a while.
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

/// One half of a mirror lacked two extents, for want of room, and was lost after a clean stop: `serve` said that it
/// alone held what was written last to all other extents of the span.
#[test]
fn a_half_without_room_may_be_lost_after_a_clean_stop() {
    for full in 0..2 {
        let bench = bench(61, MIB * 16, MIB * 16);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let faults = bench.faults.clone();
        bench.run(async move {
            let policy = "raid1".to_owned();
            let how =
                CreateOptions { copies: 2, size: Some(MIB * 8), policy, span_size: MIB * 8, ..options(61) };
            let volume = make(world.clone(), all.clone(), &how).await;
            let write = async |extent: u64, value| {
                let bytes = filled(&arena, EXTENT, value);
                volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.unwrap();
            };
            for extent in 0..30 {
                write(extent, 1).await;
            }
            volume.flush().await.unwrap();
            let places = (0..30).flat_map(|extent| {
                let found = volume.explain(EXTENT * extent).unwrap();
                [found.home, found.second.map(|(device, at, _)| (device, at))].into_iter().flatten()
            });
            let on_full = places.filter(|place| place.0 == DeviceId(full as u16)).map(|place| place.1);
            let slots = on_full.min().unwrap()..MIB * 15;
            faults[full].set(FaultPlan { no_room: Some(slots), ..FaultPlan::default() });
            write(3, 2).await;
            write(29, 2).await;
            volume.flush().await.unwrap();
            assert!(volume.status().behind > Bytes::ZERO, "a half lacks what had no room");
            volume.close().await.unwrap();
            let left = all.into_iter().enumerate().filter(|(at, _)| *at != full).map(|(_, device)| device);
            let volume = open(world.clone(), left.collect()).await.unwrap();
            for extent in 0..30 {
                let value = if [3, 29].contains(&extent) { 2 } else { 1 };
                assert!(holds(&volume, &arena, EXTENT * extent, EXTENT, value).await.unwrap(), "{extent}");
            }
            volume.close().await.unwrap();
        });
    }
}
