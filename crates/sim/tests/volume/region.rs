//! Places of a part of the volume: every extent, or one of each step.

use crate::rig::{bench, filled, make, options};
use braid_base::{ExtentId, KIB};
use braid_engine::{CreateOptions, Durability, Export, Region, Tally};

/// Extents of the volume, the first half written.
const EXTENTS: u32 = 32;

#[test]
fn region_counts_every_extent_or_samples_one_of_each_step() {
    for copies in [1, 2] {
        let bench = bench(5_000 + u64::from(copies));
        let (world, devices, arena) = (bench.world.clone(), bench.devices(), bench.arena.clone());
        bench.run(async move {
            let volume = make(world.clone(), devices, &CreateOptions { copies, ..options(1) }).await;
            let (bytes, mut tally) = (filled(&arena, KIB * 128, 7), Tally::default());
            let empty = Region { examined: EXTENTS, ..Region::default() };
            assert_eq!(volume.region(0..EXTENTS, 1, None, &mut tally), empty);
            for extent in 0..u64::from(EXTENTS / 2) {
                volume.write(KIB * 128 * extent, &bytes, Durability::Fua).await.expect("a write succeeds");
            }
            let home = |extent: u32| volume.home(KIB * 128 * u64::from(extent));
            for device in volume.status().devices {
                let region = volume.region(0..EXTENTS, 1, Some(device.id), &mut tally);
                let homes = (0..EXTENTS).filter(|&extent| home(extent) == Some(device.id)).count() as u32;
                let copies_there = if copies == 2 { EXTENTS / 2 } else { homes };
                assert_eq!((region.mapped, region.on_device), (EXTENTS / 2, copies_there));
                assert_eq!((region.first_mapped, region.lost), (Some(ExtentId(0)), 0));
            }
            for step in [2, 4, 8, 16] {
                let region = volume.region(0..EXTENTS, step, None, &mut tally);
                assert_eq!((region.examined, region.mapped), (EXTENTS / step, EXTENTS / 2 / step));
                assert!(region.first_mapped.is_some_and(|extent| extent.0 < step));
            }
            let beyond = volume.region(EXTENTS - 3..u32::MAX, 2, None, &mut tally);
            assert_eq!((beyond.examined, beyond.mapped), (2, 0));
            volume.close().await.expect("the volume closes");
        });
    }
}
