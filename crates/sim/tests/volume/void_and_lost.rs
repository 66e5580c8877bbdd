//! A region of metadata is void on one half of a mirror, while the other half is being rebuilt, or is lost
//! next: the map must lie on a device that counts at every instant.

use crate::bad_regions::for_each;
use crate::rig::{Rig, filled, holds, open, open_with, options};
use braid_base::{Bytes, DeviceId, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::ops::Range;

const EXTENT: Bytes = Bytes(128 << 10);
/// Size of a device, and room for the superblocks at its end.
const SIZE: Bytes = Bytes(8 << 20);
const SUPERBLOCKS: Bytes = Bytes(128 << 10);

/// As large as the devices allow.
fn mirror() -> CreateOptions {
    CreateOptions { policy: "raid1".to_owned(), copies: 2, size: None, ..options(1) }
}

/// Copies of the disks in their present state, with all of their writes. The region is unwritable, and so is
/// everything behind `used` on its device: the region finds no other place.
fn killed(world: &World, disks: &[Disk], bad: &Region, used: Bytes) -> (Vec<Disk>, Vec<Faulty<Disk>>) {
    let forks: Vec<Disk> = disks.iter().map(|disk| disk.fork(world)).collect();
    let plan = FaultPlan {
        bad_writes: Some(bad.offset..bad.offset + bad.len),
        no_room: Some(used..SIZE - SUPERBLOCKS),
        ..FaultPlan::default()
    };
    let faults = |i| if DeviceId(i) == bad.device { plan.clone() } else { FaultPlan::default() };
    let handle =
        |(i, disk): (u16, &Disk)| Faulty::new(disk.clone(), &Faults::new(faults(i), world.fork_rng()));
    let handles = (0..).zip(&forks).map(handle).collect();
    (forks, handles)
}

/// From the first extent on a device to the end of the last.
fn slots(volume: &Rig, device: DeviceId) -> Range<Bytes> {
    let extents = 0..volume.size() / EXTENT;
    let places = extents.flat_map(|extent| {
        let told = volume.explain(EXTENT * extent).expect("within the volume");
        [told.home, told.second.map(|(device, at, _)| (device, at))].into_iter().flatten()
    });
    let places: Vec<Bytes> = places.filter(|(on, _)| *on == device).map(|(_, at)| at).collect();
    let last = places.iter().max().expect("a mirror has a copy of everything there");
    *places.iter().min().unwrap_or(last)..*last + EXTENT
}

/// End of the last extent on a device.
fn used(volume: &Rig, device: DeviceId) -> Bytes {
    slots(volume, device).end
}

async fn write(volume: &Rig, arena: &Arena, extent: u64, value: u8) -> bool {
    let bytes = filled(arena, EXTENT, value);
    volume.write(EXTENT * extent, &bytes, Durability::Fua).await.is_ok()
}

/// The required values; `None` after a failed write.
async fn check_all(volume: &Rig, arena: &Arena, values: &[Option<u8>], what: &str) {
    for (extent, value) in (0..).zip(values) {
        if let Some(value) = *value {
            let is_there = holds(volume, arena, EXTENT * extent, EXTENT, value).await;
            assert!(is_there.unwrap_or_else(|e| panic!("{what}: {e}")), "{what}: extent {extent}");
        }
    }
}

/// The regions of both halves.
fn regions(superblock: &Superblock) -> Vec<Region> {
    let kinds = [
        RegionKind::Map,
        RegionKind::Intents,
        RegionKind::DoubleWrite,
        RegionKind::Journal,
        RegionKind::Proof,
    ];
    superblock.regions.iter().filter(|region| kinds.contains(&region.kind)).copied().collect()
}

/// One half was being rebuilt, and a place of the journal was unwritable on the other half. The ring there
/// was given up, because the half under rebuild had a ring. Flushes succeeded, and after a crash neither
/// ring was read: flushed data was gone, and the volume passed for clean.
#[test]
fn bad_region_beside_rebuild_loses_no_flushed_data() {
    for_each((80, mirror()), regions, async |bench, volume, region| {
        let (world, arena) = (&bench.world, &bench.arena);
        let what = format!("{region}");
        let extents = volume.size() / EXTENT;
        let mut values = vec![];
        for extent in 0..extents {
            assert!(write(&volume, arena, extent, 1 + extent as u8).await, "{what}");
            values.push(Some(1 + extent as u8));
        }
        let used = used(&volume, region.device);
        volume.close().await.unwrap();
        let old = DeviceId(1 - region.device.0);
        let (disks, devices) = killed(world, &bench.disks, &region, used);
        // Bytes that belong to no extent.
        disks[old.index()].poke(MIB * 4, &vec![0xee; MIB.as_usize()]);
        let opened = open_with(world.clone(), devices, |options| options.distrust = vec![old]).await;
        let Ok((volume, _)) = opened else { return };
        for extent in 0..6 {
            let is_written = write(&volume, arena, extent, 100 + extent as u8).await;
            values[extent as usize] = is_written.then_some(100 + extent as u8);
            if extent == 2 {
                // A checkpoint meets places that a batch does not write.
                let _may_fail = volume.checkpoint().await;
            }
        }
        let (disks, devices) = killed(world, &disks, &region, used);
        let again = open(world.clone(), devices).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        check_all(&again, arena, &values, &what).await;
        world.sleep(Nanos::from_secs(60)).await;
        check_all(&again, arena, &values, &what).await;
        let (_, devices) = killed(world, &disks, &region, used);
        let again = open(world.clone(), devices).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        check_all(&again, arena, &values, &what).await;
    });
}

/// A region of one half became void after a crash, while both halves counted, and could not be reproduced.
/// Then the other half was taken out of use, with the only map, though a mirror survives the loss of either
/// half. The volume was closed without an error, and had no map.
#[test]
fn a_half_with_the_only_copy_of_a_region_is_not_taken_out_of_use() {
    let voids = for_each((80, mirror()), regions, async |bench, volume, region| {
        let (world, arena, mut voids) = (&bench.world, &bench.arena, 0);
        for fails in [true, false] {
            let what = format!("{region}, taken out: {fails}");
            let mut values = vec![];
            for extent in 0..volume.size() / EXTENT {
                assert!(write(&volume, arena, extent, 1 + extent as u8).await, "{what}");
                values.push(Some(1 + extent as u8));
            }
            let used = used(&volume, region.device);
            let other = 1 - region.device.index();
            // The other half misses a write, so that the volume cannot do without this half.
            let full = slots(&volume, DeviceId(other as u16));
            bench.faults[other].set(FaultPlan { no_room: Some(full), ..FaultPlan::default() });
            for extent in 0..volume.size() / EXTENT {
                assert!(write(&volume, arena, extent, 1 + extent as u8).await, "{what}");
            }
            bench.faults[other].set(FaultPlan::default());
            let (disks, mut devices) = killed(world, &bench.disks, &region, used);
            let faults = Faults::new(FaultPlan::default(), world.fork_rng());
            devices[other] = Faulty::new(disks[other].clone(), &faults);
            let volume = open(world.clone(), devices).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            volume.checkpoint().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            world.sleep(Nanos::from_secs(120)).await;
            check_all(&volume, arena, &values, &what).await;
            let is_void = volume.superblock().void_regions().count() > 0;
            voids += usize::from(is_void);
            if fails {
                match volume.fail_device(DeviceId(other as u16)).await {
                    Ok(()) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Degraded, "{what}: {error}"),
                }
            } else {
                faults.set(FaultPlan { vanished: true, ..FaultPlan::default() });
            }
            for extent in 0..6 {
                let is_written = write(&volume, arena, extent, 100 + extent as u8).await;
                values[extent as usize] = is_written.then_some(100 + extent as u8);
            }
            let _may_fail = volume.checkpoint().await;
            let is_closed = volume.close().await.is_ok();
            let outdated = volume.outdated_devices();
            let (disks, devices) = killed(world, &disks, &region, used);
            // The remaining half serves everything, or reports a missing device without any change.
            if !fails || !outdated.is_empty() {
                let left = vec![devices[region.device.index()].clone()];
                match open(world.clone(), left).await {
                    Ok(alone) => check_all(&alone, arena, &values, &what).await,
                    // Only now may an opening meet the place, as the only place of its kind.
                    Err(error) => {
                        assert!(
                            [ErrorKind::Degraded, ErrorKind::Io].contains(&error.kind()),
                            "{what}: {error}"
                        );
                        assert!(!is_closed || !is_void || outdated.is_empty(), "{what}: closed, and {error}");
                    }
                }
            }
            let (_, devices) = killed(world, &disks, &region, used);
            match open(world.clone(), devices).await {
                Ok(again) => check_all(&again, arena, &values, &what).await,
                // Two faults: the other half is older, and the place of the only map is bad.
                Err(error) if !fails && !outdated.is_empty() => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{what}")
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
        voids
    });
    assert!(voids.iter().sum::<usize>() > 0, "no region stayed void");
}
