//! Devices that are sparse files on a file system which is full.

use crate::rig::cached::bench;
use crate::rig::{filled, holds, make, options, refused};
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
